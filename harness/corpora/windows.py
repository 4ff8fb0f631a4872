"""Token windows: a few from each of many documents, rather than many from the first ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.corpora.tokens import TokenizedCorpus
from harness.errors import CorpusError


@dataclass(frozen=True)
class Windows:
    """Token windows, each from one document, in the order of documents and then of position."""

    ids: list[np.ndarray] = field(repr=False)
    """W arrays of int32, the ids in front (BOS) included; each holds at least one position with a target."""
    document: np.ndarray = field(repr=False)
    """(W,) index of each window's document in the tokenized corpus."""
    start: np.ndarray = field(repr=False)
    """(W,) where in its document the window's text begins, in tokens."""
    leading: int
    """How many ids in front of each window are not the document's."""

    @property
    def targets(self) -> int:
        """Positions with a target: all but the last of each window, and so as many as all but the first."""
        return sum(len(window) - 1 for window in self.ids)

    @property
    def documents(self) -> np.ndarray:
        """Indices of the documents that have a window, ascending."""
        return np.unique(self.document)

    def __len__(self) -> int:
        return len(self.ids)


def make_windows(
    tokenized: TokenizedCorpus,
    documents: Sequence[int],
    *,
    context: int,
    tokens: int,
    min_documents: int = 0,
) -> Windows:
    """Windows of at most `context` tokens, until there are `tokens` targets from `min_documents` documents, or from
    all that there are.

    One window of every document comes before a second of any, in the order of the documents' indices, which
    is that of their hashes. The windows of a document do not overlap and lie evenly spread over it; the one
    that uses it up is shorter. A document shorter than a window is a window of its own. Each window starts
    with what the tokenizer's habit puts in front; a piece without a target is left out. Where the documents
    have less than was asked for, all of them is used: see `targets` and `documents` of what is returned.
    """
    lead = np.asarray(tokenized.bos or (), dtype=np.int32)
    body = context - len(lead)  # tokens of the document in a full window
    shortest = max(2 - len(lead), 1)  # tokens of the document that make a target
    if body < shortest:
        raise CorpusError(f"a context of {context} leaves no target after {len(lead)} leading tokens: ask for more")
    lengths = {i: tokenized.length(i) for i in sorted(set(documents))}
    taken = dict.fromkeys((i for i, n in lengths.items() if n >= shortest), 0)
    min_documents = min(min_documents, len(taken))
    targets = 0
    for i in _rounds(lengths, body, shortest):
        if targets >= tokens and sum(k > 0 for k in taken.values()) >= min_documents:
            break
        targets += len(lead) + min(body, lengths[i] - taken[i] * body) - 1
        taken[i] += 1
    places = [(i, start) for i, k in taken.items() for start in _starts(lengths[i], k, body)]
    ids = [np.concatenate([lead, tokenized.tokens(i)[start : start + body]]) for i, start in places]
    document, start = np.asarray(places, dtype=np.int64).reshape(-1, 2).T
    return Windows(ids, document, start, len(lead))


def line_windows(tokenized: TokenizedCorpus, lines: Sequence[int], *, context: int, tokens: int) -> Windows:
    """The first `context` tokens of each line, in the lines' order, until there are `tokens` targets.

    As the paper's author cut his text: a line is a context of its own, nothing is put in front of it, what goes
    beyond the context is dropped, and a line of fewer than two tokens is passed over. `lines` are indices into the
    tokenized corpus.
    """
    chosen: list[int] = []
    ids: list[np.ndarray] = []
    targets = 0
    for line in lines:
        if targets >= tokens:
            break
        window = np.asarray(tokenized.tokens(line)[:context])
        if len(window) > 1:
            chosen.append(line)
            ids.append(window)
            targets += len(window) - 1
    return Windows(ids, np.asarray(chosen, dtype=np.int64), np.zeros(len(chosen), dtype=np.int64), 0)


def _rounds(lengths: dict[int, int], body: int, shortest: int) -> Iterator[int]:
    """Documents in the order in which they give a window: once in every round, while one has tokens left."""
    left = lengths
    while left := {i: n for i, n in left.items() if n >= shortest}:
        yield from left
        left = {i: n - body for i, n in left.items()}


def _starts(n: int, k: int, body: int) -> list[int]:
    """Where k windows of a document of n tokens begin; what they leave out lies evenly before and behind."""
    gap = max(n - k * body, 0)  # negative where the last window is a shorter one
    return [j * body + gap * (2 * j + 1) // (2 * k) for j in range(k)]
