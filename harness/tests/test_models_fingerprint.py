"""What `model_info` tells about a folder, what changes a fingerprint, and what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from harness.errors import ModelError
from harness.models.families import FAMILIES
from harness.models.fingerprint import ModelInfo, check_config, model_info
from harness.models.sources import resolve_model
from harness.models.structure import find_parts
from harness.tests.models_on_disk import edit_config, edit_weights, into_pickle, save_tiny


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of the tiny GPT-2 that a test may spoil."""
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def info_of(folder: Path, *, allow_pickle: bool = False) -> ModelInfo:
    return model_info(resolve_model(str(folder), allow_pickle=allow_pickle), folder.parent / "cache")


@pytest.mark.parametrize(
    ("family", "config", "parallel"),
    [
        ("gpt2", {}, False),
        ("gpt_neox", {}, True),
        ("gpt_neox", {"use_parallel_residual": False}, False),
        ("llama", {"tie_word_embeddings": True}, False),
    ],
)
def test_shape_and_size_are_those_of_the_model(family: str, config: dict, parallel: bool, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "tiny", family, dtype=torch.float16, **config)
    info = info_of(tmp_path / "tiny")
    assert (info.family, info.layers, info.width, info.vocabulary) == (family, 3, 16, 257)
    assert info.parallel is parallel
    assert info.parameters == model.num_parameters()  # a tied head counts once
    assert (info.stored, info.quantization) == ("F16", None)


def test_buffers_of_old_checkpoints_are_not_parameters(folder: Path) -> None:
    before = info_of(folder).parameters
    edit_weights(folder, add={"transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64)})
    assert info_of(folder).parameters == before


def test_a_report_gets_names_and_no_paths(folder: Path) -> None:
    info = info_of(folder)
    text = json.dumps(info.as_dict())
    assert str(folder.parent) not in text
    assert json.loads(text)["location_name"] == info.name == "tiny"
    assert json.loads(text)["fingerprint"] == info.fingerprint


def test_one_weight_file_has_the_hash_that_the_hub_shows(folder: Path) -> None:
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert info_of(folder).weights_sha256 == digest


def test_a_copy_has_the_same_fingerprint_whoever_wrote_its_config(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "elsewhere" / "copy"))
    edit_config(copy, transformers_version="4.0.0", _name_or_path="somewhere", dtype=None)
    assert info_of(copy).fingerprint == info_of(folder).fingerprint


def test_weights_config_and_tokenizer_each_change_the_fingerprint(folder: Path) -> None:
    seen = {info_of(folder).fingerprint}
    edit_weights(folder, add={"transformer.ln_f.bias": torch.ones(16)})
    seen.add(info_of(folder).fingerprint)
    edit_config(folder, layer_norm_epsilon=1e-6)
    seen.add(info_of(folder).fingerprint)
    (folder / "special_tokens_map.json").write_text('{"bos_token": "a"}')
    seen.add(info_of(folder).fingerprint)
    assert len(seen) == 4


def test_shards_count_as_one_model(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "tiny", "llama")
    whole = info_of(tmp_path / "tiny")
    (tmp_path / "tiny" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "tiny", max_shard_size="8KB")
    shards = sorted((tmp_path / "tiny").glob("model-*.safetensors"))
    assert len(shards) > 2
    sharded = info_of(tmp_path / "tiny")
    assert sharded.parameters == whole.parameters
    assert sharded.weights_sha256 not in {whole.weights_sha256, info_of_first(shards)}
    shards[1].unlink()
    with pytest.raises(ModelError, match=rf"1 of {len(shards)} weight shards are missing, {shards[1].name}"):
        info_of(tmp_path / "tiny")


def info_of_first(shards: list[Path]) -> str:
    return hashlib.sha256(shards[0].read_bytes()).hexdigest()


def test_an_unchanged_file_is_hashed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    digest = hashlib.file_digest

    def counting(stream, kind):  # type: ignore[no-untyped-def]
        hashed.append(Path(stream.name).name)
        return digest(stream, kind)

    monkeypatch.setattr(hashlib, "file_digest", counting)
    first = info_of(folder)
    assert "model.safetensors" in hashed
    hashed.clear()
    assert info_of(folder) == first
    assert hashed == []
    edit_weights(folder, add={"transformer.ln_f.bias": torch.ones(16)})
    assert info_of(folder).weights_sha256 != first.weights_sha256
    assert hashed == ["model.safetensors"]


@pytest.mark.parametrize("damage", ["", "{", '{"identity": "another"}', "[]", '{"identity": 3, "result": 4}'])
def test_a_damaged_cache_costs_a_second_reading_only(folder: Path, damage: str) -> None:
    first = info_of(folder)
    entries = list((folder.parent / "cache").iterdir())
    assert entries
    for entry in entries:
        entry.write_text(damage)
    assert info_of(folder) == first


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path) -> None:
    (folder.parent / "cache").write_text("a file where the folder should be")
    assert info_of(folder).layers == 3
    assert (folder.parent / "cache").is_file()


def spoil_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def spoil_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')


