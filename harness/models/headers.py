"""What weight files say about themselves, read without torch and without reading the weights."""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ModelError
from harness.models.families import FAMILIES

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
    quantized: str | None = None
    """The types that are not floating point, with the share of the weights that each stores."""


def read_safetensors(files: list[Path], index: Mapping[str, str] | None = None) -> Stored:
    """Count the weights of one model (all its shards) from the headers.

    `index` says in which shard each tensor is; nothing is said of tensors that no index names, which loading notices.

    Raises:
        ModelError: a file is truncated, has surplus bytes, is not safetensors, or lacks what the index says it has.
    """
    weights: Counter[str] = Counter()
    found: dict[str, str] = {}
    for file in files:
        for name, dtype, shape in _safetensors_header(file):
            found[name] = file.name
            if not BUFFER.search(name):
                weights[dtype] += math.prod(shape)
    if not weights:
        raise ModelError(f"{files[0].name} holds no tensors")
    if astray := [(name, shard) for name, shard in (index or {}).items() if found.get(name) != shard]:
        name, shard = astray[0]
        more = f" and {len(astray) - 1} more" if len(astray) > 1 else ""
        where = f"it is in {found[name]}" if name in found else "no shard has it"
        raise ModelError(
            f"{shard} lacks {name}{more}, which the index says it holds ({where}); copy or download all shards again"
        )
    return Stored(weights.total(), weights.most_common(1)[0][0])


def safetensors_shapes(files: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """Tensor -> shape, from the headers. Raises ModelError as `read_safetensors` does."""
    return {name: shape for file in files for name, _, shape in _safetensors_header(file)}


def _safetensors_header(file: Path) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, storage type and shape of each tensor.

    A file is 8 bytes of length, that much JSON, then the data without gaps.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        if len(prefix) < 8:
            raise ModelError(f"{file.name} is truncated: {size} bytes; copy or download it again")
        (length,) = struct.unpack("<Q", prefix)
        if length > _MOST_HEADER_BYTES:
            raise ModelError(f"{file.name} is not a safetensors file: its header would be {length} bytes long")
        if 8 + length > size:
            raise ModelError(f"{file.name} is truncated within its header: {size} bytes; copy or download it again")
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        tensors = [(name, str(entry["dtype"]), tuple(map(int, entry["shape"]))) for name, entry in entries.items()]
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, AttributeError, TypeError, LookupError) as error:
        raise ModelError(f"{file.name} is not a safetensors file: its header cannot be read") from error
    whole = 8 + length + end
    if size != whole:
        what = "is truncated" if size < whole else "has bytes after its last tensor"
        raise ModelError(f"{file.name} {what}: {size} bytes where its header says {whole}; copy or download it again")
    return tensors


_FLOATING = ("F64", "F32", "F16", "BF16")
# GGUF architectures that transformers turns back into modules, named as their model_type (Mistral as llama).
_GGUF_FAMILIES = ("gpt2", "llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class GGUFFacts:
    """The metadata of a GGUF file, in the words of config.json."""

    config: dict[str, Any]
    """model_type, vocab_size, num_local_experts, and depth and width under the keys of the family."""
    stored: Stored


def read_gguf(file: Path) -> GGUFFacts:
    """Read metadata and tensor table; takes seconds for a large vocabulary, so callers remember the result.

    Raises:
        ModelError: the file is truncated or not GGUF, or its architecture cannot be loaded.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        tensors = [(tensor.name, int(tensor.n_elements), tensor.tensor_type.name) for tensor in reader.tensors]
    except (ValueError, LookupError, OSError, UnicodeDecodeError) as error:
        # The reader maps the file, so a cut file shows as a tensor that cannot be shaped from the bytes left.
        raise ModelError(f"{file.name} is truncated or not a GGUF file; copy or download it again") from error

    def value(key: str) -> Any:
        field = reader.get_field(key)
        if field is None:
            raise ModelError(f"{file.name} has no {key} in its metadata, so its shape is unknown")
        return field.contents()

    family = value("general.architecture")
    if family not in _GGUF_FAMILIES:
        known = ", ".join(_GGUF_FAMILIES)
        raise ModelError(f"{file.name}: a GGUF file of architecture {family} cannot be measured (only {known})")
    scaling = reader.get_field(f"{family}.rope.scaling.type")
    if any(name == "rope_freqs.weight" for name, _, _ in tensors) or (scaling and scaling.contents() != "none"):
        # transformers (5.24) would drop the scaling and give other numbers without a word.
        raise ModelError(f"{file.name} scales its rotary positions, which is lost in loading; give safetensors")
    experts = reader.get_field(f"{family}.expert_count")
    by_type: Counter[str] = Counter()
    for _, elements, kind in tensors:
        by_type[kind] += elements
    config = {
        "model_type": family,
        FAMILIES[family].depth_key: int(value(f"{family}.block_count")),
        FAMILIES[family].width_key: int(value(f"{family}.embedding_length")),
        "vocab_size": len(value("tokenizer.ggml.tokens")),
        "num_local_experts": int(experts.contents()) if experts else 0,
    }
    return GGUFFacts(config, Stored(by_type.total(), by_type.most_common(1)[0][0], _quantized(by_type)))


def _quantized(by_type: Counter[str]) -> str | None:
    """`Q4_1 79 %, Q8_0 21 %`; the type alone where it is the only one that is not floating point."""
    kinds = [(kind, count) for kind, count in by_type.most_common() if kind not in _FLOATING]
    if len(kinds) == 1:
        return kinds[0][0]
    return ", ".join(f"{kind} {100 * count / by_type.total():.0f} %" for kind, count in kinds) or None
