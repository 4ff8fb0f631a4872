"""Counts, shares, maxima, minima and medians over layers, bounded from limits that hold for many layers at once.

None of these is a smooth function of the data: a percentile interval for a maximum over tied layers covers 21 to 38 %,
and a bootstrapped share whose truth is the threshold is refuted 42 % of the time. So nothing here is resampled. Each
limit follows from limits of the members by one argument:

    Let the true values be theta_(1) <= ... <= theta_(L), and let U be upper limits of which the L - m + 1 members with the
    largest true values all hold. Then theta_(j) is at most the j-th smallest U, for every j >= m.

So the maximum (m = L) needs one limit to hold, the minimum (m = 1) all of them, and "at least m members lie below c"
is shown by m members with U < c where U need only hold for any L - m + 1 members: were the statement false, that many
members would lie at c or above. Applied for 1, 2, ..., m in turn this is Holm's step-down procedure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.statistics.formula import Array

if TYPE_CHECKING:
    from harness.statistics.families import Family


class Bound:
    """A number known to lie between two limits, each wrong with probability ``tail`` at most."""

    unit: str

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

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        """Lower and upper limit. ``scale`` multiplies the members' half-widths and ``power`` adds standard errors to
        them, for planning: at scale sqrt(D / D') the limits are about those of D' documents."""
        raise NotImplementedError

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Both limits, which cover the number with probability ``level`` at least."""
        return self.limits((1 - level) / 2)

    def __sub__(self, other: Bound) -> Bound:
        return Combined("-", self, other, self.unit)

    def __truediv__(self, other: Bound) -> Bound:
        return Combined("/", self, other, "")


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
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
        sure = self._sure("upper", tail, scale, power, strict=not self.above)  # surely below the threshold
        sure_above = self._sure("lower", tail, scale, power, strict=self.above)
        least, most = (sure_above, len(self.family) - sure) if self.above else (sure, len(self.family) - sure_above)
        return self._out(least), self._out(most)

    def _sure(self, side: str, tail: float, scale: float, power: float, *, strict: bool) -> int:
        """The most members of which it is sure that they lie on one side of the threshold (``upper``: below it)."""
        smooth = self.family.smooth
        margin = (smooth.inward(self.threshold) - smooth.inner) * (1 if side == "upper" else -1)
        se = smooth.se * scale
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(se > 0, margin / se, np.where((margin > 0) | ((margin == 0) & (not strict)), np.inf, -np.inf))
        z = np.where(self.family.known & ~np.isinf(smooth.se), z, -np.inf)
        needed = self.family.critical(tail, side)[::-1] + power  # for the m-th surest, any L - m + 1 must not fail
        passed = np.sort(z)[::-1] > needed if strict else np.sort(z)[::-1] >= needed
        return len(passed) if passed.all() else int(np.argmin(passed))

    def _out(self, count: int) -> float:
        return count / len(self.family) if self.share else float(count)


@dataclass(frozen=True, eq=False)
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
        return self._middle(self.family.values)

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        lower = self.family.lower(tail, self.last, scale=scale, power=power)
        upper = self.family.upper(tail, len(self.family) - self.first + 1, scale=scale, power=power)
        return self._middle(lower), self._middle(upper)

    def _middle(self, values: Array) -> float:
        ordered = np.sort(values)
        first, last = float(ordered[self.first - 1]), float(ordered[self.last - 1])
        return first if first == last else (first + last) / 2


@dataclass(frozen=True, eq=False)
class Combined(Bound):
    """Difference or ratio of two Bounds; each side gets half of the error probability, however they depend."""

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
        if self.operation == "/":
            low, high = self.right.interval()
            if low <= 0 <= high:
                return f"the denominator's interval [{low:.3g}, {high:.3g}] includes 0"
        return ""

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        a = self.left.limits(tail / 2, scale=scale, power=power)
        b = self.right.limits(tail / 2, scale=scale, power=power)
        if self.operation == "-":
            return a[0] - b[1], a[1] - b[0]
        if b[0] <= 0 <= b[1]:
            return -np.inf, np.inf
        quotients = [x / y for x in a for y in b if not (np.isinf(x) and np.isinf(y))]
        return min(quotients), max(quotients)
