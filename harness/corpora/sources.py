"""Where a corpus comes from: `--corpus [NAME=]SOURCE[?key=value]`, resolved without reading anything."""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from harness.corpora.queries import REVISION, parse_query
from harness.errors import CorpusError


@dataclass(frozen=True)
class CorpusSource:
    """A corpus by name and place. Resolving one reads nothing; `load_documents` does."""

    name: str
    """The domain as claims and reports call it: `wikitext`, `lambada`, `scipy`, or the user's own name."""
    kind: str
    """`hub`, `file`, `folder` or `documentation`."""
    location: str
    """A dataset id, a path, or the name of an installed package."""
    revision: str | None = None
    """The commit (40 hex digits), branch or tag of a hub dataset; None for what the hub calls `main`."""
    config: str = ""
    """The configuration of a hub dataset; empty for its default."""
    parts: tuple[str, ...] = ()
    """The parts (splits) of a hub dataset that are read: `test`, or `train`, `validation` and `test`. Empty: its test
    part, or the one that comes nearest to it."""
    column: str = ""
    """Which column of a dataset, or key of a JSONL record, is the text; empty for the usual one."""
    rows: int | None = None
    """Read only so many rows of a part, or lines of a file, from the start."""
    cut: str = ""
    """What ends a document: `title`, `blank`, `file` or `record`; empty for what the source looks like."""
    suffix: tuple[str, ...] = ()
    """Read only the files of a folder whose names end so: `.py`. Empty for all."""

    def __repr__(self) -> str:
        return f"<CorpusSource {self.name}: {self.kind} {self.address}>"

    @property
    def label(self) -> str:
        """The place as a report may name it: a file's name, never its path."""
        on_disk = self.kind in ("file", "folder")
        return Path(os.path.abspath(self.location)).name if on_disk else self.location

    @property
    def address(self) -> str:
        """What `--corpus` is told to read this text again: `owner/name@commit?config=en`. Of a path, its last name."""
        values: dict[str, object] = {
            "config": self.config,
            "split": ",".join(self.parts),
            "column": self.column,
            "rows": self.rows,
            "cut": self.cut,
            "suffix": ",".join(suffix.removeprefix(".") for suffix in self.suffix),
        }
        query = "&".join(f"{key}={quote(str(value), safe=',/')}" for key, value in values.items() if value)
        return self.label + (f"@{self.revision}" if self.revision else "") + (f"?{query}" if query else "")


#: Hub datasets at fixed commits, so that the same name is the same text next year. The test part of
#: wikitext-103-raw-v1 is that of wikitext-2-raw-v1 (60 articles). LAMBADA is the file used for GPT-2
#: (`data/lambada_test.jsonl`, SHA-256 4aa8d02c…).
HUB_CORPORA = {
    "wikitext": CorpusSource(
        "wikitext",
        "hub",
        "Salesforce/wikitext",
        revision="b08601e04326c79dfdd32d625aee71d232d685c3",
        config="wikitext-103-raw-v1",
        parts=("test",),
        column="text",
    ),
    "lambada": CorpusSource(
        "lambada",
        "hub",
        "EleutherAI/lambada_openai",
        revision="900124bf3b8235c6daf21033af9948b3f07346c4",
        config="default",
        parts=("test",),
        column="text",
    ),
}

#: Of HUB_CORPORA, those that have a training part from which surrogates and gates may be fitted.
TRAINING_PARTS = {"wikitext": ("train", "validation", "test")}

#: Installed packages whose documentation is a corpus (see harness.corpora.documentation).
DOCUMENTED_PACKAGES = ("scipy", "sklearn", "numpy", "torch")

#: Files of these suffixes hold records: one JSON object a line. In a folder only the first two do, for a `.json` among
#: other files is seldom a list of texts.
JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_HUB_ID = re.compile(r"(?P<id>\w[\w.-]*(?P<name>/\w[\w.-]*)?)(?:@(?P<revision>.+))?", re.ASCII)

#: What ends so is a file that is missing, not a dataset of that name.
_FILE_SUFFIXES = (*JSONL_SUFFIXES, ".txt", ".text", ".md", ".rst", ".gz", ".zip", ".csv", ".tsv", ".parquet", "/")


