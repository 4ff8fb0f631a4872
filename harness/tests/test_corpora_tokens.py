"""Token ids: made once, memory-mapped, quiet, and what the tokenizer puts in front."""

from __future__ import annotations

import logging
import multiprocessing
import warnings
from pathlib import Path

import numpy as np
import pytest

from harness.corpora import (
    CorpusError,
    CorpusSource,
    Document,
    DocumentSet,
    document_set,
    make_windows,
    tokenize,
)
from harness.corpora.tokens import leading_ids
from harness.tests.corpora_example import WordTokenizer

SOURCE = CorpusSource("some", "file", "some.txt")
HASH = "a" * 64


@pytest.fixture
def documents() -> DocumentSet:
    texts = [" ".join(f"word{n}{m}" for m in range(n * 7 + 1)) for n in range(20)]
    return document_set(SOURCE, [Document.of(f"text {n}", text) for n, text in enumerate(texts)], "file")


def refuse() -> None:
    raise AssertionError("the tokenizer was loaded though the ids are in the cache")


def test_ids_are_those_of_each_document(documents: DocumentSet, tmp_path: Path):
    tokenizer = WordTokenizer(bos=True, eos=True)
    tokenized = tokenize(documents, lambda: tokenizer, HASH, tmp_path)
    assert tokenized.documents == documents.ids
    for i, document in enumerate(documents.documents):
        plain = tokenizer(document.text, add_special_tokens=False)["input_ids"]
        assert tokenized.tokens(i).tolist() == plain
        assert tokenized.length(i) == len(plain)
    assert isinstance(tokenized.ids, np.memmap)
    assert tokenized.ids.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        tokenized.ids[0] = 0


def test_a_warm_run_loads_no_tokenizer(documents: DocumentSet, tmp_path: Path):
    cold = tokenize(documents, lambda: WordTokenizer(bos=True), HASH, tmp_path)
    warm = tokenize(documents, refuse, HASH, tmp_path)
    assert (warm.ids == cold.ids).all()
    assert (warm.offsets == cold.offsets).all()
    assert (warm.bos, warm.documents, warm.fingerprint) == (cold.bos, cold.documents, cold.fingerprint) != (None,) * 3


def test_another_tokenizer_or_text_is_another_entry(documents: DocumentSet, tmp_path: Path):
    one = tokenize(documents, WordTokenizer, HASH, tmp_path)
    other = tokenize(documents, lambda: WordTokenizer(bos=True), "b" * 64, tmp_path)
    fewer = document_set(SOURCE, documents.documents[:10], "file")
    third = tokenize(fewer, WordTokenizer, HASH, tmp_path)
    assert len({one.fingerprint, other.fingerprint, third.fingerprint}) == 3
    assert (one.bos, other.bos, len(third)) == (None, (1,), 10)


@pytest.mark.parametrize(("bos", "eos", "leading"), [(0, 0, None), (1, 0, (1,)), (0, 1, None), (1, 1, (1,))], ids=str)
def test_the_habit_is_what_stands_in_front(bos: int, eos: int, leading, documents: DocumentSet, tmp_path: Path):
    tokenized = tokenize(documents, lambda: WordTokenizer(bool(bos), bool(eos)), HASH, tmp_path)
    assert tokenized.bos == leading
    windows = make_windows(tokenized, range(20), context=16, tokens=300)
    assert all(2 not in ids for ids in windows.ids), "EOS got into a window"
    assert all((ids[0] == 1) == (leading is not None) for ids in windows.ids)


def test_a_tokenizer_whose_habit_cannot_be_told_is_refused():
    def tokenizer(text, add_special_tokens=True, **options):
        return {"input_ids": [[5, 1, 6, 7] if add_special_tokens else [5, 6, 7]]}

    with pytest.raises(CorpusError, match="writes a text differently when it adds special tokens"):
        leading_ids(tokenizer)


@pytest.mark.parametrize("damage", ["ids.npy", "offsets.npy", "bos.npy", "sha256.json", "missing"])
def test_a_damaged_entry_is_reported_and_made_again(documents: DocumentSet, tmp_path: Path, damage: str):
    cold = tokenize(documents, lambda: WordTokenizer(bos=True), HASH, tmp_path).ids.tolist()
    (folder,) = (tmp_path / "tokens").iterdir()
    if damage == "missing":
        (folder / "ids.npy").unlink()
    else:
        data = bytearray((folder / damage).read_bytes())
        data[-3] ^= 1
        (folder / damage).write_bytes(data)
    with pytest.warns(UserWarning, match="is discarded and made again"):
        assert tokenize(documents, lambda: WordTokenizer(bos=True), HASH, tmp_path).ids.tolist() == cold
    warm = tokenize(documents, refuse, HASH, tmp_path)
    assert (warm.ids.tolist(), warm.bos) == (cold, (1,))


def test_a_tokenizer_that_fails_leaves_nothing_behind(documents: DocumentSet, tmp_path: Path):
    def fail():
        raise RuntimeError("no tokenizer")

    with pytest.raises(RuntimeError, match="no tokenizer"):
        tokenize(documents, fail, HASH, tmp_path)
    assert list(tmp_path.rglob("*")) == []


def _tokenize(documents: DocumentSet, cache: Path, barrier, results) -> None:
    def load() -> WordTokenizer:
        barrier.wait(timeout=60)  # both have found the cache empty before either writes
        return WordTokenizer()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results.put(tokenize(documents, load, HASH, cache).ids.tolist())


def test_two_processes_at_once_do_not_spoil_each_other(documents: DocumentSet, tmp_path: Path):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_tokenize, args=(documents, tmp_path, barrier, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    one, other = (results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert one == other == tokenize(documents, refuse, HASH, tmp_path).ids.tolist()
    assert len(list((tmp_path / "tokens").iterdir())) == 1  # no temporary folder is left


@pytest.fixture(scope="module")
def fast_tokenizer():
    """A real `PreTrainedTokenizerFast` that knows a context of 16 and adds BOS and EOS."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", "The", "ship", "harbour", "."])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=16)


def test_a_real_tokenizer_is_quiet_and_its_eos_stays_out(fast_tokenizer, tmp_path: Path, caplog, capfd):
    texts = [f"The ship . {'harbour ' * (20 + n)}" for n in range(8)]
    documents = document_set(SOURCE, [Document.of(str(n), text) for n, text in enumerate(texts)], "file")
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenized = tokenize(documents, lambda: fast_tokenizer, HASH, tmp_path)
    assert "longer" not in caplog.text + "".join(capfd.readouterr())
    assert tokenized.bos == (1,)
    assert not {1, 2} & set(tokenized.ids.tolist())
    assert sorted(tokenized.length(i) for i in range(8)) == [23 + n for n in range(8)]
