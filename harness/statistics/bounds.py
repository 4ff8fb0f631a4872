"""Counts, shares, maxima, minima, medians over layers: bounded by what is sure of the layers, not resampled.

A percentile interval for a maximum over tied layers covers 21 to 38 %, and a bootstrapped share whose truth
is exactly the threshold is refuted 42 % of the time. Here every limit is a closed test (Goeman, Meijer,
Krebs and Solari 2019, Biometrika 106). Take "at least m of L layers cost less than c". Were it false, some
k = L - m + 1 layers would cost c or more. So it is shown once, for *every* set of k layers, "all of these
cost c or more" is rejected. Each set is tested by Simes' inequality: with p_(1) <= ... <= p_(k) the
one-sided bootstrap-t p-values in the set, reject where p_(j) <= j tail / k for some j. The set hardest to
reject holds the k largest p-values of all, which leaves one line of arithmetic:

    at least m layers lie below c  where  p_(m + j - 1) <= j tail / (L - m + 1)  for some j.

Moving c turns this into limits of the m-th cheapest layer. The limit of the maximum (m = L, k = 1) then
needs only each layer's own limit, that of the minimum (m = 1, k = L) pays for all layers.

Simes' inequality holds for positively dependent statistics (Benjamini and Yekutieli 2001; Sarkar 1998),
which layers evaluated on the same documents are; it fails by very little otherwise. Reading counts off the
simultaneous max-t intervals is valid too, but supports fewer true statements (77 against 89 % for a share of
22/24 against 70 % with 60 documents; ``harness.calibration`` shows both).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.statistics.estimates import difference_unit, reach, with_interval
from harness.statistics.formula import Array

if TYPE_CHECKING:
    from harness.statistics.families import Family


class Bound:
    """A number known to lie between two limits, each wrong with probability ``tail`` at most."""

    unit: str
    """How it is shown."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {with_interval(self)}>"

    @property
    def value(self) -> float:
        """The number computed from the members' values."""
        raise NotImplementedError

    @property
    def documents(self) -> int:
        """Documents behind it."""
        raise NotImplementedError

    @property
    def tokens(self) -> int:
        """Tokens behind it."""
        raise NotImplementedError

    @property
    def undefined(self) -> str:
        """Why no verdict can rest on it, or nothing."""
        return ""

    @property
    def strata(self) -> tuple[tuple[str, ...], ...]:
        """Ids of the documents behind it."""
        raise NotImplementedError

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        """Lower and upper limit, each wrong with probability ``tail`` at most.

        For planning, ``scale`` multiplies the members' half-widths (sqrt(D / D') gives about the limits of
        D' documents) and ``power`` adds standard errors to them.
        """
        raise NotImplementedError

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Both limits, which cover the number with probability ``level`` at least."""
        return self.limits((1 - level) / 2)

    def __sub__(self, other: Bound) -> Bound:
        return Combined("-", self, other, difference_unit(self.unit))

    def __truediv__(self, other: Bound) -> Bound:
        return Combined("/", self, other, "")


@dataclass(frozen=True, eq=False, repr=False)
class _OfFamily(Bound):
    family: Family
    """The members it is computed from."""

    @property
    def documents(self) -> int:
        return self.family.documents

    @property
    def tokens(self) -> int:
        return self.family.tokens

    @property
    def undefined(self) -> str:
        return "" if self.family.known.all() else self.family.why_undefined

    @property
    def strata(self) -> tuple[tuple[str, ...], ...]:
        return self.family.smooth.sample.strata


@dataclass(frozen=True, eq=False, repr=False)
class CountBound(_OfFamily):
    """How many members lie strictly below a threshold (or above it), or which share of them."""

    threshold: float
    """The threshold, in the unit of the members."""
    above: bool = False
    """Whether members above are counted rather than members below."""
    share: bool = False
    """Whether the count is divided by the number of members."""

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "share" if self.share else "layers"

    @property
    def value(self) -> float:
        values = self.family.values
        return self._out(int((values > self.threshold if self.above else values < self.threshold).sum()))

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        L = len(self.family)
        below = self._sure(+1, tail, scale, power, strict=not self.above)
        above = self._sure(-1, tail, scale, power, strict=self.above)
        return (self._out(above), self._out(L - below)) if self.above else (self._out(below), self._out(L - above))

    def _sure(self, side: int, tail: float, scale: float, power: float, *, strict: bool) -> int:
        """How many members surely lie below the threshold (``side`` +1) or above it (-1)."""
        smooth = self.family.smooth
        margin = side * (smooth.inward(self.threshold) - smooth.inner)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = margin / (smooth.se * scale) - power
        p = self.family.exceedance(-side, z, or_equal=strict)
        exact = (margin > 0) | ((margin == 0) & (not strict))
        p = np.where(smooth.se == 0, np.where(exact, 0.0, 1.0), np.where(np.isinf(smooth.se), 1.0, p))
        return simes_count(np.where(self.family.known, p, 1.0), tail)

    def _out(self, count: int) -> float:
        return count / len(self.family) if self.share else float(count)


def simes_count(p: Array, tail: float) -> int:
    """The largest m such that Simes' test rejects every set of L - m + 1 of the L p-values at ``tail``."""
    L = len(p)
    i, m = np.arange(1, L + 1)[:, None], np.arange(1, L + 1)[None, :]
    rejected = (i >= m) & (np.sort(p)[:, None] * (L - m + 1) <= (i - m + 1) * tail * (1 + 1e-12))
    return int((rejected.any(axis=0) * m[0]).max())


