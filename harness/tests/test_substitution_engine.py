"""The engine on what is known beforehand: nothing changed, affine MLPs, broken numbers, odd blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from harness.errors import MeasurementError
from harness.models.families import Family
from harness.substitution import _for_rows, base_pass, batches, stream_mlps, variant_nll
from harness.surrogates import RidgeStatistics, choose_lambda, folded_map
from harness.tests.tiny_models import (
    LAYERS,
    MODELS,
    POSITIONS,
    WIDTH,
    ragged_windows,
    random_model,
    scale_up,
    subject,
    tiny_model,
    window_nll,
)


def padded(*lengths: int) -> tuple[Tensor, Tensor]:
    """ids (B, T) and lengths (B,) of random windows, in the order of `lengths`."""
    windows = ragged_windows(*lengths)
    return nn.utils.rnn.pad_sequence(windows, batch_first=True), torch.tensor(lengths)


@pytest.mark.parametrize("name", MODELS)
def test_base_loss_is_the_models_own(name: str) -> None:
    model = tiny_model(name)
    ids, lengths = padded(12, 7, 2)
    base = base_pass(subject(model), ids, lengths)
    assert base.nll.dtype == torch.float32
    assert base.target.sum(1).tolist() == [11, 6, 1]
    for row, length in enumerate(lengths):
        expected = window_nll(model, ids[row, :length])
        torch.testing.assert_close(base.nll[row, : length - 1], expected, rtol=0, atol=1e-5)
        assert base.nll[row, length - 1 :].isnan().all()


@pytest.mark.parametrize("name", MODELS)
def test_the_mlps_own_output_changes_nothing(name: str) -> None:
    model = tiny_model(name)
    it = subject(model)
    base = base_pass(it, *padded(12, 7, 2))
    for layer, seen in base.layers.items():
        nll = variant_nll(it, base, layer, torch.stack([seen.y, it.anatomy.mlp(layer)(seen.x)]))
        torch.testing.assert_close(nll, base.nll.expand_as(nll), rtol=0, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", {"activation_function": "linear"}),
        ("gpt_neox parallel", {"hidden_act": "linear"}),
        ("gpt_neox sequential", {"hidden_act": "linear"}),
    ],
)
def test_affine_mlps_cost_nothing(name: str, settings: dict[str, Any]) -> None:
    """A linear surrogate of an affine MLP is the MLP: perplexity moves by less than one in a million."""
    model = tiny_model(name, **settings)
    scale_up(model, ragged_windows(16, 9, 13))
    it = subject(model)
    statistics = {layer: RidgeStatistics(WIDTH, WIDTH) for layer in range(LAYERS)}

    def fit(layer: int, x: Tensor, y: Tensor) -> None:
        statistics[layer].update(x.flatten(0, 1), y.flatten(0, 1))

    stream_mlps(it, torch.stack(ragged_windows(*[32] * 12)), fit)
    held_out = torch.stack(ragged_windows(*[20] * 4))
    base = base_pass(it, held_out, torch.full((4,), 20))
    for layer in range(LAYERS):
        x = base.layers[layer].x
        fitted = statistics[layer].solve(choose_lambda(statistics[layer], statistics[layer]).lam)
        folded = folded_map(it.anatomy, layer)
        assert folded is not None
        nll = variant_nll(it, base, layer, torch.stack([fitted(x), folded(x), torch.zeros_like(x)]))
        cost = torch.expm1((nll.double() - base.nll.double()).mean((1, 2)))
        assert cost[:2].abs().max() <= 1e-6
        assert (nll[2] - base.nll).abs().mean() > 0.1  # these MLPs matter


def test_chunks_change_nothing() -> None:
    it = subject(tiny_model("mistral sliding"))
    base = base_pass(it, *padded(12, 7, 2, 9))
    outputs = torch.randn(3, 4, 12, WIDTH)
    whole = variant_nll(it, base, 1, outputs)
    for memory_tokens in (1, 12, 60):
        chunked = variant_nll(it, base, 1, outputs, memory_tokens=memory_tokens)
        torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-5, equal_nan=True)


def test_logits_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    it = subject(tiny_model("llama"))
    windows = padded(12, 7, 2)
    whole = base_pass(it, *windows).nll
    monkeypatch.setattr("harness.substitution.LOGITS", 1)
    torch.testing.assert_close(base_pass(it, *windows).nll, whole, rtol=0, atol=1e-5, equal_nan=True)


def test_variants_and_windows_do_not_mix() -> None:
    it = subject(tiny_model("gpt_neox parallel"))
    base = base_pass(it, *padded(9, 9))
    outputs = torch.randn(3, 2, 9, WIDTH)
    nll = variant_nll(it, base, 2, outputs)
    for v in range(3):
        alone = variant_nll(it, base, 2, outputs[v : v + 1])
        torch.testing.assert_close(alone[0], nll[v], rtol=0, atol=1e-5)
    swapped = variant_nll(it, base, 2, torch.stack([outputs[0], torch.stack([outputs[0, 0], outputs[1, 1]])]))
    torch.testing.assert_close(swapped[1, 0], nll[0, 0], rtol=0, atol=1e-5)
    torch.testing.assert_close(swapped[1, 1], nll[1, 1], rtol=0, atol=1e-5)


def test_only_wanted_layers_are_kept() -> None:
    it = subject(tiny_model("gpt2"))
    windows = padded(12, 7)
    whole, part = base_pass(it, *windows), base_pass(it, *windows, layers=[3, 1])
    assert list(part.layers) == [1, 3]
    torch.testing.assert_close(part.nll, whole.nll, rtol=0, atol=0, equal_nan=True)
    outputs = torch.zeros(1, 2, 12, WIDTH)
    expected = variant_nll(it, whole, 1, outputs)
    torch.testing.assert_close(variant_nll(it, part, 1, outputs), expected, rtol=0, atol=0, equal_nan=True)


def test_no_hook_stays_behind() -> None:
    it = subject(tiny_model("llama"))
    windows = padded(12, 7)
    base_pass(it, *windows)
    stream_mlps(it, windows[0], lambda *_: None)
    with pytest.raises(RuntimeError, match="stop"):
        stream_mlps(it, windows[0], stop)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in it.model.modules())


def stop(*_: object) -> None:
    raise RuntimeError("stop")


def test_streaming_shows_what_the_base_pass_keeps() -> None:
    it = subject(tiny_model("qwen3"))
    ids, lengths = padded(12, 7)
    seen: dict[int, tuple[Tensor, Tensor]] = {}
    stream_mlps(it, ids, lambda layer, x, y: seen.update({layer: (x.clone(), y.clone())}), layers=[0, 4])
    kept = base_pass(it, ids, lengths).layers
    assert list(seen) == [0, 4]
    for layer, (x, y) in seen.items():
        torch.testing.assert_close(x, kept[layer].x, rtol=0, atol=0)
        torch.testing.assert_close(y, kept[layer].y, rtol=0, atol=0)


def test_a_block_that_adds_to_its_mlps_output_in_place() -> None:
    """Falcon's parallel block does; what was captured must not change under it."""
    model = tiny_model("gpt_neox parallel")
    it = subject(model)
    windows = padded(12, 7)
    expected = base_pass(it, *windows)
    for block in it.anatomy.blocks:

        def forward(h: Tensor, *, block: Any = block, **kwargs: Any) -> Tensor:
            attention, _ = block.attention(block.input_layernorm(h), **kwargs)
            out = block.mlp(block.post_attention_layernorm(h))
            out += attention
            out += h
            return out

        block.forward = forward
    base = base_pass(it, *windows)
    torch.testing.assert_close(base.nll, expected.nll, rtol=0, atol=1e-5, equal_nan=True)
    for layer, seen in base.layers.items():
        torch.testing.assert_close(seen.y, expected.layers[layer].y, rtol=0, atol=1e-4)
        zero = torch.zeros_like(seen.y)[None]
        nll = variant_nll(it, base, layer, zero)
        torch.testing.assert_close(nll, variant_nll(it, expected, layer, zero), rtol=0, atol=1e-4, equal_nan=True)


