"""report.md from report.json: a pure function of the dict, readable without the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.numbers import number, plural
from harness.paper import OURS
from harness.reporting import claims, measurements, provenance
from harness.reporting.escape import text
from harness.reporting.layers import by_line
from harness.reporting.summary import ERROR_RATE, at_chance, by_subject, false_verdicts, subject, tally
from harness.reporting.tables import listed, table
from harness.reporting.words import CONDITIONS, LINES, PAPER, READING

FILE_NAME = "report.md"


def render(report: Mapping[str, Any]) -> str:
    """The whole report as Markdown (GitHub's dialect), ending in a line break. `report` must be valid."""
    parts = [
        f"# Replication report: {PAPER}",
        _headline(report),
        *(f"**Warning**: {text(warning)}." for warning in at_chance(report)),
        "## How to read this",
        READING,
        *(["## The protocol", LINES] if any(map(by_line, report["measurements"])) else []),
        "## Verdicts",
        claims.verdict_table(report["claims"]),
        "## Claims",
        claims.sections(report["claims"]),
        "## Measurements",
        measurements.section(report["measurements"], report["run"].get("seed") or 0),
        "## What an interval does not cover",
        CONDITIONS,
        "## What was not tested",
        _untested(report["untested"]),
        *(["## What broke", _errors(report["errors"])] if report["errors"] else []),
        "## Provenance",
        provenance.section(report),
    ]
    return "\n\n".join(parts) + "\n"


def _headline(report: Mapping[str, Any]) -> str:
    judged = report["claims"]
    name = text(report["run"]["name"])
    if not judged:
        return f"Run {name} judged no claim."
    found = [f"**{subject(models)}**: {tally(rows)}" for models, rows in by_subject(judged).items()]
    run = report["run"]
    how = listed([f"{knob} {text(run[knob]['name'])}" for knob in ("protocol", "budget") if "name" in run[knob]])
    of_paper, ours = (len({c["id"] for c in judged if (c["section"] == OURS) == own}) for own in (False, True))
    tested = listed(
        [f"{plural(of_paper, 'claim')} of the paper"] * bool(of_paper)
        + [f"{plural(ours, 'claim')} of our own"] * bool(ours)
    )
    tests = f"{plural(len(judged), 'test')}, one for each model or group of models that a claim is about"
    opening = f"Run {name}{f' ({how})' if how else ''} put {tested} to {tests}."
    if of_paper and not any(claim["role"] == "reproduction" for claim in judged):
        opening += (
            " No model here is one of the paper's: REFUTED says here that a pattern which the paper "
            "describes does not carry over, and nothing about the paper's own numbers."
        )
    if len(found) <= 3:
        return f"{opening} {'; '.join(found)}. {_chance(judged)}".rstrip()
    return "\n".join([opening, "", *(f"- {line}" for line in found), "", _chance(judged)]).rstrip()


def _chance(judged: Sequence[dict[str, Any]]) -> str:
    """How many false verdicts the number of claims lets expect."""
    n, expected = false_verdicts(judged)
    if not n:
        return ""
    told = f"{plural(n, 'part')} of these tests {'was' if n == 1 else 'were'} judged by an interval"
    if any(claim.get("elsewhere") for claim in judged):
        told += " (verdicts on further corpora stand beside these and are not counted)"
    each = "it has" if n == 1 else "each has"
    return (
        f"{told}; {each} a nominal chance of at most {100 * ERROR_RATE:.0f} % of a false verdict, so up to "
        f"{number(expected, 2 if expected < 1 else 1)} false verdicts are to be expected."
    )


def _untested(entries: Sequence[Mapping[str, Any]]) -> str:
    if not entries:
        return "Every claim that this version knows was put to the test."
    rows = [[text(entry[field]) for field in ("id", "section", "statement", "why")] for entry in entries]
    return table(["claim", "paper", "statement", "why not"], rows, left=4)


def _errors(errors: Sequence[Mapping[str, Any]]) -> str:
    rows = [[text(error["item"]), text(error["message"])] for error in errors]
    return table(["item", "message"], rows, left=2)
