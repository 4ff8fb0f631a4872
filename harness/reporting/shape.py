"""The shape of report.json as a table, and the first field of a report that does not have it."""

from __future__ import annotations

from typing import Any

STATUSES = ("SUPPORTED", "REFUTED", "INCONCLUSIVE")
"""What a measurement can say about a claim or a part of one."""
VERDICTS = (*STATUSES, "not applicable", "error")
"""What a claim's row can say."""
OUTCOMES = ("passed", "failed", "skipped", "error")
"""pytest's outcomes; an expected failure is told by the comparison, not here."""
STANDINGS = ("reproduced", "excluded", "too wide to say", "not comparable")
"""How a measurement stands to the number that the paper reports."""
ROLES = ("reproduction", "generalization")


class OneOf(tuple[str, ...]):
    """A text out of a few."""


class Maybe:
    """A value that may be null, or left out where it is a field."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


NUMBER = (int, float)
INTERVAL = Maybe([Maybe(NUMBER)])
"""Two ends; null stands for an end that does not exist (NaN or infinite before it was written)."""

PART = {
    "name": str,
    "status": OneOf(STATUSES),
    "predicate": str,
    "value": Maybe(NUMBER),
    "interval": INTERVAL,
    "level": Maybe(NUMBER),
    "unit": Maybe(str),
    "documents": Maybe(int),
    "tokens": Maybe(int),
    "reason": str,
    "smallest_effect": Maybe(NUMBER),
    "documents_needed": Maybe(int),
}
ELSEWHERE = {"corpus": str, "verdict": OneOf(VERDICTS), "reason": str, "parts": [PART]}
COMPARISON = {
    "worse": bool,
    "p_value": Maybe(NUMBER),
    "paired": bool,
    "difference": Maybe(NUMBER),
    "interval": INTERVAL,
    "part": str,
}
CLAIM = {
    "id": str,
    "title": str,
    "statement": str,
    "general": Maybe(str),
    "section": str,
    "ledger": [str],
    "models": [str],
    "corpus": Maybe(str),
    "role": OneOf(ROLES),
    "reported": {
        "text": Maybe(str),
        "value": Maybe(NUMBER),
        "unit": Maybe(str),
        "margin": Maybe(NUMBER),
        "layer": Maybe(int),
    },
    "verdict": OneOf(VERDICTS),
    "reason": str,
    "standing": Maybe(OneOf(STANDINGS)),
    "parts": [PART],
    "elsewhere": Maybe([ELSEWHERE]),
    "comparison": Maybe(COMPARISON),
    "outcome": OneOf(OUTCOMES),
}
MEASUREMENT = {
    "experiment": str,
    "model": str,
    "corpus": str,
    "depth": int,
    "layers": [int],
    "variants": [str],
    "documents": [{"id": str, "name": str, "targets": int}],
    "nll": [NUMBER],
    "delta": dict,
    "squares": Maybe(dict),
    "fit": {
        "rows": int,
        "documents": Maybe(int),
        "penalty": Maybe(dict),
        "curve": Maybe({"rows": [int], "r2": [[Maybe(NUMBER)]]}),
        "first_norm": Maybe([Maybe(NUMBER)]),
        "other_norm": Maybe([Maybe(NUMBER)]),
    },
    "windows": {
        "context": int,
        "fit": Maybe(int),
        "select": Maybe(int),
        "test": Maybe(int),
        "bos": Maybe(str),
        "unit": Maybe(str),
    },
    "records": [str],
    "seconds": Maybe(NUMBER),
    "drift": Maybe(
        {
            "dtype": str,
            "tokens": Maybe(int),
            "loss": Maybe(NUMBER),
            "loss32": Maybe(NUMBER),
            "cost": Maybe([NUMBER]),
            "cost32": Maybe([NUMBER]),
            "why_not": Maybe(str),
        }
    ),
}
MODEL = {
    "name": str,
    "kind": str,
    "location_name": str,
    "revision": Maybe(str),
    "family": str,
    "parallel": Maybe(bool),
    "layers": int,
    "width": int,
    "vocabulary": Maybe(int),
    "parameters": Maybe(int),
    "weights_sha256": str,
    "tokenizer_sha256": Maybe(str),
    "stored": Maybe(str),
    "quantization": Maybe(str),
    "note": Maybe(str),
    "structure": Maybe(dict),
}
CORPUS = {
    "name": str,
    "kind": str,
    "origin": str,
    "fingerprint": str,
    "documents": int,
    "splits": dict,
    "note": Maybe(str),
}
RUN = {
    "name": str,
    "started": str,
    "duration_s": Maybe(NUMBER),
    "protocol": dict,
    "budget": dict,
    "seed": Maybe(int),
    "device": str,
    "dtype": str,
    "inconclusive": Maybe(str),
    "strict": bool,
    "versions": dict,
    "baseline": Maybe({"file": str, "origin": str, "model": Maybe(str)}),
    "selection": Maybe(str),
}
REPORT = {
    "schema": int,
    "tool": {"name": str, "version": str},
    "run": RUN,
    "models": [MODEL],
    "corpora": [CORPUS],
    "measurements": [MEASUREMENT],
    "claims": [CLAIM],
    "untested": [{"id": str, "statement": str, "section": str, "why": str}],
    "errors": [{"item": str, "message": str}],
}
_WORDS = {str: "text", int: "a whole number", NUMBER: "a number", bool: "true or false", dict: "an object"}


def first_fault(report: dict[str, Any]) -> str | None:
    """One line about the first field that is missing or wrong, or None for a sound report."""
    if fault := _fault(report, REPORT, ""):
        return fault
    for i, measurement in enumerate(report["measurements"]):
        if fault := _lengths(measurement, f"measurements[{i}]"):
            return fault
    for i, claim in enumerate(report["claims"]):
        for where, interval in _intervals(claim, f"claims[{i}]"):
            if interval is not None and len(interval) != 2:
                return f"{where} has {len(interval)} ends, an interval has 2"
    return None


def _fault(value: Any, shape: Any, where: str) -> str | None:
    if isinstance(shape, Maybe):
        return None if value is None else _fault(value, shape.shape, where)
    if isinstance(shape, OneOf):
        return None if value in shape else f"{where} is {value!r}, not one of {', '.join(shape)}"
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where} must be an object, it is {_told(value)}"
        for name, inner in shape.items():
            path = f"{where}.{name}".lstrip(".")
            if name not in value and not isinstance(inner, Maybe):
                return f"{path} is missing"
            if fault := _fault(value.get(name), inner, path):
                return fault
        return None
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where} must be a list, it is {_told(value)}"
        faults = (_fault(item, shape[0], f"{where}[{i}]") for i, item in enumerate(value))
        return next((fault for fault in faults if fault), None)
    plain = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
    return None if plain else f"{where} must be {_WORDS[shape]}, it is {_told(value)}"


def _told(value: Any) -> str:
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _lengths(m: dict[str, Any], where: str) -> str | None:
    """Sums are layers x documents, (L, D); a row too short would be read as other documents."""
    L, D = len(m["layers"]), len(m["documents"])
    tables: list[tuple[str, Any]] = [(f"delta.{variant}", m["delta"].get(variant)) for variant in m["variants"]]
    for variant, squares in (m.get("squares") or {}).items():
        if not isinstance(squares, dict):
            return f"{where}.squares.{variant} must be an object, it is {_told(squares)}"
        tables += [(f"squares.{variant}.{part}", squares.get(part)) for part in ("residual", "total")]
    if len(m["nll"]) != D:
        return f"{where}.nll has {len(m['nll'])} entries for {D} documents"
    for name, table in tables:
        if fault := _fault(table, [[NUMBER]], f"{where}.{name}"):
            return fault
        if len(table) != L:
            return f"{where}.{name} has {len(table)} rows for {L} layers"
        for layer, row in zip(m["layers"], table, strict=True):
            if len(row) != D:
                return f"{where}.{name} has {len(row)} entries for {D} documents in layer {layer}"
    per_layer = {name: m["fit"].get(name) for name in ("first_norm", "other_norm")}
    per_layer["curve.r2"] = (m["fit"].get("curve") or {}).get("r2")
    drift = m.get("drift") or {}
    if drift and drift.get("why_not") is None:
        for name in ("tokens", "loss", "loss32", "cost", "cost32"):
            if drift.get(name) is None:
                return f"{where}.drift.{name} is missing"
    for name in ("cost", "cost32"):
        if drift.get(name) is not None and len(drift[name]) != L:
            return f"{where}.drift.{name} has {len(drift[name])} entries for {L} layers"
    for name, column in per_layer.items():
        if column is not None and len(column) != L:
            return f"{where}.fit.{name} has {len(column)} entries for {L} layers"
    return None


def _intervals(claim: dict[str, Any], where: str) -> list[tuple[str, Any]]:
    groups = [(where, claim["parts"])]
    groups += [(f"{where}.elsewhere[{i}]", other["parts"]) for i, other in enumerate(claim.get("elsewhere") or [])]
    found = [(f"{w}.parts[{i}].interval", part.get("interval")) for w, parts in groups for i, part in enumerate(parts)]
    if comparison := claim.get("comparison"):
        found.append((f"{where}.comparison.interval", comparison.get("interval")))
    return found
