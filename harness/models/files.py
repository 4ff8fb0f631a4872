"""The files of a model on disk: which of a folder's files are its config, weights and tokenizer."""

from __future__ import annotations

import json
import re
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
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")


@dataclass(frozen=True)
class ModelFiles:
    """A folder that has all that loading needs."""

    folder: Path
    config: dict[str, Any]
    """config.json as it stands."""
    weights: tuple[Path, ...]
    """One file, or the shards that an index names."""
    index: dict[str, str]
    """Tensor -> the shard that the index says it is in; empty where there is a single file."""
    pickled: bool
    tokenizer: tuple[Path, ...]


def read_folder(folder: Path, name: str, *, allow_pickle: bool = False) -> ModelFiles:
    """Find the parts of the model in `folder`; `name` is what messages call it.

    Raises:
        ModelError: folder, config, weights or tokenizer are missing, or the weights are only a pickle.
    """
    if not folder.is_dir():
        raise ModelError(f"{name}: no such folder")
    config = read_config(folder, name)
    present = {file.name for file in folder.iterdir()}
    leading = weight_entry(present, name, allow_pickle=allow_pickle)
    index = _index(folder, leading, name) if leading.endswith(".index.json") else {}
    weights = tuple(folder / shard for shard in sorted(set(index.values()))) or (folder / leading,)
    tokenizer = tuple(folder / file for file in TOKENIZER_FILES if file in present)
    if not _VOCABULARIES & present:
        raise ModelError(
            f"{name} has no tokenizer: put tokenizer.json (or vocab.json and merges.txt) beside config.json"
        )
    return ModelFiles(folder, config, weights, index, leading in _PICKLED, tokenizer)


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """config.json as it stands.

    Raises:
        ModelError: there is none, or it is not a JSON object.
    """
    if not (folder / "config.json").is_file():
        if (folder / "adapter_config.json").is_file():
            raise ModelError(f"{name} is an adapter, not a model: merge it into its base model and save that")
        raise ModelError(f"{name} has no config.json, so it is not a model folder (save_pretrained writes one)")
    return _read_json(folder / "config.json", name)


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
    if quantized := sorted(file for file in present if file.endswith(".gguf")):
        raise ModelError(f"{name} has its weights as GGUF: give the path of that file, {quantized[0]}, as the model")
    if shards := sorted(file for file in present if _SHARD.fullmatch(file)):
        raise ModelError(f"{name} has shards ({shards[0]}) but no model.safetensors.index.json; copy that file as well")
    raise ModelError(
        f"{name} has no weights, neither model.safetensors nor an index of its shards: copy them beside config.json"
    )


def _index(folder: Path, file: str, name: str) -> dict[str, str]:
    """Tensor -> shard, all of which are there."""
    table = _read_json(folder / file, name).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ModelError(f"{name}: {file} has no weight_map")
    shards = sorted({str(shard) for shard in table.values()})
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise ModelError(
            f"{name}: {len(missing)} of {len(shards)} weight shards are missing, {missing[0]} among them; "
            "copy or download them"
        )
    return {str(tensor): str(shard) for tensor, shard in table.items()}


def _read_json(file: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{name}: {file.name} cannot be read as JSON; copy it again") from error
    if not isinstance(content, dict):
        raise ModelError(f"{name}: {file.name} holds no JSON object")
    return content
