"""The engine against a substitution written inside a copied block, for every family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.models.anatomy import Anatomy
from harness.substitution import base_pass, batches, variant_nll
from harness.tests.tiny_models import (
    LAYERS,
    MODELS,
    WIDTH,
    effects,
    ragged_windows,
    rewritten,
    scale_up,
    subject,
    tiny_model,
    window_nll,
)

TOLERANCE = 1e-3
"""Of the effect of taking the MLP out."""


def substitutes(anatomy: Anatomy, layer: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Ways of computing an MLP, each a function of its input (B, T, d) alone."""
    generator = torch.Generator().manual_seed(layer)
    W = torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
    b = torch.randn(WIDTH, generator=generator)
    mlp = anatomy.mlp(layer)

    def linear(x: Tensor) -> Tensor:
        return x @ W.T + b

    def first_kept(x: Tensor) -> Tensor:
        return torch.cat([mlp(x[:, :1]), linear(x[:, 1:])], 1)

    def gated(x: Tensor) -> Tensor:
        return torch.where(x[..., :1] > 0, linear(x), mlp(x))

    return {
        "full": mlp,
        "linear": linear,
        "mean": lambda x: b.expand_as(x),
        "zero": torch.zeros_like,
        "first kept": first_kept,
        "gated": gated,
    }


@pytest.mark.parametrize("name", MODELS)
def test_every_variant_agrees_with_a_copied_block(name: str) -> None:
    model = tiny_model(name)
    agree_with_a_copied_block(model, subject(model))


def agree_with_a_copied_block(model: nn.Module, it: Any) -> None:
    """Every substitute in the first, middle and last layer, on windows of several lengths."""
    windows = ragged_windows(16, 9, 13, 2)
    effect = scale_up(model, windows)
    # Three windows share a batch and one is alone; chunks of two windows mix variants.
    for index, ids, lengths in batches([window.numpy() for window in windows], tokens=48):
        base = base_pass(it, ids, lengths)
        for layer in (0, LAYERS // 2, LAYERS - 1):
            ways = substitutes(it.anatomy, layer)
            outputs = torch.stack([way(base.layers[layer].x) for way in ways.values()])
            nll = variant_nll(it, base, layer, outputs, memory_tokens=2 * ids.shape[1])
            for v, way in enumerate(ways.values()):
                with rewritten(model, layer, way):
                    for row, i in enumerate(index):
                        expected = window_nll(model, windows[i])
                        assert nll[v, row, lengths[row] - 1 :].isnan().all()
                        error = (nll[v, row, : lengths[row] - 1] - expected).abs().max().item()
                        assert error <= TOLERANCE * effect[layer], (layer, list(ways)[v], i)


@pytest.mark.parametrize("name", MODELS)
def test_the_rewritten_block_is_the_block(name: str) -> None:
    """What the first test takes for the truth, checked: with the block's own MLP it changes nothing."""
    model = tiny_model(name)
    windows = ragged_windows(16, 9)
    scale_up(model, windows)
    expected = [window_nll(model, window) for window in windows]
    for layer in range(LAYERS):
        with rewritten(model, layer, Anatomy.of(model).mlp(layer)):
            for window, nll in zip(windows, expected, strict=True):
                torch.testing.assert_close(window_nll(model, window), nll, rtol=0, atol=1e-5)


def test_scaling_reaches_every_layer() -> None:
    """At its initial scale an MLP hardly matters, so that no comparison there would show anything."""
    windows = ragged_windows(16, 9, 13)
    model = tiny_model("gpt2", initializer_range=0.02)
    assert max(effects(model, windows).values()) < 0.1
    scale_up(model, windows)
    assert min(effects(model, windows).values()) >= 0.1
