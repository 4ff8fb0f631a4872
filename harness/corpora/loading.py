"""Reading a corpus: source -> documents, kept in the cache under the hash of what they were read from.

A file's key is the hash of its contents, so that a warm run neither parses it again nor serves the text of
yesterday's file; a hub dataset's key is its pinned commit, so that a warm run needs no network and no
`datasets`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from harness.corpora import documentation, hub, storage
from harness.corpora import text as cutting
from harness.corpora.documents import Document, DocumentSet, document_set
from harness.corpora.sources import CorpusSource
from harness.errors import CorpusError

#: Part of every key in the cache: counts up when the same file gives other documents than before.
READER_VERSION = 1

JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")
TEXT_SUFFIXES = (".txt", ".text", ".md", ".rst")

#: What reading gives: the documents, what one of them is, and a note (empty where their number says it all).
Read = tuple[list[Document], str, str]


def load_documents(source: CorpusSource, cache: Path) -> DocumentSet:
    """The documents of a corpus, read once and then kept in `cache`.

    Raises CorpusError, in one line, for a file that is missing, empty, not UTF-8 (with the byte), or not
    JSONL where its name says so (with the line); for a folder without text files, a hub that cannot be
    reached, a package that is not installed, and for fewer documents than four splits need.
    """
    if source.kind == "documentation":  # has its own cache, under the hash of the package's files
        named = documentation.package_documents(source.location, Path(cache))
        return document_set(source, [Document.of(name, text) for name, text in named], "module")
    identity, read = _READERS[source.kind](source)
    key = storage.sha256(json.dumps([READER_VERSION, source.kind, *identity]).encode())
    path = Path(cache) / "documents" / f"{key[:32]}.json"
    payload = storage.read_checked(path)
    if payload is not None:
        kept = json.loads(payload)
        documents = [Document.of(*fields) for fields in kept["documents"]]
        return document_set(source, documents, kept["unit"], kept["note"])
    documents, unit, note = read()
    made = document_set(source, documents, unit, note)  # before it is kept, so that nothing unusable is
    kept = {"unit": unit, "note": note, "documents": [(d.name, d.text, d.part) for d in documents]}
    storage.write_checked(path, json.dumps(kept, ensure_ascii=False).encode("utf-8"))
    return made


def _file(source: CorpusSource) -> tuple[list[str], Callable[[], Read]]:
    data, path = _bytes(source, Path(source.location)), Path(source.location)
    jsonl = path.suffix.lower() in JSONL_SUFFIXES

    def read() -> Read:
        content = cutting.decode(data, f"corpus {source.name}: {path.name}")
        if jsonl:
            named = cutting.parse_jsonl(content, f"corpus {source.name}: {path.name}")
            return _documents(named), "passage", ""
        if articles := cutting.cut_articles(content.split("\n")):
            marked = "; words replaced by <unk>: not the raw version" if " <unk> " in content else ""
            return _documents(articles), "article", f"{len(articles):,} articles{marked}"
        blocks = _documents(cutting.cut_blocks(content))
        return blocks, "block", f"one text, cut into {len(blocks):,} blocks that serve as documents"

    return [storage.sha256(data), "jsonl" if jsonl else "text"], read


def _folder(source: CorpusSource) -> tuple[list[str], Callable[[], Read]]:
    root = Path(source.location)
    names = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.suffix.lower() in TEXT_SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )
    if not names:
        raise CorpusError(
            f"corpus {source.name}: the folder {root.name} holds no text file ({', '.join(TEXT_SUFFIXES)}): "
            f"give a folder that does, or one file with --corpus {source.name}=FILE"
        )
    contents = [_bytes(source, root / name) for name in names]

    def read() -> Read:
        label = f"corpus {source.name}: {root.name}"
        decoded = [(name, cutting.decode(data, f"{label}/{name}")) for name, data in zip(names, contents, strict=True)]
        return _documents(decoded), "file", ""

    return [part for name, data in zip(names, contents, strict=True) for part in (name, storage.sha256(data))], read


def _hub(source: CorpusSource) -> tuple[list[str], Callable[[], Read]]:
    def read() -> Read:
        documents: list[Document] = []
        unit = "passage"
        for part, rows in hub.read_rows(source).items():
            named = cutting.cut_articles(rows)
            if named:
                unit = "article"
                if part == "train":
                    named.pop()  # the rows read of a training part end in the middle of an article
            else:
                named = [(f"line {number}", row) for number, row in enumerate(rows, start=1)]
            documents += _documents(named, part if len(source.parts) > 1 else "")
        return documents, unit, ""

    return [source.location, source.config, source.revision or "", *source.parts], read


_READERS = {"file": _file, "folder": _folder, "hub": _hub}


def _documents(named: cutting.Named, part: str = "") -> list[Document]:
    return [Document.of(name, text, part) for name, text in named]


def _bytes(source: CorpusSource, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CorpusError(
            f"corpus {source.name}: {path.name} cannot be read ({error.strerror or error}): "
            f"give a text file with --corpus {source.name}=FILE"
        ) from error
