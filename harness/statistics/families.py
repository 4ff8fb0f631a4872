"""Families: the same statistic for every layer, with limits that hold for all layers at once.

Limits are max-t: the largest studentised deviation over the layers is found in every resample, each layer studentised
by that resample's own standard error (Romano and Wolf 2005; a fixed standard error covers 55 to 84 % instead of 95).
The two tails have a critical value each, so that a family skewed to one side is not needlessly wide on the other.

Statements about *how many* layers lie below a threshold, or about the j-th cheapest, need less than that. If at least k
layers cost c or more, it is enough that no k layers are wrong at once; k shrinks with every layer that is surely below c
(Holm's step-down argument). ``Family.critical`` therefore depends on k.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.errors import MeasurementError
from harness.statistics.argsets import ArgSet
from harness.statistics.bounds import Bound, CountBound, OrderBound
from harness.statistics.estimates import DocumentSums, Estimate, ends, joined, quantile_pair, reach
from harness.statistics.formula import Array, Formula, shifted
from harness.statistics.resampling import Smooth


@dataclass(frozen=True, eq=False)
class Family:
    """L members (layers), each the same smooth function of its own per-document sums, on the same documents."""

    names: tuple[Hashable, ...]
    """Names of the members, mostly layer numbers."""
    smooth: Smooth
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
    def known(self) -> Array:
        """(L,) whether a member may be judged at all."""
        return np.array(self.defined if self.defined else (True,) * len(self), dtype=bool)

    # ---- parts

    def at(self, name: Hashable) -> Estimate:
        """One member as an Estimate of its own, with the interval it has outside the family."""
        i = self._index(name)
        return Estimate(self._rows([i]), self.tokens, self.unit, "" if self.known[i] else self.why_undefined)

    def only(self, names: Iterable[Hashable]) -> Family:
        """The family of these members alone; a smaller family has narrower simultaneous limits."""
        chosen = [self._index(name) for name in dict.fromkeys(names)]
        if not chosen:
            raise MeasurementError("none of the family's members was chosen; a statement needs at least one layer")
        defined = tuple(bool(self.known[i]) for i in chosen) if self.defined else ()
        return Family(tuple(self.names[i] for i in chosen), self._rows(chosen), self.tokens, self.unit, defined,
                      self.why_undefined)

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
        return Family(self.names, joined(self.smooth, other.smooth, "-"), min(self.tokens, other.tokens), self.unit,
                      both if not all(both) else (), self.why_undefined or other.why_undefined)

    # ---- limits

    def interval(self, level: float = 0.95) -> Array:
        """(L, 2) simultaneous intervals: with probability ``level`` all of them cover at once; nan where undefined."""
        tail = (1 - level) / 2
        limits = np.stack([self.lower(tail), self.upper(tail)], axis=-1)
        return np.where(self.known[:, None], limits, np.nan)

    def pointwise(self, level: float = 0.95) -> Array:
        """(L, 2) intervals that cover for each member alone; nan where undefined."""
        low, high = quantile_pair(self.smooth.t, (1 - level) / 2)
        limits = ends(self.smooth, reach(self.smooth.se, high), reach(self.smooth.se, -low))
        return np.where(self.known[:, None], limits, np.nan)

    def upper(self, tail: float, k: int | None = None, *, scale: float = 1.0, power: float = 0.0) -> Array:
        """(L,) upper limits: for any k members, all hold at once with probability 1 - tail. ``k`` = all by default.

        ``scale`` multiplies the half-widths and ``power`` adds standard errors to them, for planning.
        """
        q = self.critical(tail, "upper")[(k or len(self)) - 1]
        half = reach(self.smooth.se * scale, q + power)
        limit = self.smooth.outward(self.smooth.inner + half)
        return np.where(self.known, limit, np.inf)

    def lower(self, tail: float, k: int | None = None, *, scale: float = 1.0, power: float = 0.0) -> Array:
        """(L,) lower limits, the mirror image of ``upper``."""
        q = self.critical(tail, "lower")[(k or len(self)) - 1]
        half = reach(self.smooth.se * scale, q + power)
        limit = self.smooth.outward(self.smooth.inner - half)
        return np.where(self.known, limit, -np.inf)

    def critical(self, tail: float, side: str) -> Array:
        """(L,) entry k - 1 is the critical value that any k members share: see ``critical_values``."""
        if (tail, side) not in self._criticals:
            sign = 1.0 if side == "lower" else -1.0  # a value drawn too high makes the lower limit fail
            self._criticals[tail, side] = critical_values(sign * self.smooth.t[:, self.known], tail, len(self))
        return self._criticals[tail, side]

    @cached_property
    def _criticals(self) -> dict[tuple[float, str], Array]:
        return {}

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
        return ArgSet(self, "cheapest")

    def dearest(self) -> ArgSet:
        """Which member has the largest value."""
        return ArgSet(self, "dearest")

    def _index(self, name: Hashable) -> int:
        try:
            return self.names.index(name)
        except ValueError:
            raise MeasurementError(f"layer {name} was not measured; there are {_listed(self.names)}") from None

    def _rows(self, rows: Sequence[int]) -> Smooth:
        s = self.smooth
        moved = {id(a): a if a.shape[0] == 1 else a[list(rows)] for a in (*s.numerators, *s.denominators)}
        return Smooth(s.sample, tuple(moved[id(a)] for a in s.numerators),
                      tuple(moved[id(t)] for t in s.denominators), s.formula, len(rows))


def critical_values(u: Array, tail: float, members: int) -> Array:
    """(members,) entry k - 1: the least q such that for *any* k columns of u, one of them exceeds q in a share
    ``tail`` of the resamples at most.

    Two bounds on the worst set of k columns, the better one is taken: that some column of all exceeds q (max-t), and
    the sum over the k columns that exceed q most often (Bonferroni, with each column's own tail). For k = 1 this is the
    worst single column; for k = L it is max-t. u has shape (B, L); larger u means a limit more surely missed.
    """
    B, L = u.shape
    if L == 0:
        return np.zeros(members)
    allowed = max(0, int(np.floor((B + 1) * tail + 1e-9)) - 1)  # how many resamples may exceed q
    largest = np.sort(u.max(axis=1))
    joint = largest[B - 1 - allowed]
    ordered = np.sort(u, axis=0)
    candidates = np.unique(ordered[B - 1 - allowed :])
    exceed = np.stack([B - np.searchsorted(ordered[:, l], candidates, side="right") for l in range(L)], axis=1)
    union = np.cumsum(-np.sort(-exceed, axis=1), axis=1)  # (candidates, k)
    first = np.argmax(union <= allowed, axis=0)  # union falls along candidates; the last candidate has no exceedance
    separate = candidates[first]
    q = np.minimum(separate, joint)
    return np.concatenate([q, np.full(members - L, q[-1])])


def family(names: Sequence[Hashable], sums: Array, tokens: Array, documents: Sequence[str], *,
           formula: Formula | None = None, unit: str = "nats", seed: int = 0) -> Family:
    """Per-token means (or another ``formula`` of them) of ``sums`` (L, D) over documents with ``tokens`` (D,)."""
    data = DocumentSums(tuple(documents), tokens, {"sums": sums}, seed)
    return Family(tuple(names), data.smooth(["sums"], formula or ["ratio", 0]), data.total_tokens, unit)


def cost_family(names: Sequence[Hashable], sums: Array, tokens: Array, documents: Sequence[str], *,
                seed: int = 0) -> Family:
    """Costs exp(mean delta NLL) - 1 from sums of delta NLL (L, D) in nats; the mean is over tokens."""
    return family(names, sums, tokens, documents, formula=["expm1", ["ratio", 0]], unit="cost", seed=seed)


def captured(linear: Family, ablated: Family, level: float = 0.95) -> Family:
    """Share of the MLP's effect that a substitute keeps, 1 - (L_lin - L_full) / (L_ablated - L_full).

    ``linear`` and ``ablated`` are cost families over the same layers and documents. A layer whose denominator is not
    surely positive (its simultaneous interval includes 0 or less) is left undefined: no verdict may rest on it.
    """
    share = joined(_inside(linear), _inside(ablated), "/")
    share = Smooth(share.sample, share.numerators, share.denominators, ["-", ["constant", 1.0], share.formula],
                   share.members)
    if linear.names != ablated.names:
        raise MeasurementError("both costs of a captured share must be of the same layers")
    positive = ablated.lower((1 - level) / 2) > 0
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
