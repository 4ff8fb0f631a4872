"""One number with its uncertainty: per-document sums in, a value and a bootstrap-t interval out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness import numbers
from harness.errors import MeasurementError
from harness.statistics.formula import Array, Formula, shifted
from harness.statistics.resampling import RESAMPLES, Sample, Smooth

if TYPE_CHECKING:
    from harness.statistics.bounds import Bound


def quantile_pair(t: Array, tail: float) -> tuple[Array, Array]:
    """The lower and upper ``tail`` quantiles of draws (B, L), as order statistics number (B + 1) * tail."""
    B = t.shape[0]
    rank = max(1, int(np.floor((B + 1) * tail + 1e-9)))
    ordered = np.partition(t, (rank - 1, B - rank), axis=0)
    return ordered[rank - 1], ordered[B - rank]


def ends(smooth: Smooth, below: Array | float, above: Array | float) -> Array:
    """(L, 2) limits ``below`` and ``above`` the inner values, mapped outward; inf - inf is no limit."""
    inner = smooth.inner
    with np.errstate(invalid="ignore"):
        lower, upper = inner - below, inner + above
    lower, upper = np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
    return np.stack([smooth.outward(lower), smooth.outward(upper)], axis=-1)


def reach(se: Array, quantile: Array | float) -> Array:
    """se * quantile; without spread 0 whatever the quantile, with an unknown spread infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(se == 0, 0.0, np.where(np.isinf(se), np.inf, se * quantile))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A smooth function of ratios of per-document sums; arithmetic keeps equal documents paired."""

    smooth: Smooth = field(repr=False)
    """Sums, formula and resampling; one member."""
    tokens: int
    """Tokens (positions with a target) behind the value; of a difference, those of its smaller side."""
    unit: str = ""
    """How the value is shown: ``cost`` and ``share`` (fractions, shown as percent), ``nats``, or nothing."""
    undefined: str = ""
    """Why no verdict can rest on this value (a denominator that may be zero); empty where one can."""

    def __repr__(self) -> str:
        return f"<Estimate {with_interval(self)}>"

    @property
    def value(self) -> float:
        return float(self.smooth.values[0])

    @property
    def documents(self) -> int:
        """Number of documents; of a difference between corpora, that of the smaller one."""
        return self.smooth.sample.documents

    @property
    def se(self) -> float:
        """Standard error of the value by the delta method, over documents."""
        se = float(self.smooth.se[0])
        slope = {"expm1": 1.0 + self.value, "exp": self.value}.get(self.smooth.formula[0], 1.0)
        return se * slope if se else 0.0

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Equal-tailed bootstrap-t interval, built inside an outermost exponential and mapped through it."""
        low, high = self.limits((1 - level) / 2)
        return low, high

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        """One-sided limits at ``tail`` each; for ``scale`` and ``power`` see ``Bound.limits``."""
        q_low, q_high = quantile_pair(self.smooth.t, tail)
        se = self.smooth.se * scale
        low, high = ends(self.smooth, reach(se, q_high + power), reach(se, power - q_low))[0]
        return float(low), float(high)

    def __sub__(self, other: Estimate) -> Estimate:
        return self._with("-", other, difference_unit(self.unit))

    def __add__(self, other: Estimate) -> Estimate:
        return self._with("+", other, self.unit)

    def __truediv__(self, other: Estimate) -> Estimate:
        result = self._with("/", other, "")
        low, high = other.interval()
        if low <= 0 <= high:
            reason = f"the denominator's interval [{low:.3g}, {high:.3g}] includes 0"
            return Estimate(result.smooth, result.tokens, "", result.undefined or reason)
        return result

    def _with(self, operation: str, other: Estimate, unit: str) -> Estimate:
        smooth = joined(self.smooth, other.smooth, operation)
        return Estimate(smooth, min(self.tokens, other.tokens), unit, self.undefined or other.undefined)


def with_interval(found: Estimate | Bound) -> str:
    """``15.3 % [9.8, 22.1], 27 documents``: value, 95 % interval and documents, or why there is no number."""
    shown, limits = numbers.estimate(found.value, found.interval(), found.unit)
    words = f"{shown} {limits}, {numbers.plural(found.documents, 'document')}"
    return f"{words}; undefined: {found.undefined}" if found.undefined else words


