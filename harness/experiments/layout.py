"""Which text a measurement reads: the windows of every split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.corpora import TokenizedCorpus, Windows, line_windows, make_windows, split_documents, split_lines, tokenize
from harness.errors import CorpusError
from harness.experiments.fitting import rows_available
from harness.experiments.request import Request
from harness.models.loading import Subject
from harness.protocol import LineRanges, Shares


@dataclass(frozen=True)
class Layout:
    """The windows of a request."""

    tokenized: TokenizedCorpus
    fit: tuple[Windows, ...]
    """What surrogates are fitted on: two halves that share no document, or one part, lines in reading order."""
    select: Windows
    """What choices are made on."""
    test: Windows
    """What is evaluated."""
    rows: int
    """N, rows of a fit."""
    leading: tuple[int, ...]
    """The ids in front of every window."""

    @classmethod
    def of(cls, request: Request, subject: Subject, cache: Path) -> Layout:
        """Tokenize (or read the cache), split as the protocol says and cut windows.

        Raises
        ------
        CorpusError
            Where a split has no text to speak of.
        """
        tokenized = tokenize(request.corpus, lambda: subject.tokenizer, request.model.tokenizer_sha256, cache)
        splits = request.protocol.splits
        if isinstance(splits, LineRanges):
            fit, select, test = _by_line(request, tokenized, splits)
        else:
            fit, select, test = _by_document(request, tokenized, splits)
        for name, windows in (("select", select), ("test", test)):
            if not windows.targets:
                corpus = request.corpus.source.name
                raise CorpusError(f"corpus {corpus}: its {name} split has no text of two tokens; give a longer text")
        _all_embedded(request, (*fit, select, test))
        rows = rows_available(fit, request.budget.fit, request.protocol)
        return cls(tokenized, fit, select, test, rows, (tokenized.bos or ()) if request.protocol.bos else ())


def _all_embedded(request: Request, splits: Sequence[Windows]) -> None:
    """Raise CorpusError for a token without a row in the embedding: some tokenizers have tokens that came in later."""
    highest = max(int(ids.max()) for windows in splits for ids in windows.ids)
    if highest >= request.model.vocabulary:
        raise CorpusError(
            f"corpus {request.corpus.source.name}: its text has token {highest}, which {request.model.name} has no "
            f"embedding for ({request.model.vocabulary} rows); take that special token out of the text"
        )


def _by_document(
    request: Request, tokenized: TokenizedCorpus, shares: Shares
) -> tuple[tuple[Windows, ...], Windows, Windows]:
    budget = request.budget
    splits = split_documents(request.corpus, shares.percent)

    def cut(documents: Sequence[int], tokens: int, min_documents: int = 0) -> Windows:
        return make_windows(tokenized, documents, context=budget.context, tokens=tokens, min_documents=min_documents)

    halves = (cut(splits["fit"][half::2], -(-budget.fit // 2)) for half in (0, 1))
    return tuple(halves), cut(splits["select"], budget.select), cut(splits["test"], budget.test, budget.documents)


def _by_line(
    request: Request, tokenized: TokenizedCorpus, splits: LineRanges
) -> tuple[tuple[Windows, ...], Windows, Windows]:
    """Lines in reading order; choices are made on the lines that are evaluated, as many as the budget has of each."""
    budget = request.budget
    lines = split_lines(len(tokenized), splits.by_name)

    def cut(split: str, tokens: int) -> Windows:
        return line_windows(tokenized, lines[split], context=budget.context, tokens=tokens)

    return (cut("fit", budget.fit),), cut("test", budget.select), cut("test", budget.test)
