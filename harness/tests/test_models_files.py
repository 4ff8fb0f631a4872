"""Shards and the index that names them, and folders that hold weights in another form than expected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.errors import ModelError
from harness.models.fingerprint import model_info
from harness.models.headers import read_gguf
from harness.models.sources import resolve_model
from harness.tests.models_on_disk import save_tiny
from harness.tests.test_models_gguf import write_tiny

INDEX = "model.safetensors.index.json"
TENSOR = "transformer.h.1.mlp.c_fc.weight"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A tiny GPT-2 in several shards."""
    folder = tmp_path / "tiny"
    save_tiny(folder).save_pretrained(folder, max_shard_size="8KB")
    (folder / "model.safetensors").unlink()
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    return folder


def refusal(folder: Path) -> str:
    """The one line, given before anything is written."""
    with pytest.raises(ModelError) as caught:
        model_info(resolve_model(str(folder)), folder.parent / "cache")
    assert "\n" not in str(caught.value)
    assert not (folder.parent / "cache").exists()
    return str(caught.value)


def shard_of(folder: Path, tensor: str = TENSOR) -> Path:
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][tensor]


def edit_index(folder: Path, edit: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((folder / INDEX).read_text())
    edit(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def test_a_shard_that_is_not_there_is_named(sharded: Path) -> None:
    shard = shard_of(sharded)
    shards = len(list(sharded.glob("*.safetensors")))
    shard.unlink()
    message = f"tiny: 1 of {shards} weight shards are missing, {shard.name} among them; copy or download them"
    assert refusal(sharded) == message


def test_a_tensor_that_its_shard_lacks_is_named(sharded: Path) -> None:
    shard = shard_of(sharded)
    tensors = load_file(shard)
    lost = sorted(tensors)
    tensors["another"] = torch.zeros(3)
    for name in lost:
        del tensors[name]
    save_file(tensors, shard)
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    found = refusal(sharded)
    assert found.startswith(f"{shard.name} lacks ")
    assert found.endswith(f"{more}, which the index says it holds (no shard has it); copy or download all shards again")


def test_shards_that_were_swapped_are_noticed(sharded: Path) -> None:
    mine = shard_of(sharded)
    other = next(shard for shard in sorted(sharded.glob("*.safetensors")) if shard != mine)
    content = mine.read_bytes()
    mine.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert f"(it is in {other.name})" in refusal(sharded) or f"(it is in {mine.name})" in refusal(sharded)


def test_an_index_that_names_a_tensor_of_no_shard_is_refused(sharded: Path) -> None:
    shard = shard_of(sharded).name
    edit_index(sharded, lambda table: table.update({"transformer.h.9.ghost": shard}))
    assert refusal(sharded).startswith(f"{shard} lacks transformer.h.9.ghost, which the index says it holds (no ")


def test_shards_without_their_index_are_told_from_no_weights(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    first = min(shard.name for shard in sharded.glob("*.safetensors"))
    assert refusal(sharded) == f"tiny has shards ({first}) but no {INDEX}; copy that file as well"


def test_a_folder_with_a_config_and_gguf_weights_says_which_path_to_give(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    (tmp_path / "tiny" / "model.safetensors").unlink()
    write_tiny(tmp_path / "tiny" / "small.gguf")
    message = "tiny has its weights as GGUF: give the path of that file, small.gguf, as the model"
    assert refusal(tmp_path / "tiny") == message


def test_a_quantized_minority_is_named_too(tmp_path: Path) -> None:
    """A file most of whose weights are floating point, as quantizers leave embeddings alone, is quantized still."""
    file = tmp_path / "mixed.gguf"
    write_tiny(file)
    assert read_gguf(file).stored.quantized is None
    whole = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(tmp_path / "again.gguf", "llama")
    for key in ("block_count", "embedding_length"):
        writer.add_uint32(f"llama.{key}", int(whole.get_field(f"llama.{key}").contents()))
    writer.add_token_list(whole.get_field("tokenizer.ggml.tokens").contents())
    counts = {"F32": 0, "Q8_0": 0, "Q4_0": 0}
    for tensor in whole.tensors:
        kind = "Q8_0" if "ffn_up" in tensor.name else "Q4_0" if "ffn_down" in tensor.name else "F32"
        values = np.asarray(tensor.data, dtype=np.float32)
        stored = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(tensor.name, gguf.quantize(values, stored) if kind != "F32" else values, raw_dtype=stored)
        counts[kind] += values.size
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shares = {kind: f"{100 * count / sum(counts.values()):.0f} %" for kind, count in counts.items()}
    stored = read_gguf(tmp_path / "again.gguf").stored
    assert stored.dtype == "F32"
    assert stored.quantized == f"Q8_0 {shares['Q8_0']}, Q4_0 {shares['Q4_0']}"
    info = model_info(resolve_model(str(tmp_path / "again.gguf")), tmp_path / "cache")
    assert info.quantization == f"{stored.quantized}, dequantized"
