"""From an estimate to a verdict: SUPPORTED, REFUTED or INCONCLUSIVE, with the numbers that led there.

    judge(costs.share_below(0.03)).at_least(0.70)

A verdict rests on the whole interval: SUPPORTED where all of it satisfies the predicate, REFUTED where none
of it does. "Not significant" never counts as "equal": sameness is an equivalence claim with a margin fixed
beforehand (two one-sided tests at 5 %, that is the 90 % interval inside the margin).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness import numbers
from harness.statistics.argsets import ArgSet
from harness.statistics.bounds import Bound
from harness.statistics.comparison import Comparison, compare_to_baseline, holm
from harness.statistics.estimates import Estimate

__all__ = [
    "Comparison",
    "Judgement",
    "Printed",
    "Verdict",
    "combine",
    "compare_to_baseline",
    "holm",
    "judge",
    "standing",
]

SUPPORTED, REFUTED, INCONCLUSIVE = "SUPPORTED", "REFUTED", "INCONCLUSIVE"

MIN_DOCUMENTS = 20
"""Fewer documents carry no verdict; 20 or more are never refused for want of documents."""

_Z80 = 0.8416212335729143
"""Standard errors by which the truth must clear a limit for it to do so in 80 % of samples."""

_FAR = 1_000_000
"""Growth of the sample beyond which no number of documents is promised."""


@dataclass(frozen=True)
class Printed:
    """A number as someone printed it, without uncertainty: a verdict about it is about that one run."""

    value: float
    """The number."""
    unit: str = ""
    """How it is shown."""
    documents: None = None
    tokens: None = None
    undefined: str = ""

    def limits(self, tail: float, *, scale: float = 1.0, power: float = 0.0) -> tuple[float, float]:
        """Both limits are the number itself."""
        return self.value, self.value


@dataclass(frozen=True)
class Verdict:
    """What one estimate says about one predicate."""

    status: str
    """SUPPORTED, REFUTED or INCONCLUSIVE."""
    predicate: str
    """The predicate in words: ``at least 70 %``."""
    value: float
    """The estimate."""
    interval: tuple[float, float] | None
    """Its interval at ``level``; none for a number as printed."""
    level: float
    """0.95, or 0.90 for equivalence."""
    unit: str
    """How value, interval and effect are shown."""
    documents: int | None
    """Documents behind it."""
    tokens: int | None
    """Tokens behind it."""
    reason: str
    """One line with both numbers."""
    smallest_effect: float | None
    """How far beyond the threshold the truth would have to lie for this sample to support the claim with
    power 0.8."""
    documents_needed: int | None
    """About how many documents in all would settle an inconclusive claim, were the estimate the truth."""
    direction: int
    """Which way is worse for the claim: +1 up, -1 down."""
    estimate: Estimate | Bound | Printed | None = field(default=None, repr=False, compare=False)
    """What was judged, for comparison with a baseline."""
    region: _Region | None = field(default=None, repr=False, compare=False)
    """The values that satisfy the predicate."""

    def __repr__(self) -> str:
        return f"<Verdict {self.status}: {self.reason}>"

    def refuted_at(self, tail: float) -> bool:
        """Whether it is still refuted by an interval of which each end is wrong with probability ``tail`` at most."""
        if self.status != REFUTED or self.region is None or self.estimate is None:
            return self.status == REFUTED
        return self.region.verdict(*self.estimate.limits(tail)) == REFUTED

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, without the estimate; a limit that does not exist is None."""
        interval = None if self.interval is None else [_finite(end) for end in self.interval]
        return {
            "status": self.status,
            "predicate": self.predicate,
            "value": _finite(self.value),
            "interval": interval,
            "level": self.level,
            "unit": self.unit,
            "documents": self.documents,
            "tokens": self.tokens,
            "reason": self.reason,
            "smallest_effect": self.smallest_effect,
            "documents_needed": self.documents_needed,
            "direction": self.direction,
        }


@dataclass(frozen=True)
class _Region:
    """The values that satisfy a predicate: between two ends, which belong to it unless it is open."""

    low: float
    high: float
    open: bool = False

    def verdict(self, low: float, high: float) -> str:
        """What an interval says about the region."""
        if math.isnan(low) or math.isnan(high):
            return INCONCLUSIVE
        if self.open:
            inside = (low > self.low or self.low == -math.inf) and (high < self.high or self.high == math.inf)
            outside = high <= self.low or low >= self.high
        else:
            inside = low >= self.low and high <= self.high
            outside = high < self.low or low > self.high
        return SUPPORTED if inside else REFUTED if outside else INCONCLUSIVE


