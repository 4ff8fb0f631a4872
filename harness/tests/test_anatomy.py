"""What the table of families promises, held against the models that transformers builds."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.auto import CONFIG_MAPPING

from harness.errors import ModelError
from harness.models.anatomy import Anatomy
from harness.models.families import FAMILIES, family_of
from harness.tests.tiny_models import (
    LAYERS,
    MODELS,
    POSITIONS,
    VOCABULARY,
    WIDTH,
    ragged_windows,
    tiny_model,
)

PARALLEL = {
    *("gpt_neox parallel", "falcon 7b", "falcon 40b", "falcon 11b", "gptj", "phi", "stablelm parallel"),
    *("codegen", "cohere", "cohere2"),
}
ADDED_POSITIONS = {"gpt2", "gpt_neo", "opt", "biogpt", "gpt_bigcode"}
NO_NORM = {"olmo2", "olmo3", "exaone4"}
UNGATED = {
    *("gpt2", "gpt_neox parallel", "gpt_neox sequential", "bloom", "bloom residual normed", "falcon 7b"),
    *("falcon 40b", "falcon 11b", "falcon rw", "gpt_neo", "gptj", "opt", "phi", "starcoder2", "apertus", "arcee"),
    *("biogpt", "codegen", "gpt_bigcode", "jais2", "mpt", "nanochat", "nemotron", "persimmon", "xglm"),
}
BRANCHES = {"gemma2", "gemma3", "granite", *NO_NORM, "glm4"}
NO_POSITION_IDS = {"bloom", "bloom residual normed", "gpt_neo", "gpt_bigcode", "mpt", "xglm"}
"""Whose blocks are not told the positions."""


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_family_is_tested() -> None:
    assert {model_type for model_type, _ in MODELS.values()} == set(FAMILIES)


def test_shapes(name: str) -> None:
    model = tiny_model(name)
    config, it = model.config.to_dict(), Anatomy.of(model)
    family = family_of(config)
    assert (it.layers, it.width) == (LAYERS, WIDTH)
    assert (family.layers(config), family.width(config)) == (LAYERS, WIDTH)
    assert family.parallel(config) == it.parallel == (name in PARALLEL)
    assert it.embedding is model.get_input_embeddings()
    assert it.head is model.get_output_embeddings()
    assert (it.position is not None) == (name in ADDED_POSITIONS)
    assert it.positions == (POSITIONS if name in ADDED_POSITIONS else None)
    assert it.head(torch.zeros(2, WIDTH)).shape == (2, VOCABULARY)


def test_how_blocks_and_mlps_are_called(name: str) -> None:
    """The engine relies on it: the stream first and by position, a tensor back, arguments of batch 1."""
    model = tiny_model(name)
    it = Anatomy.of(model)
    calls: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any], Any]] = []

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        calls.append((module, args, kwargs, out))

    expected: list[nn.Module] = []
    for layer in range(LAYERS):
        norm, entry, exit = it.norm(layer), it.entry(layer), it.exit(layer)
        assert (norm is None) == (name in NO_NORM)
        whole = entry is exit  # a hook each, else the MLP would be recorded twice
        expected += [m for m in (norm, entry, None if whole else exit, it.blocks[layer]) if m is not None]
    for module in expected:
        module.register_forward_hook(record, with_kwargs=True)
    ids = torch.stack(ragged_windows(9, 9, 9))
    hidden = model.base_model(ids, use_cache=False).last_hidden_state

    assert [module for module, *_ in calls] == expected  # each once and in this order
    stream: Tensor | None = None
    for layer in range(LAYERS):
        of_layer = dict(zip(map(id, expected), calls, strict=True))
        _, mlp_args, mlp_kwargs, _ = of_layer[id(it.entry(layer))]
        *_, y = of_layer[id(it.exit(layer))]
        _, args, kwargs, h = of_layer[id(it.blocks[layer])]
        h = h[0] if isinstance(h, tuple) else h
        assert isinstance(h, Tensor)
        assert h.shape == args[0].shape == (3, 9, WIDTH)
        assert y.shape == mlp_args[0].shape == ((27, WIDTH) if name == "opt" else (3, 9, WIDTH))
        assert mlp_kwargs == {}
        assert len(mlp_args) == 1
        if it.norm(layer) is not None:
            _, norm_args, _, normed = of_layer[id(it.norm(layer))]
            assert mlp_args[0] is normed  # nothing between norm and MLP
            assert torch.equal(norm_args[0].view_as(args[0]), args[0]) == it.parallel
        assert not kwargs.get("use_cache")
        assert kwargs.get("cache") is None
        # Only a mask (and OPT's positions) may have one entry a window; position embeddings serve any batch.
        assert ("position_ids" in kwargs) == (name not in NO_POSITION_IDS)
        assert kwargs.get("position_ids", ids[:1]).shape == (3 if name == "opt" else 1, 9)
        assert all(part.shape[0] == 1 for part in kwargs.get("position_embeddings") or ())
        if kwargs.get("alibi") is not None:
            assert kwargs["alibi"].shape[0] == (12 if "alibi" in it.family.stacked else 3)
        if stream is not None:
            assert args[0] is stream  # nothing between the blocks
        stream = h
    torch.testing.assert_close(it.final_norm(stream), hidden, rtol=0, atol=0)


def test_logits_are_the_models_own(name: str) -> None:
    model = tiny_model(name)
    it = Anatomy.of(model)
    ids = torch.stack(ragged_windows(9, 9))
    last: list[Tensor] = []
    it.blocks[-1].register_forward_hook(lambda module, args, out: last.append(out))
    expected = model(ids, use_cache=False).logits
    logits = it.logits(last[0][0] if isinstance(last[0], tuple) else last[0])
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["gemma2", "granite", "cohere", "nanochat"])
def test_logits_that_are_scaled_or_capped_are_not_the_heads(name: str) -> None:
    model = tiny_model(name)
    it, hidden = Anatomy.of(model), 50 * torch.randn(3, WIDTH)
    assert (it.logits(hidden) - it.head(it.final_norm(hidden))).abs().max() > 0.05


def test_a_cap_of_none_caps_nothing() -> None:
    model = tiny_model("gemma2", final_logit_softcapping=None)
    it, hidden = Anatomy.of(model), torch.randn(3, WIDTH)
    assert torch.equal(it.logits(hidden), it.head(it.final_norm(hidden)))


def test_branch_is_the_identity_but_for_a_few(name: str) -> None:
    y = torch.randn(2, 3, WIDTH)
    assert (Anatomy.of(tiny_model(name)).branch(1)(y) is y) == (name not in BRANCHES)


def test_folded_map_is_the_mlp_without_its_activation(name: str) -> None:
    it = Anatomy.of(tiny_model(name))
    if name not in UNGATED:
        assert it.folded(1) is None
        return
    for layer in range(LAYERS):
        folded = it.folded(layer)
        assert folded is not None
        W, b = folded
        assert W.dtype == b.dtype == torch.float64
        mlp = it.mlp(layer)
        x = torch.randn(50, WIDTH)
        assert (mlp(x) - x @ W.T.float() - b.float()).abs().max() > 0.1  # the activation matters
        linear = without_activation(it, layer)
        torch.testing.assert_close(linear(x).double(), x.double() @ W.T + b, rtol=1e-5, atol=1e-5)


def without_activation(it: Anatomy, layer: int) -> nn.Module:
    """The MLP with the identity for its activation, whatever that is called."""
    mlp = it.mlp(layer)
    if isinstance(mlp, nn.Sequential):
        return nn.Sequential(mlp[0], mlp[2])
    activation = next(name for name in ("act", "activation_fn", "act_fn") if hasattr(mlp, name))
    setattr(mlp, activation, nn.Identity())
    return mlp


def test_folded_map_without_biases() -> None:
    it = Anatomy.of(tiny_model("gpt2"))
    expected = it.folded(0)
    it.blocks[0].mlp.c_proj.bias = None
    folded = it.folded(0)
    assert expected is not None
    assert folded is not None
    torch.testing.assert_close(folded[0], expected[0])
    assert not torch.equal(folded[1], expected[1])


def test_a_config_without_the_key_means_what_transformers_takes_it_to_mean() -> None:
    """What is told from config.json alone must be what the loaded model then has."""
    for model_type, settings in MODELS.values():
        bare = {"model_type": model_type, "hidden_size": WIDTH}
        full = CONFIG_MAPPING[model_type]().to_dict()
        family = FAMILIES[model_type]
        assert family.parallel(bare) == family.parallel(full), settings
        assert family.norm_name(bare) == family.norm_name(full)
        assert family.refuse(bare) is None


def test_gpt_neox_is_parallel_unless_it_says_otherwise() -> None:
    """An early config.json has no such key; transformers' default is parallel."""
    parallel = FAMILIES["gpt_neox"].parallel
    assert parallel({"model_type": "gpt_neox"})
    assert not parallel({"model_type": "gpt_neox", "use_parallel_residual": False})


