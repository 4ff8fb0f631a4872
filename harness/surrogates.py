"""Linear surrogates of an MLP: streaming ridge regression, mean and zero ablation, and the folded map.

    Ŵ, b̂ = argmin Σ_i |y_i − W x_i − b|² + λ |W|²            (x_i the MLP's input, y_i its output)

The paper's surrogate (arXiv 2603.03459, section 3.1). Its λ of 0.01 does not grow with the number of rows,
which makes it least squares; here λ = α · tr(C_xx)/d, with α chosen on held-out rows. All that a fit, its
choice of λ and its held-out error need is in the first two moments: no row is kept, no forward pass is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from harness.errors import MeasurementError
from harness.models.anatomy import Anatomy

ALPHAS: tuple[float, ...] = tuple(10 ** (k / 2) for k in range(-20, 1))
"""The grid of α: half decades from all but least squares to a penalty as large as the mean variance of x."""


@dataclass(frozen=True)
class LinearSurrogate:
    """The affine map `x ↦ W x + b` that stands in for an MLP."""

    W: Tensor
    """(d_out, d_in), float32."""
    b: Tensor
    """(d_out,), float32."""
    lam: float = 0.0
    """The ridge penalty λ that it was fitted with."""
    count: int = 0
    """How many rows it was fitted on; 0 where it was not fitted."""

    def __call__(self, x: Tensor) -> Tensor:
        """(*, d_in) -> (*, d_out), in the dtype of `x`."""
        return torch.nn.functional.linear(x, self.W.to(x.dtype), self.b.to(x.dtype))

    def to(self, device: torch.device | str) -> LinearSurrogate:
        """The same map on another device."""
        return LinearSurrogate(self.W.to(device), self.b.to(device), self.lam, self.count)


class RidgeStatistics:
    """The first two moments of rows (x, y), in float64: all that a linear fit of y on x needs.

    Sums of squares are taken about the mean and merged by the rule of Chan, Golub and LeVeque (1983): where
    the mean is far larger than the spread, `Σ x xᵀ − n x̄ x̄ᵀ` would lose digits. A trailing underscore
    marks a sum that is not divided by `count`. A device without float64 (mps) leaves the sums to the CPU.
    """

    def __init__(self, d_in: int, d_out: int, *, device: torch.device | str = "cpu") -> None:
        self.device = torch.device("cpu" if torch.device(device).type == "mps" else device)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=self.device)

        self.count = 0
        """n, the number of rows."""
        self.mean_x = zeros(d_in)
        """x̄ (d_in,)."""
        self.mean_y = zeros(d_out)
        """ȳ (d_out,)."""
        self.cxx_ = zeros(d_in, d_in)
        """Σ (x−x̄)(x−x̄)ᵀ (d_in, d_in)."""
        self.cxy_ = zeros(d_in, d_out)
        """Σ (x−x̄)(y−ȳ)ᵀ (d_in, d_out)."""
        self.cyy_ = zeros(d_out)
        """Σ (y−ȳ)², per output (d_out,)."""

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor) -> Self:
        """Add rows x (n, d_in) and y (n, d_out), of any float dtype and device; returns itself.

        Raises ValueError where the shapes do not fit.
        """
        d_in, d_out = len(self.mean_x), len(self.mean_y)
        if x.ndim != 2 or x.shape[1] != d_in or y.shape != (len(x), d_out):
            raise ValueError(f"rows must be (n, {d_in}) and (n, {d_out}), not {(*x.shape,)} and {(*y.shape,)}")
        if len(x) == 0:
            return self
        x, y = x.to(self.device).double(), y.to(self.device).double()
        mean_x, mean_y = x.mean(0), y.mean(0)
        x, y = x - mean_x, y - mean_y
        return self._absorb(len(x), mean_x, mean_y, x.T @ x, x.T @ y, y.square().sum(0))

    def __add__(self, other: RidgeStatistics) -> RidgeStatistics:
        """The statistics of both sets of rows; neither operand changes."""
        moments = (getattr(other, name).to(self.device) for name in _MOMENTS)
        return self.copy()._absorb(other.count, *moments)

    def _absorb(self, n: int, mean_x: Tensor, mean_y: Tensor, cxx_: Tensor, cxy_: Tensor, cyy_: Tensor) -> Self:
        if n == 0:
            return self
        total = self.count + n
        dx, dy = mean_x - self.mean_x, mean_y - self.mean_y
        between = self.count * n / total  # weight of the squared distance between the two means
        self.cxx_ += cxx_ + between * dx.outer(dx)
        self.cxy_ += cxy_ + between * dx.outer(dy)
        self.cyy_ += cyy_ + between * dy.square()
        self.mean_x += dx * (n / total)
        self.mean_y += dy * (n / total)
        self.count = total
        return self

    def copy(self) -> RidgeStatistics:
        """A snapshot that later updates leave alone (for the curve over N)."""
        return RidgeStatistics.from_arrays(self.arrays(), device=self.device)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, as arrays for a checkpoint: `count` () and the five moments under their own names."""
        moments = {name: getattr(self, name).cpu().numpy().copy() for name in _MOMENTS}
        return {"count": np.asarray(self.count, dtype=np.int64), **moments}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, device: torch.device | str = "cpu") -> RidgeStatistics:
        """The inverse of `arrays`."""
        self = cls(len(arrays["mean_x"]), len(arrays["mean_y"]), device=device)
        self.count = int(arrays["count"])
        for name in _MOMENTS:
            setattr(self, name, torch.tensor(arrays[name], dtype=torch.float64, device=self.device))
        return self

    @torch.no_grad()
    def solve(self, lam: float = 0.0) -> LinearSurrogate:
        """The ridge fit with penalty λ on W and none on b (sklearn's `Ridge(alpha=lam)`).

        λ = 0 gives least squares, of least norm where inputs are collinear (LayerNorm's outputs always are).
        Raises ValueError for a negative λ or no rows, MeasurementError where a row was not finite.
        """
        if lam < 0 or self.count == 0:
            raise ValueError(f"a ridge fit needs λ ≥ 0 and at least one row, not λ = {lam}, n = {self.count}")
        self._check_finite()
        identity = torch.eye(len(self.mean_x), dtype=torch.float64, device=self.device)
        L, info = torch.linalg.cholesky_ex(self.cxx_ + lam * identity)
        if lam > 0 and not info:
            Wt = torch.cholesky_solve(self.cxy_, L)  # (d_in, d_out)
        else:
            s, U = torch.linalg.eigh(self.cxx_)
            Wt = U @ (_shrink(s, lam)[:, None] * (U.T @ self.cxy_))
        b = self.mean_y - self.mean_x @ Wt
        return LinearSurrogate(Wt.T.float().contiguous(), b.float(), lam, self.count)

    @torch.no_grad()
    def squared_error(self, surrogate: LinearSurrogate) -> float:
        """Σ |y − W x − b|² over the rows of these statistics, for a map fitted on these or any other rows."""
        W, b = surrogate.W.to(self.device).double(), surrogate.b.to(self.device).double()
        offset = self.mean_y - W @ self.mean_x - b
        about_means = self.cyy_.sum() - 2 * (W.T * self.cxy_).sum() + (W @ self.cxx_ * W).sum()
        # A perfect fit leaves rounding, which may be negative.
        return max(about_means.item(), 0.0) + self.count * offset.square().sum().item()

    def r2(self, surrogate: LinearSurrogate) -> float:
        """1 − Σ|y − W x − b|² / Σ|y − ȳ|² over the rows of these statistics; nan where y does not vary."""
        total = self.cyy_.sum().item()
        return 1 - self.squared_error(surrogate) / total if total > 0 else float("nan")

    def _check_finite(self) -> None:
        if not all(bool(torch.isfinite(getattr(self, name)).all()) for name in _MOMENTS):
            raise MeasurementError("MLP inputs or outputs are not finite, so no linear map fits; try --dtype float32")


