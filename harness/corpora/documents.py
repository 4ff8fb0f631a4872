"""Documents: the unit of every statistic in this harness, and the sets of them that make a corpus.

A document is what an interval resamples: a Wikipedia article, a LAMBADA passage, the documentation of a
module, a file of a folder, or, where a corpus is one long text, a block of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import CorpusError

if TYPE_CHECKING:
    from harness.corpora.sources import CorpusSource

#: With fewer documents one of the four splits may be empty (two of them take 15 %).
MINIMUM_DOCUMENTS = 8


@dataclass(frozen=True)
class Document:
    """One document. Equal texts have equal ids, whatever file or hub they came from."""

    id: str
    """The first 16 hex digits of the SHA-256 of the text in UTF-8."""
    name: str
    """What a reader would call it: a title, a module, a file, a line."""
    text: str = field(repr=False)
    """The text, with line feeds for line ends."""
    part: str = ""
    """`train`, `validation` or `test`, where a corpus is read in these parts; else empty."""

    @classmethod
    def of(cls, name: str, text: str, part: str = "") -> Document:
        """A document with the id that its text gives it."""
        return cls(hashlib.sha256(text.encode("utf-8")).hexdigest()[:16], name, text, part)


@dataclass(frozen=True)
class DocumentSet:
    """The documents of one corpus: in the order of their ids, each text once (see `load_lines` for lines)."""

    source: CorpusSource
    """Where they are from."""
    documents: tuple[Document, ...] = field(repr=False)
    """In the order of their ids, so that nothing depends on the order in which they were read; lines, which are
    split by their numbers, in reading order."""
    unit: str
    """What a document is: `article`, `passage` (a record), `module`, `file`, `paragraph`, `block` or `line`; `document`
    where a folder has several of these."""
    fingerprint: str
    """SHA-256 (64 hex digits) of the unit and of every document's id and part."""
    note: str
    """What a report says about how the documents came about, in one line."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The documents' ids, in order."""
        return tuple(document.id for document in self.documents)

    def __repr__(self) -> str:
        return f"<DocumentSet {self.source.name}: {plural(len(self), self.unit)}>"

    def __len__(self) -> int:
        return len(self.documents)


def document_set(
    source: CorpusSource, documents: Iterable[Document], unit: str, note: str = "", more: Sequence[str] = ()
) -> DocumentSet:
    """Order the documents by id, keep each text once, and check that there are enough for four splits.

    The set's note is `note`, or else how many documents there are, and what `more` there is to say. Of documents with
    the same text the first by part and name stays (so that a text in `test` and in `train` is not trained on), and the
    note says how many went. Raises CorpusError when fewer than MINIMUM_DOCUMENTS are left.
    """
    kept: dict[str, Document] = {}
    empty = repeated = 0
    for document in sorted(documents, key=lambda d: (d.id, d.part, d.name)):
        if not document.text.strip():
            empty += 1
        elif document.id in kept:
            repeated += 1
        else:
            kept[document.id] = document
    if len(kept) < MINIMUM_DOCUMENTS:
        what = plural(len(kept), unit)
        left_out = f" (after leaving out {plural(repeated, 'repeated text')})" if repeated else ""
        raise CorpusError(
            f"corpus {source.name}: {source.label} holds {what}{left_out}, too few for four splits "
            f"(at least {MINIMUM_DOCUMENTS}): give a longer text or more documents"
        )
    notes = [note or plural(len(kept), unit)]
    notes += [f"{plural(repeated, 'repeated text')} left out"] if repeated else []
    notes += [f"{plural(empty, 'empty document')} left out"] if empty else []
    notes += more
    digest = hashlib.sha256(f"{unit}\n".encode())
    for document in kept.values():
        digest.update(f"{document.id} {document.part}\n".encode())
    return DocumentSet(source, tuple(kept.values()), unit, digest.hexdigest(), "; ".join(notes))


def plural(n: int, word: str) -> str:
    """`3 files`."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"
