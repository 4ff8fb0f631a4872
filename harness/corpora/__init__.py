"""Corpora: documents from files, hubs and installed packages; tokens; document-disjoint splits; windows.

    source = resolve_corpus("wikitext=wiki.test.raw")
    documents = load_documents(source, cache)
    tokenized = tokenize(documents, load_tokenizer, tokenizer_sha256, cache)
    windows = make_windows(tokenized, split_documents(documents)["test"], context=256, tokens=4_000, min_documents=24)

Importing this package loads neither torch nor transformers nor datasets.
"""

from __future__ import annotations

from harness.corpora.documents import Document, DocumentSet
from harness.corpora.sources import CorpusSource, resolve_corpus, with_training
from harness.errors import CorpusError

__all__ = ["CorpusError", "CorpusSource", "Document", "DocumentSet", "resolve_corpus", "with_training"]
