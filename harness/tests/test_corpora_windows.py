"""Splits are disjoint and complete; windows are spread over documents and cover no token twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.corpora import (
    CorpusError,
    CorpusSource,
    Document,
    document_set,
    make_windows,
    require_tokens,
    split_documents,
)
from harness.tests.corpora_example import numbered

SOURCE = CorpusSource("some", "file", "some.txt")
texts = st.lists(st.text(min_size=1).filter(str.strip), min_size=8, max_size=80, unique=True)


def documents(texts: list[str], part: str = "") -> list[Document]:
    return [Document.of(f"document {n}", text, part) for n, text in enumerate(texts)]


# Splits


@settings(deadline=None)
@given(texts)
def test_splits_are_disjoint_complete_and_full(texts: list[str]):
    splits = split_documents(document_set(SOURCE, documents(texts), "file"))
    assert sorted(itertools.chain(*splits.values())) == list(range(len(texts)))
    assert all(splits.values())
    assert len(splits["test"]) >= 0.45 * len(texts)


@settings(deadline=None)
@given(texts, st.randoms())
def test_no_order_of_reading_matters(texts: list[str], random):
    read = documents(texts)
    shuffled = random.sample(read, len(read))
    one, other = (document_set(SOURCE, order, "file") for order in (read, shuffled))
    assert one == other
    by_text = {name: {read[i].text for i in members} for name, members in split_documents(read).items()}
    for order in (shuffled, one.documents):
        assert {name: {order[i].text for i in members} for name, members in split_documents(order).items()} == by_text


@settings(deadline=None)
@given(texts, st.randoms())
def test_a_corpus_merged_with_a_copy_of_itself_is_itself(texts: list[str], random):
    once = document_set(SOURCE, documents(texts), "file")
    copies = documents(texts) + random.sample(documents(texts), len(texts) // 2)
    merged = document_set(SOURCE, copies, "file")
    assert (merged.fingerprint, merged.documents) == (once.fingerprint, once.documents)
    assert f"{len(texts) // 2:,} repeated text" in merged.note


def test_sixty_documents_give_15_9_9_27():
    splits = split_documents(documents([f"text {n}" for n in range(60)]))
    assert {name: len(members) for name, members in splits.items()} == {
        "fit": 15,
        "gate": 9,
        "select": 9,
        "test": 27,
    }


def test_a_split_is_a_stretch_of_the_hashes():
    read = documents([f"text {n}" for n in range(40)])
    splits = split_documents(read)
    hashes = [[read[i].id for i in members] for members in splits.values()]
    assert list(itertools.chain(*hashes)) == sorted(document.id for document in read)


def test_a_training_part_is_fitted_on_and_never_tested():
    read = documents([f"train {n}" for n in range(110)], "train")
    read += documents([f"held out {n}" for n in range(60)], "test")
    read += documents([f"also held out {n}" for n in range(60)], "validation")
    splits = split_documents(read)
    assert {name: len(members) for name, members in splits.items()} == {
        "fit": 50,
        "gate": 30,
        "select": 30,
        "test": 120,
    }
    for name, members in splits.items():
        assert {read[i].part for i in members} == ({"test", "validation"} if name == "test" else {"train"})


def test_a_text_in_train_and_test_is_not_trained_on():
    leaked = [f"text {n}" for n in range(10)]
    made = document_set(SOURCE, documents(leaked, "train") + documents(leaked, "test"), "article")
    assert {document.part for document in made.documents} == {"test"}


def test_too_few_documents_are_refused_after_leaving_out_repeats():
    with pytest.raises(CorpusError, match=r"holds 7 files \(after leaving out 3 repeated texts\), too few"):
        document_set(SOURCE, documents([f"text {n}" for n in range(7)] + ["text 0"] * 3), "file")


def test_fingerprints_tell_text_unit_and_part_apart():
    eight = [f"text {n}" for n in range(8)]
    made = [
        document_set(SOURCE, documents(eight), "file"),
        document_set(SOURCE, documents(eight), "article"),
        document_set(SOURCE, documents(eight, "train"), "file"),
        document_set(SOURCE, documents([*eight[:-1], "text 7 "]), "file"),
    ]
    assert len({one.fingerprint for one in made}) == 4


def test_a_split_with_too_few_tokens_is_named():
    tokenized = numbered([10] * 8)
    splits = split_documents(documents([f"text {n}" for n in range(8)]))
    require_tokens(tokenized, splits, {"fit": 20, "test": 40})
    with pytest.raises(CorpusError, match="its split fit has 20 tokens and needs 21"):
        require_tokens(tokenized, splits, {"fit": 21})


# Windows

lengths = st.lists(st.integers(1, 300), min_size=1, max_size=30)
leading = st.sampled_from([None, (7,), (7, 8)])
contexts = st.integers(4, 64)


@settings(deadline=None)
@given(lengths, leading, contexts, st.integers(0, 3_000), st.integers(0, 40))
def test_windows(lengths: list[int], bos, context: int, tokens: int, least: int):
    tokenized = numbered(lengths, bos)
    windows = make_windows(tokenized, range(len(lengths)), context=context, tokens=tokens, min_documents=least)
    lead = len(bos or ())
    body, shortest = context - lead, max(2 - lead, 1)
    usable = [i for i, n in enumerate(lengths) if n >= shortest]
    taken = {i: int((windows.document == i).sum()) for i in usable}
    most = {i: -(-(lengths[i] - shortest + 1) // body) for i in usable}  # a rest without a target is left out

    covered: list[int] = []
    for ids, document, start in zip(windows.ids, windows.document, windows.start, strict=True):
        assert ids.dtype == np.int32
        assert 2 <= len(ids) <= context
        assert tuple(ids[:lead]) == (bos or ())
        assert (ids[lead:] == tokenized.tokens(document)[start : start + body]).all()
        covered += ids[lead:].tolist()
    assert len(covered) == len(set(covered)), "a token is covered twice"
    assert all(taken[i] <= 1 for i in usable if lengths[i] <= body), "a short document is one window"
    for rank in range(1, max(taken.values(), default=0)):
        assert all(taken[i] >= min(rank, most[i]) for i in usable), "a second window before another's first"

    least = min(least, len(usable))
    enough = windows.targets >= tokens and len(windows.documents) >= least
    assert enough or taken == most, "stopped before the end without having enough"
    if len(windows) and enough:  # and not one window more than that
        assert windows.targets - (context - 1) < tokens or len(windows.documents) == least
    assert windows.targets == sum(map(len, windows.ids)) - len(windows)


@settings(deadline=None)
@given(lengths, leading, contexts, st.integers(0, 3_000), st.randoms())
def test_windows_do_not_depend_on_the_order_of_documents(lengths: list[int], bos, context: int, tokens: int, random):
    tokenized, members = numbered(lengths, bos), list(range(len(lengths)))
    one = make_windows(tokenized, members, context=context, tokens=tokens)
    other = make_windows(tokenized, random.sample(members, len(members)) + members, context=context, tokens=tokens)
    assert [ids.tolist() for ids in one.ids] == [ids.tolist() for ids in other.ids]
    assert one.document.tolist() == other.document.tolist()


@settings(deadline=None)
@given(st.integers(30, 400), contexts, st.integers(1, 400))
def test_windows_of_a_document_lie_evenly(length: int, context: int, tokens: int):
    windows = make_windows(numbered([length]), [0], context=context, tokens=tokens)
    ends = windows.start + [len(ids) for ids in windows.ids]
    between = windows.start[1:] - ends[:-1]
    front, behind = windows.start[0], length - ends[-1]
    if between.size:
        assert between.max() - between.min() <= 1
        assert abs(front - between.mean() / 2) <= 1
    assert abs(front - behind) <= 1


def test_one_window_of_a_long_document_is_its_middle():
    windows = make_windows(numbered([100]), [0], context=10, tokens=1)
    assert windows.start.tolist() == [45]


def test_documents_come_before_tokens():
    windows = make_windows(numbered([1_000] * 50), range(50), context=128, tokens=500, min_documents=40)
    assert windows.documents.tolist() == list(range(40))
    assert len(windows) == 40


def test_only_the_documents_asked_for():
    windows = make_windows(numbered([50] * 10), [3, 8], context=16, tokens=10_000)
    assert windows.documents.tolist() == [3, 8]
    assert windows.targets == 2 * (50 - 4)  # all of it, less the last position of three full windows and a short one


def test_no_usable_document_gives_no_window():
    windows = make_windows(numbered([1, 1]), [0, 1], context=8, tokens=10)
    assert (len(windows), windows.targets, windows.documents.tolist()) == (0, 0, [])


def test_a_context_without_a_target_is_refused():
    with pytest.raises(CorpusError, match="a context of 1 leaves no target"):
        make_windows(numbered([50]), [0], context=1, tokens=10)