def resolve_corpus(text: str) -> CorpusSource:
    """The source that `--corpus` names: `[NAME=]SOURCE[?key=value&key=value]`.

    SOURCE is one of HUB_CORPORA or DOCUMENTED_PACKAGES, an existing path (text, JSONL, either of them under gzip, or a
    folder), or the id of a hub dataset, `owner/name[@revision]`. A path that exists wins over a hub dataset, and, where
    a NAME is given, over a name that is known. The keys are those of `harness.corpora.queries`; without a NAME the
    source gives its own. Raises CorpusError for what is none of them, with each way to read it.
    """
    head, equals, rest = (piece.strip() for piece in text.partition("="))
    if not text.strip():
        raise CorpusError("--corpus names no corpus; write --corpus NAME=FILE")
    if not equals or "?" in head or (not _NAME.fullmatch(head) and _on_disk(text.strip())[0]):
        return _resolve("", text.strip(), text)
    if not _NAME.fullmatch(head):
        raise CorpusError(f"--corpus {text}: {head!r} is no name for a corpus; write --corpus NAME=FILE")
    if not rest:
        raise CorpusError(f"--corpus {head}=: no file is given; write --corpus {head}=FILE")
    return _resolve(head, rest, text)


def with_training(source: CorpusSource) -> CorpusSource:
    """The source with its training part (`--budget full`), where it is one of ours that has one, read as usual."""
    parts = next((p for name, p in TRAINING_PARTS.items() if replace(source, name=name) == HUB_CORPORA[name]), None)
    return replace(source, parts=parts) if parts else source


def is_records(name: str) -> bool:
    """Whether a file of that name holds JSON, one record a line; `.gz` is looked through."""
    return name.lower().removesuffix(".gz").endswith(JSONL_SUFFIXES)


def _resolve(name: str, place: str, given: str) -> CorpusSource:
    word, _, query = place.partition("?")
    known = HUB_CORPORA.get(word) or (
        CorpusSource(word, "documentation", word) if word in DOCUMENTED_PACKAGES else None
    )
    path, of_path = _on_disk(place)
    if path is not None and (name or known is None):
        kind = "folder" if path.is_dir() else "file"
        source = CorpusSource(name or _named_after(path, given), kind, str(path))
        return _with_query(source, of_path, given)
    if known is not None:
        return _with_query(replace(known, name=name or known.name), query, given)
    return _with_query(_on_hub(name, word, query, given), query, given)


def _on_disk(place: str) -> tuple[Path | None, str]:
    """The path that exists and what stands behind its question mark; a question mark may be part of the path."""
    ends = [len(place), *(i for i in range(len(place) - 1, 0, -1) if place[i] == "?")]
    for end in ends:
        path = Path(place[:end]).expanduser()
        try:
            if path.exists():
                return path, place[end + 1 :]
        except (OSError, ValueError) as error:  # ValueError: a null byte
            reason = getattr(error, "strerror", None) or str(error)
            raise CorpusError(f"--corpus {place}: cannot be looked at ({reason})") from error
    return None, ""


def _on_hub(name: str, word: str, query: str, given: str) -> CorpusSource:
    """A hub dataset, where `word` can be one. One without an owner must say more, for most are misspelt files."""
    match = _HUB_ID.fullmatch(word)
    if match is None or word.lower().endswith(_FILE_SUFFIXES) or not (match["name"] or match["revision"] or query):
        if name or match is None or "/" in word:
            raise CorpusError(
                f"--corpus {given}: no such file or folder"
                + ("" if match is None else "; a dataset of the hub goes by owner/name, or by name?split=SPLIT")
            )
        known = ", ".join((*HUB_CORPORA, *DOCUMENTED_PACKAGES))
        raise CorpusError(
            f"--corpus {given}: unknown corpus; known by name are {known}; for another write --corpus {word}=FILE, "
            "or a hub dataset as owner/name"
        )
    if match["revision"] and any(pair.strip().startswith("revision=") for pair in query.split("&")):
        raise CorpusError(f"--corpus {given}: revision is given twice; leave one out")
    if match["revision"] and not REVISION.fullmatch(match["revision"]):
        raise CorpusError(f"--corpus {given}: {match['revision']!r} is no revision; give a commit, a branch or a tag")
    return CorpusSource(name or match["id"].rpartition("/")[2], "hub", match["id"], match["revision"])


def _with_query(source: CorpusSource, query: str, given: str) -> CorpusSource:
    if not query:
        return source
    kind = source.kind
    if kind == "file":
        kind = "records" if is_records(source.location) else "text"
    return replace(source, **parse_query(query, kind, given))


def _named_after(path: Path, given: str) -> str:
    """The name of a file or folder, without its suffixes, as far as it can be the name of a corpus."""
    full = Path(os.path.abspath(path)).name
    stem = full if path.is_dir() else Path(full.removesuffix(".gz")).stem
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-._")
    if not name:
        raise CorpusError(f"--corpus {given}: give it a name of letters and digits, --corpus NAME={given}")
    return name
