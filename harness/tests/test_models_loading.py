"""Loading: exactly the weights on disk, nothing random, nothing run, and one line where that fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from harness.errors import ModelError
from harness.models.fingerprint import model_info
from harness.models.loading import Subject, choose_device, full_float32, load
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.tests.models_on_disk import edit_config, edit_weights, into_pickle, save_tiny


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    save_tiny(root / "gpt2")
    save_tiny(root / "gpt_neox", "gpt_neox")
    return root


@pytest.fixture
def gpt2(saved: Path, tmp_path: Path) -> Path:
    """A copy of a tiny GPT-2 (head tied to the embedding) that a test may spoil."""
    return Path(shutil.copytree(saved / "gpt2", tmp_path / "tiny"))


@pytest.fixture
def gpt_neox(saved: Path, tmp_path: Path) -> Path:
    """The same for a GPT-NeoX, whose head is its own."""
    return Path(shutil.copytree(saved / "gpt_neox", tmp_path / "tiny-neox"))


def load_folder(folder: Path, *, allow_pickle: bool = False, **options: str) -> Subject:
    source = resolve_model(str(folder), allow_pickle=allow_pickle)
    info = model_info(source, folder.parent / "cache")
    return load(source, info, allow_pickle=allow_pickle, **options)  # type: ignore[arg-type]


def refusal(folder: Path, **options: str) -> str:
    with pytest.raises(ModelError) as caught:
        load_folder(folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "llama"])
def test_half_precision_files_load_as_the_same_numbers_in_float32(family: str, tmp_path: Path) -> None:
    saved = save_tiny(tmp_path / "tiny", family, dtype=torch.float16)
    subject = load_folder(tmp_path / "tiny")
    parameters = dict(subject.model.named_parameters())
    assert set(parameters) == set(dict(saved.named_parameters()))
    for name, weight in saved.named_parameters():
        assert parameters[name].dtype == torch.float32
        assert torch.equal(parameters[name], weight.float())


def test_a_subject_is_ready_to_be_measured(gpt2: Path) -> None:
    subject = load_folder(gpt2)
    assert not subject.model.training
    assert not any(parameter.requires_grad for parameter in subject.model.parameters())
    assert subject.model.config._attn_implementation == "sdpa"
    assert not subject.model.config.use_cache
    assert (subject.device, subject.dtype) == (torch.device("cpu"), torch.float32)
    assert subject.anatomy.layers == subject.info.layers == 3
    ids = torch.tensor([subject.tokenizer("né").input_ids])
    assert ids.shape == (1, 3)  # bytes, and nothing in front
    first, second = (subject.model(input_ids=ids).logits for _ in range(2))
    assert torch.equal(first, second)  # dropout is off
    assert torch.isfinite(first).all()


def test_a_lower_precision_is_had_by_asking(gpt2: Path) -> None:
    subject = load_folder(gpt2, dtype="bfloat16")
    assert subject.dtype == torch.bfloat16
    assert {parameter.dtype for parameter in subject.model.parameters()} == {torch.bfloat16}
    assert "--dtype int8 is not one of float32, " in refusal(gpt2, dtype="int8")


def test_loading_switches_tf32_off(gpt2: Path) -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    load_folder(gpt2)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_loading_is_quiet_and_leaves_the_callers_settings(gpt2: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    logging.enable_progress_bar()
    logging.set_verbosity_info()
    try:
        load_folder(gpt2)
        assert logging.is_progress_bar_enabled()
        assert logging.get_verbosity() == logging.INFO
    finally:
        logging.set_verbosity_warning()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["transformer.h.1.mlp.c_fc.weight", "transformer.ln_f.bias", "transformer.wte.weight"])
def test_a_missing_weight_is_never_made_up(name: str, gpt2: Path) -> None:
    edit_weights(gpt2, drop=name)
    assert "its weights lack " in refusal(gpt2)


def test_a_missing_head_is_made_up_only_where_it_is_tied(gpt2: Path, gpt_neox: Path) -> None:
    subject = load_folder(gpt2)
    assert subject.model.lm_head.weight is subject.model.transformer.wte.weight
    edit_weights(gpt_neox, drop="embed_out.weight")
    assert "its weights lack " in refusal(gpt_neox)


def test_more_layers_in_the_config_than_in_the_files(gpt_neox: Path) -> None:
    edit_config(gpt_neox, num_hidden_layers=4)
    assert "lack gpt_neox.layers.3." in refusal(gpt_neox)


def test_fewer_layers_in_the_config_than_in_the_files(gpt_neox: Path) -> None:
    edit_config(gpt_neox, num_hidden_layers=2)
    assert "no place for it, gpt_neox.layers.2." in refusal(gpt_neox)


def test_a_weight_of_another_shape_is_named(gpt2: Path) -> None:
    edit_weights(gpt2, add={"transformer.h.1.mlp.c_proj.bias": torch.zeros(5)})
    assert "not the shape that the config asks for in transformer.h.1.mlp.c_proj.bias;" in refusal(gpt2)


def test_buffers_of_old_checkpoints_do_not_disturb(gpt2: Path, gpt_neox: Path) -> None:
    edit_weights(gpt2, add={"transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64)})
    edit_weights(
        gpt_neox,
        add={
            "gpt_neox.layers.0.attention.bias": torch.ones(1, 1, 64, 64),
            "gpt_neox.layers.0.attention.masked_bias": torch.tensor(-1e9),
            "gpt_neox.layers.0.attention.rotary_emb.inv_freq": torch.ones(2),
        },
    )
    assert load_folder(gpt2).info.family == "gpt2"
    assert load_folder(gpt_neox).info.family == "gpt_neox"


def test_a_config_that_transformers_refuses_gives_its_reason(gpt2: Path) -> None:
    edit_config(gpt2, n_head=5)
    message = refusal(gpt2)
    assert message.startswith("tiny cannot be loaded: ")
    assert len(message) < 300


def test_a_damaged_tokenizer_is_refused(gpt2: Path) -> None:
    (gpt2 / "tokenizer.json").write_text("{}")
    assert "its tokenizer cannot be loaded: " in refusal(gpt2)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny", vocab_size=100)
    assert "its tokenizer has 257 tokens, its embedding only 100 rows" in refusal(tmp_path / "tiny")


def test_a_pickle_is_opened_only_when_allowed_twice(gpt2: Path, saved: Path) -> None:
    into_pickle(gpt2)
    source = resolve_model(str(gpt2), allow_pickle=True)
    info = model_info(source, gpt2.parent / "cache")
    with pytest.raises(ModelError, match="only as a pickle; add --allow-pickle"):
        load(source, info)
    subject = load(source, info, allow_pickle=True)
    whole = load_folder(Path(shutil.copytree(saved / "gpt2", gpt2.parent / "whole")))
    for name, weight in whole.model.named_parameters():
        assert torch.equal(subject.model.get_parameter(name), weight)


def test_a_pickle_that_would_run_code_is_refused_even_then(gpt2: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return Path.touch, (tmp_path / "exploded",)

    into_pickle(gpt2)
    torch.save({"transformer.wte.weight": Bomb()}, gpt2 / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_folder(gpt2, allow_pickle=True)
    assert not (tmp_path / "exploded").exists()


def test_code_in_a_model_folder_is_never_run(gpt2: Path, tmp_path: Path) -> None:
    marker = tmp_path / "was run"
    (gpt2 / "own.py").write_text(f"open({str(marker)!r}, 'w')")
    places = {
        "AutoModelForCausalLM": "own.Own",
        "AutoConfig": "own.OwnConfig",
        "AutoTokenizer": ["own.T", "own.T"],
    }
    edit_config(gpt2, auto_map=places)
    tokenizer = gpt2 / "tokenizer_config.json"
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()) | {"auto_map": places}))
    assert type(load_folder(gpt2).model).__name__ == "GPT2LMHeadModel"  # the library's own class of that name
    assert not marker.exists()


def test_a_tokenizers_own_bos_is_kept(gpt2: Path) -> None:
    table = json.loads((gpt2 / "tokenizer.json").read_text(encoding="utf-8"))
    table["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [256], "tokens": ["<|endoftext|>"]}},
    }
    (gpt2 / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")
    ids = load_tokenizer(resolve_model(str(gpt2)))("ab").input_ids
    assert ids[0] == 256
    assert len(ids) == 3


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("cpu") == choose_device("auto") == torch.device("cpu")
    for device in ("cuda", "cuda:1"):
        with pytest.raises(ModelError) as caught:
            choose_device(device)
        assert str(caught.value) == "no CUDA device; add --device cpu to run on the CPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    for device in ("cuda:2", "cuda:x"):
        with pytest.raises(ModelError, match="there are 2, counted from cuda:0"):
            choose_device(device)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ModelError, match="no MPS device; add --device cpu"):
        choose_device("mps")
    with pytest.raises(ModelError, match="--device tpu is not auto, cpu, cuda, cuda:N or mps"):
        choose_device("tpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_float32_products_are_full_on_cuda() -> None:
    full_float32()
    torch.manual_seed(0)
    x = torch.randn(512, 512)
    exact = x.double() @ x.double()
    error = ((x.cuda() @ x.cuda()).cpu() - exact).abs().max()
    assert error < 1e-3  # TF32: about 3e-2
