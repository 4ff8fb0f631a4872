"""Which text a measurement reads: whole documents to one split each, enough of them, and losses in their place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import CorpusError, MeasurementError
from harness.evidence import Record
from harness.experiments.layout import Layout
from harness.experiments.measurement import from_records
from harness.protocol import FOLDED, LINEAR, MEAN
from harness.statistics.sweep import NotApplicable, Sweep
from harness.tests.experiment_example import Toy, blocks, corpus_of, next_token_nll, toy


@pytest.fixture(scope="module", params=[False, True], ids=["no bos", "bos"])
def it(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return toy(tmp_path_factory.mktemp("toy"), "gpt2", bos=request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return toy(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def records(it: Toy) -> dict[int, Record]:
    return it.measure([1])


def layout(it: Toy, **budget: Any) -> Layout:
    again = it.elsewhere(it.folder, **budget)
    return Layout.of(again.request, it.subject, it.folder / "cache")


def test_splits_share_no_document(it: Toy) -> None:
    found = layout(it)
    a, b = found.fit
    documents = [set(windows.documents.tolist()) for windows in (a, b, found.select, found.test)]
    assert [len(d) for d in documents] == [13, 12, 8, 40]
    assert len(set().union(*documents)) == sum(map(len, documents))
    order = np.argsort([document.id for document in it.request.corpus.documents])
    shares = [set(order[low:high].tolist()) for low, high in ((0, 25), (40, 55), (55, 100))]
    assert documents[0] | documents[1] == shares[0]
    assert documents[2] <= shares[1]
    assert documents[3] <= shares[2]


@pytest.mark.parametrize(("asked", "found"), [(1, 1), (40, 40), (45, 45), (200, 45)])
def test_as_many_documents_as_asked_for(it: Toy, asked: int, found: int) -> None:
    """Documents come first: with hardly any tokens asked for, each still gives a window."""
    test = layout(it, test=1, documents=asked).test
    assert len(test.documents) == found
    assert len(test) == found


def test_as_many_tokens_as_asked_for(it: Toy) -> None:
    for tokens in (400, 700):
        assert tokens <= layout(it, test=tokens, documents=1).test.targets < tokens + it.request.budget.context


def test_every_window_but_its_first_position_has_a_loss(it: Toy, records: dict[int, Record]) -> None:
    record = records[1].arrays
    corpus, context, lead = it.request.corpus, it.request.budget.context, len(record["bos"])
    by_id = {document.id: document for document in corpus.documents}
    assert len(records[1].coordinates["document"]) >= it.request.budget.documents
    done = 0
    for window, (place, start) in enumerate(zip(record["window_document"], record["window_start"], strict=True)):
        words = by_id[records[1].coordinates["document"][place]].text.split()
        text = words[start : start + context - lead]
        ids = np.array([*record["bos"], *(int(word[1:]) for word in text)])
        loss = record["nll"][record["window"] == window]
        assert len(loss) == len(ids) - 1
        np.testing.assert_allclose(loss, next_token_nll(it.subject.model, ids), rtol=0, atol=1e-5)
        done += len(loss)
    assert done == len(record["nll"]) == record["nll_variant"].shape[1] == record["targets"].sum()
    assert np.array_equal(np.sort(record["window"]), record["window"])
    targets = np.bincount(record["window_document"][record["window"]])
    assert np.array_equal(targets, record["targets"])


def test_rows_are_what_both_halves_can_give(it: Toy) -> None:
    found = layout(it, fit=10**6)
    least = min(half.targets for half in found.fit)
    assert found.rows == 2 * least // 8 * 8 < 10**6
    assert layout(it, fit=100).rows == 96  # a multiple of 8, for the curve over N
    record = it.elsewhere(it.folder / "all", fit=10**6).measure([0])[0]
    assert record.arrays["rows"] == found.rows


def short(it: Toy, lengths: list[int], folder: Path, **budget: Any) -> Toy:
    """The same model on a corpus of other lengths; texts differ in their order of words."""
    generator = np.random.default_rng(0)
    texts = [generator.integers(1, 60, n).tolist() for n in lengths]
    again = it.elsewhere(folder, **budget)
    return Toy(replace(again.request, corpus=corpus_of(texts, "short")), it.subject, folder)


def test_too_little_text_is_said_in_one_line(plain: Toy, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"^corpus short: its select split has no text of two tokens"):
        short(plain, [1] * 40, tmp_path / "a").measure()
    with pytest.raises(CorpusError, match="fewer than 8 positions"):
        short(plain, [2] * 20, tmp_path / "b").measure()
    with pytest.raises(CorpusError, match="windows are too short for a fit with first positions"):
        short(plain, [2] * 60, tmp_path / "c").measure()
    for folder in "abc":
        assert not list((tmp_path / folder).glob("records/*"))


def test_a_loss_that_is_not_finite_leaves_no_record(plain: Toy, tmp_path: Path) -> None:
    again = plain.elsewhere(tmp_path / "again")
    weight = blocks(plain.subject.model)[2].mlp.c_proj.bias
    before = weight.clone()
    weight[0] = torch.inf
    try:
        with pytest.raises(MeasurementError):
            again.measure()
        assert not list(again.folder.glob("records/*"))
    finally:
        weight.copy_(before)


def test_a_budget_chooses_its_variants(plain: Toy, tmp_path: Path) -> None:
    again = plain.elsewhere(tmp_path / "again", variants=(LINEAR, MEAN))
    found = again.measure()
    assert all(record.coordinates["variant"] == [LINEAR, MEAN] for record in found.values())
    assert all(record.coordinates["fit"] == [LINEAR] for record in found.values())
    sweep = Sweep(from_records(again.request, found), again.request.model.as_dict())
    whole = Sweep(from_records(plain.request, plain.measure()), plain.request.model.as_dict())
    np.testing.assert_allclose(sweep.cost.values, whole.cost.values, atol=1e-6)
    with pytest.raises(NotApplicable, match="variant 'folded' was not measured"):
        sweep.variant(FOLDED)


def test_a_token_that_came_in_after_the_embedding_is_refused(plain: Toy) -> None:
    """Some tokenizers have a special token that the model has no row for, and some texts spell it out."""
    rows = plain.request.model.vocabulary
    cut = replace(plain.request, model=replace(plain.request.model, vocabulary=rows - 1))
    with pytest.raises(CorpusError, match=rf"its text has token {rows - 1}, which model has no embedding for "):
        Layout.of(cut, plain.subject, plain.folder / "cache")
    assert Layout.of(plain.request, plain.subject, plain.folder / "cache").rows
