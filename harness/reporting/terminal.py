"""The short table at the end of the terminal run: at most 80 columns, plain ASCII but for names."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from harness.numbers import NOTHING, ascii_only, estimate, plural
from harness.reporting.escape import visible
from harness.reporting.summary import at_chance, by_subject, counts, deciding_part, is_lead

WIDTH = 80
_GAP = "  "
_SHORT = {"not applicable": "n/a", "error": "ERROR"}
_VERDICT = 12


def render(report: Mapping[str, Any]) -> list[str]:
    """Lines for the end of a run: per model a tally, then claim, verdict and measured [interval].

    Claims that do not apply to a model are counted and left to report.md; what broke is told at the end.
    """
    lines: list[str] = []
    for models, claims in by_subject(report["claims"]).items():
        found = counts(claims)
        told = ", ".join(f"{n} {_SHORT.get(verdict, verdict)}" for verdict, n in found.items() if n)
        name = ", ".join(visible(model) for model in models) or "the paper's own record"
        tally = f": {told}"
        lines += ["", clip(name, WIDTH - width(tally)) + tally]
        lines += _rows([claim for claim in claims if claim["verdict"] != "not applicable"])
    for warning in at_chance(report):
        lines += ["", *textwrap.wrap(ascii_only(f"warning: {warning}."), WIDTH)]
    for error in report["errors"]:
        lines.append(clip(f"error: {visible(error['item'])}: {visible(error['message'])}", WIDTH))
    return lines[1:] if lines and not lines[0] else lines


def width(shown: str) -> int:
    """Columns that a terminal gives to `shown`: two for wide characters, none for combining ones."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in shown)


def clip(shown: str, columns: int) -> str:
    """`shown` cut to `columns`, with three dots where something was cut."""
    if width(shown) <= columns:
        return shown
    kept = ""
    for c in shown:
        if width(kept + c) > columns - 3:
            break
        kept += c
    return kept + "..."[: max(columns, 0)]


def _rows(claims: Sequence[dict[str, Any]]) -> list[str]:
    """One line a claim; numbers take what they need, then the claim's title."""
    cells = [_cells(claim) for claim in claims]
    measured = min(max((width(row[2]) for row in cells), default=0), WIDTH // 2)
    title = WIDTH - _VERDICT - measured - 2 * len(_GAP)
    return [
        _GAP.join([_pad(clip(row[0], title), title), _pad(row[1], _VERDICT), clip(row[2], measured)]).rstrip()
        for row in cells
    ]


def _cells(claim: dict[str, Any]) -> tuple[str, str, str]:
    part = deciding_part(claim)
    title = ascii_only(visible(claim["title"]))
    verdict = _SHORT.get(claim["verdict"], claim["verdict"])
    if part is None:  # a broken measurement; its message has a line of its own below the tables
        return title, verdict, ""
    value, ends = estimate(part.get("value"), part.get("interval"), part.get("unit"))
    measured = ("lead " if is_lead(part) else "") + (value if ends == NOTHING else f"{value} {ends}")
    return title, verdict, ascii_only(measured)


def _pad(shown: str, columns: int) -> str:
    return shown + " " * (columns - width(shown))


def summary_line(report: Mapping[str, Any]) -> str:
    """``27 judgements: 5 SUPPORTED, 9 REFUTED, ...`` in one line."""
    found = counts(report["claims"])
    told = ", ".join(f"{n} {_SHORT.get(verdict, verdict)}" for verdict, n in found.items() if n)
    return clip(f"{plural(len(report['claims']), 'judgement')}: {told or 'none'}", WIDTH)
