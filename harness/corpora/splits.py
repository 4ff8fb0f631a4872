"""Document-disjoint splits: what is fitted, gated, chosen and tested never shares a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.corpora.documents import Document, DocumentSet
from harness.corpora.tokens import TokenizedCorpus
from harness.errors import CorpusError

SPLITS = ("fit", "gate", "select", "test")

#: Shares of `fit`, `gate` and `select`, in percent; the rest is `test`. 60 articles give 15, 9, 9 and 27.
SHARES = (25, 15, 15)


def split_documents(
    documents: DocumentSet | Sequence[Document], shares: Sequence[int] = SHARES
) -> dict[str, list[int]]:
    """Indices into the documents, by split: in the order of their ids (hashes of their texts), by share.

    Every document is in exactly one split, and in which one depends on no order of reading. Where the
    corpus was read with its training part, `fit`, `gate` and `select` share that part in the same
    proportion and `test` is everything else.
    """
    members = documents.documents if isinstance(documents, DocumentSet) else documents
    order = sorted(range(len(members)), key=lambda i: (members[i].id, members[i].name))
    train = [i for i in order if members[i].part == "train"]
    pool, whole = (train, sum(shares)) if train else (order, 100)
    bounds = [0] + [len(pool) * sum(shares[:k]) // whole for k in range(1, len(SPLITS))]
    splits = {name: pool[bounds[k] : bounds[k + 1]] for k, name in enumerate(SPLITS[:-1])}
    splits["test"] = [i for i in order if members[i].part != "train"] if train else pool[bounds[-1] :]
    return splits


def split_lines(lines: int, ranges: Mapping[str, tuple[int, int]]) -> dict[str, range]:
    """The lines of each split, out of as many lines, by ranges [start, stop) of their numbers."""
    return {name: range(lines)[start:stop] for name, (start, stop) in ranges.items()}


def require_tokens(tokenized: TokenizedCorpus, splits: Mapping[str, Sequence[int]], needed: Mapping[str, int]) -> None:
    """Raise CorpusError where a split has fewer tokens than are `needed` of it."""
    for split, least in needed.items():
        have = sum(tokenized.length(i) for i in splits[split])
        if have < least:
            raise CorpusError(
                f"corpus {tokenized.name}: too short, its split {split} has {have:,} tokens and needs "
                f"{least:,}: give a longer text with --corpus {tokenized.name}=FILE"
            )
