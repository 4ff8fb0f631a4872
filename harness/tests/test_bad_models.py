"""Models that cannot be judged: one line on standard error, a usage error, no traceback, no report, no record.

Each goes through pytest as a user's would. Those of `NAMED` are known from JSON and headers alone, so that nothing at
all is written; those of `LOADED` show when the weights are read, and leave hashes in the cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.tests.models_on_disk import edit_config, edit_weights, into_pickle, save_tiny
from harness.tests.plugin_projects import Project
from harness.tests.test_models_gguf import write_tiny

INDEX = "model.safetensors.index.json"
MLP = "transformer.h.1.mlp.c_fc.weight"


def pickle_only(folder: Path) -> None:
    into_pickle(folder)


def remote_code(folder: Path) -> None:
    places = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}
    edit_config(folder, model_type="own", architectures=["OwnForCausalLM"], auto_map=places)
    (folder / "own.py").write_text(f"open({str(folder / 'was run')!r}, 'w')")


def another_vocabulary(folder: Path) -> None:
    save_tiny(folder, vocab_size=200)


def ids_beyond_the_embedding(folder: Path) -> None:
    """As many tokens as rows, but numbered with a gap."""
    table = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    table["model"]["vocab"]["<|endoftext|>"] = 300
    (folder / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def damaged_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")


def sharded(folder: Path) -> list[Path]:
    """Cut the weights into shards."""
    model = save_tiny(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="8KB")
    return sorted(folder.glob("model-*.safetensors"))


def missing_shard(folder: Path) -> None:
    sharded(folder)[1].unlink()


def shard_of_another_model(folder: Path) -> None:
    first, second, *_ = sharded(folder)
    second.write_bytes(first.read_bytes())


def cut_shard(folder: Path) -> None:
    shard = sharded(folder)[-1]
    shard.write_bytes(shard.read_bytes()[:-1])


def shards_without_index(folder: Path) -> None:
    sharded(folder)
    (folder / INDEX).unlink()


def cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def cut_header(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:200])


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def config_of_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("model_type: gpt2\n", encoding="utf-8")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def encoder(folder: Path) -> None:
    edit_config(folder, model_type="bert", architectures=["BertForMaskedLM"])


def encoder_decoder(folder: Path) -> None:
    edit_config(folder, model_type="t5", architectures=["T5ForConditionalGeneration"], is_encoder_decoder=True)


def experts(folder: Path) -> None:
    edit_config(folder, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=8)


def unknown_family(folder: Path) -> None:
    edit_config(folder, model_type="strange", architectures=["StrangeForCausalLM"])


def quantized(folder: Path) -> None:
    edit_config(folder, quantization_config={"quant_method": "gptq", "bits": 4})


def weights_of_another_width(folder: Path) -> None:
    edit_config(folder, n_embd=32)


def no_number_of_tokens(folder: Path) -> None:
    edit_config(folder, vocab_size=None)


NAMED: dict[Callable[[Path], object], str] = {
    pickle_only: "bad has its weights only as a pickle, *; add --allow-pickle if you trust *",
    remote_code: "bad (OwnForCausalLM) needs code from its repository, and that is never run",
    another_vocabulary: "bad: its tokenizer has 257 tokens, its embedding only 200 rows; give each model its own *",
    ids_beyond_the_embedding: "bad: its tokenizer has 257 tokens, numbered up to 300, its embedding only 257 rows; *",
    no_tokenizer: "bad has no tokenizer: put tokenizer.json (or vocab.json and merges.txt) beside config.json",
    damaged_tokenizer: "bad: its tokenizer cannot be loaded: tokenizer.json is damaged; copy it again",
    missing_shard: "bad: 1 of * weight shards are missing, model-00002-of-*.safetensors among them; copy or *",
    shard_of_another_model: "model-00002-of-*.safetensors lacks *, which the index says it holds (*); copy or *",
    cut_shard: "model-*.safetensors is truncated: * bytes where its header says *; copy or download it again",
    shards_without_index: f"bad has shards (model-00001-of-*.safetensors) but no {INDEX}; copy that file as well",
    cut_weights: "model.safetensors is truncated: * bytes where its header says *; copy or download it again",
    cut_header: "model.safetensors is truncated within its header: 200 bytes; copy or download it again",
    no_weights: "bad has no weights, neither model.safetensors nor an index of its shards: copy them beside *",
    config_of_no_json: "bad: config.json cannot be read as JSON; copy it again",
    no_config: "bad has no config.json, so it is not a model folder (save_pretrained writes one)",
    adapter: "bad is an adapter, not a model: merge it into its base model and save that",
    encoder: "bad (BertForMaskedLM) is not a causal language model",
    encoder_decoder: "bad (T5ForConditionalGeneration) is an encoder-decoder, not a causal language model",
    experts: "bad (MixtralForCausalLM) is a mixture of experts (*): its layers have no single MLP to replace",
    unknown_family: "bad: * family 'strange' is not known; see 'Add a model family' in *; known are *",
    quantized: "bad is quantized for a special library: give its float weights or a .gguf file",
    weights_of_another_width: "bad: its embedding has (rows, width) (257, 8) in the weight files and (257, 32) in *",
    no_number_of_tokens: "bad: config.json has vocab_size None, not a positive number; repair it",
}


def not_finite(folder: Path) -> None:
    weight = load_file(folder / "model.safetensors")[MLP].clone()
    weight[2, 3] = torch.inf
    edit_weights(folder, add={MLP: weight})


def lacking_a_tensor(folder: Path) -> None:
    edit_weights(folder, drop=MLP)


def surplus_tensor(folder: Path) -> None:
    edit_weights(folder, add={"transformer.h.3.mlp.c_fc.bias": torch.zeros(32)})


def another_inner_width(folder: Path) -> None:
    edit_config(folder, n_inner=48)


def heads_that_do_not_divide(folder: Path) -> None:
    edit_config(folder, n_head=3)


LOADED: dict[Callable[[Path], object], str] = {
    not_finite: f"bad: {MLP} holds numbers that are not finite in float32; the file is damaged",
    lacking_a_tensor: f"bad: its weights lack {MLP}; config and weights do not match",
    surplus_tensor: "bad: its weights hold, though the config has no place for it, transformer.h.3.mlp.c_fc.bias; *",
    another_inner_width: "bad: its weights have not the shape that the config asks for in transformer.h.0.mlp.*; *",
    heads_that_do_not_divide: "bad cannot be loaded: `embed_dim` must be divisible by num_heads *",
}


def judged(project: Project, model: str | Path, message: str) -> None:
    """Judge `model`, and hold what comes out of it to one line."""
    result = project.run("--model", model)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.strip()]
    pytest.LineMatcher([line]).fnmatch_lines([f"ERROR: {message}"])
    assert "Traceback" not in result.stdout.str()
    assert not (project.path / "out").exists()


@pytest.mark.parametrize("spoil", NAMED, ids=lambda spoil: spoil.__name__)
def test_it_is_refused_when_it_is_named(project: Project, spoil: Callable[[Path], object]) -> None:
    folder = project.model(name="bad")
    spoil(folder)
    judged(project, folder, NAMED[spoil])
    assert not (project.path / ".evidence").exists()
    assert not (folder / "was run").exists()


@pytest.mark.parametrize("spoil", LOADED, ids=lambda spoil: spoil.__name__)
def test_it_is_refused_when_it_is_loaded(project: Project, spoil: Callable[[Path], object]) -> None:
    folder = project.model(name="bad")
    spoil(folder)
    judged(project, folder, LOADED[spoil])
    assert [entry.name for entry in (project.path / ".evidence").iterdir()] == ["cache"]


def test_files_that_are_no_models(project: Project) -> None:
    (project.path / "notes.txt").write_text("not a model", encoding="utf-8")
    judged(project, project.path / "notes.txt", "notes.txt is a file, but a model is a folder with config.json or *")
    (project.path / "notes.gguf").write_text("not a model", encoding="utf-8")
    judged(project, project.path / "notes.gguf", "notes.gguf is truncated or not a GGUF file; copy or download it *")
    save_file({"a": torch.zeros(2)}, project.path / "model.safetensors")
    message = "model.safetensors is a file, but a model is a folder with config.json or *"
    judged(project, project.path / "model.safetensors", message)
    assert not (project.path / ".evidence").exists()


def test_a_cut_gguf_file(project: Project) -> None:
    file = project.path / "cut.gguf"
    write_tiny(file)
    file.write_bytes(file.read_bytes()[:-100])
    judged(project, file, "cut.gguf is truncated or not a GGUF file; copy or download it again")


def test_a_model_too_large_for_the_device(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.models.memory.free_bytes", lambda device: 3 * 2**28)
    monkeypatch.setattr("harness.models.memory.WORKING_BYTES", 2**30)
    judged(
        project,
        project.model(name="large"),
        "large needs 1.0 GiB in float32 on cpu, of which 0.8 GiB are free; add --device-map auto, or take a larger *",
    )


def test_a_hub_model_without_a_network(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(project.path / "hub"))
    judged(
        project, "owner/name", "owner/name is no folder here, not in the local cache, *: unset it, or give a folder *"
    )
    assert not (project.path / "hub").exists()
