"""The claims of a report as Markdown: the table of verdicts, and a section for each claim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness.numbers import NOTHING, change, count, difference, estimate, number, quantity
from harness.paper import OURS
from harness.reporting.escape import block, slug, text
from harness.reporting.summary import deciding_part, is_lead, subject
from harness.reporting.tables import listed, table

_OUTCOMES = {"passed": "passed", "failed": "failed", "skipped": "was skipped", "error": "broke"}
_STANDINGS = {
    "reproduced": "reproduced, equal within the margin",
    "excluded": "excluded by the interval",
    "too wide to say": "too wide to say whether it is the same",
    "not comparable": "not comparable, as the model, the text, the protocol or its sizes are not the paper's",
}


def verdict_table(claims: Sequence[dict[str, Any]]) -> str:
    """One row a claim and model: verdict, the number that decided it, what it had to satisfy."""
    if not claims:
        return "No claim was judged."
    heads = ["claim", "model", "corpus", "verdict", "measured", "interval", "predicate", "paper's number"]
    rows = []
    for claim in claims:
        part = deciding_part(claim)
        rows.append(
            [
                f"[{text(claim['id'])}](#{slug(claim['id'])})",
                subject(claim["models"]),
                text(claim.get("corpus") or NOTHING),
                bold(claim["verdict"]),
                *_measured(part),
                _predicate(part, len(claim["parts"])),
                claim.get("standing") or NOTHING,
            ]
        )
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
    also = f"; covers {'row' if len(ledger) == 1 else 'rows'} {listed(ledger)} of the ledger" if ledger else ""
    title = text(first["title"])
    parts = [
        f"### {text(identity)}",
        f"**{title}**" if title else NOTHING,  # four stars alone would draw a line
        f"> {block(first['statement'])}",
        "Not a claim of the paper: one of our own."
        if first["section"] == OURS
        else f"Paper: {text(first['section'])}{also}. {_reported(rows)}",
    ]
    for row in rows:
        parts += _judged(row, first)
    return "\n\n".join(parts)


def _judged(claim: dict[str, Any], first: dict[str, Any]) -> list[str]:
    """One model's (or group of models') verdict on the claim, with all that it rests on."""
    where = subject(claim["models"]) + (f" on {text(claim['corpus'])}" if claim.get("corpus") else "")
    no_role = claim["verdict"] == "not applicable" or claim["section"] == OURS
    role = "" if no_role else f" ({claim['role']})"
    lines = [f"**{where}: {claim['verdict']}**{role}{_stop(claim)} {_sentence(claim['reason'])}"]
    asked = claim.get("general") or claim["statement"]
    if asked != first["statement"] and claim["role"] == "generalization":
        lines.append(f"Asked here: {text(asked)}")
    if claim["parts"] or claim.get("elsewhere"):
        lines.append(_parts(claim))
    if notes := [note for note in (_standing(claim), *_elsewhere(claim), _comparison(claim)) if note]:
        lines.append("\n".join(f"- {note}" for note in notes))
    return lines


def _parts(claim: dict[str, Any]) -> str:
    """All parts of the claim, and of the same claim on the other corpora of the run."""
    words = ["corpus", "part", "predicate", "verdict"]
    numbers = ["measured", "interval", "level", "documents", "tokens", "could have shown", "settled by"]
    rows = [_part(claim.get("corpus"), part) for part in claim["parts"]]
    for other in claim.get("elsewhere") or []:
        rows += [_part(other["corpus"], part) for part in other["parts"]]
    return table([*words, *numbers], rows, left=len(words))


def _part(corpus: str | None, part: dict[str, Any]) -> list[str]:
    level, needed = part.get("level"), part.get("documents_needed")
    return [
        text(corpus or NOTHING),
        text(part["name"]) or NOTHING,
        text(part["predicate"]),
        bold(part["status"]),
        *_measured(part),
        NOTHING if level is None or part.get("interval") is None else f"{number(100 * level, 0)} %",
        count(part.get("documents")),
        count(part.get("tokens")),
        text(difference(part.get("smallest_effect"), part.get("unit"))),
        NOTHING if needed is None else f"{count(needed)} documents",
    ]


def _measured(part: dict[str, Any] | None) -> tuple[str, str]:
    if part is None:
        return NOTHING, NOTHING
    value, ends = estimate(part.get("value"), part.get("interval"), part.get("unit"))
    return text(f"lead {value}" if is_lead(part) else value), ends


def _sentence(reason: str) -> str:
    shown = text(reason)
    return shown if shown.endswith((".", "!", "?")) or not shown else shown + "."


def _stop(judged: dict[str, Any]) -> str:
    """What stands before the reason: why there is no verdict goes on in the same sentence."""
    return "." if judged["verdict"].isupper() else ":"


def _predicate(part: dict[str, Any] | None, parts: int) -> str:
    if part is None:
        return NOTHING
    return text(part["predicate"]) + (f" ({text(part['name'])}; 1 of {parts} parts)" if parts > 1 else "")


def _reported(rows: Sequence[dict[str, Any]]) -> str:
    """What the paper says: the same for all models, so told once."""
    reported = rows[0]["reported"]
    judged = next((part for row in rows for part in row["parts"]), None)
    unit = reported.get("unit") or (judged or {}).get("unit")
    shown = text(reported["text"]) if reported.get("text") else quantity(reported.get("value"), unit)
    if shown == NOTHING:
        return "It gives no number."
    margin = reported.get("margin")
    of = f"layer {reported['layer']} " if reported.get("layer") is not None else ""
    within = ""
    if margin is not None and unit is not None:  # without a unit the margin would be a bare number
        within = f" (reproduced means: {of}equal within ±{text(difference(margin, unit))})"
    return f"It reports: {shown}{within}."


def _standing(claim: dict[str, Any]) -> str:
    standing = claim.get("standing")
    return f"Towards the paper's number: {_STANDINGS[standing]}." if standing else ""


def _elsewhere(claim: dict[str, Any]) -> list[str]:
    return [
        f"On {text(other['corpus'])}: {bold(other['verdict'])}{_stop(other)} {_sentence(other['reason'])}"
        for other in claim.get("elsewhere") or []
    ]


def _comparison(claim: dict[str, Any]) -> str:
    comparison = claim.get("comparison")
    if not comparison:
        return ""
    unit = next((part.get("unit") for part in claim["parts"] if part["name"] == comparison["part"]), None)
    moved = text(change(comparison.get("difference"), comparison.get("interval"), unit))
    how = "paired by document" if comparison["paired"] else "unpaired, as the documents are not the same"
    p = comparison.get("p_value")
    if p is not None:
        how += f", one-sided p {'< 0.001' if p < 0.001 else '= ' + number(p)}"
    part = f", {text(comparison['part'])}" if comparison["part"] else ""
    found = "**worse, beyond noise**" if comparison["worse"] else "not worse beyond noise"
    return f"Against the baseline{part}: {moved} ({how}): {found}. The test {_OUTCOMES[claim['outcome']]}."
