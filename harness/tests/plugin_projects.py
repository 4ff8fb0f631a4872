"""Generated projects whose claims run on models so small that a whole run takes a second."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LETTERS = "abcdefghijklmnop"
BUDGET = "smoke,fit=400,gate=100,select=200,test=800,documents=27,context=32"

CONFTEST = """
from claims.conftest import judge, run, sweep, sweeps

pytest_plugins = ["harness.plugin.hooks"]
"""

CLAIMS = """
from harness.plugin import claim

@claim("idle")
def test_layers_without_work_are_free(sweep, judge):
    judge(sweep.cost.only([0, 2]).maximum()).at_most(0.01)

@claim("dear")
def test_layer_1_is_cheap(sweep, judge):
    judge(sweep.cost.at(1)).at_most(0.10)

@claim("dearer")
def test_layer_1_is_dear(sweep, judge):
    judge(sweep.cost.at(1)).at_least(0.20)

@claim("open")
def test_layer_1_costs_at_most_what_it_costs(sweep, judge):
    judge(sweep.cost.at(1)).at_most(round(sweep.cost.at(1).value, 3))

@claim("first", layers="first")
def test_layer_0_is_free(sweep, judge):
    judge(sweep.cost_at(0)).at_most(0.01)

@claim("llama")
def test_layer_1_of_llama_is_free(sweep, judge):
    sweep.require(family="llama")
    judge(sweep.cost.at(1)).at_most(0.01)
"""
CLAIM_IDS = ("idle", "dear", "dearer", "open", "first", "llama")
"""On `trained`: SUPPORTED, REFUTED, SUPPORTED, INCONCLUSIVE, SUPPORTED, not applicable."""

COMPARISON = """
from harness.plugin import claim

@claim("pair", layers="first")
def test_layer_0_costs_the_same(sweeps, judge):
    one, other = sweeps.all
    judge(one.cost_at(0) - other.cost_at(0)).equivalent_to(0, margin=0.01)
"""


WATCH = """
import atexit
import socket
import sys

def refuse(*args, **kwargs):
    raise AssertionError("a connection was opened")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse

def pytest_unconfigure():
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers", "datasets"})
    print("heavy modules:", ", ".join(loaded) or "none")
