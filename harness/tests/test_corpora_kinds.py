"""Corpora of every kind: under gzip, by columns and cuts, dialogue, source code, other scripts, datasets of a hub."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.corpora import CorpusError, CorpusSource, DocumentSet, hub, load_documents, loading, resolve_corpus
from harness.tests.corpora_example import TITLES, set_off, wikitext_lines
from harness.tests.plugin_projects import Project

POEMS = [f"Roses are red, {n}\nviolets are blue" for n in range(12)]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def documents(place: object, query: str, cache: Path) -> DocumentSet:
    return load_documents(resolve_corpus(f"mine={place}{query}"), cache)


def texts(found: DocumentSet) -> list[str]:
    """The documents' texts, in the order of their names' numbers."""
    return [d.text for d in sorted(found.documents, key=lambda d: (len(d.name), d.name))]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# What --corpus says


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("roneneldan/TinyStories", CorpusSource("TinyStories", "hub", "roneneldan/TinyStories")),
        ("a/b@v1.0", CorpusSource("b", "hub", "a/b", revision="v1.0")),
        ("mine=a/b?revision=main", CorpusSource("mine", "hub", "a/b", revision="main")),
        ("a/b?config=en&split=validation", CorpusSource("b", "hub", "a/b", config="en", parts=("validation",))),
        ("a/b?split=train,test", CorpusSource("b", "hub", "a/b", parts=("train", "test"))),
        ("imdb?split=test&column=text", CorpusSource("imdb", "hub", "imdb", parts=("test",), column="text")),
        ("a/b?column=a%26b&rows=10&cut=blank", CorpusSource("b", "hub", "a/b", column="a&b", rows=10, cut="blank")),
        ("wiki=wikitext", replace(resolve_corpus("wikitext"), name="wiki")),
        ("wikitext?rows=90", replace(resolve_corpus("wikitext"), rows=90)),
    ],
)
def test_a_hub_dataset_is_named_with_what_is_read_of_it(text: str, expected: CorpusSource) -> None:
    assert resolve_corpus(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a/b?split=test&split=train", "split is given twice; leave one out"),
        ("a/b@v1?revision=v2", "revision is given twice; leave one out"),
        ("a/b?split=", "split has no value; write split=VALUE"),
        ("a/b?split=test,", "split=test, has an empty place; write split=ONE,OTHER"),
        ("a/b?suffix=.py", "a hub dataset takes no suffix; it takes config, split, revision, column, rows, cut"),
        ("a/b?cut=file", "a hub dataset is not cut by 'file'; choose one of title, blank, record"),
        ("a/b?rows=0", "rows=0 is not a positive whole number"),
        ("a/b@../..;x", "'../..;x' is no revision; give a commit, a branch or a tag"),
        ("scipy?rows=3", "the documentation of a package takes no rows; leave it out"),
        ("mine=a/b.txt", "no such file or folder; a dataset of the hub goes by owner/name"),
        ("a/b/c", "no such file or folder"),
    ],
)
def test_what_cannot_be_asked_for(text: str, complaint: str) -> None:
    with pytest.raises(CorpusError) as caught:
        resolve_corpus(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_needs_no_name_and_may_have_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "what?.txt", "a=b.txt", "my notes.tar.gz", "wikitext"):
        (tmp_path / name).write_text("text", encoding="utf-8")
    named = {given: resolve_corpus(given) for given in ("notes.txt", "./what?.txt", "./a=b.txt", "./my notes.tar.gz")}
    assert [source.location for source in named.values()] == ["notes.txt", "what?.txt", "a=b.txt", "my notes.tar.gz"]
    assert [source.name for source in named.values()] == ["notes", "what", "a-b", "my-notes"]
    assert resolve_corpus("what?.txt?cut=blank").cut == "blank"
    assert resolve_corpus("wikitext").kind == "hub"  # the name wins, until a path is written
    assert resolve_corpus("./wikitext").kind == resolve_corpus("w=wikitext").kind == "file"


# Files


def test_gzip_is_read_as_what_is_in_it(tmp_path: Path, cache: Path) -> None:
    plain, packed = tmp_path / "wiki.txt", tmp_path / "wiki.TXT.GZ"
    plain.write_text(set_off(wikitext_lines()), encoding="utf-8")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert documents(packed, "", cache).fingerprint == documents(plain, "", cache).fingerprint
    records = tmp_path / "records.jsonl.gz"
    records.write_bytes(gzip.compress(b"".join(json.dumps({"text": poem}).encode() + b"\n" for poem in POEMS)))
    assert texts(documents(records, "", cache)) == POEMS


def test_a_text_is_cut_where_it_is_asked_to_be(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "poems.txt"
    file.write_text("\n\n \n".join(POEMS), encoding="utf-8")
    blank = documents(file, "?cut=blank", cache)
    assert (texts(blank), blank.unit) == (POEMS, "paragraph")
    record = documents(file, "?cut=record", cache)
    assert record.unit == "line"
    assert record.note == "13 lines; 11 repeated texts left out"  # each poem ends alike
    with pytest.raises(CorpusError, match="1 file, too few for four splits"):
        documents(file, "?cut=file", cache)


def test_titles_are_found_in_a_file_and_asked_for_in_a_folder(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "wiki"
    folder.mkdir()
    for half in (1, 2):
        text = set_off(wikitext_lines()).replace("Article", f"Half {half} of article")
        (folder / f"{half}.txt").write_text(text, encoding="utf-8")
    by_title = documents(folder, "?cut=title", cache)
    assert (len(by_title), by_title.unit) == (2 * len(TITLES), "article")
    assert f"1.txt: {TITLES[0].replace('Article', 'Half 1 of article')}" in [d.name for d in by_title.documents]
    with pytest.raises(CorpusError, match="wiki holds 2 files, too few for four splits"):
        documents(folder, "", cache)


def test_only_the_first_lines_are_read(tmp_path: Path, cache: Path) -> None:
    file = jsonl(tmp_path / "poems.jsonl", [{"text": poem} for poem in POEMS])
    first = documents(file, "?rows=9", cache)
    assert (texts(first), first.note) == (POEMS[:9], "9 passages; the first 9 lines")
    whole = documents(file, "?rows=12", cache)  # as many as there are, so nothing is to say
    assert (texts(whole), whole.note) == (POEMS, "12 passages")
    wiki = tmp_path / "wiki.txt"
    wiki.write_text(set_off(wikitext_lines()), encoding="utf-8")
    lines = wiki.read_text(encoding="utf-8").split("\n")
    within_the_last = len(lines) - 5
    cut = documents(wiki, f"?rows={within_the_last}", cache)
    assert cut.note == f"11 articles; the first {within_the_last} lines"  # the article that was cut through is left out


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"text": "a\r\nb"}, "a\nb"),
        ({"id": 7, "content": "def f(): ...\n"}, "def f(): ...\n"),
        ({"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]}, "Hi.\nHello."),
        ({"conversations": [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello."}]}, "Hi.\nHello."),
        ({"dialog": ["Hi.", "Hello."]}, "Hi.\nHello."),
        ({"text": "this", "content": "not this"}, "this"),
        ({"text": None}, ""),
    ],
)
def test_the_usual_column_of_a_record(tmp_path: Path, cache: Path, row: dict[str, Any], text: str) -> None:
    key = next(key for key in ("text", "content", "messages", "conversations", "dialog") if key in row)
    rows = [{key: poem} for poem in POEMS]
    found = documents(jsonl(tmp_path / "rows.jsonl", [row, *rows]), "", cache)
    assert set(texts(found)) == {*POEMS, *([text] if text else [])}


def test_a_column_that_is_asked_for(tmp_path: Path, cache: Path) -> None:
    file = jsonl(tmp_path / "rows.jsonl", [{"text": "no", "poem": poem} for poem in POEMS])
    assert texts(documents(file, "?column=poem", cache)) == POEMS


def test_very_long_and_very_short_documents_side_by_side(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "novel.txt").write_text("It was a dark and stormy night. " * 20_000, encoding="utf-8")
    for n in range(9):
        (folder / f"{n}.txt").write_text(str(n), encoding="utf-8")
    (folder / "empty.txt").write_text("\n", encoding="utf-8")
    found = documents(folder, "", cache)
    assert sorted(len(d.text) for d in found.documents) == [1] * 9 + [640_000]
    assert found.note == "10 files; 1 empty document left out"


# What they are good for: a run


def source_code(folder: Path) -> str:
    return f"{Path(hub.__file__).parent}?suffix=py"


def dialogue(folder: Path) -> str:
    answer = {"role": "assistant", "content": "No. " * 40}
    chats = [[{"role": "user", "content": f"May I have {n} of them?"}, answer] for n in range(60)]
    return str(jsonl(folder / "chat.jsonl", [{"messages": chat} for chat in chats]))


def greek(folder: Path) -> str:
    verse = "Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος οὐλομένην, ἣ μυρί’ Ἀχαιοῖς ἄλγε’ ἔθηκε. "
    file = folder / "ilias.txt.gz"
    file.write_bytes(gzip.compress("\n\n".join(f"{verse[n:]} {n}" for n in range(60)).encode()))
    return f"{file}?cut=blank"


def long_and_short(folder: Path) -> str:
    (folder / "texts").mkdir()
    for n in range(40):
        (folder / "texts" / f"{n}.txt").write_text(f"{n} " + "all work and no play " * (1 if n % 2 else 200), "utf-8")
    return str(folder / "texts")


@pytest.mark.parametrize(
    ("make", "unit"), [(source_code, "file"), (dialogue, "passage"), (greek, "paragraph"), (long_and_short, "file")]
)
def test_any_text_works_as_it_is(project: Project, make: Any, unit: str) -> None:
    result = project.run("--corpus", f"text={make(project.path)}")
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)  # verdicts, no errors
    report = project.report()
    (corpus,) = report["corpora"]
    assert re.search(rf"\b{unit}s?\b", corpus["note"])
    assert {row["verdict"] for row in report["claims"]} <= {"SUPPORTED", "REFUTED", "INCONCLUSIVE", "not applicable"}
    assert report["measurements"]


# Datasets of a hub


@pytest.fixture
def published(tmp_path: Path) -> CorpusSource:
    """A dataset with a training part and a validation part, in a folder such as a hub repository is."""
    folder = tmp_path / "published"
    folder.mkdir()
    for part in ("train", "validation"):
        jsonl(folder / f"{part}.jsonl", [{"id": n, "text": f"{part}: {poem}"} for n, poem in enumerate(POEMS)])
    return CorpusSource("mine", "hub", str(folder))


def test_what_is_left_open_is_settled_once(published: CorpusSource, cache: Path, monkeypatch) -> None:
    cold = load_documents(published, cache)
    assert (cold.source.parts, cold.source.column) == (("validation",), "text")  # held out, where there is such a part
    assert texts(cold) == [f"validation: {poem}" for poem in POEMS]
    assert cold.note == "12 passages"
    monkeypatch.setattr(hub, "settle", lambda source: pytest.fail("asked again"))
    monkeypatch.setattr(hub, "read_rows", lambda source: pytest.fail("read again"))
    assert load_documents(published, cache) == cold


def test_rows_are_streamed_no_further_than_asked(published: CorpusSource, cache: Path, monkeypatch) -> None:
    decoded = []
    monkeypatch.setattr(hub, "text_of", lambda value: decoded.append(value) or value)
    found = load_documents(replace(published, parts=("train",), rows=9), cache)
    assert (len(decoded), len(found)) == (9, 9)
    assert found.note == "9 passages; the first 9 rows of train"


def test_parts_of_a_dataset_stay_apart(published: CorpusSource, cache: Path) -> None:
    found = load_documents(replace(published, parts=("train", "validation")), cache)
    assert {d.part for d in found.documents} == {"train", "validation"}
    assert len(found) == 2 * len(POEMS)


def test_a_branch_is_held_at_its_commit(published: CorpusSource, cache: Path, monkeypatch) -> None:
    """What `main` was when it was first read is what it is from then on, and the report names the commit."""
    commit = "0123456789abcdef" * 2 + "01234567"
    rows = {"test": [f"test: {poem}" for poem in POEMS]}
    monkeypatch.setattr(
        hub, "settle", lambda source: hub.settled(source, commit, source.parts or ("test",), source.column or "body")
    )
    monkeypatch.setattr(hub, "read_rows", lambda source: rows)
    source = CorpusSource("mine", "hub", "owner/name")
    cold = load_documents(source, cache)
    assert cold.source.address.endswith(f"@{commit}?split=test&column=body")
    assert cold.note == "12 passages"
    monkeypatch.setattr(hub, "settle", lambda source: pytest.fail("asked again"))
    assert load_documents(source, cache) == cold
    assert loading.read(source, cache).source.revision == commit