def only_adapter(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").touch()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "tiny: no such folder"),
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (only_adapter, "is an adapter"),
        (spoil_config, "config.json cannot be read as JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "holds no JSON object"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        (spoil_index, "has no weight_map"),
        (into_pickle, "add --allow-pickle if you trust"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
        (lambda folder: edit_config(folder, n_layer=None), "'n_layer' is None"),
        (lambda folder: edit_config(folder, vocab_size="many"), "vocab_size 'many'"),
    ],
)
def test_a_folder_that_lacks_a_part_is_refused_in_one_line(spoil, message: str, folder: Path) -> None:  # type: ignore[no-untyped-def]
    source = resolve_model(str(folder))
    spoil(folder)
    with pytest.raises(ModelError) as caught:
        model_info(source, folder.parent / "cache")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(folder) not in str(caught.value)


def test_a_pickle_is_hashed_but_not_opened_when_it_is_allowed(folder: Path) -> None:
    into_pickle(folder)
    (folder / "pytorch_model.bin").write_bytes(b"no pickle at all")
    info = info_of(folder, allow_pickle=True)
    assert info.weights_sha256 == hashlib.sha256(b"no pickle at all").hexdigest()
    assert (info.parameters, info.stored) == (None, None)


@pytest.mark.parametrize("kept", [0, 4, 8, 60, -4096, -1])
def test_a_truncated_file_is_named_before_torch_sees_it(kept: int, folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"model\.safetensors is truncated.* bytes.*again"):
        info_of(folder)


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "tiny", "llama")
    (tmp_path / "tiny" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "tiny", max_shard_size="8KB")
    shard = sorted((tmp_path / "tiny").glob("model-*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ModelError, match=f"{shard.name} is truncated"):
        info_of(tmp_path / "tiny")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff" * 64, "is not a safetensors file"),
        (b"\x10" + b"\0" * 7 + b"{not json at all", "is not a safetensors file"),
        (b"\x0b" + b"\0" * 7 + b'{"a": [12]}', "is not a safetensors file"),
        (b"\x0e" + b"\0" * 7 + b'{"a":{"dt": 1}}'[:14], "is not a safetensors file"),
        (b"\x02" + b"\0" * 7 + b"{}", "holds no tensors"),
        (b"\x02" + b"\0" * 7 + b"{}surplus", "has bytes after its last tensor"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "is not a safetensors file"),
    ],
)
def test_what_is_not_safetensors_is_refused(content: bytes, message: str, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        info_of(folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "bert", "architectures": ["BertModel"]},
            "(BertModel) is not a causal language model",
        ),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "is not a causal language model"),
        (
            {"model_type": "gpt2", "architectures": ["GPT2ForSequenceClassification"]},
            "is not a causal language model",
        ),
        ({"model_type": "t5", "is_encoder_decoder": True}, "is an encoder-decoder"),
        (
            {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8},
            "(MixtralForCausalLM) is a mixture of experts (num_local_experts is 8)",
        ),
        (
            {"model_type": "mamba", "architectures": ["MambaForCausalLM"]},
            "family 'mamba' is not known; see 'Add a model family' in CONTRIBUTING.md; known are apertus, ",
        ),
        ({"model_type": "brandnew"}, "family 'brandnew' is not known"),
        ({}, "family None is not known"),
        (
            {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": {"AutoModel": "own.Own"}},
            "needs code from its repository, and that is never run",
        ),
        (
            {"model_type": "opt", "architectures": ["OPTForCausalLM"], "do_layer_norm_before": False},
            "(OPTForCausalLM) cannot be measured: its blocks norm after the MLP",
        ),
        (
            {"model_type": "opt", "hidden_size": 1024, "word_embed_proj_dim": 512},
            "it projects embeddings of width 512 to 1024 and back",
        ),
        (
            {"model_type": "bloom", "slow_but_exact": True, "pretraining_tp": 4},
            "splits its MLP's second matrix (slow_but_exact)",
        ),
        (
            {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": {}},
            "(Gemma3ForConditionalGeneration) is not a causal language model",
        ),
        (
            {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 128},
            "(Qwen3MoeForCausalLM) is a mixture of experts (num_experts is 128)",
        ),
        (
            {"model_type": "deepseek_v3", "n_routed_experts": 256},
            "is a mixture of experts (n_routed_experts is 256)",
        ),
        (
            {"model_type": "exaone_moe", "architectures": ["ExaoneMoeForCausalLM"], "num_hidden_layers": 2},
            "mixture of experts",
        ),
        (
            {"model_type": "llama", "quantization_config": {"quant_method": "gptq"}},
            "is quantized for a special",
        ),
    ],
)
def test_a_model_that_cannot_be_measured_is_refused_for_what_it_is(config: dict, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        judge_config(config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def judge_config(config: dict) -> None:
    """What becomes of a config before any weight is read."""
    check_config(config, "thing")
    if config.get("model_type") not in FAMILIES:
        find_parts(config, "thing")


@pytest.mark.parametrize("architectures", [["GPT2LMHeadModel"], ["GPT2Model"], [], None])
def test_causal_models_pass_by_whichever_class_they_were_saved(architectures: list[str] | None) -> None:
    check_config({"model_type": "gpt2", "architectures": architectures}, "thing")
