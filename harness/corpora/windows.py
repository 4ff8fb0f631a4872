"""Token windows: a few from each of many documents, rather than many from the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.corpora.tokens import TokenizedCorpus


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
        """Positions with a target, which is all positions less one a window: as many rows as there are without first ones."""
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
    """Windows of at most `context` tokens until they hold `tokens` targets from `min_documents` documents, or all is used.

    One window of every document comes before a second of any, in the order of the documents' indices, which is that
    of their hashes. The windows of a document do not overlap and lie evenly spread over it; when all of
    it is used, the last one is shorter. A document shorter than a window is a window of its own. Each window
    starts with what the tokenizer's habit puts in front; a piece without a target is left out.
    """
    lead = np.asarray(tokenized.bos or (), dtype=np.int32)
    body = context - len(lead)  # tokens of the document in a full window
    if body < 1 or context < 2:
        raise ValueError(f"context {context} leaves no room for a target after {len(lead)} leading tokens")
    shortest = max(2 - len(lead), 1)
    lengths = {i: tokenized.length(i) for i in sorted(set(documents))}
    taken = {i: 0 for i, n in lengths.items() if n >= shortest}
    targets = 0

    def used_up(i: int) -> bool:
        left = lengths[i] - taken[i] * body
        return left < shortest

    open_ = list(taken)
    while open_ and (targets < tokens or sum(map(bool, taken.values())) < min_documents):
        for i in open_:
            if targets >= tokens and sum(map(bool, taken.values())) >= min_documents:
                break
            targets += len(lead) + min(body, lengths[i] - taken[i] * body) - 1
            taken[i] += 1
        open_ = [i for i in open_ if not used_up(i)]
    places = [(i, start) for i, k in taken.items() for start in _starts(lengths[i], k, body)]
    ids = [np.concatenate([lead, tokenized.tokens(i)[start : start + body]]) for i, start in places]
    document, start = np.asarray(places, dtype=np.int64).reshape(-1, 2).T
    return Windows(ids, document, start, len(lead))


def _starts(n: int, k: int, body: int) -> list[int]:
    """Where k windows of a document of n tokens begin: each in the middle of its k-th of the gaps."""
    gap = max(n - k * body, 0)  # negative where the last window is a shorter one
    return [j * body + gap * (2 * j + 1) // (2 * k) for j in range(k)]
