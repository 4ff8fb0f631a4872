"""What the paper reports: `paper.toml`, one entry a claim, read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import WanamakerError

_KEYS = {"id", "title", "statement", "general", "section", "model", "reported", "ledger", "untestable"}


@dataclass(frozen=True)
class Reported:
    """A number as the paper prints it."""

    text: str
    """As printed, with its unit."""
    value: float | None = None
    """The number in the unit of the claim's first predicate, where there is one number."""
    margin: float | None = None
    """A measurement within this distance reproduces it."""


@dataclass(frozen=True)
class PaperClaim:
    """One claim of the paper."""

    id: str
    title: str
    """A few words, for tables."""
    statement: str
    """What the paper says."""
    general: str
    """The same put so that it can be judged on any model."""
    section: str
    models: tuple[str, ...]
    """Short names of the paper's models that the reported number is about."""
    reported: Reported
    ledger: tuple[str, ...]
    """Rows of the claims ledger that this claim covers."""
    untestable: str | None
    """Why no measurement can judge it; None where one can."""


def load_paper(path: Path) -> dict[str, PaperClaim]:
    """All entries of a `paper.toml`, by id, in the file's order.

    Raises
    ------
    WanamakerError
        Where the file is not TOML, or an entry lacks a key, has an unknown one or repeats an id.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
    except (tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
        raise WanamakerError(f"{path.name}: not a list of [[claim]] entries ({error})") from None
    claims: dict[str, PaperClaim] = {}
    for entry in entries:
        claim = _claim(entry, path.name)
        if claim.id in claims:
            raise WanamakerError(f"{path.name}: two entries have the id {claim.id!r}")
        claims[claim.id] = claim
    return claims


def _claim(entry: Mapping[str, Any], file: str) -> PaperClaim:
    name = entry.get("id", "an entry without id")
    if unknown := set(entry) - _KEYS:
        raise WanamakerError(f"{file}: {name}: unknown key {min(unknown)!r}")
    try:
        return PaperClaim(
            id=entry["id"],
            title=entry["title"],
            statement=entry["statement"],
            general=entry.get("general", entry["statement"]),
            section=entry["section"],
            models=tuple(entry["model"]),
            reported=Reported(**entry["reported"]),
            ledger=tuple(entry["ledger"]),
            untestable=entry.get("untestable"),
        )
    except KeyError as missing:
        raise WanamakerError(f"{file}: {name}: the key {missing} is missing") from None
    except TypeError as error:
        raise WanamakerError(f"{file}: {name}: `reported` has text, value and margin ({error})") from None
