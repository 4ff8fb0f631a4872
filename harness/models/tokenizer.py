"""A model's tokenizer, loaded without its weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ModelError
from harness.models.hub import snapshot
from harness.models.quiet import first_line, quiet_transformers
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
