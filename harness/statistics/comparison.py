"""A measurement against a baseline: did the estimate get worse, beyond noise?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import ReportError
from harness.statistics.bounds import Bound, Combined
from harness.statistics.estimates import Estimate, quantile_pair
from harness.statistics.resampling import RESAMPLES

TOLERANCE = 1e-4
"""Differences up to this (0.01 percentage points of a cost) are float32 rounding on another machine, not a change."""


@dataclass(frozen=True)
class Comparison:
    """The change of one number since the baseline."""

    difference: float
    """now - then."""
    interval: tuple[float, float]
    """95 % interval of the difference."""
    p_value: float
    """One-sided: how surprising this change would be had the number not got worse."""
    paired: bool
    """Whether the documents are the same and differences are taken document by document."""

    def as_dict(self) -> dict[str, Any]:
        low, high = (end if math.isfinite(end) else None for end in self.interval)
        finite = self.difference if math.isfinite(self.difference) else None
        return {"difference": finite, "interval": [low, high], "p_value": self.p_value, "paired": self.paired}


def compare_to_baseline(now: Estimate | Bound, then: Estimate | Bound, direction: int,
                        refit_variance: float = 0.0) -> Comparison:
    """Compare ``now`` with ``then``. ``direction`` is +1 where larger is worse, -1 where smaller is.

    An Estimate gets a bootstrap-t test of the (paired) difference. A Bound has no distribution to resample: its p-value is
    the least level at which both its limits and the baseline's, half the level each, already exclude "no worse".
    ``refit_variance``, the variance of one estimate over refits, counts twice where documents differ: then two fits are
    compared that share nothing.
    """
    if isinstance(now, Estimate) and isinstance(then, Estimate):
        return _smooth(now, then, direction, refit_variance)
    if isinstance(now, Bound) and isinstance(then, Bound):
        return _bounded(now, then, direction, refit_variance)
    raise ReportError("the baseline holds another kind of number for this claim; write it anew with --update-baseline")


def _smooth(now: Estimate, then: Estimate, direction: int, refit_variance: float) -> Comparison:
    change = now - then
    paired = now.smooth.sample.strata == then.smooth.sample.strata
    extra = 0.0 if paired else 2.0 * refit_variance
    se = math.hypot(float(change.smooth.se[0]), math.sqrt(extra))
    value, t = change.value, change.smooth.t[:, 0]
    low, high = quantile_pair(t[:, None], 0.025)
    interval = (value - se * float(high[0]), value - se * float(low[0])) if se else (value, value)
    worse = direction * value - TOLERANCE
    if worse <= 0 or math.isinf(se):
        return Comparison(value, interval, 1.0 if worse <= 0 else 0.5, paired)
    return Comparison(value, interval, tail_probability(direction * t, worse / se) if se else 0.0, paired)


def tail_probability(t: np.ndarray, observed: float, documents: int | None = None) -> float:
    """P(t >= observed) from bootstrap-t draws; beyond the last few draws, the tail of the normal distribution scaled
    to agree with them, because many comparisons held together need p-values smaller than 1 / B."""
    from scipy.special import ndtr, ndtri

    B = len(t)
    exceed = int((t >= observed).sum())
    if exceed >= 20:
        return (exceed + 1) / (B + 1)
    anchor = float(np.sort(t)[B - 20])  # as extreme as 20 of B draws
    stretch = anchor / float(ndtri(1 - 20 / (B + 1)))
    return float(min(21 / (B + 1), ndtr(-observed / stretch))) if stretch > 0 else 1 / (B + 1)


def _bounded(now: Bound, then: Bound, direction: int, refit_variance: float) -> Comparison:
    change = Combined("-", now, then, now.unit)
    paired = now.strata == then.strata
    refit = 0.0 if paired else math.sqrt(2.0 * refit_variance)

    def limits(tail: float) -> tuple[float, float]:
        from scipy.special import ndtri

        low, high = change.limits(tail)
        slack = refit * float(ndtri(1 - tail / 2))
        return low - slack, high + slack

    def excluded(tail: float) -> bool:
        low, high = limits(tail)
        return (low if direction > 0 else -high) > TOLERANCE

    # tail / 2 goes to each side, and the least tail that B resamples can tell is 1 / (B + 1)
    least, most = 1, (RESAMPLES + 1) // 2
    if not excluded(2 * most / (RESAMPLES + 1)):
        return Comparison(change.value, limits(0.025), 1.0, paired)
    while least < most:
        rank = (least + most) // 2
        least, most = (least, rank) if excluded(2 * rank / (RESAMPLES + 1)) else (rank + 1, most)
    return Comparison(change.value, limits(0.025), 2 * least / (RESAMPLES + 1), paired)


def holm(p_values: Sequence[float], alpha: float = 0.05) -> list[bool]:
    """Which hypotheses are rejected with the chance of any false rejection held at ``alpha`` (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    rejected = [False] * len(p_values)
    for step, i in enumerate(order):
        if p_values[i] > alpha / (len(p_values) - step):
            break
        rejected[i] = True
    return rejected