_MOMENTS = ("mean_x", "mean_y", "cxx_", "cxy_", "cyy_")


def _shrink(s: Tensor, lam: float) -> Tensor:
    """1/(s + λ) for the eigenvalues s (d,) of C_xx; without a penalty, 0 where s is only rounding.

    Rows come from float32 passes: a direction narrower than the rounding of the widest one was not seen,
    and 1/s there would turn rounding into weights of a million.
    """
    if lam > 0:
        return 1 / (s.clamp(min=0) + lam)
    rounding = s.max() * len(s) * torch.finfo(torch.float32).eps ** 2
    return torch.where(s > rounding, 1 / s, 0.0)


class Candidate(NamedTuple):
    """One α of the grid and what it gives on held-out rows."""

    alpha: float
    """λ in units of the mean variance of an input coordinate, summed over rows."""
    lam: float
    """λ = α · tr(C_xx)/d."""
    squared_error: float
    """Σ |y − W x − b|² over the held-out rows."""


class LambdaChoice(NamedTuple):
    """The λ with the least held-out error, and the whole grid."""

    lam: float
    table: tuple[Candidate, ...]


@torch.no_grad()
def choose_lambda(fit: RidgeStatistics, select: RidgeStatistics, alphas: Sequence[float] = ALPHAS) -> LambdaChoice:
    """Choose λ = α · tr(C_xx)/d for the rows `fit` by the squared error on the rows `select`.

    One eigendecomposition C_xx = U diag(s) Uᵀ serves the grid: with A = Uᵀ C_xy, D = 1/(s + λ) the fit is
    Wᵀ = U (D ∘ A), and its error on other moments is a quadratic form in D, so that a further λ costs O(d²).
    Raises ValueError where either side has no rows, MeasurementError where a row was not finite.
    """
    if not fit.count or not select.count or not len(alphas):
        raise ValueError("choosing λ needs rows to fit, rows to select on, and a grid")
    fit._check_finite()
    select._check_finite()
    s, U = torch.linalg.eigh(fit.cxx_)
    A = U.T @ fit.cxy_  # (d_in, d_out)
    linear = (A * (U.T @ select.cxy_)).sum(1)  # (d_in,)
    quadratic = (A @ A.T) * (U.T @ select.cxx_ @ U)  # (d_in, d_in)
    dx, dy = U.T @ (select.mean_x - fit.mean_x), select.mean_y - fit.mean_y
    unit = fit.cxx_.trace().item() / len(s)

    def candidate(alpha: float) -> Candidate:
        D = _shrink(s, alpha * unit)
        about_means = select.cyy_.sum() - 2 * D @ linear + D @ quadratic @ D
        offset = dy - (D * dx) @ A
        error = max(about_means.item(), 0.0) + select.count * offset.square().sum().item()
        return Candidate(alpha, alpha * unit, error)

    table = tuple(candidate(alpha) for alpha in alphas)
    return LambdaChoice(min(table, key=lambda c: c.squared_error).lam, table)


def mean_ablation(statistics: RidgeStatistics) -> LinearSurrogate:
    """The map that answers every input with the mean output: what is left of an MLP that hears nothing."""
    return LinearSurrogate(
        W=torch.zeros(len(statistics.mean_y), len(statistics.mean_x), device=statistics.device),
        b=statistics.mean_y.float(),
        count=statistics.count,
    )


def zero_ablation(d_in: int, d_out: int) -> LinearSurrogate:
    """The map that answers 0: the MLP taken out."""
    return LinearSurrogate(torch.zeros(d_out, d_in), torch.zeros(d_out))


def folded_map(anatomy: Anatomy, layer: int) -> LinearSurrogate | None:
    """The MLP without its activation, `W_proj (W_fc x + b_fc) + b_proj`; None where it is gated."""
    folded = anatomy.folded(layer)
    return None if folded is None else LinearSurrogate(folded[0].float(), folded[1].float())
