"""Whether config, weights and tokenizer of a folder belong together, as far as JSON and headers tell.

Needs no torch, and comes before anything is hashed, so that a folder put together from two models is refused when it is
named. What only the loaded model shows is checked when it is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.errors import ModelError
from harness.models.families import Family
from harness.models.files import ModelFiles
from harness.models.headers import safetensors_shapes


def check_tokenizer(files: ModelFiles, rows: int, name: str) -> None:
    """Hold the ids of the vocabulary against the number of rows that the config gives the embedding.

    Tokens that were added to the vocabulary do not count: some models have one without a row, for text that they never
    see. Fewer tokens than rows are usual.

    Raises:
        ModelError: the tokenizer has ids beyond the embedding, or its file is damaged.
    """
    by_name = {file.name: file for file in files.tokenizer}
    file = by_name.get("tokenizer.json", by_name.get("vocab.json"))
    if file is None:
        return
    try:
        tokens, highest = _vocabulary(file)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"{name}: its tokenizer cannot be loaded: {file.name} is damaged; copy it again") from error
    if highest >= rows:
        numbered = "" if tokens > highest else f", numbered up to {highest}"
        raise ModelError(
            f"{name}: its tokenizer has {tokens} tokens{numbered}, its embedding only {rows} rows; "
            "give each model its own tokenizer"
        )


def _vocabulary(file: Path) -> tuple[int, int]:
    """How many tokens a vocabulary has, and the highest id."""
    content: Any = json.loads(file.read_text(encoding="utf-8"))
    table = content["model"]["vocab"] if file.name == "tokenizer.json" else content
    if isinstance(table, list):  # of a unigram model: tokens with their scores, in the order of their ids
        return len(table), len(table) - 1
    return len(table), max(map(int, table.values()))


def check_embedding(files: ModelFiles, family: Family, rows: int, name: str) -> None:
    """Hold the embedding's shape in the weight files against the config.

    Raises:
        ModelError: it is another one.
    """
    shapes = safetensors_shapes(files.weights)
    path = f"{family.embedding}.weight"
    shape = shapes.get(path, shapes.get(path.partition(".")[2]))  # a bare GPT2Model has no prefix
    wanted = (rows, files.config.get("word_embed_proj_dim") or family.width(files.config))
    if shape is not None and shape != wanted:
        raise ModelError(
            f"{name}: its embedding has (rows, width) {shape} in the weight files and {wanted} in config.json; "
            "take both from the same model"
        )
