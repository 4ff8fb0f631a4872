"""Documentation of installed packages: what is read, what is left out, and which half a module is on."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.corpora import documentation
from harness.corpora.documentation import (
    DOCUMENTED_PACKAGES,
    GRAM_WORDS,
    drop_near_duplicates,
    is_evaluated,
    module_text,
    package_documents,
    package_fingerprint,
    package_version,
    training_documents,
)
from harness.errors import CorpusError

SOURCE = '''
"""Module."""
import os
def first(x):
    """First function.

        Indented line.
    Last line.
    """
    def inner():
        """Not public."""
class Shape(object):
    """A class."""
    size = 3
    """Not a docstring of anything that Python knows."""
    def __init__(self):
        """Private by its name."""
    def area(self):
        """A method."""
    class Corner:
        """A nested class."""
    class _Hidden:
        """Hidden."""
        def shown(self):
            """Inside something hidden."""
def _private():
    """Private."""
if os.name == "nt":
    async def windows():
        """In a branch."""
else:
    try:
        import fcntl
    except ImportError as error:
        def fallback():
            """In a handler."""
def undocumented():
    return "a string"
'''


def words(n: int, seed: str) -> str:
    """`n` words that no text with another seed shares."""
    return " ".join(f"{seed}{i}" for i in range(n))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], Path]:
    """Writes a package `hut` of modules (dotted name -> source) that is found but would fail to import."""

    def write(modules: dict[str, str]) -> Path:
        root = tmp_path / "site" / "hut"
        root.mkdir(parents=True, exist_ok=True)
        for name, source in {"__init__": "raise SystemExit('imported')", **modules}.items():
            path = root / (name.replace(".", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
        monkeypatch.syspath_prepend(root.parent)
        return root

    return write


def sided(side: bool, prefix: str = "m") -> str:
    """The first name `hut.<prefix><number>` on a side, without `hut.`."""
    return next(f"{prefix}{i}" for i in range(99) if is_evaluated(f"hut.{prefix}{i}") == side)


def test_docstrings_of_the_public_names_in_the_order_of_the_source() -> None:
    assert module_text(SOURCE).split("\n\n") == [
        "Module.",
        "First function.",
        "    Indented line.\nLast line.",
        "A class.",
        "A method.",
        "A nested class.",
        "In a branch.",
        "In a handler.",
    ]


def test_a_lone_surrogate_does_not_reach_the_text() -> None:
    assert module_text('"""Half \\ud800 a pair."""') == "Half ? a pair."


@pytest.mark.parametrize("source", ["def {{ name }}():", "x = '\0'"])
def test_what_is_not_python_is_an_error_that_reading_a_package_catches(source: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        module_text(source)


def test_a_module_is_a_document_and_nothing_is_imported(
    package: Callable[[dict[str, str]], Path], tmp_path: Path
) -> None:
    evaluated, training, short = sided(True), sided(False), sided(True, "short")
    template, test, deep = sided(True, "t"), sided(True, "tests.m"), sided(True, "sub.m")
    package(
        {
            evaluated: f'"""{words(60, "a")}"""',
            training: f'"""{words(60, "b")}"""',
            short: f'"""{words(49, "c")}"""',
            template: f'"""{words(60, "d")}"""\ndef {{{{ name }}}}(): pass',
            test: f'"""{words(60, "e")}"""',
            deep: f'"""{words(60, "f")}"""',
        }
    )
    assert package_documents("hut", tmp_path / "cache") == [
        (f"hut.{evaluated}", words(60, "a")),
        (f"hut.{deep}", words(60, "f")),
    ]
    assert training_documents(tmp_path / "cache", documented=["hut"]) == [(f"hut.{training}", words(60, "b"))]
    assert "hut" not in sys.modules


def test_reading_real_documentation_does_not_import_the_package(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.corpora.documentation import *; "
        f"print(len(package_documents('scipy', Path({str(tmp_path)!r}))), 'scipy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) > 0
    assert out[1] == "False"


def test_documents_are_read_once_and_again_when_a_file_changes(
    package: Callable[[dict[str, str]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sided(True)
    root = package({name: f'"""{words(60, "a")}"""'})
    first = package_documents("hut", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(documentation, "_read", lambda *_: pytest.fail("parsed although it was in the cache"))
        assert package_documents("hut", tmp_path) == first
    (root / f"{name}.py").write_text(f'"""{words(70, "a")}"""')
    assert package_documents("hut", tmp_path) == [(f"hut.{name}", words(70, "a"))]


def test_a_damaged_cache_is_reported_and_made_again(package: Callable[[dict[str, str]], Path], tmp_path: Path) -> None:
    package({sided(True): f'"""{words(60, "a")}"""'})
    first = package_documents("hut", tmp_path)
    (file,) = (tmp_path / "documentation").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.warns(UserWarning, match="discarded"):
        assert package_documents("hut", tmp_path) == first


def test_fingerprint_is_that_of_the_wheels_record(package: Callable[[dict[str, str]], Path]) -> None:
    root = package({"a": '"""A."""'})
    by_files = package_fingerprint("hut")
    info = root.parent / "hut-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hut\nVersion: 1.0\n")
    (info / "RECORD").write_text("hut/a.py,sha256=abc,8\nhut-1.0.dist-info/RECORD,,\n")
    by_record = package_fingerprint("hut")
    assert package_version("hut") == "1.0"
    assert by_record != by_files
    (root / "__pycache__").mkdir()
    (info / "RECORD").write_text("hut/__pycache__/a.pyc,,\nhut-1.0.dist-info/RECORD,,\nhut/a.py,sha256=abc,8\n")
    assert package_fingerprint("hut") == by_record, "what an installer adds is no part of it"
    (info / "RECORD").write_text("hut/a.py,sha256=abd,8\n")
    assert package_fingerprint("hut") != by_record


@pytest.mark.parametrize("name", ["no_such_package", "not-a-name", "six.moves", "", "antigravity"])
def test_a_package_that_is_not_there_is_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=rf"^{name}: no such package is installed; [^\n]*$"):
        package_documents(name, tmp_path)


def test_a_package_without_documentation_is_one_line(package: Callable[[dict[str, str]], Path], tmp_path: Path) -> None:
    package({})
    with pytest.raises(CorpusError, match=r"^hut: none of its modules has 50 words"):
        package_documents("hut", tmp_path)


def test_near_duplicates_from_half_of_the_grams_on() -> None:
    grams = 40  # a document of 52 words has 40 n-grams of 13 words; sharing its first k + 12 words shares k
    long = words(200, "a")

    def sharing(k: int) -> str:
        return " ".join(long.split()[: k + GRAM_WORDS - 1]) + " " + words(grams - k, "b")

    assert [name for name, _ in drop_near_duplicates([("long", long), ("less", sharing(19))])] == [
        "less",
        "long",
    ]
    assert [name for name, _ in drop_near_duplicates([("long", long), ("half", sharing(20))])] == ["long"]


def test_a_training_document_that_holds_half_of_a_protected_one_goes() -> None:
    protected = words(60, "p")
    holds_half = " ".join(protected.split()[:36]) + " " + words(500, "q")  # 24 of 48 n-grams
    holds_less = " ".join(protected.split()[:35]) + " " + words(500, "r")
    kept = drop_near_duplicates([("half", holds_half), ("less", holds_less)], protected=[protected])
    assert [name for name, _ in kept] == ["less"]


def test_near_duplicates_as_a_plain_comparison_of_all_pairs_finds_them() -> None:
    rng = random.Random(0)
    passages = [words(30, f"w{i}_") for i in range(12)]
    candidates = [(f"d{i}", " ".join(rng.sample(passages, rng.randint(1, 4)))) for i in range(60)]
    protected = [" ".join(rng.sample(passages, 3)) for _ in range(3)]

    def grams(text: str) -> set[tuple[str, ...]]:
        split = text.split()
        return {tuple(split[i : i + GRAM_WORDS]) for i in range(len(split) - GRAM_WORDS + 1)}

    def naive() -> list[str]:
        kept: list[tuple[str, set[tuple[str, ...]]]] = []
        for name, text in sorted(candidates, key=lambda c: (-len(grams(c[1])), c[0])):
            mine = grams(text)
            near = any(2 * len(mine & theirs) >= len(mine) for _, theirs in kept)
            barred = any(2 * len(mine & grams(p)) >= min(len(mine), len(grams(p))) for p in protected)
            if not near and not barred:
                kept.append((name, mine))
        return sorted(name for name, _ in kept)

    found = [name for name, _ in drop_near_duplicates(candidates, protected)]
    assert found == naive()
    assert 3 < len(found) < 50


def test_the_two_halves_are_fixed_by_the_name_and_about_equal() -> None:
    assert is_evaluated("scipy.stats") is False  # sha256 begins with an odd byte; must hold for ever
    names = [f"package.module{i}" for i in range(2000)]
    assert 900 < sum(map(is_evaluated, names)) < 1100


@pytest.mark.parametrize("name", DOCUMENTED_PACKAGES)
def test_real_documentation_gives_enough_documents(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip(name)
    documents = package_documents(name, tmp_path_factory.getbasetemp() / "documentation-cache")
    assert len(documents) >= 45, "45 % of them are a test split of at least 20"
    assert all(is_evaluated(module) and module.split(".")[0] == name for module, _ in documents)
    assert [module for module, _ in documents] == sorted({module for module, _ in documents})
    assert not any(part in ("tests", "conftest") for module, _ in documents for part in module.split("."))


@pytest.mark.slow
def test_training_text_shares_no_document_with_the_evaluated_half(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for name in DOCUMENTED_PACKAGES:
        pytest.importorskip(name)
    cache = tmp_path_factory.getbasetemp() / "documentation-cache"
    training = training_documents(cache, others=["pytest"])
    evaluated = [pair for name in DOCUMENTED_PACKAGES for pair in package_documents(name, cache)]
    assert len(training) > 500
    assert not {module for module, _ in training} & {module for module, _ in evaluated}
    assert not any(is_evaluated(module) for module, _ in training if module.split(".")[0] in DOCUMENTED_PACKAGES)
    kept = drop_near_duplicates(training, protected=[text for _, text in evaluated])
    assert kept == training, "a second pass finds nothing left to drop"
