"""What a run found, counted: verdicts per subject, the part that decided, false verdicts to expect."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.numbers import number
from harness.reporting.escape import text, visible
from harness.reporting.shape import VERDICTS
from harness.reporting.tables import listed

ERROR_RATE = 0.05
"""Chance of a false verdict that a part is held to: 95 % intervals, or two one-sided tests at 5 %."""


def at_chance(report: Mapping[str, Any]) -> list[str]:
    """A sentence for each text that a model predicts no better than chance, where its MLPs can show no worth.

    Chance is to give every token of the vocabulary the same probability, a perplexity of the vocabulary's size.
    """
    sizes = {model["name"]: model.get("vocabulary") for model in report["models"]}
    found = []
    for m in report["measurements"]:
        loss = sum(m["nll"]) / sum(document["targets"] for document in m["documents"])
        size = sizes.get(m["model"])
        if size and loss >= math.log(size):
            found.append(
                f"{visible(m['model'])} predicts {visible(m['corpus'])} no better than chance: its perplexity is "
                f"{number(math.exp(loss))}, its vocabulary {number(size, 0)}. Verdicts on it mean little"
            )
    return found


def by_subject(claims: Iterable[dict[str, Any]]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Claims grouped by the models they are about, groups and claims in the order of the run."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for claim in claims:
        groups.setdefault(tuple(claim["models"]), []).append(claim)
    return groups


def subject(models: Sequence[str]) -> str:
    """The models of a claim as Markdown text."""
    return listed([text(name) for name in models]) or "the paper's own record"


def counts(claims: Iterable[dict[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict, in the fixed order of the verdicts, zeros included."""
    found = Counter(claim["verdict"] for claim in claims)
    return {verdict: found[verdict] for verdict in VERDICTS}


def tally(claims: Iterable[dict[str, Any]]) -> str:
    """``5 SUPPORTED, 9 REFUTED, 6 INCONCLUSIVE, 7 not applicable``; no-verdicts only where they occur."""
    found = counts(claims).items()
    return ", ".join(f"{n} {verdict}" for verdict, n in found if n or verdict.isupper())


def deciding_part(row: dict[str, Any]) -> dict[str, Any] | None:
    """The first part with the claim's verdict: one refuted part refutes, one open part leaves it open."""
    parts: list[dict[str, Any]] = row["parts"]
    return next((part for part in parts if part["status"] == row["verdict"]), parts[0] if parts else None)


def is_lead(part: dict[str, Any]) -> bool:
    """Whether the part asks *which* layer is the cheapest or dearest: its number is a lead over others."""
    return part["predicate"].startswith(("lies in ", "is layer "))


def false_verdicts(claims: Iterable[dict[str, Any]]) -> tuple[int, float]:
    """Number of parts judged by an interval, and the most false verdicts to expect among them, on average.

    An expectation adds up whether or not the parts share documents, so no independence is assumed.
    """
    judged = sum(part.get("interval") is not None for claim in claims for part in claim["parts"])
    return judged, ERROR_RATE * judged