"""
"""A pytest plugin that refuses connections and says which heavy packages the process has loaded."""


def paper(*ids: str, untestable: str = "") -> str:
    """A paper.toml with an entry for each id, and one that has no test where `untestable` says why."""
    entries = []
    for id in (*ids, *(["untold"] if untestable else [])):
        entries.append(
            f'[[claim]]\nid = "{id}"\ntitle = "title of {id}"\nstatement = "What is said of {id}."\n'
            f'section = "S1"\nmodel = ["gpt2-medium"]\nreported = {{ text = "little" }}\nledger = ["{id}"]\n'
        )
    if untestable:
        entries[-1] += f'untestable = "{untestable}"\n'
    return "\n".join(entries)


def write_corpus(path: Path, *, documents: int = 60, seed: int = 0, letters: int = 160) -> Path:
    """JSONL of documents in which most letters decide which one follows (by a permutation)."""
    rule = dict(zip(LETTERS, random.Random(0).sample(LETTERS, len(LETTERS)), strict=True))
    rng = random.Random(seed)

    def document() -> str:
        text = rng.choice(LETTERS)
        while len(text) < letters:
            text += rule[text[-1]] if rng.random() < 0.8 else rng.choice(LETTERS)
        return text

    path.write_text("".join(json.dumps({"text": document()}) + "\n" for _ in range(documents)), encoding="utf-8")
    return path


def train(folder: Path, corpus: Path, steps: int) -> Path:
    """A GPT-2 of 3 layers in which only the MLP of layer 1 does any work, and none that a linear map could do.

    Its embedding is random and frozen, so that the successor of a letter is no linear function of the letter.
    """
    import torch

    from harness.tests.models_on_disk import byte_tokenizer, save_tiny

    model = save_tiny(folder, "gpt2", n_embd=8, n_head=1)
    texts = [json.loads(line)["text"] for line in corpus.read_text(encoding="utf-8").splitlines()]
    ids = torch.tensor([byte_tokenizer()(text)["input_ids"] for text in texts])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.transformer.wte.weight.normal_(generator=generator)
    blocks = model.transformer.h
    for still in (model.transformer.wte, blocks[0].mlp, blocks[2].mlp):
        still.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    for _ in range(steps):
        start = int(torch.randint(0, ids.shape[1] - 32, (1,), generator=generator))
        batch = ids[torch.randint(0, len(ids), (8,), generator=generator), start : start + 32]
        optimizer.zero_grad()
        model(batch, labels=batch).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return folder


class Project:
    """A folder with claims, paper.toml, models and a corpus, and a way to run pytest in it."""

    def __init__(self, pytester: pytest.Pytester, models: Path) -> None:
        self.pytester, self.path, self.models = pytester, pytester.path, models
        self.corpus, self.budget = models / "text.jsonl", BUDGET
        pytester.makeini("[pytest]\naddopts = -ra -p no:hypothesispytest -p no:benchmark\n")
        pytester.makeconftest(CONFTEST)
        self.claims(CLAIMS, *CLAIM_IDS)

    def claims(self, source: str, *ids: str, name: str = "test_claims", untestable: str = "") -> None:
        """Write a module of claims, and a paper.toml that has them."""
        self.pytester.makepyfile(**{name: source})
        (self.path / "paper.toml").write_text(paper(*ids, untestable=untestable), encoding="utf-8")

    def model(self, kind: str = "trained", name: str | None = None) -> Path:
        """A copy of a tiny model that the test may break; `name` is what reports call it."""
        return Path(shutil.copytree(self.models / kind, self.path / "models" / (name or kind)))

    def arguments(self, *arguments: str | Path) -> list[str]:
        """`arguments`, with a tiny model and the corpus where they name none, and small sizes.

        The folder of the tests comes first (unless a file does), as in ``pytest claims/ --model FOLDER``: pytest looks
        for the conftest that knows ``--model`` before it knows that FOLDER is no place of tests.
        """
        given = [str(argument) for argument in arguments]
        if "--model" not in given:
            given += ["--model", str(self.models / "trained")]
        if "--corpus" not in given:
            given += ["--corpus", f"text={self.corpus}"]
        if "--report" not in given:
            given += ["--report", "out"]
        options = ["--budget", self.budget, "--device", "cpu"]
        return given + options if any(".py" in argument for argument in given[:1]) else [".", *options, *given]

    def run(self, *arguments: str | Path) -> pytest.RunResult:
        """pytest in this process. The model, the corpus, the sizes and ``--report out`` are filled in."""
        return self.pytester.runpytest_inprocess(*self.arguments(*arguments))

    def run_apart(self, *arguments: str | Path) -> pytest.RunResult:
        """The same in a process of its own."""
        return self.pytester.runpytest_subprocess(*self.arguments(*arguments))

    def run_watched(self, *arguments: str | Path) -> pytest.RunResult:
        """`run_apart` with the plugin WATCH."""
        self.pytester.makepyfile(watch=WATCH)
        return self.run_apart("-p", "watch", *arguments)

    def environment(self, **more: str) -> dict[str, str]:
        """For a process that imports plugins from the project's folder."""
        places = [str(self.path), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(places), **more}

    def report(self, folder: str = "out") -> dict[str, Any]:
        """report.json of a run."""
        return json.loads((self.path / folder / "report.json").read_text(encoding="utf-8"))

    def verdicts(self, folder: str = "out") -> dict[str, str]:
        """Claim id -> verdict."""
        return {row["id"]: row["verdict"] for row in self.report(folder)["claims"]}

    def records(self) -> dict[str, int]:
        """Names of the records in the evidence store -> time of writing (ns)."""
        found = (self.path / ".evidence" / "records").glob("*.evidence")
        return {file.name: file.stat().st_mtime_ns for file in found}

    def measured_layers(self) -> list[int]:
        """Layers of the valid records in the store, sorted; raises where one of them is not valid."""
        from harness.evidence import Store

        store = Store(self.path / ".evidence", report=pytest.fail)
        found = [store.get(key) for key in store.keys()]  # noqa: SIM118 (a Store is no mapping)
        return sorted(record.settings["layer"] for record in found if record)


def told(result: pytest.RunResult, section: str) -> list[str]:
    """The lines of a section of the terminal's output (ERRORS, FAILURES) but for the names of the tests."""
    lines = result.outlines
    first = next(i for i, line in enumerate(lines) if f"= {section} =" in line) + 1
    last = next(i for i, line in enumerate(lines) if i > first and line.startswith("====="))
    return [line for line in lines[first:last] if not line.startswith("___")]


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    """A report but for when it was made and how long it took."""
    kept = json.loads(json.dumps(report))
    for time in ("started", "duration_s"):
        del kept["run"][time]
    for measurement in kept["measurements"]:
        del measurement["seconds"]
    return kept


Edit = Callable[[dict[str, Any]], None]


def edit_report(path: Path, edit: Edit) -> None:
    """Change a report.json in place."""
    report = json.loads(path.read_text(encoding="utf-8"))
    edit(report)
    path.write_text(json.dumps(report), encoding="utf-8")
