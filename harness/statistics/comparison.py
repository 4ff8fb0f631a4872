"""A measurement against a baseline: did the estimate get worse, beyond noise?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import ReportError
from harness.statistics.bounds import Bound, Combined
from harness.statistics.estimates import Estimate, quantile_pair
from harness.statistics.formula import Array

TOLERANCE = 1e-4
"""Differences up to this (0.01 points of a cost) are float32 rounding on another machine, not a change."""

_FEW = 10
"""Where fewer draws than this lie beyond, Student's t continues their tail. Many comparisons held together
by Holm's procedure need p-values far smaller than one in the number of resamples."""

_LAST_TAIL = 0.025
"""The same for the limits of a Bound: smaller tails widen the limits of this one as Student's t would."""


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


def compare_to_baseline(
    now: Estimate | Bound, then: Estimate | Bound, direction: int, refit_variance: float = 0.0
) -> Comparison:
    """Compare ``now`` with ``then``. ``direction`` is +1 where larger is worse, -1 where smaller is.

    An Estimate gets a bootstrap-t test of the (paired) difference. A Bound has no distribution to resample:
    its p-value is the least level at which its limits and the baseline's, half the level each, exclude "not
    worse". ``refit_variance``, the variance of one estimate over refits, counts twice where documents
    differ: then two fits are compared that share nothing.
    """
    if isinstance(now, Estimate) and isinstance(then, Estimate):
        return _smooth(now, then, direction, refit_variance)
    if isinstance(now, Bound) and isinstance(then, Bound):
        return _bounded(now, then, direction, refit_variance)
    raise ReportError("the baseline holds another kind of number for this claim; write it anew with --update-baseline")


def _smooth(now: Estimate, then: Estimate, direction: int, refit_variance: float) -> Comparison:
    change = now - then
    paired = now.smooth.sample.strata == then.smooth.sample.strata
    se = math.hypot(float(change.smooth.se[0]), 0.0 if paired else math.sqrt(2.0 * refit_variance))
    value, t = change.value, change.smooth.t
    low, high = (float(q[0]) for q in quantile_pair(t, 0.025))
    interval = (value - se * high, value - se * low) if se else (value, value)
    worse = direction * value - TOLERANCE
    if worse <= 0 or math.isinf(se):
        return Comparison(value, interval, 1.0, paired)
    p = tail_probability(direction * t[:, 0], worse / se, change.documents) if se else 0.0
    return Comparison(value, interval, p, paired)


def tail_probability(t: Array, observed: float, documents: int) -> float:
    """P(t >= observed) under bootstrap-t draws t (B,), continued by a Student t scaled to agree with them."""
    B, exceed = len(t), int((t >= observed).sum())
    if exceed >= _FEW:
        return (1 + exceed) / (B + 1)
    survival, quantile = _student(documents)
    anchor, tail = float(np.sort(t)[B - _FEW]), _FEW / (B + 1)
    return min(tail, survival(observed * quantile(tail) / anchor)) if anchor > 0 else tail


def _bounded(now: Bound, then: Bound, direction: int, refit_variance: float) -> Comparison:
    change = Combined("-", now, then, now.unit)
    paired = now.strata == then.strata
    refit = 0.0 if paired else math.sqrt(2.0 * refit_variance)
    _, quantile = _student(change.documents)

    def limits(tail: float) -> tuple[float, float]:
        """Limits of the difference, wrong with probability ``tail`` at most each."""
        drawn = max(tail, 2 * _LAST_TAIL)  # half of it goes to each side
        scale = quantile(tail / 2) / quantile(drawn / 2) if tail < drawn else 1.0
        low, high = change.limits(drawn, scale=scale)
        slack = refit * max(0.0, quantile(tail / 2))
        return low - slack, high + slack

    def worse(tail: float) -> bool:
        low, high = limits(tail)
        return (low if direction > 0 else -high) > TOLERANCE

    least, most = -30.0, 0.0  # of log10(tail)
    if change.value * direction <= TOLERANCE or not worse(10.0**most):
        return Comparison(change.value, limits(0.025), 1.0, paired)
    while most - least > 0.01:
        middle = (least + most) / 2
        least, most = (least, middle) if worse(10.0**middle) else (middle, most)
    return Comparison(change.value, limits(0.025), 10.0**most, paired)


def _student(documents: int) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """P(t > x), and the upper quantile of a tail, for Student's t with documents - 1 degrees of freedom."""
    from scipy.special import stdtr, stdtrit  # here, because only runs with a baseline need it

    freedom = max(1, documents - 1)
    return lambda x: float(stdtr(freedom, -x)), lambda tail: -float(stdtrit(freedom, tail))


def holm(p_values: Sequence[float], alpha: float = 0.05) -> list[bool]:
    """Which hypotheses are rejected with the chance of any false rejection held at ``alpha`` (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    rejected = [False] * len(p_values)
    for step, i in enumerate(order):
        if p_values[i] > alpha / (len(p_values) - step):
            break
        rejected[i] = True
    return rejected
