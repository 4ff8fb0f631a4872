"""The claims of a report as Markdown: the table of verdicts, and a section for each claim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness.reporting.escape import block, slug, text
from harness.reporting.numbers import NOTHING, count, difference, estimate, interval, number, quantity
from harness.reporting.summary import deciding_part, subject
from harness.reporting.tables import listed, table

_SHOWN = {"not applicable": "not applicable", "error": "error"}


def verdict_table(claims: Sequence[dict[str, Any]]) -> str:
    """One row a claim and model: verdict, the number that decided it, what it had to satisfy."""
    heads = ["claim", "model", "corpus", "verdict", "measured", "interval", "must be", "towards the paper's number"]
    rows = []
    for claim in claims:
        part = deciding_part(claim)
        measured, ends = _measured(part)
        link = f"[{text(claim['id'])}](#{slug(claim['id'])})"
        predicate = text(part["predicate"]) if part else NOTHING
        if len(claim["parts"]) > 1:
            predicate += f" (1 of {len(claim['parts'])} parts)"
        where = text(claim.get("corpus") or NOTHING)
        standing = claim.get("standing") or NOTHING
        rows.append([link, subject(claim["models"]), where, bold(claim["verdict"]), measured, ends, predicate, standing])
    return table(heads, rows, left=len(heads))


def sections(claims: Iterable[dict[str, Any]]) -> str:
    """A section for each claim, the models it was judged on inside it."""
    by_id: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        by_id.setdefault(claim["id"], []).append(claim)
    return "\n\n".join(_section(identity, rows) for identity, rows in by_id.items()) or "No claim was judged."


def bold(verdict: str) -> str:
    """Verdicts in capitals stand out; the others stay quiet."""
    return f"**{verdict}**" if verdict.isupper() else verdict


def _section(identity: str, rows: Sequence[dict[str, Any]]) -> str:
    first = rows[0]
    ledger = [text(row) for row in first["ledger"] if row != identity]
    source = [f"Paper: {text(first['section'])}"]
    if ledger:
        source.append(f"covers the ledger rows {listed(ledger)}")
    head = [f"### {text(identity)}", f"**{text(first['title'])}**", f"> {block(first['statement'])}"]
    body = ["; ".join(source) + "."]
    for row in rows:
        body += _judged(row)
    return "\n\n".join([*head, *body])


def _judged(claim: dict[str, Any]) -> list[str]:
    where = f"{subject(claim['models'])}" + (f", {text(claim['corpus'])}" if claim.get("corpus") else "")
    lines = [f"**{where}: {claim['verdict']}.** {block(claim['reason'])}"]
    if claim["parts"]:
        lines.append(_parts(claim))
    notes = [_reported(claim), *_elsewhere(claim), _comparison(claim)]
    lines.append("\n".join(f"- {note}" for note in notes if note))
    return lines


def _parts(claim: dict[str, Any]) -> str:
    """All parts of the claim, and of the same claim on the other corpora of the run."""
    heads = [
        "corpus",
        "what",
        "must be",
        "verdict",
        "measured",
        "interval",
        "level",
        "documents",
        "tokens",
        "could have shown",
        "settled by",
    ]
    rows = [_part(claim.get("corpus"), part) for part in claim["parts"]]
    for other in claim.get("elsewhere") or []:
        rows += [_part(other["corpus"], part) for part in other["parts"]]
    return table(heads, rows, left=4)


def _part(corpus: str | None, part: dict[str, Any]) -> list[str]:
    measured, ends = _measured(part)
    level = part.get("level")
    needed = part.get("documents_needed")
    return [
        text(corpus or NOTHING),
        text(part["name"]),
        text(part["predicate"]),
        bold(part["status"]),
        measured,
        ends,
        NOTHING if level is None or part.get("interval") is None else f"{number(100 * level, 0)} %",
        count(part.get("documents")),
        count(part.get("tokens")),
        difference(part.get("smallest_effect"), part.get("unit")),
        NOTHING if needed is None else f"{count(needed)} documents",
    ]


def _measured(part: dict[str, Any] | None) -> tuple[str, str]:
    if part is None:
        return NOTHING, NOTHING
    value, ends = estimate(part.get("value"), part.get("interval"), part.get("unit"))
    return text(value), ends


def _reported(claim: dict[str, Any]) -> str:
    reported = claim["reported"]
    shown = text(reported["text"]) if reported.get("text") else quantity(reported.get("value"), reported.get("unit"))
    if shown == NOTHING:
        return "The paper reports no number for it."
    line = f"The paper reports: {shown}"
    if reported.get("margin") is not None:
        line += f" (margin for calling it reproduced: ±{difference(reported['margin'], reported.get('unit'))})"
    standing = claim.get("standing")
    if standing == "not comparable":
        standing = "not comparable, as model or protocol is not the paper's"
    return f"{line}. Standing: {standing}." if standing else f"{line}."


def _elsewhere(claim: dict[str, Any]) -> list[str]:
    return [
        f"On {text(other['corpus'])}: {bold(other['verdict'])}. {text(other['reason'])}"
        for other in claim.get("elsewhere") or []
    ]


def _comparison(claim: dict[str, Any]) -> str:
    comparison = claim.get("comparison")
    if not comparison:
        return ""
    part = next((p for p in claim["parts"] if p["name"] == comparison["part"]), None)
    unit = part.get("unit") if part else None
    change, ends = estimate(comparison.get("difference"), comparison.get("interval"), unit)
    paired = "paired by document" if comparison["paired"] else "unpaired, the documents differ"
    verdict = "**worse than the baseline, beyond noise**" if comparison["worse"] else "not worse, beyond noise"
    p = comparison.get("p_value")
    told = "" if p is None else f", one-sided p {'< 0.001' if p < 0.001 else '= ' + number(p)}"
    return f"Against the baseline ({text(comparison['part'])}): change {text(change)} {ends} ({paired}{told}): {verdict}."
