"""Reading a corpus: source -> texts -> documents, kept in the cache under the hash of what they were read from.

A file's key is the hash of its contents, so that a warm run neither parses it again nor serves the text of
yesterday's file; a hub dataset's key is its commit, so that a warm run needs no network and no `datasets`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.corpora import documentation, files, hub, storage
from harness.corpora import text as cutting
from harness.corpora.documents import Document, DocumentSet, document_set, plural
from harness.corpora.records import parse_jsonl
from harness.corpora.sources import CorpusSource, is_records
from harness.corpora.text import Named
from harness.errors import CorpusError

#: Part of every key in the cache: counts up when the same file gives other documents than before.
READER_VERSION = 2


@dataclass(frozen=True)
class Text:
    """What was read as one: a file, or a part of a hub dataset."""

    name: str
    """Path within a folder, or name of the part; empty where there is nothing else."""
    whole: str | None
    """The text, where it is not made of records."""
    records: Named
    """The records, where it is."""
    more: bool = False
    """Whether it goes on after what was read of it (see `CorpusSource.rows`)."""

    def lines(self) -> Iterable[str]:
        """Lines of the text, with line feeds; or records, each of which is taken for a line."""
        return cutting.split_lines(self.whole) if self.whole is not None else (text for _, text in self.records)


@dataclass(frozen=True)
class Reading:
    """A source as it lies there: which one it is (by contents, or by commit), and how to read it."""

    source: CorpusSource
    """With everything that was left open settled: a hub dataset's commit, part and column."""
    identity: tuple[object, ...]
    """From which, with the source's kind and cut, its documents follow."""
    texts: Callable[[], list[Text]]
    notes: tuple[str, ...] = ()
    """What a report says about what was read, and what not."""


def load_documents(source: CorpusSource, cache: Path) -> DocumentSet:
    """The documents of a corpus, read once and then kept in `cache`.

    Raises CorpusError, in one line, for a file that is missing, empty, not text or not UTF-8 (with the byte), cut off,
    or not JSONL where its name says so (with the line); for a folder without text files, a hub that cannot be
    reached or has no such dataset, configuration, part or column, a package that is not installed, and for fewer
    documents than four splits need.
    """
    if source.kind == "documentation":  # has its own cache, under the hash of the package's files
        named = documentation.package_documents(source.location, Path(cache))
        return document_set(source, [Document.of(name, text) for name, text in named], "module")
    reading = read(source, cache)
    key = storage.sha256(json.dumps([READER_VERSION, source.kind, source.cut, *reading.identity]).encode())
    path = Path(cache) / "documents" / f"{key[:32]}.json"
    payload = storage.read_checked(path)
    if payload is not None:
        kept = json.loads(payload)
        documents = [Document.of(*fields) for fields in kept["documents"]]
        return document_set(reading.source, documents, kept["unit"], kept["note"], kept["more"])
    documents, unit, note, more = _documents(reading)
    made = document_set(reading.source, documents, unit, note, more)  # before it is kept: nothing unusable is
    kept = {"unit": unit, "note": note, "more": more, "documents": [(d.name, d.text, d.part) for d in documents]}
    storage.write_checked(path, json.dumps(kept, ensure_ascii=False).encode("utf-8"))
    keep_settled(source, reading, cache)
    return made


def read(source: CorpusSource, cache: Path) -> Reading:
    """Find out what a source is, as far as is needed to know it again; CorpusError where it cannot be read."""
    if source.kind == "hub":
        return _hub(_settled(source, cache))
    return _file(source) if source.kind == "file" else _folder(source)


def keep_settled(source: CorpusSource, reading: Reading, cache: Path) -> None:
    """Remember what a hub source without a commit, part or column came to, so that it is the same from now on."""
    if reading.source != source:
        kept = {"revision": reading.source.revision, "parts": reading.source.parts, "column": reading.source.column}
        storage.write_checked(_settled_path(source, cache), json.dumps(kept).encode())


def _settled(source: CorpusSource, cache: Path) -> CorpusSource:
    if hub.is_settled(source):
        return source
    payload = storage.read_checked(_settled_path(source, cache))
    if payload is None:
        return hub.settle(source)
    kept = json.loads(payload)
    return hub.settled(source, kept["revision"], tuple(kept["parts"]), kept["column"])


