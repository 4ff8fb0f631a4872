"""What the table of families promises, held against the models that transformers builds."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.errors import ModelError
from harness.models.anatomy import Anatomy
from harness.models.families import FAMILIES, Family, family_of
from harness.tests.tiny_models import (
    LAYERS,
    MODELS,
    VOCABULARY,
    WIDTH,
    ragged_windows,
    random_model,
    tiny_model,
)

PARALLEL = {"gpt_neox parallel"}
UNGATED = {"gpt2", "gpt_neox parallel", "gpt_neox sequential"}


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
    assert (it.position is not None) == (name == "gpt2")
    assert it.head(torch.zeros(2, WIDTH)).shape == (2, VOCABULARY)


def test_how_blocks_and_mlps_are_called(name: str) -> None:
    """The engine relies on it: the stream first and by position, a tensor back, arguments of batch 1."""
    model = tiny_model(name)
    it = Anatomy.of(model)
    calls: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any], Any]] = []

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        calls.append((module, args, kwargs, out))

    for layer in range(LAYERS):
        for module in (it.norm(layer), it.mlp(layer), it.blocks[layer]):
            module.register_forward_hook(record, with_kwargs=True)
    ids = torch.stack(ragged_windows(9, 9, 9))
    hidden = model.base_model(ids, use_cache=False).last_hidden_state

    expected = [m for layer in range(LAYERS) for m in (it.norm(layer), it.mlp(layer), it.blocks[layer])]
    assert [module for module, *_ in calls] == expected
    stream: Tensor | None = None
    for layer in range(LAYERS):
        (_, norm_args, _, normed), (_, mlp_args, mlp_kwargs, y), (_, args, kwargs, h) = calls[3 * layer :][:3]
        assert isinstance(h, Tensor)
        assert h.shape == y.shape == args[0].shape == (3, 9, WIDTH)
        assert mlp_kwargs == {}
        assert len(mlp_args) == 1
        assert mlp_args[0] is normed  # nothing between norm and MLP
        assert torch.equal(norm_args[0], args[0]) == it.parallel
        assert not kwargs.get("use_cache")
        assert kwargs.get("cache") is None
        # Only a mask may have one entry a window; position embeddings serve any batch.
        assert kwargs["position_ids"].shape == (1, 9)
        assert all(part.shape[0] == 1 for part in kwargs.get("position_embeddings", ()))
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
    logits = it.logits(last[0])
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)


def test_branch_is_the_identity(name: str) -> None:
    y = torch.randn(2, 3, WIDTH)
    assert Anatomy.of(tiny_model(name)).branch(1)(y) is y


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
        mlp.act = nn.Identity()
        torch.testing.assert_close(mlp(x).double(), x.double() @ W.T + b, rtol=1e-5, atol=1e-5)


def test_folded_map_without_biases() -> None:
    it = Anatomy.of(tiny_model("gpt2"))
    expected = it.folded(0)
    it.mlp(0).c_proj.bias = None
    folded = it.folded(0)
    assert expected is not None
    assert folded is not None
    torch.testing.assert_close(folded[0], expected[0])
    assert not torch.equal(folded[1], expected[1])


def test_gpt_neox_is_parallel_unless_it_says_otherwise() -> None:
    """An early config.json has no such key; transformers' default is parallel."""
    parallel = FAMILIES["gpt_neox"].parallel
    assert parallel({"model_type": "gpt_neox"})
    assert not parallel({"model_type": "gpt_neox", "use_parallel_residual": False})


def test_branch_of_a_family_that_has_one() -> None:
    granite = random_model("granite", **MODELS["llama"][1], residual_multiplier=0.22)
    family = Family(branch=lambda block: lambda y: y * block.residual_multiplier)
    y = torch.randn(2, WIDTH)
    torch.testing.assert_close(Anatomy.of(granite, family).branch(2)(y), 0.22 * y)


def test_unknown_family() -> None:
    with pytest.raises(ModelError, match=r"'bert' is not one that can be measured; known: gpt2, gpt_neox"):
        family_of({"model_type": "bert"})
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
