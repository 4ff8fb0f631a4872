"""Families: the same statistic for every layer, with intervals that hold for all layers at once.

The intervals are max-t: the largest studentised deviation over the layers is found in every resample, each
layer studentised by that resample's own standard error (Romano and Wolf 2005). With a fixed standard error
such intervals cover 55 to 84 % instead of 95. How many layers lie below a threshold, and the like, is
bounded: see ``bounds``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness import numbers
from harness.errors import MeasurementError
from harness.statistics.argsets import ArgSet
from harness.statistics.bounds import Bound, CountBound, OrderBound
from harness.statistics.estimates import DocumentSums, Estimate, ends, joined, quantile_pair, reach
from harness.statistics.formula import Array, Formula, shifted
from harness.statistics.resampling import RESAMPLES, Smooth


@dataclass(frozen=True, eq=False)
class Family:
    """L members (layers): one smooth function of each one's per-document sums, on the same documents."""

    names: tuple[Hashable, ...]
    """Names of the members, mostly layer numbers."""
    smooth: Smooth = field(repr=False)
    """Sums, formula and resampling."""
    tokens: int
    """Tokens (positions with a target) behind each value."""
    unit: str = "cost"
    """How values are shown: ``cost`` (a fraction, shown as percent), ``nats``, ``share`` or nothing."""
    defined: tuple[bool, ...] = ()
    """Members on which a verdict can rest; empty means all."""
    why_undefined: str = ""
    """Why the others cannot carry one."""

    def __post_init__(self) -> None:
        if len(self.names) != self.smooth.members or not self.names:
            raise MeasurementError(f"a family of {self.smooth.members} members has {len(self.names)} names")
        if len(set(self.names)) != len(self.names):
            raise MeasurementError("two members of a family have the same name")

    def __repr__(self) -> str:
        low, high = (numbers.estimate(float(end(self.values)), None, self.unit)[0] for end in (min, max))
        documents = numbers.plural(self.documents, "document")
        return f"<Family of {numbers.plural(len(self), 'member')}: {low} to {high}, {documents}>"

    def __len__(self) -> int:
        return len(self.names)

    @property
    def values(self) -> Array:
        """(L,) the members' values."""
        return self.smooth.values

    @property
    def documents(self) -> int:
        return self.smooth.sample.documents

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """(L,) whether a member may be judged at all."""
        return np.array(self.defined if self.defined else (True,) * len(self), dtype=bool)

    # ---- parts

    def at(self, name: Hashable) -> Estimate:
        """One member as an Estimate of its own, with the interval it has outside the family."""
        i = self._index(name)
        return Estimate(self.smooth.take([i]), self.tokens, self.unit, "" if self.known[i] else self.why_undefined)

    def only(self, names: Iterable[Hashable]) -> Family:
        """The family of these members alone; fewer members have narrower simultaneous limits."""
        chosen = sorted({self._index(name) for name in names})
        if not chosen:
            raise MeasurementError("none of the family's members was chosen; a statement needs at least one layer")
        defined = tuple(bool(self.known[i]) for i in chosen) if self.defined else ()
        return Family(
            tuple(self.names[i] for i in chosen),
            self.smooth.take(chosen),
            self.tokens,
            self.unit,
            defined,
            self.why_undefined,
        )

    def without(self, names: Iterable[Hashable]) -> Family:
        """The family of all other members."""
        left_out = set(names)
        return self.only(name for name in self.names if name not in left_out)

    def mean(self) -> Estimate:
        """Mean of the members' values, as a smooth Estimate."""
        K, smooth = len(self.smooth.numerators), self.smooth
        parts: list[Formula] = []
        numerators: list[Array] = []
        denominators: list[Array] = []
        for i in range(len(self)):
            numerators += [_row(a, i) for a in smooth.numerators]
            denominators += [_row(t, i) for t in smooth.denominators]
            parts.append(shifted(smooth.formula, K * i))
        formula = ["mean", *parts] if len(parts) > 1 else parts[0]
        mean = Smooth(smooth.sample, tuple(numerators), tuple(denominators), formula)
        return Estimate(mean, self.tokens, self.unit, "" if self.known.all() else self.why_undefined)

    def minus(self, other: Family) -> Family:
        """Differences member by member, paired by document."""
        if self.names != other.names:
            raise MeasurementError("families with different members cannot be subtracted; choose the same layers")
        both = tuple(bool(k) for k in self.known & other.known)
        return Family(
            self.names,
            joined(self.smooth, other.smooth, "-"),
            min(self.tokens, other.tokens),
            self.unit,
            both if not all(both) else (),
            self.why_undefined or other.why_undefined,
        )

    # ---- limits

    def interval(self, level: float = 0.95) -> Array:
        """(L, 2) simultaneous intervals: all of them cover at once with probability ``level``.

        Members without a defined value have nan. The two tails have a critical value each, as a family
        that is skewed to one side need not be wide on the other.
        """
        t, tail = self.smooth.t[:, self.known], (1 - level) / 2
        if not t.shape[1]:
            return np.full((len(self), 2), np.nan)
        low, _ = quantile_pair(t.min(axis=1, keepdims=True), tail)
        _, high = quantile_pair(t.max(axis=1, keepdims=True), tail)
        limits = ends(self.smooth, reach(self.smooth.se, high), reach(self.smooth.se, -low))
        return np.where(self.known[:, None], limits, np.nan)

    def pointwise(self, level: float = 0.95) -> Array:
        """(L, 2) intervals that cover for each member alone; nan where undefined."""
        low, high = quantile_pair(self.smooth.t, (1 - level) / 2)
        limits = ends(self.smooth, reach(self.smooth.se, high), reach(self.smooth.se, -low))
        return np.where(self.known[:, None], limits, np.nan)

    @cached_property
    def _ordered(self) -> Array:
        """(L, B) each member's draws in rising order."""
        return np.sort(self.smooth.t.T, axis=1)

    def exceedance(self, sign: int, z: Array, *, or_equal: bool) -> Array:
        """(L,) p-values (1 + number of draws with sign * t >= z) / (B + 1), or > z without ``or_equal``."""
        draws = self._ordered if sign > 0 else -self._ordered[:, ::-1]
        B = draws.shape[1]
        side: Literal["left", "right"] = "left" if or_equal else "right"
        beyond = [B - np.searchsorted(row, x, side=side) for row, x in zip(draws, z, strict=True)]
        return (1 + np.array(beyond)) / (B + 1)

    def quantiles(self, sign: int, tails: Array) -> Array:
        """(J, L) upper quantiles of sign * t at ``tails`` (J,); infinite where B draws cannot tell."""
        draws = self._ordered if sign > 0 else -self._ordered[:, ::-1]
        B = draws.shape[1]
        rank = np.floor((B + 1) * tails + 1e-9).astype(int)
        q = draws[:, B - np.clip(rank, 1, B)].T
        return np.where(rank[:, None] >= 1, q, np.inf)

    # ---- what claims ask for; the numbers are bounded by the limits, never bootstrapped

    def count_below(self, threshold: float) -> Bound:
        """Number of members with a value below ``threshold``."""
        return CountBound(self, threshold)

    def count_above(self, threshold: float) -> Bound:
        """Number of members with a value above ``threshold``."""
        return CountBound(self, threshold, above=True)

    def share_below(self, threshold: float) -> Bound:
        """Share of members with a value below ``threshold``."""
        return CountBound(self, threshold, share=True)

    def share_above(self, threshold: float) -> Bound:
        """Share of members with a value above ``threshold``."""
        return CountBound(self, threshold, above=True, share=True)

    def maximum(self) -> Bound:
        """The largest value."""
        return OrderBound(self, "maximum", len(self), len(self))

    def minimum(self) -> Bound:
        """The smallest value."""
        return OrderBound(self, "minimum", 1, 1)

    def median(self) -> Bound:
        """The median of the values."""
        return OrderBound(self, "median", (len(self) + 1) // 2, len(self) // 2 + 1)

    def cheapest(self) -> ArgSet:
        """Which member has the smallest value."""
        return self._cheapest

    @cached_property
    def _cheapest(self) -> ArgSet:
        return ArgSet(self, "cheapest")

    def dearest(self) -> ArgSet:
        """Which member has the largest value."""
        return self._dearest

    @cached_property
    def _dearest(self) -> ArgSet:
        return ArgSet(self, "dearest")

    def _index(self, name: Hashable) -> int:
        try:
            return self.names.index(name)
        except ValueError:
            raise MeasurementError(f"layer {name} was not measured; there are {_listed(self.names)}") from None


def family(
    names: Sequence[Hashable],
    sums: Array,
    tokens: Array,
    documents: Sequence[str],
    *,
    formula: Formula | None = None,
    unit: str = "nats",
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Family:
    """Per-token means, or another ``formula`` of them: ``sums`` (L, D), ``tokens`` (D,)."""
    data = DocumentSums(tuple(documents), tokens, {"sums": sums}, seed, resamples)
    return Family(tuple(names), data.smooth(["sums"], formula or ["ratio", 0]), data.total_tokens, unit)


def cost_family(
    names: Sequence[Hashable],
    sums: Array,
    tokens: Array,
    documents: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Family:
    """Costs exp(mean delta NLL) - 1 from sums of delta NLL (L, D) in nats; the mean is over tokens."""
    formula = ["expm1", ["ratio", 0]]
    return family(names, sums, tokens, documents, formula=formula, unit="cost", seed=seed, resamples=resamples)


def captured(linear: Family, ablated: Family, level: float = 0.95) -> Family:
    """Share of the MLP's effect that a substitute keeps, 1 - (L_lin - L_full) / (L_ablated - L_full).

    ``linear`` and ``ablated`` are cost families over the same layers and documents. A layer whose
    denominator is not surely positive (its simultaneous interval includes 0 or less) is left undefined: no
    verdict may rest on it.
    """
    share = joined(_inside(linear), _inside(ablated), "/")
    share = Smooth(
        share.sample,
        share.numerators,
        share.denominators,
        ["-", ["constant", 1.0], share.formula],
        share.members,
    )
    if linear.names != ablated.names:
        raise MeasurementError("both costs of a captured share must be of the same layers")
    positive = ablated.interval(level)[:, 0] > 0
    defined = tuple(bool(p) for p in positive) if not positive.all() else ()
    which = _listed([name for name, p in zip(ablated.names, positive, strict=True) if not p])
    why = "" if positive.all() else f"ablating layer {which} has no sure effect to capture"
    return Family(linear.names, share, min(linear.tokens, ablated.tokens), "share", defined, why)


def _inside(costs: Family) -> Smooth:
    """The family inside the exponential: mean delta NLL in nats."""
    s = costs.smooth
    inner = s.formula[1] if s.formula[0] == "expm1" else s.formula
    return Smooth(s.sample, s.numerators, s.denominators, inner, s.members)


def _row(array: Array, i: int) -> Array:
    return array if array.shape[0] == 1 else array[i : i + 1]


def _listed(names: Sequence[Hashable]) -> str:
    return ", ".join(str(name) for name in names)