@dataclass(frozen=True, eq=False, repr=False)
class OrderBound(_OfFamily):
    """The j-th smallest of the members' values, or the mean of two such: maximum, minimum, median."""

    name: str
    """What it is called."""
    first: int
    """Rank of the smaller of the two, counted from 1."""
    last: int
    """Rank of the larger of the two; equal to ``first`` where there is only one."""

    @property
    def unit(self) -> str:  # type: ignore[override]
        return self.family.unit

    @property
    def value(self) -> float:
        ordered = np.sort(self.family.values)
        return self._mean(ordered[self.first - 1], ordered[self.last - 1])

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        L, outward = len(self.family), self.family.smooth.outward
        # a lower limit is an upper one of the negated values, with ranks counted from the other end
        upper = self._upper(+1, self.first, self.last, tail, scale, power)
        lower = self._upper(-1, L + 1 - self.last, L + 1 - self.first, tail, scale, power)
        return self._mean(*outward(-lower)), self._mean(*outward(upper))

    def _upper(self, side: int, first: int, last: int, tail: float, scale: float, power: float) -> Array:
        """Upper limits of the ``first`` and ``last`` smallest of side * inner value; one event keeps both."""
        family, k = self.family, len(self.family) - first + 1
        limits = []
        for rank in (first, last):
            j = np.arange(1, len(family) - rank + 2)
            q = family.quantiles(-side, j * tail / k)  # (j, L)
            each = side * family.smooth.inner + reach(family.smooth.se * scale, q + power)
            each = np.sort(np.where(family.known, each, np.inf), axis=1)
            limits.append(each[j - 1, rank + j - 2].min())
        return np.array(limits)

    @staticmethod
    def _mean(first: float, last: float) -> float:
        return float(first) if first == last else float((first + last) / 2)


@dataclass(frozen=True, eq=False, repr=False)
class Combined(Bound):
    """Difference or ratio of two Bounds; each gets half of the error probability, however they depend."""

    operation: str
    """``-`` or ``/``."""
    left: Bound
    """Minuend or dividend."""
    right: Bound
    """Subtrahend or divisor."""
    unit: str = ""
    """How the value is shown."""

    @property
    def value(self) -> float:
        if self.operation == "-":
            return self.left.value - self.right.value
        return self.left.value / self.right.value if self.right.value else float("nan")

    @property
    def documents(self) -> int:
        return min(self.left.documents, self.right.documents)

    @property
    def tokens(self) -> int:
        return min(self.left.tokens, self.right.tokens)

    @property
    def undefined(self) -> str:
        if self.left.undefined or self.right.undefined:
            return self.left.undefined or self.right.undefined
        low, high = self.right.interval()
        if self.operation == "/" and low <= 0 <= high:
            return f"the denominator's interval [{low:.3g}, {high:.3g}] includes 0"
        return ""

    @property
    def strata(self) -> tuple[tuple[str, ...], ...]:
        return tuple(dict.fromkeys(self.left.strata + self.right.strata))

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        a = self.left.limits(tail / 2, scale=scale, power=power)
        b = self.right.limits(tail / 2, scale=scale, power=power)
        if self.operation == "-":
            return a[0] - b[1], a[1] - b[0]
        if b[0] <= 0 <= b[1]:
            return -np.inf, np.inf
        quotients = [x / y for x in a for y in b if not (np.isinf(x) and np.isinf(y))]
        return min(quotients), max(quotients)
