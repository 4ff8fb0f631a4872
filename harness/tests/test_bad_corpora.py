"""Corpora that cannot be judged on: one line on standard error, a usage error, no traceback, no report, no record.

Each goes through pytest as a user's would, beside a good model, of which hashes may be left in the cache: it is looked
at first. The hub datasets are in a folder that `datasets` reads as it reads a repository.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.corpora import CorpusError, files, load_documents
from harness.corpora.sources import CorpusSource
from harness.tests.plugin_projects import Project, write_corpus

LINES = "".join(f"Line {n} of a text that is long enough, in itself.\n" for n in range(900))


def written(name: str, data: bytes | str) -> Callable[[Path], str]:
    """A source: a file with these bytes."""

    def make(folder: Path) -> str:
        (folder / name).write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        return str(folder / name)

    return make


def in_folder(**contents: bytes) -> Callable[[Path], str]:
    """A source: a folder with such files."""

    def make(folder: Path) -> str:
        (folder / "texts").mkdir()
        for name, data in contents.items():
            (folder / "texts" / name.replace("_", ".")).write_bytes(data)
        return str(folder / "texts")

    return make


def asked(make: Callable[[Path], str], query: str) -> Callable[[Path], str]:
    return lambda folder: f"{make(folder)}?{query}"


def few_documents(folder: Path) -> str:
    return str(write_corpus(folder / "few.jsonl", documents=3))


PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
GOOD = written("good.txt", LINES)

FILES: dict[str, tuple[Callable[[Path], str], str]] = {
    "a picture": (written("cat.txt", PICTURE), "corpus text: cat.txt: not a text file, byte 8 is null: give a text *"),
    "Latin-1": (
        written("latin.txt", ("Zeile\n" * 3 + "Stra\xdfe\n").encode("latin-1")),
        "corpus text: latin.txt: not UTF-8 at byte 22 (line 4): convert it, *; the byte there is 0xDF",
    ),
    "UTF-16": (
        written("wide.txt", LINES.encode("utf-16")),
        "corpus text: wide.txt: UTF-16 by its byte order mark, not UTF-8: convert it with iconv -f UTF-16 -t UTF-8",
    ),
    "cut within a character": (
        written("cut.txt", ("naïve\n" * 200).encode()[:-4]),
        "corpus text: cut.txt: not UTF-8 at byte 1,395 (line 200): convert it, *",
    ),
    "empty": (written("empty.txt", b""), "corpus text: empty.txt: the file is empty"),
    "blank": (written("blank.txt", b" \n\n"), "corpus text: blank.txt: the file is empty"),
    "gzip cut off": (
        written("text.txt.gz", gzip.compress(LINES.encode())[:-30]),
        "corpus text: text.txt.gz: the gzip file is cut off before its end: copy or download it again",
    ),
    "gzip by name only": (
        written("text.txt.gz", LINES),
        "corpus text: text.txt.gz: this is not a whole gzip file, though its name says gzip: copy or download it again",
    ),
    "gzip damaged": (
        written("text.txt.gz", gzip.compress(LINES.encode()).replace(b"\xff", b"\xfe")[:-8] + b"\0" * 8),
        "corpus text: text.txt.gz: this is not a whole gzip file, though its name says gzip: copy or download it again",
    ),
    "gzip without the name": (
        written("text.txt", gzip.compress(LINES.encode())),
        "corpus text: text.txt: compressed by gzip: give it a name that ends with .gz, or unpack it",
    ),
    "not JSON": (
        written("bad.jsonl", '{"text": "a"}\n{"text": "b"\n'),
        "corpus text: bad.jsonl: line 2 is not JSON (*): write one object a line",
    ),
    "a JSON array": (
        written("bad.json", '[{"text": "a"}, {"text": "b"}]'),
        'corpus text: bad.json: line 1 has no "text" of type string, nor a list of turns (it is no object *): *',
    ),
    "no such column": (
        asked(written("bad.jsonl", '{"text": "a", "id": 1}\n'), "column=body"),
        'corpus text: bad.jsonl: line 1 has no "body" of type string, * (it has text, id): * ?column=NAME',
    ),
    "half of a character": (
        written("half.jsonl", '{"text": "\\ud800"}\n'),
        "corpus text: half.jsonl: line 1 holds half of a surrogate pair: correct the escape sequence",
    ),
    "few documents": (few_documents, "corpus text: few.jsonl holds 3 passages, too few for four splits (at least 8)*"),
    "one paragraph": (
        asked(written("one.txt", "All in one paragraph.\n" * 900), "cut=blank"),
        "corpus text: one.txt holds 1 paragraph, too few for four splits (at least 8): give a longer text or *",
    ),
    "no titles": (
        asked(GOOD, "cut=title"),
        "corpus text: good.txt does not begin with a title ( = Title = ), so it cannot be cut by title: *",
    ),
    "an empty folder": (in_folder(), "corpus text: the folder texts holds no text file (it is empty): give a *"),
    "pictures": (in_folder(a_png=PICTURE), "corpus text: the folder texts holds no text file (1 binary file *): *"),
    "one bad file in a folder": (
        in_folder(a_md=b"good", b_md=b"Stra\xdfe"),
        "corpus text: texts/b.md: not UTF-8 at byte 4 (line 1): *",
    ),
    "missing": (lambda folder: str(folder / "nowhere.txt"), "--corpus text=*nowhere.txt: no such file or folder"),
    "a key that a file does not take": (
        asked(GOOD, "split=test"),
        "--corpus text=*good.txt?split=test: a text file takes no split; it takes rows, cut",
    ),
    "a key of no source": (asked(GOOD, "colum=a"), "--corpus *: no key 'colum'; write ?key=value&key=value with *"),
    "no number": (asked(GOOD, "rows=many"), "--corpus *: rows=many is not a positive whole number"),
    "a cut of no kind": (
        asked(GOOD, "cut=page"),
        "--corpus *: a text file is not cut by 'page'; choose one of title, blank, file, record",
    ),
}


def refused(project: Project, message: str, *corpora: str) -> None:
    """Judge on `corpora`, and hold what comes out of it to one line."""
    result = project.run(*(argument for corpus in corpora for argument in ("--corpus", corpus)))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.strip()]
    pytest.LineMatcher([line]).fnmatch_lines([f"ERROR: {message}"])
    assert "Traceback" not in result.stdout.str()
    assert not (project.path / "out").exists()
    kept = [path.name for path in (project.path / ".evidence").rglob("*") if path.is_file()]
    assert all(name.startswith("sha256-") for name in kept)  # of the model


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_corpus(project: Project, name: str) -> None:
    make, message = FILES[name]
    refused(project, message, f"text={make(project.path)}")


def test_a_small_file_that_unpacks_to_a_large_one(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    bomb = project.path / "bomb.txt.gz"
    bomb.write_bytes(gzip.compress(b"a" * (3 << 20)))
    assert bomb.stat().st_size < 10_000
    message = "bomb.txt.gz: it holds more than 1 MiB of text, which is as much as is read: read its first lines only, *"
    refused(project, f"corpus text: {message}", f"text={bomb}")


def test_names_that_are_no_corpora(project: Project) -> None:
    refused(project, "--corpus wikitxt: unknown corpus; known by name are wikitext, *", "wikitxt")
    refused(project, "--corpus my text=a.txt: 'my text' is no name for a corpus; write *", "my text=a.txt")
    good = GOOD(project.path)
    refused(
        project,
        "--corpus: two of them are called 'text', and no report could tell them apart",
        f"text={good}",
        f"text={good}?cut=record",
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset with two configurations, as a hub repository has it."""
    folder = tmp_path / "published"
    folder.mkdir()
    names = ("plain", "chat")
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}.jsonl\n" for name in names
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n", encoding="utf-8")
    for name in names:
        rows = [{"id": n, "text" if name == "plain" else "body": f"row {n}"} for n in range(30)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("asked_for", "message"),
    [
        ({}, "is read by config, and none is named; it has plain, chat: name one with ?config=NAME"),
        ({"config": "code"}, "has no config 'code'; it has plain, chat: name one with ?config=NAME"),
        ({"config": "plain", "parts": ("train",)}, "has no split 'train'; it has test: name one with ?split=test"),
        ({"config": "chat"}, "has no column 'text'; it has id, body: name the one that is the text with ?column=NAME"),
        (
            {"config": "plain", "column": "id"},
            "column 'id' is no text, nor a list of turns, in row 0; the columns are ",
        ),
    ],
)
def test_a_dataset_that_lacks_what_is_asked_for(tmp_path: Path, dataset: Path, asked_for: dict, message: str) -> None:
    with pytest.raises(CorpusError) as caught:
        load_documents(CorpusSource("mine", "hub", str(dataset), **asked_for), tmp_path / "cache")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"corpus mine: {dataset}")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()
