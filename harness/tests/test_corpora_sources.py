"""From `--corpus` to documents: what is found, what is kept in the cache, what is refused and how."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.corpora import (
    CorpusError,
    CorpusSource,
    documentation,
    hub,
    load_documents,
    loading,
    resolve_corpus,
    with_training,
)
from harness.corpora.sources import DOCUMENTED_PACKAGES, HUB_CORPORA
from harness.tests.corpora_example import SHARED, TITLES, set_off, wikitext_lines


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def wiki_file(tmp_path: Path) -> Path:
    path = tmp_path / "wiki.txt"
    path.write_text("\r\n".join(wikitext_lines()), encoding="utf-8", newline="")
    return path


def refusal(text: str, cache: Path) -> str:
    """The message with which a corpus is refused; one line, and nothing is left in the cache."""
    with pytest.raises(CorpusError) as caught:
        load_documents(resolve_corpus(text), cache)
    assert "\n" not in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]
    return str(caught.value)


# Resolving


def test_names_are_resolved_without_reading_anything(monkeypatch):
    monkeypatch.setattr(hub, "read_rows", lambda source: pytest.fail("read"))
    for name in HUB_CORPORA:
        source = resolve_corpus(name)
        assert (source.kind, source.parts) == ("hub", ("test",))
        assert re.fullmatch("[0-9a-f]{40}", source.revision or "")
    for name in DOCUMENTED_PACKAGES:
        assert resolve_corpus(name) == CorpusSource(name, "documentation", name)


def test_a_file_goes_by_its_name_in_reports(wiki_file: Path):
    source = resolve_corpus(f"mine={wiki_file}")
    assert (source.name, source.kind, source.label) == ("mine", "file", "wiki.txt")
    assert source.address == "wiki.txt"
    assert resolve_corpus(f"mine={wiki_file.parent}").kind == "folder"


@pytest.mark.parametrize(
    "given",
    [
        "owner/name",
        f"owner/name@{'0a' * 20}?config=en&split=train,test&column=a%26b&rows=9&cut=blank",
        "owner/name@v1.0?split=test",
        "owner/name?column=gr%C3%BC%C3%9Fe%20%3D",
    ],
)
def test_the_address_in_a_report_reads_the_same_text(given: str):
    source = resolve_corpus(f"mine={given}")
    assert resolve_corpus(f"mine={source.address}") == source


def test_the_address_of_a_file_says_how_it_was_read(wiki_file: Path):
    assert resolve_corpus(f"{wiki_file}?rows=5&cut=record").address == "wiki.txt?rows=5&cut=record"
    folder = resolve_corpus(f"{wiki_file.parent}?suffix=.txt,md")
    assert folder.address == f"{wiki_file.parent.name}?suffix=txt,md"
    assert resolve_corpus(f"{wiki_file.parent}?suffix=txt,md") == folder


def test_a_home_folder_is_found(wiki_file: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(wiki_file.parent))
    assert resolve_corpus("mine=~/wiki.txt").location == str(wiki_file)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("wikipedia", "unknown corpus; known by name are wikitext, lambada, scipy, sklearn, numpy, torch"),
        ("wiki.txt", "write --corpus wiki.txt=FILE"),
        ("./wiki.txt", "--corpus ./wiki.txt: no such file or folder"),
        ("my corpus=wiki.txt", "'my corpus' is no name for a corpus; write --corpus NAME=FILE"),
        ("=wiki.txt", "is no name for a corpus"),
        ("wikitext=", "no file is given; write --corpus wikitext=FILE"),
        ("wikitext=not/there.txt", "--corpus wikitext=not/there.txt: no such file or folder"),
        (f"wikitext={'x' * 5_000}", "File name too long"),
    ],
)
def test_what_cannot_be_resolved(text: str, complaint: str):
    with pytest.raises(CorpusError, match=re.escape(complaint)) as caught:
        resolve_corpus(text)
    assert "\n" not in str(caught.value)


# Reading


def test_a_wikitext_file_gives_articles(wiki_file: Path, cache: Path):
    documents = load_documents(resolve_corpus(f"wikitext={wiki_file}"), cache)
    assert sorted(document.name for document in documents.documents) == sorted(TITLES)
    assert list(documents.ids) == sorted(documents.ids)
    assert (documents.unit, documents.note) == ("article", "12 articles")


def test_copies_of_a_corpus_have_one_fingerprint(wiki_file: Path, cache: Path, tmp_path: Path):
    copy = tmp_path / "copy.txt"
    copy.write_text(set_off(wikitext_lines()), encoding="utf-8", newline="")
    one, other = (load_documents(resolve_corpus(f"wikitext={path}"), cache) for path in (wiki_file, copy))
    assert one.fingerprint == other.fingerprint


def test_a_corpus_with_unk_says_so(wiki_file: Path, cache: Path):
    wiki_file.write_text(wiki_file.read_text(encoding="utf-8").replace("friends", "<unk>"), encoding="utf-8")
    assert "not the raw version" in load_documents(resolve_corpus(f"wikitext={wiki_file}"), cache).note


def test_one_long_text_gives_blocks_and_says_so(cache: Path, tmp_path: Path):
    path = tmp_path / "novel.txt"
    path.write_text("".join(f"Sentence {n} of the novel.\n" for n in range(2_000)), encoding="utf-8")
    documents = load_documents(resolve_corpus(f"novel={path}"), cache)
    assert documents.unit == "block"
    assert documents.note == f"one text, cut into {len(documents)} blocks that serve as documents"
    assert len(documents) >= 50


def test_jsonl_gives_passages_each_once(cache: Path, tmp_path: Path):
    path = tmp_path / "lambada.jsonl"
    lines = [{"text": f"passage {n % 20}"} for n in range(23)] + [{"text": " "}]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    documents = load_documents(resolve_corpus(f"lambada={path}"), cache)
    assert (len(documents), documents.unit) == (20, "passage")
    assert documents.note == "20 passages; 3 repeated texts left out; 1 empty document left out"


def test_a_folder_gives_its_text_files(cache: Path, tmp_path: Path):
    folder = tmp_path / "texts"
    (folder / "deep" / ".hidden").mkdir(parents=True)
    for n in range(9):
        (folder / "deep" / f"{n}.MD").write_text(f"text {n}", encoding="utf-8")
    (folder / "deep" / ".hidden" / "x.txt").write_text("hidden", encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG\0")
    (folder / "deep" / "outside.txt").symlink_to(tmp_path / "elsewhere.txt")
    (tmp_path / "elsewhere.txt").write_text("not in the folder", encoding="utf-8")
    documents = load_documents(resolve_corpus(f"mine={folder}"), cache)
    assert sorted(document.name for document in documents.documents) == [f"deep/{n}.MD" for n in range(9)]
    left_out = "1 binary file left out (picture.png); 1 link out of the folder left out"
    assert (documents.unit, documents.note) == ("file", f"9 files; {left_out}")


def test_documentation_gives_modules(cache: Path, monkeypatch):
    modules = [(f"scipy.module{n}", f"Text of module {n}.") for n in range(10)]
    monkeypatch.setattr(documentation, "package_documents", lambda package, cache: modules)
    documents = load_documents(resolve_corpus("scipy"), cache)
    assert sorted((d.name, d.text) for d in documents.documents) == modules
    assert documents.unit == "module"


# The cache


def test_a_warm_run_reads_nothing_twice(wiki_file: Path, cache: Path, monkeypatch):
    source = resolve_corpus(f"wikitext={wiki_file}")
    cold = load_documents(source, cache)
    monkeypatch.setattr(loading.cutting, "cut_articles", lambda lines: pytest.fail("parsed again"))
    assert load_documents(source, cache) == cold


def test_a_changed_file_is_never_served_from_the_cache(wiki_file: Path, cache: Path):
    source = resolve_corpus(f"wikitext={wiki_file}")
    before, stat = load_documents(source, cache), wiki_file.stat()
    data = wiki_file.read_bytes()
    wiki_file.write_bytes(data.replace(b"friends", b"enemies"))
    os.utime(wiki_file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same time
    after = load_documents(source, cache)
    assert after.fingerprint != before.fingerprint
    assert all("enemies" in document.text for document in after.documents)
    wiki_file.write_bytes(data)
    assert load_documents(source, cache) == before


def test_a_renamed_file_of_a_folder_changes_its_name(cache: Path, tmp_path: Path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for n in range(9):
        (folder / f"{n}.txt").write_text(f"text {n}", encoding="utf-8")
    before = load_documents(resolve_corpus(f"mine={folder}"), cache)
    (folder / "8.txt").rename(folder / "eight.txt")
    after = load_documents(resolve_corpus(f"mine={folder}"), cache)
    assert before.fingerprint == after.fingerprint
    assert "eight.txt" in [document.name for document in after.documents]


@pytest.mark.parametrize("damage", ["cut off", "altered", "no text"])
def test_a_damaged_cache_is_reported_and_made_again(wiki_file: Path, cache: Path, damage: str):
    source = resolve_corpus(f"wikitext={wiki_file}")
    cold = load_documents(source, cache)
    (kept,) = (cache / "documents").iterdir()
    data = kept.read_bytes()
    kept.write_bytes(
        {"cut off": data[:500], "altered": data.replace(b"friends", b"enemies"), "no text": b"\xff"}[damage]
    )
    with pytest.warns(UserWarning, match=rf"corpus cache: {kept.name} is discarded and made again \(damaged\)"):
        assert load_documents(source, cache) == cold
    assert load_documents(source, cache) == cold
    assert kept.read_bytes() == data


def test_a_cache_that_cannot_be_written_is_one_line(wiki_file: Path, tmp_path: Path):
    (tmp_path / "occupied").write_text("a file where the cache should be")
    with pytest.raises(CorpusError, match=r"the corpus cache .* cannot be written .*--evidence DIR") as caught:
        load_documents(resolve_corpus(f"wikitext={wiki_file}"), tmp_path / "occupied")
    assert "\n" not in str(caught.value)


# Refusals


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("empty.txt", b"", "corpus mine: empty.txt: the file is empty"),
        ("blank.txt", b" \n\r\n", "corpus mine: blank.txt: the file is empty"),
        ("latin.txt", "Stra\xdfe".encode("latin-1"), "corpus mine: latin.txt: not UTF-8 at byte 4 (line 1)"),
        ("short.txt", b"Too short.\n" * 20, "corpus mine: short.txt holds 1 block, too few for four splits"),
        ("few.jsonl", b'{"text": "a"}\n{"text": "b"}', "few.jsonl holds 2 passages, too few for four splits"),
        ("plain.jsonl", b"Once upon a time", "corpus mine: plain.jsonl: line 1 is not JSON"),
        ("other.jsonl", b'{"text": "a"}\n{"body": "b"}', 'corpus mine: other.jsonl: line 2 has no "text"'),
    ],
)
def test_files_that_are_no_corpus(name: str, data: bytes, complaint: str, cache: Path, tmp_path: Path):
    (tmp_path / name).write_bytes(data)
    assert complaint in refusal(f"mine={tmp_path / name}", cache)


def test_a_folder_without_text(cache: Path, tmp_path: Path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    assert "the folder pictures holds no text file (it is empty): give a" in refusal(f"mine={folder}", cache)
    (folder / ".hidden").write_text("text", encoding="utf-8")
    assert "holds no text file (nothing but hidden files)" in refusal(f"mine={folder}", cache)
    (folder / "a.png").write_bytes(b"\x89PNG\0")
    assert "holds no text file (1 binary file left out (a.png)): " in refusal(f"mine={folder}", cache)
    (folder / "a.md").write_text("text", encoding="utf-8")
    (folder / "b.MD").write_text("text", encoding="utf-8")
    complaint = "holds no text file that ends with .txt or .py (3 of other suffixes)"
    assert complaint in refusal(f"mine={folder}?suffix=txt,.PY", cache)


def test_a_folder_with_a_file_that_is_not_utf8(cache: Path, tmp_path: Path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_bytes(b"\xff")
    assert "corpus mine: texts/a.txt: not UTF-8 at byte 0" in refusal(f"mine={tmp_path / 'texts'}", cache)


def test_a_file_that_goes_away(wiki_file: Path, cache: Path):
    source = resolve_corpus(f"mine={wiki_file}")
    wiki_file.unlink()
    with pytest.raises(CorpusError, match=r"wiki\.txt cannot be read \(No such file"):
        load_documents(source, cache)


# The hub


def test_hub_and_file_are_one_corpus(wiki_file: Path, cache: Path, monkeypatch):
    rows = ["" if not line.strip() else f"{line}\n" for line in set_off(wikitext_lines()).split("\n")]
    monkeypatch.setattr(hub, "read_rows", lambda source: {"test": rows})
    cold = load_documents(resolve_corpus("wikitext"), cache)
    assert cold.fingerprint == load_documents(resolve_corpus(f"wikitext={wiki_file}"), cache).fingerprint
    monkeypatch.setattr(hub, "read_rows", lambda source: pytest.fail("the hub was asked again"))
    assert load_documents(resolve_corpus("wikitext"), cache) == cold


def test_training_is_a_part_of_its_own(cache: Path, monkeypatch):
    def rows(words: str) -> list[str]:
        return [f"{line.replace('friends', words)}\n" for line in wikitext_lines()]

    parts = {"train": rows("trains"), "validation": rows("judges"), "test": rows("friends")}
    monkeypatch.setattr(hub, "read_rows", lambda source: {part: parts[part] for part in source.parts})
    monkeypatch.setattr(hub, "TRAINING_ROWS", len(parts["train"]))
    source = with_training(resolve_corpus("wikitext"))
    documents = load_documents(source, cache)
    count = {part: sum(d.part == part for d in documents.documents) for part in parts}
    assert count == {"train": 11, "validation": 12, "test": 12}  # the last article of train is cut off
    assert load_documents(source, cache) == documents
    assert with_training(resolve_corpus("lambada")) == resolve_corpus("lambada")


@pytest.fixture
def no_network(tmp_path: Path, monkeypatch):
    """As on a machine without a network and without copies of hub datasets."""
    datasets = pytest.importorskip("datasets")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(hub, "_hub_answers", lambda: False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for module in (datasets.config, constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    yield
    assert (datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE) == (False, False)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", HUB_CORPORA)
def test_without_a_network_the_remedy_is_a_file(name: str, cache: Path):
    message = refusal(name, cache)
    assert message.startswith(f"corpus {name}: the hub dataset {HUB_CORPORA[name].location} (test) cannot be read")
    assert message.endswith(f"connect to the hub, or give --corpus {name}=FILE")


@pytest.mark.usefixtures("no_network")
def test_rows_come_through_datasets(tmp_path: Path):
    rows = [f"row {n}" for n in range(30)]
    folder = tmp_path / "published"
    folder.mkdir()
    for part in ("train", "test"):
        (folder / f"{part}.jsonl").write_text(
            "\n".join(json.dumps({"text": f"{part} {row}"}) for row in rows), encoding="utf-8"
        )
    source = CorpusSource("mine", "hub", str(folder), parts=("train", "test"))
    assert hub.read_rows(source) == {part: [f"{part} {row}" for row in rows] for part in ("train", "test")}


# Real text, and what a warm run imports


def test_lambada_leaves_out_its_two_repeats(cache: Path):
    path = SHARED / "lambada-test.jsonl"
    if not path.exists():
        pytest.skip("the LAMBADA test file is not beside this checkout")
    documents = load_documents(resolve_corpus(f"lambada={path}"), cache)
    assert documents.note == "5,151 passages; 2 repeated texts left out"


def test_loading_documents_imports_no_heavy_package(wiki_file: Path, cache: Path):
    program = (
        "import sys; from pathlib import Path; from harness.corpora import load_documents, resolve_corpus\n"
        "load_documents(resolve_corpus(sys.argv[1]), Path(sys.argv[2]))\n"
        "print([name for name in ('torch', 'transformers', 'tokenizers', 'datasets') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"wikitext={wiki_file}", str(cache)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "[]"
