"""Putting a claim to the measurements: verdicts on every corpus, comparison with a baseline, and pytest's outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import numbers
from harness.errors import ReportError
from harness.plugin.claims import Judge, Part
from harness.protocol import LINEAR_HALF_A, LINEAR_HALF_B, Budget, Protocol
from harness.reporting import schema
from harness.statistics.sweep import NotApplicable, Sweep, Sweeps
from harness.verdicts import Verdict, combine, compare_to_baseline, holm

Body = Callable[..., None]


@dataclass(frozen=True)
class Judged:
    """A claim on one corpus."""

    corpus: str
    parts: tuple[Part, ...]
    why_not: str = ""
    """Why the claim does not apply, where it does not."""

    @property
    def verdict(self) -> Verdict | None:
        """The claim's verdict, from all of its parts; None where it does not apply."""
        return combine([part.verdict for part in self.parts]) if self.parts else None

    @property
    def word(self) -> str:
        """The verdict as the report has it."""
        return self.verdict.status if self.verdict else "not applicable"

    @property
    def reason(self) -> str:
        """One line: the numbers of the part that decided."""
        verdict = self.verdict
        if verdict is None:
            return self.why_not
        # By its region and not by its status: one of several parts may be refuted less surely than a claim must be.
        deciding = next(part for part in self.parts if part.verdict.region is verdict.region)
        return f"{deciding.name}: {verdict.reason}" if deciding.name else verdict.reason


def put(body: Body, subject: Sweep | Sweeps) -> Judged:
    """Run a claim's test on what it is about."""
    judge = Judge()
    corpus = subject.corpus
    argument = "sweep" if isinstance(subject, Sweep) else "sweeps"
    try:
        body(**{argument: subject, "judge": judge})
    except NotApplicable as reason:
        return Judged(corpus, (), str(reason))
    if not judge.parts:
        raise ReportError(f"the claim {getattr(body, '__name__', body)!r} judges nothing; it needs a judge(...) call")
    return Judged(corpus, tuple(judge.parts))


@dataclass(frozen=True)
class Change:
    """A claim's estimate now against the baseline; of several parts, the one most surely worse."""

    part: str
    p_value: float
    """One-sided, of getting worse; multiplied by the number of parts."""
    difference: float
    interval: tuple[float, float]
    paired: bool
    unit: str

    @property
    def told(self) -> str:
        """The change with its interval, for one line."""
        what = f" ({self.part})" if self.part else ""
        return f"{numbers.change(self.difference, self.interval, self.unit)}{what}"

    def as_dict(self, worse: bool) -> dict[str, Any]:
        """For the report, ready for JSON: what does not exist is None."""
        return {
            "worse": worse,
            "p_value": self.p_value,
            "paired": self.paired,
            "difference": _finite(self.difference),
            "interval": [_finite(end) for end in self.interval],
            "part": self.part,
        }


