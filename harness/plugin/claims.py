"""Claims: the decorator that ties a test to an entry of paper.toml, and the judge that a test speaks to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal, TypeVar

from harness.verdicts import Judgement, Verdict, judge

_ATTRIBUTE = "__wanamaker_claim__"
Test = TypeVar("Test", bound=Callable[..., None])


@dataclass(frozen=True)
class ClaimTest:
    """What the decorator knows of a test."""

    id: str
    """Id of the entry in paper.toml."""
    model: str | None
    """The one model of the paper whose printed numbers the test checks; None for any model."""
    layers: Literal["all", "first"]
    """Which layers have to be measured."""


def claim(id: str, *, model: str | None = None, layers: Literal["all", "first"] = "all") -> Callable[[Test], Test]:
    """Make a test function the claim `id` of paper.toml.

    The test takes `sweep` (one item a model) or `sweeps` (one item for all models of the run), and `judge`. With
    `model`, it checks the numbers printed for that model, and takes the place there of the test for any model.
    """

    def decorate(function: Test) -> Test:
        setattr(function, _ATTRIBUTE, ClaimTest(id, model, layers))
        return function

    return decorate


def claim_of(function: object) -> ClaimTest | None:
    """What the decorator left on a test function; None on anything else."""
    plain = getattr(function, "__func__", function)  # a test in a class is a bound method
    found = vars(plain).get(_ATTRIBUTE) if isinstance(plain, FunctionType) else None
    return found if isinstance(found, ClaimTest) else None


@dataclass(frozen=True)
class Part:
    """One verdict of a claim; most claims have one."""

    name: str
    verdict: Verdict


@dataclass
class Judge:
    """Judges estimates and keeps the verdicts: `judge(estimate).at_most(c)`."""

    parts: list[Part] = field(default_factory=list)

    def __call__(self, estimate: Any, name: str = "") -> Predicates:
        """Start a verdict on an estimate; `name` says which part of the claim it is."""
        return Predicates(judge(estimate), name, self.parts)


@dataclass(frozen=True)
class Predicates:
    """The predicates of `harness.verdicts.Judgement`, each of which also notes its verdict as a part of the claim."""

    judgement: Judgement
    name: str
    parts: list[Part]

    def at_least(self, c: float) -> Verdict:
        """Value ≥ c."""
        return self._note(self.judgement.at_least(c))

    def at_most(self, c: float) -> Verdict:
        """Value ≤ c."""
        return self._note(self.judgement.at_most(c))

    def above(self, c: float) -> Verdict:
        """Value > c."""
        return self._note(self.judgement.above(c))

    def below(self, c: float) -> Verdict:
        """Value < c."""
        return self._note(self.judgement.below(c))

    def between(self, low: float, high: float) -> Verdict:
        """low ≤ value ≤ high."""
        return self._note(self.judgement.between(low, high))

    def equivalent_to(self, value: float, *, margin: float) -> Verdict:
        """Within `margin` of `value`, by two one-sided tests."""
        return self._note(self.judgement.equivalent_to(value, margin=margin))

    def lies_in(self, names: Any) -> Verdict:
        """The cheapest or dearest layer is one of `names`."""
        return self._note(self.judgement.lies_in(names))

    def is_exactly(self, name: Any) -> Verdict:
        """The cheapest or dearest layer is `name`."""
        return self._note(self.judgement.is_exactly(name))

    def _note(self, verdict: Verdict) -> Verdict:
        self.parts.append(Part(self.name, verdict))
        return verdict
