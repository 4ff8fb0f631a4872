"""Records, of JSONL files and of datasets: which column is the text, and a dialogue as lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from harness.corpora.text import Named
from harness.errors import CorpusError

TEXT_COLUMNS = ("text", "content", "messages", "conversations", "dialog", "dialogue")
"""Columns that hold the text of common datasets (prose, code, dialogue); the first that is there is read."""

_SAID = ("content", "value", "text")
"""Where a turn of a dialogue, given as a mapping, holds its words."""


def text_of(value: Any) -> str | None:
    """A column's value as text; "" for null, None where it is neither text nor a dialogue.

    Turns of a dialogue are strings, or mappings such as {role, content} or {from, value}; each begins a line, and who
    says it is left out.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value.replace("\r\n", "\n").replace("\r", "\n")
    if isinstance(value, Mapping):
        said = next((key for key in _SAID if key in value), None)
        return None if said is None else text_of(value[said])
    if isinstance(value, list):
        turns = [text_of(turn) for turn in value]
        return None if None in turns else "\n".join(turn for turn in turns if turn)
    return None


def usual_column(names: Iterable[str]) -> str | None:
    """The column that is read where none is asked for; None where no usual one is among the names."""
    there = set(names)
    return next((column for column in TEXT_COLUMNS if column in there), None)


def listed(names: Iterable[object], most: int = 12) -> str:
    """Names for a message: the first ones, and how many more there are."""
    shown = [" ".join(str(name).split())[:60] for name in names]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most:,} more" if len(shown) > most else "")


def parse_jsonl(text: str, label: str, column: str = "") -> Named:
    """The text of each record, as (`line N`, text); blank lines are skipped. CorpusError names the line.

    It stands in `column`, or in the first of TEXT_COLUMNS that the first record has.
    """
    documents: Named = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{label}: line {number:,} is not JSON ({error}): write one object a line") from error
        names = entry if isinstance(entry, dict) else {}
        column = column or usual_column(names) or "text"
        value = text_of(names[column]) if column in names else None
        if value is None:
            has = f"it has {listed(names)}" if names else "it is no object with columns"
            raise CorpusError(
                f'{label}: line {number:,} has no "{column}" of type string, nor a list of turns ({has}): '
                f'write {{"{column}": "…"}} a line, or name another column with ?column=NAME'
            )
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{label}: line {number:,} holds half of a surrogate pair: correct the escape sequence"
            ) from error
        documents.append((f"line {number}", value))
    return documents
