"""Ridge statistics against sklearn and numpy, streams against full batches, closed forms against sums."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import Tensor

from harness.errors import MeasurementError
from harness.surrogates import (
    ALPHAS,
    LinearSurrogate,
    RidgeStatistics,
    choose_lambda,
    mean_ablation,
    zero_ablation,
)

D_IN, D_OUT = 7, 5
MOMENTS = ("mean_x", "mean_y", "cxx_", "cxy_", "cyy_")


def rows(n: int, seed: int = 0, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """x (n, D_IN) with unequal variances and a mean, y (n, D_OUT) nearly linear in x; float64."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.Generator().manual_seed(99)
    scales = torch.logspace(-1, 1, D_IN, dtype=torch.float64)
    x = torch.randn(n, D_IN, generator=generator, dtype=torch.float64) * scales + 3
    W = torch.randn(D_OUT, D_IN, generator=truth, dtype=torch.float64)
    eps = noise * torch.randn(n, D_OUT, generator=generator, dtype=torch.float64)
    return x, x @ W.T + torch.tanh(x[:, :D_OUT]) - 2 + eps


def fitted(x: Tensor, y: Tensor) -> RidgeStatistics:
    return RidgeStatistics(x.shape[1], y.shape[1]).update(x, y)


def assert_same(a: RidgeStatistics, b: RidgeStatistics, rtol: float = 1e-9, atol: float = 1e-9) -> None:
    assert a.count == b.count
    for name in MOMENTS:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=rtol, atol=atol)


def direct_error(surrogate: LinearSurrogate, x: Tensor, y: Tensor) -> float:
    return (y - x @ surrogate.W.double().T - surrogate.b.double()).square().sum().item()


