"""The files of a model on disk: which of a folder's files are its config, weights and tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ModelError

TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""Files that decide how text becomes tokens; a chat template does not."""
_VOCABULARIES = {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt"}

# In the order in which transformers looks for them.
_SAFE = ("model.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class ModelFiles:
    """A folder that has all that loading needs."""

    folder: Path
    config: dict[str, Any]
    """config.json as it stands."""
    weights: tuple[Path, ...]
    """One file, or the shards that an index names."""
    pickled: bool
    tokenizer: tuple[Path, ...]


def read_folder(folder: Path, name: str, *, allow_pickle: bool = False) -> ModelFiles:
    """Find the parts of the model in `folder`; `name` is what messages call it.

    Raises:
        ModelError: folder, config, weights or tokenizer are missing, or the weights are only a pickle.
    """
    if not folder.is_dir():
        raise ModelError(f"{name}: no such folder")
    config_file = folder / "config.json"
    if not config_file.is_file():
        if (folder / "adapter_config.json").is_file():
            raise ModelError(f"{name} is an adapter, not a model: merge it into its base model and save that")
        raise ModelError(f"{name} has no config.json, so it is not a model folder (save_pretrained writes one)")
    config = _read_json(config_file, name)
    present = {file.name for file in folder.iterdir()}
    leading = weight_entry(present, name, allow_pickle=allow_pickle)
    weights = _shards(folder, leading, name) if leading.endswith(".index.json") else (folder / leading,)
    tokenizer = tuple(folder / file for file in TOKENIZER_FILES if file in present)
    if not _VOCABULARIES & present:
        raise ModelError(
            f"{name} has no tokenizer: put tokenizer.json (or vocab.json and merges.txt) beside config.json"
        )
    return ModelFiles(folder, config, weights, leading in _PICKLED, tokenizer)


def weight_entry(present: set[str], name: str, *, allow_pickle: bool) -> str:
    """Which of the file names `present` the weights begin with: a single file or the index of its shards."""
    for file in _SAFE + (_PICKLED if allow_pickle else ()):
        if file in present:
            return file
    if present.intersection(_PICKLED):
        raise ModelError(
            f"{name} has its weights only as a pickle, which can run code when opened; "
            "add --allow-pickle if you trust where it comes from, or convert it to safetensors"
        )
    raise ModelError(f"{name} has no weights: neither model.safetensors nor an index of its shards")


def _shards(folder: Path, index: str, name: str) -> tuple[Path, ...]:
    table = _read_json(folder / index, name).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ModelError(f"{name}: {index} has no weight_map")
    shards = sorted({str(shard) for shard in table.values()})
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise ModelError(f"{name}: {len(missing)} of {len(shards)} weight shards are missing, {missing[0]} among them")
    return tuple(folder / shard for shard in shards)


def _read_json(file: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{name}: {file.name} cannot be read as JSON") from error
    if not isinstance(content, dict):
        raise ModelError(f"{name}: {file.name} holds no JSON object")
    return content