@dataclass(frozen=True)
class Judgement:
    """An estimate waiting for its predicate."""

    estimate: Estimate | Bound | ArgSet | Printed
    """What is judged."""
    level: float = 0.95
    """Level of intervals."""
    equivalence_level: float = 0.90
    """Level for equivalence: 1 - 2 * 5 %."""

    def at_least(self, c: float) -> Verdict:
        return self._judge(_Region(c, math.inf), f"at least {self._show(c)}", -1)

    def at_most(self, c: float) -> Verdict:
        return self._judge(_Region(-math.inf, c), f"at most {self._show(c)}", +1)

    def above(self, c: float) -> Verdict:
        return self._judge(_Region(c, math.inf, open=True), f"above {self._show(c)}", -1)

    def below(self, c: float) -> Verdict:
        return self._judge(_Region(-math.inf, c, open=True), f"below {self._show(c)}", +1)

    def between(self, low: float, high: float) -> Verdict:
        """At least ``low`` and at most ``high``."""
        away = +1 if self._number().value >= (low + high) / 2 else -1
        return self._judge(_Region(low, high), f"between {self._show(low)} and {self._show(high)}", away)

    def equivalent_to(self, value: float, *, margin: float) -> Verdict:
        """Within ``margin`` of ``value``, as two one-sided tests."""
        away = +1 if self._number().value >= value else -1
        words = f"within {numbers.difference(margin, self.estimate.unit)} of {self._show(value)}"
        judgement = replace(self, level=self.equivalence_level)
        verdict = judgement._judge(_Region(value - margin, value + margin), words, away)
        if verdict.status == REFUTED and not verdict.refuted_at((1 - self.level) / 2):
            # Being the same takes two tests at 5 %; being different is a difference, at the level of all others.
            return replace(verdict, status=INCONCLUSIVE, reason=f"{verdict.reason} at 90 %, but may be at 95 %")
        return verdict

    def lies_in(self, names: Iterable[Hashable]) -> Verdict:
        """For the cheapest or dearest layer: it is one of ``names``."""
        inside = tuple(dict.fromkeys(names))
        return self._which(inside, f"lies in layers {ranges(inside)}")

    def is_exactly(self, name: Hashable) -> Verdict:
        """For the cheapest or dearest layer: it is ``name`` and no other."""
        return self._which((name,), f"is layer {name}")

    def _which(self, inside: Sequence[Hashable], words: str) -> Verdict:
        """A layer's name has no interval; the lead of the layers named over all others has, and is judged."""
        if not isinstance(self.estimate, ArgSet):
            raise TypeError("only family.cheapest() and family.dearest() name a layer")
        argset, region = self.estimate, _Region(0.0, math.inf, open=True)
        found = (
            f"{argset.kind} as measured is layer {argset.value}, not surely worse: "
            f"{ranges(argset.members(self.level))}; lead of {ranges(inside)} over all others"
        )
        return replace(self, estimate=argset.advantage(inside))._judge(region, words, -1, found)

    # ---- how a verdict comes about

    def _number(self) -> Estimate | Bound | Printed:
        if isinstance(self.estimate, ArgSet):
            raise TypeError("a layer's name has no size; use lies_in or is_exactly")
        return self.estimate

    def _show(self, x: float) -> str:
        return numbers.quantity(x, self.estimate.unit)

    def _judge(self, region: _Region, words: str, direction: int, found: str = "") -> Verdict:
        """``words`` are the region's; ``found`` is what to say of a layer's name before its lead is given."""
        estimate = self._number()
        tail = (1 - self.level) / 2
        low, high = estimate.limits(tail)
        status = region.verdict(low, high)
        value, interval = numbers.estimate(estimate.value, (low, high), estimate.unit)
        if isinstance(estimate, Printed):
            reason = f"{value} as printed, one run, is {'' if status == SUPPORTED else 'not '}{words}"
            return Verdict(status, words, estimate.value, None, self.level, estimate.unit, None, None, reason,
                           None, None, direction, estimate, region)  # fmt: skip
        if estimate.undefined or estimate.documents < MIN_DOCUMENTS:
            status = INCONCLUSIVE
        needed = None
        if status == INCONCLUSIVE and not estimate.undefined:
            needed = documents_needed(estimate, region, tail)
        shown = f"{found} {value} {interval}" if found else f"{value} {interval}"
        why_open = _why_open(estimate, "" if found else f" whether {words}", needed) if status == INCONCLUSIVE else ""
        said = "" if found else f" is {'' if status == SUPPORTED else 'not '}{words}"
        reason = f"{shown}: {why_open}" if why_open else f"{shown}{said}"
        effect = _smallest_effect(estimate, region, tail)
        return Verdict(
            status, words, estimate.value, (low, high), self.level, estimate.unit,
            estimate.documents, estimate.tokens, reason, effect, needed, direction, estimate, region,
        )  # fmt: skip