def _settled_path(source: CorpusSource, cache: Path) -> Path:
    asked = [source.location, source.config, source.revision, source.parts, source.column]
    return Path(cache) / "documents" / f"settled-{storage.sha256(json.dumps(asked).encode())[:32]}.json"


def _file(source: CorpusSource) -> Reading:
    path = Path(source.location)
    data, more = files.read_file(source, path)

    def texts() -> list[Text]:
        label = f"corpus {source.name}: {path.name}"
        return [_text("", cutting.decode(data, label), is_records(path.name), source, label, more)]

    return Reading(source, (storage.sha256(data), is_records(path.name), source.column, more), texts)


def _folder(source: CorpusSource) -> Reading:
    found = files.read_folder(source)

    def texts() -> list[Text]:
        read = []
        for name, data in found.files:
            label = f"corpus {source.name}: {source.label}/{name}"
            records = is_records(name) and not name.lower().endswith((".json", ".json.gz"))
            read.append(_text(name, cutting.utf8(data, label), records, source, label))
        return read

    hashes = tuple((name, storage.sha256(data)) for name, data in found.files)
    return Reading(source, (hashes, source.column), texts, found.notes)


def _text(name: str, text: str, records: bool, source: CorpusSource, label: str, more: bool = False) -> Text:
    return Text(name, None, parse_jsonl(text, label, source.column), more) if records else Text(name, text, [], more)


def _hub(source: CorpusSource) -> Reading:
    def texts() -> list[Text]:
        rows = hub.read_rows(source)
        named = {part: [(f"line {n}", row) for n, row in enumerate(rows[part], start=1)] for part in source.parts}
        return [Text(part, None, named[part], hub.stops_at(source, part) == len(named[part])) for part in named]

    identity = (source.location, source.config, source.revision or "", source.column, source.rows, source.parts)
    return Reading(source, identity, texts)


def _documents(reading: Reading) -> tuple[list[Document], str, str, list[str]]:
    """Documents, what one of them is, a note where their number does not say it all, and further notes."""
    source = reading.source
    documents: list[Document] = []
    units: set[str] = set()
    note, more = "", list(reading.notes)
    for text in reading.texts():
        named, unit = _cut(text, source)
        units.add(unit)
        if text.more and unit in ("article", "paragraph"):
            named = named[:-1]  # the rows that were read end in the middle of it
        if text.more:
            of = f" of {text.name}" if text.name else ""
            more.append(f"the first {plural(source.rows or len(text.records), 'row' if of else 'line')}{of}")
        if unit == "block":
            note = f"one text, cut into {plural(len(named), unit)} that serve as documents"
        if unit == "article" and any(" <unk> " in body for _, body in named):
            more.append("words replaced by <unk>: not the raw version")
        if source.kind == "folder":
            named = [(f"{text.name}: {name}" if name else text.name, body) for name, body in named]
        part = text.name if len(source.parts) > 1 else ""
        documents += [Document.of(name, body, part) for name, body in named]
    unit = units.pop() if len(units) == 1 else "document"
    return documents, unit, note, list(dict.fromkeys(more))


def _cut(text: Text, source: CorpusSource) -> tuple[Named, str]:
    """(name, text) of the documents in a text, and what one of them is."""
    cut = source.cut
    if cut == "title" or (not cut and source.kind != "folder" and (source.kind == "hub" or text.whole is not None)):
        articles = cutting.cut_articles(text.lines())
        if articles:
            return articles, "article"
        if cut:
            raise CorpusError(
                f"corpus {source.name}: {text.name or source.label} does not begin with a title ( = Title = ), so it "
                "cannot be cut by title: leave cut out, or take cut=blank"
            )
    if cut == "blank":
        return cutting.cut_paragraphs(text.lines()), "paragraph"
    if text.whole is None and cut != "file":
        return text.records, "passage"
    if cut == "record":
        lines = (line.rstrip("\n") for line in text.lines())
        return [(f"line {n}", line) for n, line in enumerate(lines, start=1) if line.strip()], "line"
    if cut == "file" or source.kind == "folder":
        return [("", "\n".join(text.lines()) if text.whole is None else text.whole)], "file"
    return cutting.cut_blocks(text.whole or ""), "block"
