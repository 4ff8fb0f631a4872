"""What `--corpus` may say of a source behind a question mark: ``?split=test&column=review``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from harness.errors import CorpusError

KEYS = {
    "config": ("hub",),
    "split": ("hub",),
    "revision": ("hub",),
    "column": ("hub", "records", "folder"),
    "rows": ("hub", "records", "text"),
    "cut": ("hub", "records", "text", "folder"),
    "suffix": ("folder",),
}
"""Every key, and the kinds of source that take it (`records` is a JSONL file, `text` any other)."""

CUTS = ("title", "blank", "file", "record")
"""Where documents are cut: at WikiText's titles, at blank lines, between files, or between records (rows, lines)."""

REVISION = re.compile(r"[\w./-]+", re.ASCII)

_CALLED = {"hub": "a hub dataset", "records": "a JSONL file", "text": "a text file", "folder": "a folder"}


def parse_query(query: str, kind: str, given: str) -> dict[str, Any]:
    """Fields of a CorpusSource, from ``key=value&key=value``; a value may be percent-encoded.

    Raises CorpusError, with what is accepted, for a key that does not exist or that this kind of source does not take,
    for one that comes twice, and for a value that cannot be.
    """
    pairs: dict[str, str] = {}
    for pair in query.split("&"):
        key, equals, value = pair.partition("=")
        key, value = key.strip(), unquote(value).strip()
        if key not in KEYS:
            raise CorpusError(f"--corpus {given}: no key {key!r}; write ?key=value&key=value with {', '.join(KEYS)}")
        if kind not in _CALLED:
            raise CorpusError(f"--corpus {given}: the documentation of a package takes no {key}; leave it out")
        if kind not in KEYS[key]:
            taken = ", ".join(name for name, kinds in KEYS.items() if kind in kinds)
            raise CorpusError(f"--corpus {given}: {_CALLED[kind]} takes no {key}; it takes {taken}")
        if key in pairs:
            raise CorpusError(f"--corpus {given}: {key} is given twice; leave one out")
        if not equals or not value:
            raise CorpusError(f"--corpus {given}: {key} has no value; write {key}=VALUE")
        pairs[key] = value
    return _fields(pairs, kind, given)


def _fields(pairs: Mapping[str, str], kind: str, given: str) -> dict[str, Any]:
    fields: dict[str, Any] = {key: value for key, value in pairs.items() if key in ("config", "column", "revision")}
    if not REVISION.fullmatch(fields.get("revision", "main")):
        raise CorpusError(f"--corpus {given}: {fields['revision']!r} is no revision; give a commit, a branch or a tag")
    if "split" in pairs:
        fields["parts"] = _listed(pairs["split"], "split", given)
    if "suffix" in pairs:
        suffixes = _listed(pairs["suffix"], "suffix", given)
        fields["suffix"] = tuple(f".{suffix.lower().lstrip('.')}" for suffix in suffixes)
    if "rows" in pairs:
        if not pairs["rows"].isdecimal() or int(pairs["rows"]) < 1:
            raise CorpusError(f"--corpus {given}: rows={pairs['rows']} is not a positive whole number")
        fields["rows"] = int(pairs["rows"])
    if "cut" in pairs:
        cuts = [cut for cut in CUTS if kind != "hub" or cut != "file"]
        if pairs["cut"] not in cuts:
            raise CorpusError(
                f"--corpus {given}: {_CALLED[kind]} is not cut by {pairs['cut']!r}; choose one of {', '.join(cuts)}"
            )
        fields["cut"] = pairs["cut"]
    return fields


def _listed(value: str, key: str, given: str) -> tuple[str, ...]:
    listed = tuple(dict.fromkeys(one.strip() for one in value.split(",")))
    if not all(listed):
        raise CorpusError(f"--corpus {given}: {key}={value} has an empty place; write {key}=ONE,OTHER")
    return listed