class Baseline:
    """An earlier report, and what its measurements say of the same claims."""

    def __init__(self, path: Path) -> None:
        """Raises ReportError where the file is missing or is no report."""
        self.path = path
        report = schema.load(path)
        self._run = report["run"]
        self._models = {model["name"]: model for model in report["models"]}
        self._measurements = {(m["model"], m["corpus"]): m for m in report["measurements"]}
        self._parents: dict[str, str] = {}

    def require(self, protocol: Protocol, budget: Budget) -> None:
        """Raise ReportError unless the baseline was measured by this protocol, with fits and windows of these sizes.

        More or other test documents are no obstacle: they make a comparison unpaired, not unfair.
        """
        if (name := self._run["protocol"].get("name", protocol.name)) != protocol.name:
            raise ReportError(
                f"{self.path}: measured under the protocol {name}, this run under {protocol.name}, and costs differ "
                f"between the two; give --protocol {name} or another baseline"
            )
        for size in ("fit", "select", "context"):
            then, now = self._run["budget"].get(size), getattr(budget, size)
            if then not in (None, now):
                named = self._run["budget"].get("name", "")
                raise ReportError(
                    f"{self.path}: measured with the budget {named} ({size}={then}), this run with {budget.name} "
                    f"({size}={now}), and costs depend on it; give --budget {named} or another baseline"
                )

    def stands_for(self, models: Sequence[str]) -> str | None:
        """The baseline's only model where it is to stand for the run's only one, a model of another name; else None.

        So a model is held against the one that it was made from. `like` gives no counterpart where the two turn out
        to be built differently.
        """
        if len(models) == len(self._models) == 1 and models[0] not in self._models:
            self._parents = {models[0]: next(iter(self._models))}
        return self._parents.get(models[0])

    def like(self, subject: Sweep | Sweeps) -> Sweep | Sweeps | None:
        """The baseline's counterpart of what a claim is about; None where it lacks a part of it."""
        if isinstance(subject, Sweeps):
            found = [self._sweep(sweep) for sweep in subject.all]
            return None if None in found else Sweeps(tuple(sweep for sweep in found if sweep))
        return self._sweep(subject)

    def _sweep(self, sweep: Sweep) -> Sweep | None:
        name = self._parents.get(sweep.model, sweep.model)
        measurement = self._measurements.get((name, sweep.corpus))
        if measurement is None:
            return None
        then = Sweep(measurement, self._models[name], seed=sweep.seed)
        return then if (then.info["family"], then.depth) == (sweep.info["family"], sweep.depth) else None

    def change(self, body: Body, subject: Sweep | Sweeps, now: Judged) -> Change | None:
        """How a claim's estimates changed; None where the baseline has no counterpart."""
        then_subject = self.like(subject)
        if then_subject is None or not now.parts:
            return None
        then = put(body, then_subject)
        if len(then.parts) != len(now.parts):
            return None
        same = _documents(subject) == _documents(then_subject)
        refit = [0.0] * len(now.parts) if same else _refit_variances(body, subject, len(now.parts))
        changes = []
        for part, before, variance in zip(now.parts, then.parts, refit, strict=True):
            verdict, estimates = part.verdict, (part.verdict.estimate, before.verdict.estimate)
            c = compare_to_baseline(*estimates, verdict.direction, variance)  # type: ignore[arg-type]
            # No verdict rests on an undefined value, so nor does this one.
            undefined = any(estimate.undefined for estimate in estimates if estimate)
            p = 1.0 if undefined else min(1.0, c.p_value * len(now.parts))
            changes.append(Change(part.name, p, c.difference, c.interval, c.paired, verdict.unit))
        return min(changes, key=lambda change: change.p_value)


def _refit_variances(body: Body, subject: Sweep | Sweeps, parts: int) -> list[float]:
    """Variance of each part's estimate over refits, from the two fits on half of the rows.

    Two fits at N/2 differ by twice the variance at N/2, which is about twice that at N. Zero where the halves were not
    measured or the claim does not rest on a fit.
    """
    a, b = (put(body, _with_fit(subject, half)).parts for half in (LINEAR_HALF_A, LINEAR_HALF_B))
    if not len(a) == len(b) == parts:
        return [0.0] * parts
    squares = [(x.verdict.value - y.verdict.value) ** 2 for x, y in zip(a, b, strict=True)]
    return [square / 4 if math.isfinite(square) else 0.0 for square in squares]


def _documents(subject: Sweep | Sweeps) -> list[tuple[str, ...]]:
    return [sweep.documents for sweep in (subject.all if isinstance(subject, Sweeps) else (subject,))]


def _with_fit(subject: Sweep | Sweeps, fit: str) -> Sweep | Sweeps:
    if isinstance(subject, Sweeps):
        return Sweeps(tuple(replace(sweep, linear=fit) for sweep in subject.all))
    return replace(subject, linear=fit)


def surely_worse(changes: Iterable[tuple[str, Change | None]]) -> set[str]:
    """Ids of the items that got worse, all comparisons of the run together held at 5 % (Holm)."""
    known = [(item, change) for item, change in changes if change is not None]
    rejected = holm([change.p_value for _, change in known]) if known else []
    return {item for (item, _), worse in zip(known, rejected, strict=True) if worse}


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