BRANCHES = {
    "granite": ({"residual_multiplier": 0.3}, lambda block: lambda y: y * block.residual_multiplier),
    "olmo2": ({}, lambda block: block.post_feedforward_layernorm),
}


@pytest.mark.parametrize("model_type", BRANCHES)
def test_branch_stands_between_the_mlp_and_the_residual(model_type: str) -> None:
    """Some families multiply or norm an MLP's output; against a hook that replaces it in the model."""
    settings, branch = BRANCHES[model_type]
    norm = "post_attention_layernorm"
    model = random_model(model_type, **MODELS["llama"][1], **settings)
    it = subject(model, Family(norm=norm, branch=branch))
    ids, lengths = padded(12, 12)
    base = base_pass(it, ids, lengths)
    for layer in (0, LAYERS - 1):
        out = torch.randn(2, 12, WIDTH)
        hook = it.anatomy.mlp(layer).register_forward_hook(lambda module, args, y, out=out: out)
        expected = base_pass(it, ids, lengths).nll
        hook.remove()
        assert (expected - base.nll).abs().max() > 0.01
        torch.testing.assert_close(variant_nll(it, base, layer, out[None])[0], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_a_loss_that_is_not_finite_names_layer_and_variant(bad: float) -> None:
    it = subject(tiny_model("gpt2"))
    base = base_pass(it, *padded(12, 7))
    outputs = torch.zeros(3, 2, 12, WIDTH)
    outputs[1, 1, 3] = bad
    with pytest.raises(MeasurementError, match=r"^layer 2, variant 'linear': .*not finite"):
        variant_nll(it, base, 2, outputs, names=("zero", "linear", "mean"))
    with pytest.raises(MeasurementError, match=r"^layer 2, variant 1: "):
        variant_nll(it, base, 2, outputs)


def test_a_model_that_is_not_finite() -> None:
    it = subject(tiny_model("gpt2"))
    it.anatomy.head.weight[5] = torch.inf
    with pytest.raises(MeasurementError, match="unchanged model's loss is not finite"):
        base_pass(it, *padded(12, 7))


def test_windows_longer_than_the_positions() -> None:
    it = subject(tiny_model("gpt2"))
    ids = torch.zeros(1, POSITIONS + 1, dtype=torch.long)
    with pytest.raises(MeasurementError, match=f"windows of {POSITIONS + 1} tokens.*{POSITIONS} positions"):
        base_pass(it, ids, torch.tensor([POSITIONS + 1]))


def test_a_window_of_one_token_has_no_loss() -> None:
    it = subject(tiny_model("gpt2"))
    base = base_pass(it, *padded(1, 1))
    assert base.nll.shape == (2, 0)
    assert variant_nll(it, base, 0, torch.zeros(3, 2, 1, WIDTH)).shape == (3, 2, 0)


def test_arguments_with_an_entry_for_each_window() -> None:
    """Masks and biases may differ between windows; what all windows share stays as it is."""
    mask, shared = torch.arange(12.0).view(3, 4), torch.zeros(1, 4)
    window = torch.tensor([2, 0, 2, 1])
    args, kwargs = _for_rows(((mask, None), {"shared": shared, "bias": [mask], "flag": True}), window, 3)
    torch.testing.assert_close(args[0], mask[window])
    assert args[1] is None
    assert kwargs["shared"] is shared
    torch.testing.assert_close(kwargs["bias"][0], mask[window])
    assert kwargs["flag"] is True


@pytest.mark.parametrize("B", [1, 3])
def test_arguments_that_a_family_has_to_name(B: int) -> None:
    """Bloom stacks a bias for each head under the windows; MPT shares one whose heads could be taken for windows."""
    heads = 2
    alibi, bias = torch.randn(B * heads, 1, 4), torch.randn(B, 1, 4)
    window = torch.arange(4) % B
    _, kwargs = _for_rows(((), {"alibi": alibi, "bias": bias}), window, B, stacked=("alibi",), shared=("bias",))
    torch.testing.assert_close(kwargs["alibi"].view(4, heads, 1, 4), alibi.view(B, heads, 1, 4)[window])
    assert kwargs["bias"] is bias


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 100))
def test_batches_hold_every_window_once(lengths: list[int], tokens: int) -> None:
    windows = [np.arange(1, n + 1, dtype=np.int32) for n in lengths]
    seen: list[int] = []
    for index, ids, held in batches(windows, tokens):
        assert len(index) == 1 or ids.numel() <= tokens
        assert ids.shape == (len(index), held.max())
        for i, row, n in zip(index, ids, held.tolist(), strict=True):
            assert row[:n].tolist() == windows[i].tolist()
            assert not row[n:].any()
        seen.extend(index.tolist())
    assert sorted(seen) == list(range(len(windows)))
