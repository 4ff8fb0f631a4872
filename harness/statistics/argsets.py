"""Which layer is the cheapest (or dearest): judged with the set of layers not surely worse than the best.

Layer k is surely worse than the best where some other layer is surely better than k. For each k the
differences to all others are studentised together (max-t over the L - 1 pairs, paired by document), so the
true best is left out with probability ``tail`` at most. No allowance for the number of candidates is
needed, as only the true best can be wronged (multiple comparisons with the best; Hsu 1984).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.errors import MeasurementError
from harness.statistics.bounds import Bound
from harness.statistics.estimates import reach
from harness.statistics.formula import Array

if TYPE_CHECKING:
    from harness.statistics.families import Family


@dataclass(frozen=True, eq=False)
class ArgSet:
    """The member with the smallest (``cheapest``) or largest (``dearest``) value of a family."""

    family: Family
    """The members."""
    kind: str
    """``cheapest`` or ``dearest``."""

    unit = "layer"

    def __repr__(self) -> str:
        among = ", ".join(str(name) for name in self.members())
        return f"<ArgSet {self.kind} as measured: {self.value}; not surely worse: {among}>"

    @property
    def value(self) -> Hashable:
        """Name of the member whose value is best as measured."""
        return self.family.names[int(np.argmax(self._score))]

    @property
    def documents(self) -> int:
        return self.family.documents

    @property
    def tokens(self) -> int:
        return self.family.tokens

    @property
    def undefined(self) -> str:
        return "" if self.family.known.all() else self.family.why_undefined

    def members(self, level: float = 0.95) -> tuple[Hashable, ...]:
        """Members not surely worse than the best; they hold the true best with probability ``level``."""
        tail = (1 - level) / 2  # as for every other one-sided statement of an interval of this level
        L = len(self.family)
        keep = []
        for k in range(L):
            others = [j for j in range(L) if j != k]
            if self._surely_worse(k, others, tail):
                continue
            difference, se, t = self.lead(others, [k])
            q = _critical(t[:, :, 0], tail)
            if not (difference[:, 0] - reach(se[:, 0], q) > 0).any():
                keep.append(self.family.names[k])
        return tuple(keep)

    def advantage(self, inside: Iterable[Hashable]) -> Advantage:
        """By how much the best of the members ``inside`` beats the best of all others."""
        wanted = set(inside)
        rows = tuple(i for i, name in enumerate(self.family.names) if name in wanted)
        if not rows:
            raise MeasurementError("none of the layers in question was measured; choose layers of this model")
        return Advantage(self, rows, tuple(i for i in range(len(self.family)) if i not in rows))

    def lead(self, rows: list[int], over: list[int]) -> tuple[Array, Array, Array]:
        """How far members ``rows`` (n) are better than members ``over`` (m), on the inner scale:
        differences (n, m), standard errors (n, m) and bootstrap-t draws (B, n, m)."""
        pairs = self.family.smooth.pairs
        i, j = np.meshgrid(rows, over, indexing="ij")
        place = self._place[np.minimum(i, j), np.maximum(i, j)]
        sign = np.where(i < j, 1.0, -1.0) * (1.0 if self.kind == "dearest" else -1.0)
        draws = self._draws[place] * sign[..., None]  # (n, m, B)
        return sign * pairs.inner[place], pairs.se[place], np.moveaxis(draws, -1, 0)

    def _surely_worse(self, k: int, others: list[int], tail: float) -> bool:
        """Whether k is beaten even at the critical value of all pairs at once, which is no less than its own."""
        pairs, score = self.family.smooth.pairs, self._score
        se = pairs.se[[self._place[min(j, k), max(j, k)] for j in others]]
        lead = score[others] - score[k]
        return bool((lead - reach(se, self._largest(tail)) > 0).any())

    def _largest(self, tail: float) -> float:
        """Critical value of the largest draw of either sign over all pairs."""
        if tail not in self._all_pairs:
            largest = np.maximum(self._draws.max(axis=0), -self._draws.min(axis=0))
            self._all_pairs[tail] = float(_critical(largest[:, None], tail))
        return self._all_pairs[tail]

    @cached_property
    def _all_pairs(self) -> dict[float, float]:
        return {}

    @cached_property
    def _draws(self) -> Array:
        """(pairs, B) bootstrap-t draws, a pair's side by side in memory: ``lead`` takes a few pairs at a time."""
        return np.ascontiguousarray(self.family.smooth.pairs.t.T)

    @property
    def _score(self) -> Array:
        return self.family.smooth.inner * (1.0 if self.kind == "dearest" else -1.0)

    @cached_property
    def _place(self) -> NDArray[np.intp]:
        """(L, L) column of the pair i < j."""
        L = len(self.family)
        place = np.zeros((L, L), dtype=np.intp)
        place[np.triu_indices(L, 1)] = np.arange(L * (L - 1) // 2)
        return place


@dataclass(frozen=True, eq=False, repr=False)
class Advantage(Bound):
    """Best of the others less best of the members inside: positive where the best of all is inside.

    Costs are compared as perplexities: the lead is the relative rise of perplexity from one to the other.
    Both limits are intersection-union: to show that the best is inside, every outside member must be surely
    worse than some inside member, each at the full level.
    """

    argset: ArgSet
    """What is compared."""
    inside: tuple[int, ...]
    """Rows of the members inside."""
    outside: tuple[int, ...]
    """Rows of all others."""

    @property
    def unit(self) -> str:  # type: ignore[override]
        return self.argset.family.unit

    @property
    def value(self) -> float:
        score = self.argset._score
        if not self.outside:
            return float("inf")
        return self._out(float(score[list(self.inside)].max() - score[list(self.outside)].max()))

    @property
    def documents(self) -> int:
        return self.argset.documents

    @property
    def tokens(self) -> int:
        return self.argset.tokens

    @property
    def undefined(self) -> str:
        return self.argset.undefined

    @property
    def strata(self) -> tuple[tuple[str, ...], ...]:
        return self.argset.family.smooth.sample.strata

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        if not self.outside:
            return np.inf, np.inf
        difference, se, lower_q, upper_q = self._critical_values(tail)
        with np.errstate(invalid="ignore"):
            low = (difference - reach(se * scale, lower_q[None, :] + power)).max(axis=0).min()
            high = (difference + reach(se * scale, upper_q[:, None] + power)).min(axis=1).max()
        return self._out(float(low)), self._out(float(high))

    def _critical_values(self, tail: float) -> tuple[Array, Array, Array, Array]:
        """Leads (n, m) of inside over outside members, standard errors, critical values (m,) and (n,)."""
        if tail not in self._cache:
            difference, se, t = self.argset.lead(list(self.inside), list(self.outside))
            self._cache[tail] = (difference, se, _critical(t, tail), _critical(-t.transpose(0, 2, 1), tail))
        return self._cache[tail]

    @cached_property
    def _cache(self) -> dict[float, tuple[Array, Array, Array, Array]]:
        return {}

    def _out(self, difference: float) -> float:
        with np.errstate(over="ignore"):
            return float(np.expm1(difference)) if self.argset.family.unit == "cost" else difference


def _critical(t: Array, tail: float) -> Array:
    """Upper ``tail`` quantile over resamples of the largest t along the second axis; (B, n) or (B, n, m)."""
    largest = t.max(axis=1)
    B = largest.shape[0]
    rank = max(1, int(np.floor((B + 1) * tail + 1e-9)))
    return np.partition(largest, B - rank, axis=0)[B - rank]
