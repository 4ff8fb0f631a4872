"""A corpus as lines: none left out, each known by its number; and the windows that a protocol of lines reads."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.corpora import hub, line_windows, load_lines, resolve_corpus, split_lines, tokenize
from harness.corpora.sources import HUB_CORPORA, CorpusSource
from harness.corpora.tokens import TokenizedCorpus
from harness.errors import CorpusError
from harness.experiments.layout import Layout
from harness.protocol import PUBLISHED, SOUND, LineRanges, knobs, parse_budget
from harness.run import Run, Settings
from harness.tests.experiment_example import Toy, tokenizer, toy

TEXT = "one\n\n = Title = \n \none\nlast without a line feed"


def lines_of(place: Path, cache: Path, stop: int = 100) -> list[str]:
    source = resolve_corpus(f"text={place}")
    return [document.text for document in load_lines(source, cache, stop=stop, at_least=1).documents]


def test_lines_of_a_file_are_rows_of_a_dataset(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(TEXT, encoding="utf-8")
    assert lines_of(file, tmp_path) == ["one\n", "", " = Title = \n", "", "one\n", "last without a line feed"]
    assert lines_of(file, tmp_path, stop=2) == ["one\n", ""]
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert lines_of(tmp_path / "a.txt.gz", tmp_path) == lines_of(file, tmp_path)


def test_equal_lines_are_two_and_their_order_counts(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\none\ntwo\n", encoding="utf-8")
    first = load_lines(resolve_corpus(f"text={file}"), tmp_path, stop=9, at_least=1)
    assert len(set(first.ids)) == 3
    assert [document.name for document in first.documents] == ["line 1", "line 2", "line 3"]
    file.write_text("one\ntwo\none\n", encoding="utf-8")
    second = load_lines(resolve_corpus(f"text={file}"), tmp_path, stop=9, at_least=1)
    assert first.fingerprint != second.fingerprint
    assert first.ids[0] == second.ids[0]


def test_records_are_lines_and_files_of_a_folder_follow_each_other(tmp_path: Path) -> None:
    records = tmp_path / "a.jsonl"
    records.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("b\nb", " ", "a")), encoding="utf-8")
    assert lines_of(records, tmp_path) == ["b\nb", "", "a"]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "2.txt").write_text("c\nd\n", encoding="utf-8")
    (folder / "1.txt").write_text("a\nb", encoding="utf-8")
    assert lines_of(folder, tmp_path) == ["a\n", "b", "c\n", "d\n"]


def test_of_wikitext_the_training_part_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[CorpusSource] = []

    def rows(source: CorpusSource) -> dict[str, list[str]]:
        asked.append(source)
        return {source.parts[0]: [f" line {i} of {source.parts[0]} \n" for i in range(50)]}

    monkeypatch.setattr(hub, "read_rows", rows)
    for _ in range(2):
        found = load_lines(HUB_CORPORA["wikitext"], tmp_path, stop=40, at_least=30)
        assert len(found) == 40
        assert found.documents[7].text == " line 7 of train \n"
        assert found.note == "the first 40 lines in reading order"
    validation = replace(HUB_CORPORA["wikitext"], parts=("validation",))
    assert load_lines(validation, tmp_path, stop=40, at_least=30).documents[0].text == " line 0 of validation \n"
    assert [source.parts for source in asked] == [("train",), ("validation",)]
    with pytest.raises(CorpusError, match=r"corpus wikitext: Salesforce/wikitext has 50 lines, .* needs 51 at least"):
        load_lines(HUB_CORPORA["wikitext"], tmp_path, stop=60, at_least=51)


def tokenized(lengths: list[int]) -> TokenizedCorpus:
    offsets = np.cumsum([0, *lengths])
    ids = np.arange(offsets[-1], dtype=np.int32)
    return TokenizedCorpus("text", tuple(map(str, range(len(lengths)))), ids, offsets, (7,), "0" * 64)


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(2, 8), st.integers(1, 40))
def test_a_window_is_the_start_of_a_line(lengths: list[int], context: int, tokens: int) -> None:
    corpus = tokenized(lengths)
    windows = line_windows(corpus, range(len(lengths)), context=context, tokens=tokens)
    expected: list[int] = []
    for line, length in enumerate(lengths):
        if length >= 2 and sum(min(lengths[i], context) - 1 for i in expected) < tokens:
            expected.append(line)
    assert windows.document.tolist() == expected
    assert [window.tolist() for window in windows.ids] == [corpus.tokens(i)[:context].tolist() for i in expected]
    assert windows.leading == 0


def test_ranges_end_where_the_corpus_does() -> None:
    ranges = LineRanges(fit_lines=(0, 3), gate_lines=(2, 8), test_lines=(5, 9))
    assert {name: list(part) for name, part in split_lines(7, ranges.by_name).items()} == {
        "fit": [0, 1, 2],
        "gate": [2, 3, 4, 5, 6],
        "test": [5, 6],
    }
    assert ranges.last == 9


@pytest.fixture(scope="module")
def it(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return toy(tmp_path_factory.mktemp("toy"))


def test_windows_of_lines_have_nothing_in_front(it: Toy, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("".join(f"t{i % 5} t{i % 7} t{i % 3}\n" for i in range(40)), encoding="utf-8")
    ranges = LineRanges(fit_lines=(0, 10), gate_lines=(10, 20), test_lines=(20, 30))
    corpus = load_lines(resolve_corpus(f"text={text}"), tmp_path, stop=30, at_least=30)
    request = replace(it.request, corpus=corpus, protocol=replace(PUBLISHED, splits=ranges))
    subject = replace(it.subject, tokenizer=tokenizer(bos=True))
    assert tokenize(corpus, lambda: subject.tokenizer, request.model.tokenizer_sha256, tmp_path).bos == (0,)
    layout = Layout.of(request, subject, tmp_path)
    (fit,) = layout.fit
    assert layout.leading == ()
    assert [window.tolist() for window in layout.test.ids] == [[i % 5, i % 7, i % 3] for i in range(20, 30)]
    assert (len(fit), layout.rows) == (10, 30)  # every position is a row, the first and the last too
    assert [window.tolist() for window in layout.select.ids] == [window.tolist() for window in layout.test.ids]


def test_the_knobs_of_the_sound_protocol_are_those_of_its_first_records() -> None:
    """A knob that is added must not make every measurement that users have anew."""
    described = knobs(SOUND, parse_budget("quick"))
    assert sorted(described) == sorted(
        [
            *("fit_share", "gate_share", "select_share", "ridge_grid"),
            *("fit", "gate", "select", "test", "documents", "context", "variants"),
        ]
    )
    later = ("bos", "first_positions", "ridge_scaled")
    assert {name: knobs(PUBLISHED, parse_budget("quick"))[name] for name in later} == {
        "bos": False,
        "first_positions": True,
        "ridge_scaled": False,
    }
    assert knobs(replace(SOUND, bos=False), parse_budget("quick")) == {**described, "bos": False}


@pytest.mark.parametrize(
    ("change", "comparable"),
    [
        ({}, True),
        ({"protocol": SOUND}, False),
        ({"budget": parse_budget("quick")}, False),
        ({"budget": parse_budget("paper,test=12000")}, True),
        ({"budget": parse_budget("paper,context=128")}, False),
        ({"corpora": ("lambada",)}, False),
        ({"corpora": ("wikitext={file}",)}, False),  # another text under the same name
    ],
)
def test_numbers_are_comparable_where_all_is_as_published(
    tmp_path: Path, change: dict[str, Any], comparable: bool
) -> None:
    file = tmp_path / "wiki.txt"
    file.write_text("text", encoding="utf-8")
    settings = Settings(("gpt2-medium",), protocol=PUBLISHED, budget=parse_budget("paper"), evidence=tmp_path)
    settings = replace(settings, **change)
    settings = replace(settings, corpora=tuple(name.format(file=file) for name in settings.corpora))
    run = Run(settings)
    assert run.as_published(["gpt2-medium"], run.corpora("gpt2-medium")[0].name) == comparable