def difference_unit(unit: str) -> str:
    """How a difference is shown: percentage points where the values are percent."""
    return "points" if unit in ("cost", "share") else unit


def joined(a: Smooth, b: Smooth, operation: str) -> Smooth:
    """Member by member ``a <operation> b``: documents paired in strata with equal ids, others independent."""
    sample = a.sample.union(b.sample)
    moved: dict[int, Array] = {}  # the same array spread once, so that shared denominators stay recognizable

    def move(smooth: Smooth, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        for array in arrays:
            if id(array) not in moved:
                moved[id(array)] = smooth.sample.spread(array, sample)
        return tuple(moved[id(array)] for array in arrays)

    return Smooth(
        sample,
        move(a, a.numerators) + move(b, b.numerators),
        move(a, a.denominators) + move(b, b.denominators),
        [operation, a.formula, shifted(b.formula, len(a.numerators))],
        max(a.members, b.members),
    )


@dataclass(frozen=True, eq=False)
class DocumentSums:
    """Sums over the positions of each document, the least from which every statistic follows."""

    documents: tuple[str, ...]
    """Ids of the documents, each once."""
    tokens: Array
    """(D,) positions with a target in each document."""
    sums: Mapping[str, Array]
    """Name -> (D,) sum over those positions, or (L, D) for a family."""
    seed: int = 0
    """Seed of the resampling."""
    resamples: int = RESAMPLES
    """Number of resamples."""

    @cached_property
    def _order(self) -> tuple[Sample, NDArray[np.intp], Array]:
        """Documents sorted by id; those without a token say nothing and are left out."""
        tokens = np.asarray(self.tokens, dtype=np.float64)
        if len(set(self.documents)) != len(self.documents):
            raise MeasurementError("a document id occurs twice; give every document one row of sums")
        if tokens.shape != (len(self.documents),) or not (np.isfinite(tokens) & (tokens >= 0)).all():
            raise MeasurementError("token counts must be one finite number, 0 or more, for each document")
        order = np.array(
            sorted((i for i in range(len(tokens)) if tokens[i] > 0), key=lambda i: self.documents[i]),
            dtype=np.intp,
        )
        if not len(order):
            raise MeasurementError("no document has a token to measure; use longer documents")
        sample = Sample((tuple(self.documents[i] for i in order),), self.seed, self.resamples)
        return sample, order, tokens[None, order]

    def smooth(self, names: Sequence[str], formula: Formula) -> Smooth:
        """``formula`` over the per-token means of the named sums, in their order."""
        sample, order, tokens = self._order
        rows = []
        for name in names:
            sums = np.atleast_2d(np.asarray(self.sums[name], dtype=np.float64))
            if sums.shape[1] != len(self.documents):
                raise MeasurementError(f"the sums {name!r} are not one number for each of the documents")
            left_out = np.setdiff1d(np.arange(sums.shape[1]), order)
            if sums[:, left_out].any():
                raise MeasurementError(f"document {self.documents[left_out[0]]} has a sum {name!r} but no token")
            rows.append(sums[:, order])
        members = max(row.shape[0] for row in rows)
        return Smooth(sample, tuple(rows), (tokens,) * len(rows), formula, members)

    @property
    def total_tokens(self) -> int:
        return round(float(np.sum(self.tokens)))

    def mean(self, name: str, unit: str = "nats") -> Estimate:
        """Per-token mean, sum / tokens."""
        return Estimate(self.smooth([name], ["ratio", 0]), self.total_tokens, unit)

    def cost(self, name: str) -> Estimate:
        """Relative change of perplexity, exp(mean of delta NLL) - 1, from a sum of delta NLL in nats."""
        return Estimate(self.smooth([name], ["expm1", ["ratio", 0]]), self.total_tokens, "cost")

    def perplexity(self, name: str) -> Estimate:
        """exp(mean NLL) from a sum of NLL in nats."""
        return Estimate(self.smooth([name], ["exp", ["ratio", 0]]), self.total_tokens, "")

    def ratio(self, above: str, below: str, unit: str = "") -> Estimate:
        """Ratio of two sums, sum(above) / sum(below), undefined where the lower one may be zero."""
        return self.mean(above, unit) / self.mean(below, unit)
