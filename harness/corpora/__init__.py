"""Corpora: documents from files, hubs and installed packages; tokens; document-disjoint splits; windows.

    documents = load_documents(resolve_corpus("wikitext=wiki.test.raw"), cache)
    tokenized = tokenize(documents, load_tokenizer, tokenizer_sha256, cache)
    test = split_documents(documents)["test"]
    windows = make_windows(tokenized, test, context=256, tokens=4_000, min_documents=24)

Importing this package loads neither torch nor transformers nor datasets.
"""

from __future__ import annotations

from harness.corpora.documents import Document, DocumentSet, document_set
from harness.corpora.lines import load_lines
from harness.corpora.loading import load_documents
from harness.corpora.sources import CorpusSource, resolve_corpus, with_training
from harness.corpora.splits import require_tokens, split_documents, split_lines
from harness.corpora.tokens import TokenizedCorpus, tokenize
from harness.corpora.windows import Windows, line_windows, make_windows
from harness.errors import CorpusError

__all__ = [
    "CorpusError",
    "CorpusSource",
    "Document",
    "DocumentSet",
    "TokenizedCorpus",
    "Windows",
    "document_set",
    "line_windows",
    "load_documents",
    "load_lines",
    "make_windows",
    "require_tokens",
    "resolve_corpus",
    "split_documents",
    "split_lines",
    "tokenize",
    "with_training",
]
