"""A corpus as its lines in reading order, for a protocol that splits by the number of a line.

A line is a row of a hub dataset, a line of a text file, of a package's documentation or of the files of a folder, or
a record of a JSONL file. None is left out, so that a line's number is the dataset's, and equal lines are two lines.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from harness.corpora import documentation, hub, loading, storage
from harness.corpora import text as cutting
from harness.corpora.documents import Document, DocumentSet
from harness.corpora.sources import HUB_CORPORA, CorpusSource
from harness.errors import CorpusError

#: Part of every key in the cache: counts up when the same rows give other lines than before.
LINES_VERSION = 1

UNIT = "line"


def load_lines(source: CorpusSource, cache: Path, *, stop: int, at_least: int) -> DocumentSet:
    """Lines 0 to `stop` - 1 of a corpus, each as a document of its own, in reading order.

    Of WikiText from the hub these are lines of its training part. A line keeps its line feed, as rows of the hub do;
    one that is blank is empty.

    Raises
    ------
    CorpusError
        Where the corpus cannot be read or has fewer than `at_least` lines.
    """
    if source == HUB_CORPORA["wikitext"]:
        source = replace(source, parts=("train",))
    source, read = _lines(source, cache, stop)
    lines = list(itertools.islice(read, stop))
    if len(lines) < at_least:
        raise CorpusError(
            f"corpus {source.name}: {source.label} has {len(lines):,} lines, and a protocol that splits by their "
            f"numbers needs {at_least:,} at least: give a longer text, or take --protocol sound"
        )
    documents = tuple(_document(number, line) for number, line in enumerate(lines))
    digest = hashlib.sha256(f"{UNIT}\n".encode())
    for document in documents:
        digest.update(f"{document.id}\n".encode())
    note = f"the first {len(documents):,} lines in reading order"
    return DocumentSet(source, documents, UNIT, digest.hexdigest(), note)


def _document(number: int, line: str) -> Document:
    """Lines are counted from 1 in names; the id tells equal lines apart."""
    line = line if line.strip() else ""
    return Document(hashlib.sha256(f"{number}\n{line}".encode()).hexdigest()[:16], f"line {number + 1}", line)


def _lines(source: CorpusSource, cache: Path, stop: int) -> tuple[CorpusSource, Iterable[str]]:
    """The source with everything settled, and its lines or rows; of a hub dataset those of the first part."""
    if source.kind == "documentation":
        texts = documentation.package_documents(source.location, Path(cache))
        return source, itertools.chain.from_iterable(cutting.split_lines(text) for _, text in texts)
    source = replace(source, parts=source.parts[:1])
    reading = loading.read(source, cache)
    if source.kind == "hub":
        rows = _rows(reading.source, cache, stop)
        loading.keep_settled(source, reading, cache)
        return reading.source, rows
    return source, itertools.chain.from_iterable(text.lines() for text in reading.texts())


def _rows(source: CorpusSource, cache: Path, stop: int) -> list[str]:
    """The first rows of the first part of a hub dataset, kept in the cache under its commit."""
    source = replace(source, rows=min(stop, source.rows or stop))
    described = [LINES_VERSION, source.location, source.config, source.revision, *source.parts, source.column]
    key = storage.sha256(json.dumps([*described, source.rows]).encode())
    path = Path(cache) / "documents" / f"lines-{key[:32]}.json"
    payload = storage.read_checked(path)
    if payload is not None:
        kept: list[str] = json.loads(payload)
        return kept
    rows = hub.read_rows(source)[source.parts[0]][: source.rows]
    storage.write_checked(path, json.dumps(rows, ensure_ascii=False).encode("utf-8"))
    return rows