def judge(
    estimate: Estimate | Bound | ArgSet | Printed | float,
    *,
    level: float = 0.95,
    equivalence_level: float = 0.90,
) -> Judgement:
    """Start a verdict: ``judge(x).at_most(c)``. A bare number is judged as printed, without uncertainty."""
    if isinstance(estimate, int | float):
        estimate = Printed(float(estimate))
    return Judgement(estimate, level, equivalence_level)


def documents_needed(estimate: Estimate | Bound, region: _Region, tail: float) -> int | None:
    """The least number of documents at which four samples in five would decide, were the estimate the truth and
    half-widths to shrink with the number's root; None where the estimate sits on the threshold or nothing can be
    told."""
    have = estimate.documents

    def decides(documents: int) -> bool:
        scale = math.sqrt(have / documents)
        return region.verdict(*estimate.limits(tail, scale=scale, power=_Z80)) != INCONCLUSIVE

    low, high = max(have, MIN_DOCUMENTS), have * _FAR
    if not decides(high):
        return None
    if decides(low):
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def _smallest_effect(estimate: Estimate | Bound, region: _Region, tail: float) -> float | None:
    """Distance from the estimate to the limit that must clear the threshold, widened to power 0.8.

    None for counts and shares of layers, whose steps depend on where each layer lies, and for ratios.
    """
    if estimate.unit in ("layers", "share", ""):
        return None
    low, high = estimate.limits(tail, power=_Z80)
    sides = [estimate.value - low] * (region.low > -math.inf) + [high - estimate.value] * (region.high < math.inf)
    return _finite(max(sides, default=0.0))


def _why_open(estimate: Estimate | Bound, question: str, needed: int | None) -> str:
    """Why a verdict is inconclusive, and what would settle it."""
    n = estimate.documents
    if estimate.undefined:
        return estimate.undefined
    if n < MIN_DOCUMENTS:
        return f"{n} documents are too few, a verdict needs at least {MIN_DOCUMENTS}"
    if not all(math.isfinite(end) for end in estimate.limits(0.025)):
        return f"the resamples of {n:,} documents give no limit: hardly any document differs from 0"
    if needed is None:
        on = "sits on the threshold, which no number of documents is sure to settle"
        return f"too wide to say{question}; the estimate {on} ({n:,} measured)"
    return f"too wide to say{question}; about {_round(needed):,} documents would settle it ({n:,} measured)"


def _round(n: int) -> int:
    """Two significant digits: a plan is no measurement."""
    return round(n, 1 - math.floor(math.log10(n))) if n > 99 else n


def combine(parts: Sequence[Verdict]) -> Verdict:
    """Verdict of a claim with several parts: SUPPORTED if all of k parts are, REFUTED if one part is even at a kth of
    its error probability (so that more parts do not mean more false refutations), else INCONCLUSIVE.

    The numbers are those of the part that decided (the first refuted or inconclusive one).
    """
    if not parts:
        raise ValueError("a claim without a part has no verdict")
    k = len(parts)
    parts = [
        replace(part, status=INCONCLUSIVE, reason=f"{part.reason}, but not surely so as one of {k} parts")
        if part.status == REFUTED and not part.refuted_at(0.025 / k)
        else part
        for part in parts
    ]
    for status in (REFUTED, INCONCLUSIVE, SUPPORTED):
        if decisive := [part for part in parts if part.status == status]:
            break
    words = " and ".join(dict.fromkeys(part.predicate for part in parts))
    return replace(decisive[0], predicate=words) if len(parts) > 1 else parts[0]


def standing(estimate: Estimate | Bound | ArgSet, reported: Any, margin: float | None, comparable: bool) -> str:
    """How a measurement stands to the reported number: ``reproduced`` (equivalent within the margin),
    ``excluded``, ``too wide to say``, or ``not comparable`` (another model or protocol)."""
    if not comparable:
        return "not comparable"
    if estimate.undefined or estimate.documents < MIN_DOCUMENTS:
        return "too wide to say"
    if isinstance(estimate, ArgSet):
        candidates = estimate.members()
        return "excluded" if reported not in candidates else "reproduced" if len(candidates) == 1 else "too wide to say"
    region = _Region(reported - (margin or 0.0), reported + (margin or 0.0))
    if margin is not None and region.verdict(*estimate.limits(0.05)) == SUPPORTED:
        return "reproduced"
    return "excluded" if region.verdict(*estimate.limits(0.025)) == REFUTED else "too wide to say"


def ranges(names: Sequence[Hashable]) -> str:
    """``0-2, 5`` for layers 0, 1, 2 and 5; names that are not whole numbers are listed."""
    layers = sorted({name for name in names if isinstance(name, int)})
    if len(layers) < len(set(names)):
        return ", ".join(str(name) for name in names)
    spans: list[list[int]] = []
    for layer in layers:
        if spans and layer == spans[-1][1] + 1:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None
