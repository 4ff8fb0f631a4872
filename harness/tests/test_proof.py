"""The proof at load: right names pass in every precision, each kind of wrong name is caught, and it costs little."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.errors import ModelError
from harness.models.anatomy import Anatomy
from harness.models.families import FAMILIES
from harness.models.proof import prove
from harness.tests.tiny_models import LAYERS, MODELS, tiny_model

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_every_family_passes(name: str, dtype: torch.dtype) -> None:
    prove(Anatomy.of(tiny_model(name).to(dtype)), name, CPU)


def test_three_layers_and_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of as many tokens as there are rows could hide an argument with an entry a token."""
    for layers in (1, 3):
        prove(Anatomy.of(tiny_model("gpt2", n_layer=layers)), "few", CPU)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("granite", {"branch": None}, "does not add its MLP's output to the residual stream"),
    ("olmo2", {"branch": None}, "does not add its MLP's output to the residual stream"),
    ("gemma3", {"branch": None}, "does not add its MLP's output to the residual stream"),
    ("granite", {"logits": None}, "its logits are not those of 'lm_head' after 'model.norm'"),
    ("gemma2", {"logits": None}, "its logits are not those of"),
    ("llama", {"final_norm": "model.layers.0.input_layernorm"}, "its logits are not those of"),
    ("bloom", {"mlp": "mlp"}, "does not call its MLP with one tensor"),  # it is handed the residual stream as well
    ("bloom", {"stacked": ()}, "takes 'alibi' of shape"),
    ("gemma2", {"norm": "post_attention_layernorm"}, "does not feed the output of 'post_attention_layernorm'"),
    ("phi", {"parallel": lambda config: False}, "are not sequential"),
    ("llama", {"parallel": lambda config: True}, "are not parallel"),
    ("opt", {"mlp": ("fc1", "fc2")}, "has an MLP that is not fc1 then fc2"),
    ("llama", {"mlp": "mlp.up_proj", "norm": None}, "has an MLP that returns"),
    ("gpt2", {"mlp": "attn", "norm": "ln_1"}, "does not call its MLP with one tensor"),
]


@pytest.mark.parametrize(("name", "changes", "message"), WRONG)
def test_a_wrong_name_is_caught(name: str, changes: dict[str, Any], message: str) -> None:
    model = tiny_model(name)
    family = dataclasses.replace(FAMILIES[model.config.model_type], **changes)
    with pytest.raises(ModelError) as caught:
        prove(Anatomy.of(model, family), "thing", CPU)
    assert message in str(caught.value)
    assert str(caught.value).startswith("thing: ")
    assert str(caught.value).endswith("see 'Add a model family' in CONTRIBUTING.md")


def wrap(model: Any, layer: int, forward: Any) -> None:
    block = model.model.layers[layer]
    original = block.forward
    block.forward = lambda *args, **kwargs: forward(original, *args, **kwargs)


def test_a_block_that_multiplies_its_sum_is_caught() -> None:
    """h' − h is then twice what the engine would add: in one layer of many."""
    model = tiny_model("llama")
    wrap(model, 3, lambda block, h, **kwargs: 2 * block(h, **kwargs))
    with pytest.raises(ModelError, match="layer 3 of this llama does not add"):
        prove(Anatomy.of(model), "thing", CPU)


def test_an_mlp_that_runs_twice_is_caught() -> None:
    model = tiny_model("llama")
    wrap(model, 1, lambda block, h, **kwargs: (block(h, **kwargs), block(h, **kwargs))[1])
    with pytest.raises(ModelError, match="layer 1 of this llama runs its MLP 2 times"):
        prove(Anatomy.of(model), "thing", CPU)


def test_something_between_the_blocks_is_caught() -> None:
    model = tiny_model("llama")
    model.model.layers[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    with pytest.raises(ModelError, match="layer 2 of this llama is handed something other than the output"):
        prove(Anatomy.of(model), "thing", CPU)


def test_an_argument_that_depends_on_earlier_layers_is_caught() -> None:
    """A block that looks back at the first block's output would see another under a substituted MLP there."""
    model, seen = tiny_model("llama"), {}

    def first(block: Any, h: Tensor, **kwargs: Any) -> Tensor:
        seen["h"] = block(h, **kwargs)
        return seen["h"]

    wrap(model, 0, first)
    wrap(model, 4, lambda block, h, extra=None, **kwargs: block(h, **kwargs) + extra)
    model.model.layers[4].register_forward_pre_hook(
        lambda module, args, kwargs: (args, {**kwargs, "extra": seen["h"]}), with_kwargs=True
    )
    with pytest.raises(ModelError, match="layer 4 of this llama takes 'extra' that depends on earlier layers"):
        prove(Anatomy.of(model), "thing", CPU)


def test_numbers_that_are_not_finite_are_left_to_the_measurement() -> None:
    model = tiny_model("gpt2")
    model.transformer.h[1].mlp.c_proj.weight[0, 0] = torch.inf
    prove(Anatomy.of(model), "thing", CPU)


def test_one_pass_and_no_hook_left_behind() -> None:
    model = tiny_model("qwen3")
    runs: list[tuple[int, ...]] = []
    handle = model.register_forward_hook(lambda module, args, out: runs.append(tuple(args[0].shape)))
    prove(Anatomy.of(model), "thing", CPU)
    handle.remove()
    assert runs == [(LAYERS + 1, 4)]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
