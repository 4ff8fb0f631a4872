"""Documents resampled with replacement, and studentised draws of smooth functions of their sums.

The unit is the document: tokens of one article share its difficulty, so treating them as independent gives
intervals that are too short. Every statistic in this package draws the *same* resamples for the same set of
documents, which is what makes differences between layers, variants and models paired.

Notation: D documents, L members of a family (1 for a single estimate), B resamples, K ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from harness.errors import MeasurementError
from harness.statistics.formula import MONOTONE, Array, Formula, evaluate, shifted, split_monotone

RESAMPLES = 19_999
"""B, such that (B + 1) * tail is a whole number for the usual tails (Davison and Hinkley 1997). Many, because limits
for one of several layers lie far out in a tail, and a verdict must not depend on the seed."""

_NO_SPREAD = 1e-6
"""A standard error below this part of its terms' own standard errors is rounding: the terms cancel."""

_RARELY = 0.01
"""A member of whose resamples more than this share lack any spread cannot be studentised: it has no limits.
Fewer such resamples count as infinitely far out."""

_BLOCK = 200_000
"""Numbers in one block of resamples times members."""


@lru_cache(maxsize=32)
def multiplicities(sizes: tuple[int, ...], seed: int, resamples: int = RESAMPLES) -> Array:
    """(B, D) how often each document occurs in each resample; strata of ``sizes`` are resampled apart."""
    blocks = []
    for stratum, size in enumerate(sizes):
        rng = np.random.default_rng([seed, stratum, size])
        blocks.append(rng.multinomial(size, np.full(size, 1.0 / size), size=resamples).astype(np.float64))
    weights = np.hstack(blocks)
    weights.setflags(write=False)
    return weights


@dataclass(frozen=True)
class Sample:
    """Which documents a statistic was computed from: one stratum, or several that share no pairing."""

    strata: tuple[tuple[str, ...], ...]
    """Document ids, sorted within each stratum, so that the order of measurement does not matter."""
    seed: int = 0
    """Seed of the resampling."""
    resamples: int = RESAMPLES
    """How many."""

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(stratum) for stratum in self.strata)

    @property
    def documents(self) -> int:
        """The number that limits the precision: that of the smallest stratum."""
        return min(self.sizes)

    @property
    def unbiased(self) -> Array:
        """(D,) the factor n / (n - 1) of each document's stratum."""
        return np.concatenate([np.full(n, n / (n - 1) if n > 1 else np.nan) for n in self.sizes])

    def union(self, other: Sample) -> Sample:
        """Equal strata are one (paired), others stand side by side (independent)."""
        return Sample(self.strata + tuple(s for s in other.strata if s not in self.strata), self.seed, self.resamples)

    def spread(self, values: Array, union: Sample) -> Array:
        """(L, D) values on this sample's documents, laid out on those of ``union`` with zeros elsewhere."""
        if self.strata == union.strata:
            return values
        out = np.zeros((values.shape[0], sum(union.sizes)))
        starts = np.concatenate([[0], np.cumsum(union.sizes)])
        place = 0
        for stratum in self.strata:
            start = starts[union.strata.index(stratum)]
            out[:, start : start + len(stratum)] = values[:, place : place + len(stratum)]
            place += len(stratum)
        return out


