"""What the paper reports: `paper.toml`, one entry a claim, read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import WanamakerError

OURS = "ours"
"""The section of a claim that is not the paper's."""


@dataclass(frozen=True)
class Reported:
    """A number as the paper prints it."""

    text: str
    """As printed, with its unit."""
    value: float | None = None
    """The printed number (a fraction for percent), where there is one number."""
    margin: float | None = None
    """A measurement within this distance reproduces it."""
    layer: int | None = None
    """The layer whose cost the number is, where that is not what the claim's test measures first."""


@dataclass(frozen=True)
class PaperClaim:
    """One claim of the paper, or one of our own."""

    id: str
    title: str
    """A few words, for tables."""
    statement: str
    """What the paper says."""
    general: str
    """The same put so that it can be judged on any model."""
    section: str
    """Where the paper says it, or OURS."""
    models: tuple[str, ...]
    """Short names of the paper's models that the reported number is about."""
    reported: Reported
    ledger: tuple[str, ...]
    """Rows of the claims ledger that this claim covers."""
    untestable: str | None
    """Why no measurement can judge it; None where one can."""


_TEXT, _TEXTS, _TABLE, _NUMBER = "a text", "a list of texts", "a table", "a number"
_WHOLE = "a whole number"
_NEEDED = {
    "id": _TEXT,
    "title": _TEXT,
    "statement": _TEXT,
    "section": _TEXT,
    "model": _TEXTS,
    "reported": _TABLE,
    "ledger": _TEXTS,
}
_OURS = {"id", "title", "statement", "section"}
_ENTRY = _NEEDED | {"general": _TEXT, "untestable": _TEXT}
_REPORTED = {"text": _TEXT, "value": _NUMBER, "margin": _NUMBER, "layer": _WHOLE}


def load_paper(path: Path) -> dict[str, PaperClaim]:
    """All entries of a `paper.toml`, by id, in the file's order.

    Raises
    ------
    WanamakerError
        Where the file cannot be read or is not TOML, or an entry lacks a key, has an unknown one or one of another
        type, or repeats an id.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
    except (tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
        raise WanamakerError(f"{path.name}: not a list of [[claim]] entries ({error})") from None
    except OSError as error:
        raise WanamakerError(f"{path.name}: cannot be read ({error.strerror})") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise WanamakerError(f"{path.name}: not a list of [[claim]] entries")
    claims: dict[str, PaperClaim] = {}
    for entry in entries:
        claim = _claim(entry, path.name)
        if claim.id in claims:
            raise WanamakerError(f"{path.name}: two entries have the id {claim.id!r}")
        claims[claim.id] = claim
    return claims


def _claim(entry: Mapping[str, Any], file: str) -> PaperClaim:
    where = f"{file}: {entry.get('id', 'an entry without id')}"
    ours = entry.get("section") == OURS
    _check(entry, _ENTRY, _OURS if ours else _NEEDED, where)
    if ours and (told := [key for key in ("model", "reported", "ledger") if key in entry]):
        raise WanamakerError(f"{where}: the key {told[0]!r} is about the paper, and the section is {OURS!r}")
    if not ours:
        _check(entry["reported"], _REPORTED, {"text"}, f"{where}: reported")
    reported = Reported("") if ours else Reported(**entry["reported"])
    if reported.margin is not None and (reported.value is None or reported.margin < 0):
        raise WanamakerError(f"{where}: reported: a margin is a distance from a value")
    return PaperClaim(
        id=entry["id"],
        title=entry["title"],
        statement=entry["statement"],
        general=entry.get("general", entry["statement"]),
        section=entry["section"],
        models=tuple(entry.get("model", ())),
        reported=reported,
        ledger=tuple(entry.get("ledger", ())),
        untestable=entry.get("untestable"),
    )


def _check(table: Mapping[str, Any], kinds: Mapping[str, str], needed: Collection[str], where: str) -> None:
    """Raise WanamakerError, naming `where`, unless a table has all keys that are needed and each is of its kind."""
    for key, value in table.items():
        if key not in kinds:
            raise WanamakerError(f"{where}: unknown key {key!r}")
        if not _is(value, kinds[key]):
            raise WanamakerError(f"{where}: the key {key!r} must be {kinds[key]}")
    if missing := [key for key in kinds if key in needed and key not in table]:
        keys = "the key {} is" if len(missing) == 1 else "the keys {} are"
        raise WanamakerError(f"{where}: {keys.format(', '.join(map(repr, missing)))} missing")


def _is(value: Any, kind: str) -> bool:
    if kind == _TEXTS:
        return isinstance(value, list) and all(_is(one, _TEXT) for one in value)
    if kind == _TEXT:
        return isinstance(value, str) and bool(value.strip())
    if kind == _WHOLE:
        return type(value) is int and value >= 0
    return isinstance(value, dict) if kind == _TABLE else type(value) in (int, float)
