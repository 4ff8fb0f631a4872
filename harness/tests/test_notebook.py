"""The README's notebook page: it runs as it stands, and every object says what the page says it does."""

from __future__ import annotations

import ast
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from harness import judge
from harness.corpora import resolve_corpus
from harness.run import Run, Settings
from harness.statistics import cost_family

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def page() -> str:
    """The Python block under "In a notebook"."""
    found = re.search(
        r"^## In a notebook$.*?^```python$(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S
    )
    assert found, "the README has no notebook page"
    return found[1]


def shown(block: str) -> list[tuple[str, str]]:
    """(expression, what the comment line below it shows), for each expression of the block."""
    lines = block.splitlines()
    pairs = []
    for statement in ast.parse(block).body:
        if isinstance(statement, ast.Expr):
            assert statement.end_lineno is not None
            below = lines[statement.end_lineno]
            assert below.startswith("# <"), f"nothing is shown for {ast.unparse(statement)}"
            pairs.append((ast.unparse(statement), below.removeprefix("# ")))
    return pairs


def numbers_of(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def has_documented_scipy() -> bool:
    return f"scipy=={version('scipy')}" in (ROOT / "constraints.txt").read_text("utf-8").splitlines()


@pytest.mark.slow
def test_the_notebook_page_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    block = page()
    expected = dict(shown(block))
    assert len(expected) >= 7
    names: dict[str, object] = {}
    for statement in ast.parse(block).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), "README.md", "exec"), names)
            continue
        words = ast.unparse(statement)
        found = repr(eval(words, names))
        assert NUMBER.sub("#", found) == NUMBER.sub("#", expected[words])
        if has_documented_scipy():  # of another release the documentation is another corpus
            assert numbers_of(found) == pytest.approx(numbers_of(expected[words]), rel=0.02, abs=0.06)


def test_objects_are_short_and_say_what_they_are() -> None:
    rng = np.random.default_rng(0)
    ids = [f"document {i}" for i in range(30)]
    costs = cost_family([0, 1, 2], rng.normal([[1.0], [3.0], [9.0]], 0.3, (3, 30)), np.full(30, 50.0), ids)
    assert re.fullmatch(r"<Family of 3 members: [12]\.\d+ % to 19\.\d+ %, 30 documents>", repr(costs))
    assert re.fullmatch(r"<Estimate [12]\.\d+ % \[\d.\d+, \d.\d+\], 30 documents>", repr(costs.at(0)))
    assert re.fullmatch(r"<OrderBound 19\.\d+ % \[1\d\.\d+, \d+\.\d+\], 30 documents>", repr(costs.maximum()))
    assert repr(costs.cheapest()) == "<ArgSet cheapest as measured: 0; not surely worse: 0>"
    assert repr(costs.share_below(0.03)) == "<CountBound 33.3 % [33.3, 33.3], 30 documents>"
    assert re.fullmatch(r"<Combined 1\d\.\d+ points \[.*\], 30 documents>", repr(costs.maximum() - costs.minimum()))
    verdict = judge(costs.maximum()).at_most(0.02)
    assert repr(verdict) == f"<Verdict REFUTED: {verdict.reason}>"


def test_an_estimate_without_a_sound_denominator_says_so() -> None:
    rng = np.random.default_rng(0)
    ids = [f"document {i}" for i in range(30)]
    costs = cost_family([0, 1], rng.normal([[0.0], [3.0]], 1.0, (2, 30)), np.full(30, 50.0), ids)
    assert "undefined: the denominator's interval" in repr(costs.at(1) / costs.at(0))


def test_what_was_asked_for_is_shown_before_anything_is_read(tmp_path: Path) -> None:
    assert repr(resolve_corpus("scipy")) == "<CorpusSource scipy: documentation scipy>"
    assert repr(resolve_corpus("mine=owner/name?split=test")) == "<CorpusSource mine: hub owner/name?split=test>"
    run = Run(Settings(models=("embedded-gpt2",), evidence=tmp_path))
    assert repr(run) == "<Run of embedded-gpt2, sound protocol: nothing measured yet>"
    info = run.info("embedded-gpt2")
    assert repr(info) == "<ModelInfo embedded-gpt2: gpt2, 8 layers, d = 128, 2,143,488 weights>"
