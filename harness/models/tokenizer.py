"""A model's tokenizer, loaded without its weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ModelError
from harness.models.hub import snapshot
from harness.models.sources import ModelSource

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """The tokenizer as its files have it, with its own habit of putting a BOS token in front, or not.

    Imports transformers, so only a run that must tokenize or load calls it.

    Raises:
        ModelError: the files are missing or cannot be read, or need remote code.
    """
    from transformers import AutoTokenizer

    from harness.models.quiet import quiet_transformers

    place = Path(source.location)
    if source.kind == "hub":
        place, _ = snapshot(source)
    with quiet_transformers():
        try:
            if source.kind == "gguf":
                return AutoTokenizer.from_pretrained(place.parent, gguf_file=place.name)
            return AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=True)
        except Exception as error:  # transformers has no base class for what a damaged file can raise
            raise ModelError(f"{source.name}: its tokenizer cannot be loaded: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """A library's message cut to one line of at most 200 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
