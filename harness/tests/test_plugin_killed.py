"""A run that is killed at any moment and started again ends in the report of a run that was not."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.tests.models_on_disk import save_tiny
from harness.tests.plugin_projects import Project, without_times, write_corpus

pytestmark = pytest.mark.slow

SPY = """
import os
import signal
import harness.experiments.near_linearity as experiment
from harness.evidence import Journal, Store

_chunk, _write, _put = experiment._chunk, Journal.write, Store.put

def die_after(what):
    if os.environ.get("DIE_AFTER") == what:
        os.kill(os.getpid(), signal.SIGKILL)

def chunk(*arguments):
    with open(os.environ["SPY"], "a") as file:
        file.write(f"{os.getpid()}\\n")
    return _chunk(*arguments)

def write(self, name, arrays):
    _write(self, name, arrays)
    die_after(name)

def put(self, record):
    _put(self, record)
    die_after("a record")

experiment._chunk, Journal.write, Store.put = chunk, write, put
"""
"""A plugin that notes each chunk as it is begun, and ends the process where it is told to."""


class Killable:
    """A project whose runs are processes that can be killed."""

    def __init__(self, project: Project, model: Path) -> None:
        self.project, self.model = project, model
        self.spied = project.path / "spied"
        project.pytester.makepyfile(spy=SPY)

    def start(self, report: str, *arguments: str, die_after: str = "") -> subprocess.Popen[bytes]:
        given = self.project.arguments("-p", "spy", "--model", self.model, "--report", report, *arguments)
        environment = self.project.environment(SPY=str(self.spied), DIE_AFTER=die_after)
        command = [sys.executable, "-m", "pytest", "-q", *given]
        return subprocess.Popen(command, cwd=self.project.path, env=environment, stdout=subprocess.DEVNULL)

    def finish(self, report: str, *arguments: str) -> None:
        # Claims are refuted in a whole run, which is no error.
        assert self.start(report, *arguments).wait(timeout=300) in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)

    def die(self, after: str) -> None:
        assert self.start("killed", die_after=after).wait(timeout=300) == -signal.SIGKILL

    def begun(self) -> int:
        """How many chunks were begun, in all runs so far."""
        return len(self.spied.read_text().splitlines()) if self.spied.exists() else 0

    def chunks(self) -> dict[str, int]:
        """Chunks in the journal -> time of writing (ns)."""
        found = {}
        for file in (self.project.path / ".evidence" / "partial").glob("*/*.chunk"):
            with contextlib.suppress(FileNotFoundError):  # the journal was cleared meanwhile
                found[file.name] = file.stat().st_mtime_ns
        return found

    def forget(self) -> None:
        """Put the evidence and the notes aside."""
        (self.project.path / ".evidence").rename(self.project.path / "evidence of the whole run")
        self.spied.unlink()


def evaluated(chunks: dict[str, int]) -> int:
    return sum(name.startswith("test-") for name in chunks)


def test_killed_while_records_are_written(project: Project) -> None:
    """What was evaluated is not evaluated again for those layers that have no record yet."""
    run = Killable(project, project.models / "trained")
    run.die(after="a record")
    assert project.measured_layers() == [0]
    begun = run.begun()
    assert begun > 0

    run.finish("again")
    assert run.begun() == begun
    assert project.measured_layers() == [0, 1, 2]
    assert run.chunks() == {}  # and nothing is left over

    run.forget()
    run.finish("whole")
    assert without_times(project.report("again")) == without_times(project.report("whole"))


def test_a_part_of_a_run_in_between_costs_no_chunk(project: Project) -> None:
    run = Killable(project, project.models / "trained")
    run.die(after="test-000000")
    assert run.begun() == 1
    run.finish("part", "-k", "layer_0")
    assert run.begun() == 1 + 2
    run.finish("again")
    assert run.begun() == 1 + 2 + 1  # the second of two chunks
    assert project.measured_layers() == [0, 1, 2]


def test_killed_at_ten_moments(project: Project) -> None:
    save_tiny(project.path / "larger", n_embd=64, n_head=4, n_layer=6, initializer_range=0.1)
    run = Killable(project, project.path / "larger")
    project.budget = "smoke,fit=2000,gate=100,select=500,test=20000,documents=27,context=64"
    project.corpus = write_corpus(project.path / "longer.jsonl", letters=800)

    run.finish("whole")
    total = run.begun()
    assert total >= 20
    pause = project.report("whole")["measurements"][0]["seconds"] / total
    run.forget()

    rng = random.Random(0)
    kills = landed = 0
    for moment in range(10):
        before, begun = run.chunks(), run.begun()
        process = run.start("killed")
        target = rng.randrange(moment * total // 10, (moment + 1) * total // 10)
        while process.poll() is None and (not (chunks := run.chunks()) or evaluated(chunks) < target):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, pause))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        landed += run.begun() > begun
        after = run.chunks()
        assert before.items() <= after.items()  # what was written is never measured again
        assert run.begun() - begun <= evaluated(after) - evaluated(before) + 1  # nor is more than one chunk lost
    assert kills == 10
    assert landed >= 7  # while variants were evaluated, and not while Python started or the model was loaded

    run.finish("again")
    assert run.begun() <= total + kills
    assert without_times(project.report("again")) == without_times(project.report("whole"))
