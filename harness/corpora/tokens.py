"""Token ids of a corpus, memory-mapped, made once for each text and tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.corpora import storage
from harness.corpora.documents import DocumentSet
from harness.errors import CorpusError

#: Part of every key in the cache: counts up when the same text and tokenizer give other ids than before.
TOKENS_VERSION = 1

#: Documents that go to the tokenizer at once.
BATCH = 512

_ORDINARY = "The ship reached the harbour at noon, and nobody was waiting for it."


@dataclass(frozen=True)
class TokenizedCorpus:
    """The token ids of every document, without special tokens, in one memory-mapped array."""

    name: str
    """The corpus's name."""
    documents: tuple[str, ...] = field(repr=False)
    """The documents' ids, in the order of the document set."""
    ids: np.ndarray = field(repr=False)
    """(tokens,) int32, read-only."""
    offsets: np.ndarray = field(repr=False)
    """(documents + 1,) int64: document i is `ids[offsets[i]:offsets[i + 1]]`."""
    bos: tuple[int, ...] | None
    """What the tokenizer's own habit puts in front of a text (BOS, where it adds one); None for nothing."""
    fingerprint: str
    """64 hex digits for text, tokenizer and version of this module."""

    def tokens(self, document: int) -> np.ndarray:
        """(n,) int32: the ids of one document."""
        return self.ids[self.offsets[document] : self.offsets[document + 1]]

    def length(self, document: int) -> int:
        """How many tokens a document has."""
        return int(self.offsets[document + 1] - self.offsets[document])

    def __len__(self) -> int:
        return len(self.documents)


def tokenize(
    documents: DocumentSet, load_tokenizer: Callable[[], Any], tokenizer_sha256: str, cache: Path
) -> TokenizedCorpus:
    """The ids of a document set under one tokenizer, from `cache` where they are there.

    `load_tokenizer` returns a Hugging Face tokenizer and is called only when they are not there, so that a
    warm run loads none. A damaged entry is reported and made again.
    """
    parts = [TOKENS_VERSION, documents.fingerprint, tokenizer_sha256]
    fingerprint = storage.sha256(json.dumps(parts).encode())
    folder = Path(cache) / "tokens" / fingerprint[:32]
    found = _open(folder)
    if found is None:
        tokenizer = load_tokenizer()
        bos = leading_ids(tokenizer)
        lists = _encode(tokenizer, [document.text for document in documents.documents], special_tokens=False)
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        ids = np.concatenate([np.asarray(one, dtype=np.int32) for one in lists])
        with storage.new_folder(folder) as new:
            for name, array in (("ids", ids), ("offsets", offsets), ("bos", np.asarray(bos or (), np.int32))):
                np.save(new / f"{name}.npy", array)
            hashes = {file.name: storage.file_sha256(file) for file in new.iterdir()}
            (new / "sha256.json").write_text(json.dumps(hashes), encoding="utf-8")
        found = _open(folder)
        if found is None:
            raise CorpusError(
                f"corpus {documents.source.name}: what is written to {folder} cannot be read again: "
                "check the disk or choose another folder with --evidence DIR"
            )
    ids, offsets, bos = found
    return TokenizedCorpus(documents.source.name, documents.ids, ids, offsets, bos, fingerprint)


def leading_ids(tokenizer: Any) -> tuple[int, ...] | None:
    """What the tokenizer by itself puts in front of a text, without what it puts behind one (EOS)."""
    (plain,), (habit,) = (_encode(tokenizer, [_ORDINARY], special_tokens=special) for special in (False, True))
    for start in range(len(habit) - len(plain) + 1):
        if habit[start : start + len(plain)] == plain:
            return tuple(habit[:start]) or None
    raise CorpusError(
        "the tokenizer writes a text differently when it adds special tokens, so that its own habit "
        "cannot be told from the text: use a tokenizer that puts them before or behind"
    )


def _encode(tokenizer: Any, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
    """The ids of each text, without the warning that a text is longer than the model's context."""
    ids: list[list[int]] = []
    for start in range(0, len(texts), BATCH):
        batch = list(texts[start : start + BATCH])
        ids += tokenizer(batch, add_special_tokens=special_tokens, return_attention_mask=False, verbose=False)[
            "input_ids"
        ]
    return ids


def _open(folder: Path) -> tuple[np.ndarray, np.ndarray, tuple[int, ...] | None] | None:
    if not folder.is_dir():
        return None
    try:
        hashes = json.loads((folder / "sha256.json").read_text(encoding="utf-8"))
        for name in ("ids.npy", "offsets.npy", "bos.npy"):
            if storage.file_sha256(folder / name) != hashes[name]:
                raise ValueError(f"{name} is damaged")
        bos = np.load(folder / "bos.npy")
        ids, offsets = np.load(folder / "ids.npy", mmap_mode="r"), np.load(folder / "offsets.npy")
    except (OSError, ValueError, KeyError, TypeError) as error:
        storage.discard(folder, str(error))
        return None
    return ids, offsets, tuple(bos.tolist()) or None