@pytest.mark.parametrize("lam", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("n", [4, 60, 1000])
def test_agrees_with_sklearn(n: int, lam: float) -> None:
    x, y = rows(n)
    ours = fitted(x, y).solve(lam)
    theirs = Ridge(alpha=lam, solver="svd").fit(x.numpy(), y.numpy())
    np.testing.assert_allclose(ours.W.numpy(), theirs.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.b.numpy(), theirs.intercept_, rtol=1e-5, atol=1e-5)
    assert (ours.lam, ours.count) == (lam, n)
    assert ours.W.dtype == ours.b.dtype == torch.float32


@pytest.mark.parametrize("shape", ["many rows", "few rows", "LayerNorm", "LayerNorm in float32"])
def test_least_squares_of_least_norm(shape: str) -> None:
    x, y = rows(4 if shape == "few rows" else 200)
    if shape.startswith("LayerNorm"):  # each row sums to 0, but for rounding: one direction never varies
        x = x.float() if shape.endswith("float32") else x
        x = torch.nn.functional.layer_norm(x, (D_IN,)).double()
    ours = fitted(x, y).solve(0.0)
    W = np.linalg.lstsq((x - x.mean(0)).numpy(), (y - y.mean(0)).numpy(), rcond=1e-6)[0].T
    np.testing.assert_allclose(ours.W.numpy(), W, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.b.numpy(), (y.mean(0) - x.mean(0) @ torch.tensor(W).T).numpy(), rtol=1e-4)


@given(
    cuts=st.lists(st.integers(0, 50), max_size=6),
    seed=st.integers(0, 20),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
@settings(deadline=None)
def test_chunks_in_any_order_are_the_whole(cuts: list[int], seed: int, scale: float) -> None:
    x, y = rows(50, seed)
    x = x * scale
    whole = fitted(x, y)
    edges = [0, *sorted(cuts), 50]
    chunks = [(x[a:b], y[a:b]) for a, b in pairwise(edges)]
    np.random.default_rng(seed).shuffle(chunks)
    streamed = RidgeStatistics(D_IN, D_OUT)
    merged = RidgeStatistics(D_IN, D_OUT)
    for chunk in chunks:
        assert streamed.update(*chunk) is streamed
        merged = merged + fitted(*chunk)
    for part in (streamed, merged):
        assert_same(part, whole, atol=1e-9 * max(scale, 1) ** 2)


@given(seed=st.integers(0, 50), scale=st.floats(0.01, 100), lam=st.floats(0.01, 100))
@settings(deadline=None)
def test_a_fit_follows_its_units(seed: int, scale: float, lam: float) -> None:
    """x → s x takes λ to s² λ and W to W/s; y → s y takes W to s W; a shift of either moves b alone."""
    x, y = rows(40, seed)
    plain = fitted(x, y).solve(lam)
    scaled = fitted(x * scale, y).solve(lam * scale**2)
    torch.testing.assert_close(scaled.W * scale, plain.W, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scaled.b, plain.b, rtol=1e-4, atol=1e-4)
    outputs = fitted(x, y * scale).solve(lam)
    torch.testing.assert_close(outputs.W / scale, plain.W, rtol=1e-4, atol=1e-5)
    shifted = fitted(x + scale, y - scale).solve(lam)
    torch.testing.assert_close(shifted.W, plain.W, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        shifted.b, plain.b - scale - scale * plain.W.sum(1), rtol=1e-3, atol=1e-4 * max(scale, 1)
    )


def test_a_mean_far_larger_than_the_spread() -> None:
    """`Σ x xᵀ − n x̄ x̄ᵀ` has no digit left here: the mean is 10⁸ times the spread, its square 10¹⁶."""
    x, y = rows(300)
    streamed = RidgeStatistics(D_IN, D_OUT)
    for k in range(0, 300, 64):
        streamed.update(x[k : k + 64] + 1e8, y[k : k + 64] + 1e8)
    torch.testing.assert_close(streamed.solve(1.0).W, fitted(x, y).solve(1.0).W, rtol=1e-4, atol=1e-5)


def test_rows_of_float32_are_summed_in_float64() -> None:
    x, y = (part.float() for part in rows(100))
    assert_same(fitted(x, y), fitted(x.double(), y.double()), rtol=0, atol=0)


def test_merging_changes_neither_side() -> None:
    a, b = fitted(*rows(20, 1)), fitted(*rows(30, 2))
    before = a.copy(), b.copy()
    assert (a + b).count == 50
    assert_same(a, before[0], rtol=0, atol=0)
    assert_same(b, before[1], rtol=0, atol=0)


def test_a_snapshot_is_left_alone() -> None:
    """As the curve over N needs it."""
    x, y = rows(60)
    growing = fitted(x[:20], y[:20])
    snapshot = growing.copy()
    growing.update(x[20:], y[20:])
    assert_same(snapshot, fitted(x[:20], y[:20]))
    assert_same(growing, fitted(x, y))


def test_through_a_checkpoint_and_back(tmp_path: object) -> None:
    whole = fitted(*rows(30))
    np.savez(f"{tmp_path}/moments.npz", **whole.arrays())
    with np.load(f"{tmp_path}/moments.npz") as arrays:
        again = RidgeStatistics.from_arrays(arrays)
    assert_same(again, whole, rtol=0, atol=0)
    assert isinstance(again.count, int)
    kept = whole.arrays()
    again.update(*rows(5))
    assert whole.count == 30
    whole.update(*rows(5))
    assert_same(RidgeStatistics.from_arrays(kept), fitted(*rows(30)), rtol=0, atol=0)


@pytest.mark.parametrize("lam", [0.0, 1.0, 1e3])
def test_closed_form_of_the_error(lam: float) -> None:
    """On the rows of the fit and on others, for a map fitted anywhere."""
    surrogate = fitted(*rows(40)).solve(lam)
    for seed in (0, 1):
        x, y = rows(80, seed)
        other = fitted(x, y)
        assert other.squared_error(surrogate) == pytest.approx(direct_error(surrogate, x, y), rel=1e-9)
        total = (y - y.mean(0)).square().sum().item()
        assert other.r2(surrogate) == pytest.approx(1 - direct_error(surrogate, x, y) / total, rel=1e-9)


def test_a_perfect_fit_has_no_negative_error() -> None:
    x, _ = rows(50)
    W = torch.randn(D_OUT, D_IN, dtype=torch.float32)
    linear = fitted(x, x @ W.double().T)
    error = linear.squared_error(linear.solve(0.0))
    assert 0 <= error < 1e-8 * linear.cyy_.sum().item()
    assert linear.r2(linear.solve(0.0)) == pytest.approx(1)


def test_grid_of_lambda_is_what_each_fit_gives() -> None:
    fit, (x, y) = fitted(*rows(30, 1)), rows(200, 2)
    choice = choose_lambda(fit, fitted(x, y))
    assert tuple(candidate.alpha for candidate in choice.table) == ALPHAS
    for alpha, lam, error in choice.table:
        assert lam == pytest.approx(alpha * fit.cxx_.trace().item() / D_IN)
        assert error == pytest.approx(direct_error(fit.solve(lam), x, y), rel=1e-5)
    assert choice.lam == min(choice.table, key=lambda c: c.squared_error).lam


def test_lambda_shrinks_where_rows_are_few_and_noise_is_large() -> None:
    """Pure noise asks for the largest penalty of the grid, a noiseless map for next to none."""
    x, noise = rows(12, 1)[0], torch.randn(12, D_OUT, dtype=torch.float64)
    x_select, noise_select = rows(4000, 2)[0], torch.randn(4000, D_OUT, dtype=torch.float64)
    few = choose_lambda(fitted(x, noise), fitted(x_select, noise_select))
    assert few.lam == few.table[-1].lam
    W = torch.randn(D_IN, D_OUT, dtype=torch.float64)
    exact = choose_lambda(fitted(x, x @ W), fitted(x_select, x_select @ W))
    assert exact.lam <= exact.table[4].lam


def test_what_few_rows_cost() -> None:
    """Least squares on n Gaussian rows adds (1 + 1/n) d/(n−d−2) + 1/n of the residual variance."""
    d, n, fits = 8, 40, 400
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(d, 1, generator=generator, dtype=torch.float64)

    def draw(size: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(size, d, generator=generator, dtype=torch.float64)
        return x, x @ truth + torch.randn(size, 1, generator=generator, dtype=torch.float64)

    test = fitted(*draw(50_000))
    least = test.squared_error(LinearSurrogate(truth.T.float(), torch.zeros(1)))
    added = [(test.squared_error(fitted(*draw(n)).solve(0.0)) - least) / test.count for _ in range(fits)]
    expected = (1 + 1 / n) * d / (n - d - 2) + 1 / n
    assert np.mean(added) == pytest.approx(expected, abs=4 * np.std(added) / fits**0.5)


def test_ablations() -> None:
    x, y = rows(50)
    statistics = fitted(x, y)
    mean, zero = mean_ablation(statistics), zero_ablation(D_IN, D_OUT)
    z = torch.randn(2, 3, D_IN)
    torch.testing.assert_close(mean(z), y.mean(0).float().expand(2, 3, D_OUT))
    assert torch.equal(zero(z), torch.zeros(2, 3, D_OUT))
    assert statistics.r2(mean) == pytest.approx(0, abs=1e-9)
    assert statistics.squared_error(zero) == pytest.approx(y.square().sum().item())


def test_a_surrogate_is_frozen_and_keeps_the_dtype() -> None:
    surrogate = LinearSurrogate(torch.eye(3)[:2], torch.tensor([1.0, 2.0]), lam=0.5, count=9)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        y = surrogate(torch.tensor([[4.0, 5.0, 6.0]], dtype=dtype))
        assert y.dtype == dtype
        assert y.tolist() == [[5.0, 7.0]]
    moved = surrogate.to("cpu")
    assert (moved.lam, moved.count) == (0.5, 9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        surrogate.lam = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_rows_that_are_not_finite(bad: float) -> None:
    x, y = rows(20)
    y[3, 1] = bad
    broken, whole = fitted(x, y), fitted(*rows(20))
    for attempt in (
        lambda: broken.solve(1.0),
        lambda: choose_lambda(broken, whole),
        lambda: choose_lambda(whole, broken),
    ):
        with pytest.raises(MeasurementError, match="not finite"):
            attempt()


def test_arguments_that_cannot_be() -> None:
    x, y = rows(20)
    with pytest.raises(ValueError, match=r"\(n, 7\) and \(n, 5\), not \(20, 7\) and \(19, 5\)"):
        fitted(x, y).update(x, y[1:])
    with pytest.raises(ValueError, match="not"):
        fitted(x, y).update(x[None], y)
    with pytest.raises(ValueError, match="λ = -1"):
        fitted(x, y).solve(-1)
    with pytest.raises(ValueError, match="n = 0"):
        RidgeStatistics(D_IN, D_OUT).solve(1.0)
    for fit, select, grid in (
        (RidgeStatistics(D_IN, D_OUT), fitted(x, y), ALPHAS),
        (fitted(x, y), RidgeStatistics(D_IN, D_OUT), ALPHAS),
        (fitted(x, y), fitted(x, y), ()),
    ):
        with pytest.raises(ValueError, match="choosing λ needs"):
            choose_lambda(fit, select, grid)


def test_no_variance_has_no_r2() -> None:
    x, _ = rows(20)
    assert np.isnan(fitted(x, torch.ones(20, D_OUT)).r2(zero_ablation(D_IN, D_OUT)))
