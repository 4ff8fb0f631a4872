"""What weight files say about themselves, read without torch and without reading the weights."""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ModelError

_MOST_HEADER_BYTES = 100_000_000  # the limit of the safetensors format itself

# Causal masks and rotary frequencies, which older GPT-2, GPT-NeoX and Llama files keep beside the weights.
BUFFER = re.compile(r"(\.(attn|attention)\.(masked_)?bias|\.rotary_emb\.inv_freq)$")


@dataclass(frozen=True)
class Stored:
    """What the weight files hold."""

    parameters: int
    """Number of weights, buffers left out."""
    dtype: str
    """Storage type of most of the weights, in the file format's word: F32, F16, BF16, Q4_1, ..."""


def read_safetensors(files: list[Path]) -> Stored:
    """Count the weights of one model (all its shards) from the headers.

    Raises:
        ModelError: a file is truncated, has surplus bytes, or is not safetensors.
    """
    weights: Counter[str] = Counter()
    for file in files:
        for name, tensor in _safetensors_header(file).items():
            if not BUFFER.search(name):
                weights[tensor["dtype"]] += math.prod(tensor["shape"])
    if not weights:
        raise ModelError(f"{files[0].name} holds no tensors")
    return Stored(weights.total(), weights.most_common(1)[0][0])


def _safetensors_header(file: Path) -> dict[str, dict[str, Any]]:
    """Tensor name -> dtype, shape, data_offsets.

    A file is 8 bytes of length, that much JSON, then the data without gaps.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        if len(prefix) < 8:
            raise ModelError(f"{file.name} is truncated: {size} bytes; copy or download it again")
        (length,) = struct.unpack("<Q", prefix)
        if length > _MOST_HEADER_BYTES:
            raise ModelError(
                f"{file.name} is not a safetensors file: its header would be {length} bytes long"
            )
        if 8 + length > size:
            raise ModelError(
                f"{file.name} is truncated within its header: {size} bytes; copy or download it again"
            )
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
        end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    except (ValueError, AttributeError, TypeError, LookupError) as error:
        raise ModelError(f"{file.name} is not a safetensors file: its header cannot be read") from error
    whole = 8 + length + end
    if size != whole:
        what = "is truncated" if size < whole else "has bytes after its last tensor"
        raise ModelError(
            f"{file.name} {what}: {size} bytes where its header says {whole}; copy or download it again"
        )
    return tensors


# GGUF architecture -> model_type, for the families whose GGUF files transformers can turn back into modules.
_GGUF_FAMILIES = {name: name for name in ("gpt2", "llama", "mistral", "qwen2", "qwen3")}


@dataclass(frozen=True)
class GGUFFacts:
    """The metadata of a GGUF file, in the words of config.json."""

    config: dict[str, Any]
    """model_type, num_hidden_layers, hidden_size, vocab_size."""
    stored: Stored


def read_gguf(file: Path) -> GGUFFacts:
    """Read metadata and tensor table; takes seconds for a large vocabulary, so callers remember the result.

    Raises:
        ModelError: the file is truncated or not GGUF, or its architecture cannot be loaded.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        tensors = [
            (tensor.name, int(tensor.n_elements), tensor.tensor_type.name) for tensor in reader.tensors
        ]
    except (ValueError, LookupError, OSError, UnicodeDecodeError) as error:
        # The reader maps the file, so a cut file shows as a tensor that cannot be shaped from the bytes left.
        raise ModelError(f"{file.name} is truncated or not a GGUF file; copy or download it again") from error

    def value(key: str) -> Any:
        field = reader.get_field(key)
        if field is None:
            raise ModelError(f"{file.name} has no {key} in its metadata, so its shape is unknown")
        return field.contents()

    architecture = value("general.architecture")
    family = _GGUF_FAMILIES.get(architecture)
    if family is None:
        known = ", ".join(_GGUF_FAMILIES)
        raise ModelError(
            f"{file.name}: a GGUF file of architecture {architecture} cannot be measured (only {known})"
        )
    name = reader.get_field("general.name")
    if family == "llama" and name is not None and name.contents() == "mistral":
        family = (
            "mistral"  # llama.cpp files Mistral under llama, and transformers undoes it by this same rule
        )
    by_type: Counter[str] = Counter()
    for tensor_name, elements, kind in tensors:
        if tensor_name != "rope_freqs.weight":
            by_type[kind] += elements
    config = {
        "model_type": family,
        "num_hidden_layers": int(value(f"{architecture}.block_count")),
        "hidden_size": int(value(f"{architecture}.embedding_length")),
        "vocab_size": len(reader.fields["tokenizer.ggml.tokens"].data),
    }
    return GGUFFacts(config, Stored(by_type.total(), by_type.most_common(1)[0][0]))