def test_unknown_family() -> None:
    with pytest.raises(ModelError, match="'bert' is not one that can be measured; known: ") as refusal:
        family_of({"model_type": "bert"})
    assert str(refusal.value).endswith(", ".join(sorted(FAMILIES)))
    with pytest.raises(ModelError, match="None"):
        family_of({})


@pytest.mark.parametrize("value", [None, 0, "12"])
def test_config_without_a_depth(value: object) -> None:
    config = {"model_type": "gpt2", "n_embd": 8} | ({} if value is None else {"n_layer": value})
    assert FAMILIES["gpt2"].width(config) == 8
    with pytest.raises(ModelError, match=r"config.json of a gpt2 model: 'n_layer' is .*, not a positive number"):
        FAMILIES["gpt2"].layers(config)


def test_model_without_a_head() -> None:
    headless = tiny_model("llama").base_model
    with pytest.raises(ModelError, match=r"^LlamaModel: no part named 'model.layers'"):
        Anatomy.of(headless)


def test_part_missing_in_one_block() -> None:
    model = tiny_model("gpt2")
    del model.transformer.h[3].ln_2
    with pytest.raises(ModelError, match=r"'transformer\.h\.3\.ln_2'"):
        Anatomy.of(model)


def test_model_without_blocks() -> None:
    model = tiny_model("llama")
    model.model.layers = nn.ModuleList()
    with pytest.raises(ModelError, match=r"'model\.layers' is empty"):
        Anatomy.of(model)


def test_families_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FAMILIES["llama"].mlp = "ffn"  # type: ignore[misc]


def test_the_table_needs_no_torch() -> None:
    code = "import sys, harness.models.families; sys.exit(bool({'torch', 'transformers'} & {*sys.modules}))"
    subprocess.run([sys.executable, "-c", code], check=True)