@dataclass(frozen=True, eq=False)
class Smooth:
    """L smooth functions of K ratios of per-document sums, with their bootstrap-t draws."""

    sample: Sample
    """The documents, in the order of the columns below."""
    numerators: tuple[Array, ...]
    """K arrays of shape (L, D) or (1, D): per-document sums a."""
    denominators: tuple[Array, ...]
    """K arrays of shape (L, D) or (1, D): per-document sums t, mostly token counts."""
    formula: Formula
    """What is computed from the ratios sum a / sum t."""
    members: int = 1
    """L."""
    origin: tuple[Smooth, tuple[int, ...]] | None = None
    """The larger family these members were taken from, and their rows there, which draws are shared with."""

    def __post_init__(self) -> None:
        for array in (*self.numerators, *self.denominators):
            if not np.isfinite(array).all():
                bad = np.flatnonzero(~np.isfinite(array).all(axis=0))[0]
                name = [d for stratum in self.sample.strata for d in stratum][bad]
                raise MeasurementError(f"document {name} has a sum that is not a finite number; measure it again")

    @cached_property
    def _split(self) -> tuple[str | None, Formula]:
        return split_monotone(self.formula)

    @cached_property
    def _ratios(self) -> list[Array]:
        return [a.sum(axis=1) / t.sum(axis=1) for a, t in zip(self.numerators, self.denominators, strict=True)]

    @cached_property
    def inner(self) -> Array:
        """(L,) the value on the scale where intervals are built: inside an outermost exp or expm1."""
        return np.broadcast_to(evaluate(self._split[1], self._ratios)[0], (self.members,)).astype(np.float64)

    @cached_property
    def values(self) -> Array:
        """(L,) the values themselves."""
        return self.outward(self.inner)

    def outward(self, inner: Array) -> Array:
        """From the scale where intervals are built to that of the values."""
        name = self._split[0]
        with np.errstate(over="ignore"):
            return MONOTONE[name][0](inner) if name else inner

    def inward(self, values: Array | float) -> Array:
        """The inverse of ``outward``; values no result could take map to infinity."""
        name = self._split[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = MONOTONE[name][1](np.asarray(values, dtype=np.float64)) if name else np.asarray(values)
        return np.where(np.isnan(inner) & ~np.isnan(values), -np.inf, inner)

    @cached_property
    def _columns(self) -> tuple[list[Array], list[tuple[int, int]]]:
        """Columns e_k = a_k - r_k t_k, then the distinct denominators; and where each ratio finds its two.

        Centring keeps the second moments below free of cancellation.
        """
        columns: list[Array] = [
            a - r[:, None] * t for a, r, t in zip(self.numerators, self._ratios, self.denominators, strict=True)
        ]
        places, seen = [], dict[int, int]()
        for k, t in enumerate(self.denominators):
            if id(t) not in seen:
                seen[id(t)] = len(columns)
                columns.append(t)
            places.append((k, seen[id(t)]))
        return columns, places

    def _moments(self, weights: Array) -> tuple[Array, Array, Array]:
        """For weights (B, D): value, delta-method variance, and that of the terms alone, each (B, L)."""
        columns, places = self._columns
        totals = [weights @ c.T for c in columns]  # (B, L or 1) each
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            shifts = [totals[e] / totals[t] for e, t in places]
            value, gradient = evaluate(self._split[1], [r + d for r, d in zip(self._ratios, shifts, strict=True)])
            # influence of document i = sum_c coefficient_c * column_ci
            coefficient: list[Array | float] = [0.0] * len(columns)
            for k, g in gradient.items():
                e, t = places[k]
                per_total = g / totals[t]
                coefficient[e] = coefficient[e] + per_total
                coefficient[t] = coefficient[t] - per_total * shifts[k]
            second = weights * self.sample.unbiased
            shape = (weights.shape[0], self.members)
            variance, own = np.zeros(shape), np.zeros(shape)
            for i, ci in enumerate(columns):
                for j in range(i, len(columns)):
                    moment = second @ (ci * columns[j]).T
                    part = coefficient[i] * coefficient[j] * moment
                    variance += part if i == j else 2 * part
                    if i == j:
                        own += part
        return np.broadcast_to(value, shape), np.maximum(variance, 0.0), own

    @cached_property
    def _spread(self) -> tuple[Array, Array]:
        """(L,) standard error (0 without spread, inf where it cannot be known) and its floor."""
        _, variance, own = self._moments(np.ones((1, sum(self.sample.sizes))))
        se, floor = np.sqrt(variance[0]), _NO_SPREAD * np.sqrt(own[0])
        se = np.where(se <= floor, 0.0, se)
        return np.where(np.isnan(se), np.inf, se), floor

    @cached_property
    def _draws(self) -> tuple[Array, Array]:
        if self.origin:
            whole, rows = self.origin
            return whole.se[list(rows)], whole.t[:, list(rows)]
        se, floor = self._spread
        weights = multiplicities(self.sample.sizes, self.sample.seed, self.sample.resamples)
        t = np.empty((len(weights), self.members))
        step = max(1, _BLOCK // self.members)  # blocks of resamples stay in the processor's cache
        for start in range(0, len(weights), step):
            value, variance, _ = self._moments(weights[start : start + step])
            error, spread = value - self.inner, np.sqrt(variance)
            with np.errstate(divide="ignore", invalid="ignore"):
                part = error / np.where(spread <= floor, 0.0, spread)
            t[start : start + step] = np.where(np.abs(error) <= floor, 0.0, part)
        lost = ~np.isfinite(t)
        t = np.where(np.isnan(t), np.inf, t)
        known = np.isfinite(se) & (lost.mean(axis=0) <= _RARELY)
        t = np.where(known & (se > 0), t, 0.0)
        t.setflags(write=False)
        return np.where(known | (se == 0), se, np.inf), t

    @property
    def se(self) -> Array:
        """(L,) standard error on the inner scale; 0 without spread, inf where resampling cannot tell."""
        return self._draws[0]

    @property
    def t(self) -> Array:
        """(B, L) bootstrap-t draws, (value* - value) / se*; 0 for members without spread."""
        return self._draws[1]

    def take(self, rows: Sequence[int]) -> Smooth:
        """Some of the members, in the order given."""
        arrays = {id(a): a if a.shape[0] == 1 else a[list(rows)] for a in (*self.numerators, *self.denominators)}
        whole, places = self.origin or (self, tuple(range(self.members)))
        return Smooth(
            self.sample,
            tuple(arrays[id(a)] for a in self.numerators),
            tuple(arrays[id(t)] for t in self.denominators),
            self.formula,
            len(rows),
            (whole, tuple(places[row] for row in rows)),
        )

    @cached_property
    def pairs(self) -> Smooth:
        """All differences of two members i < j on the inner scale, in the order of ``triu_indices``."""
        i, j = np.triu_indices(self.members, 1)
        if self.origin and list(self.origin[1]) == sorted(self.origin[1]):
            whole, rows = self.origin
            L = whole.members
            a, b = np.asarray(rows)[i], np.asarray(rows)[j]
            return whole.pairs.take((a * (2 * L - a - 1) // 2 + b - a - 1).tolist())
        inner = self._split[1]
        if inner == ["ratio", 0] and self.denominators[0].shape[0] == 1:
            # one denominator: the difference of two ratios is the ratio of the difference
            sums = self.numerators[0]
            return Smooth(self.sample, (sums[i] - sums[j],), self.denominators, inner, len(i))
        first = {id(a): a if a.shape[0] == 1 else a[i] for a in (*self.numerators, *self.denominators)}
        second = {id(a): a if a.shape[0] == 1 else a[j] for a in (*self.numerators, *self.denominators)}
        return Smooth(
            self.sample,
            tuple(side[id(a)] for side in (first, second) for a in self.numerators),
            tuple(side[id(t)] for side in (first, second) for t in self.denominators),
            ["-", inner, shifted(inner, len(self.numerators))],
            len(i),
        )
