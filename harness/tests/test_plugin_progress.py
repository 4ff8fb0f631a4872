"""The progress line: shown on a terminal even while pytest captures, and nowhere else."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest

from harness.plugin import progress
from harness.plugin.progress import Progress, line
from harness.tests.plugin_projects import Project

EAGER = """
import harness.plugin.progress
harness.plugin.progress._EVERY = 0.0
"""
"""A plugin that lets every step be shown."""


def on_a_terminal(project: Project, *arguments: str) -> tuple[str, str]:
    """Standard output (a pipe), and standard error (a terminal) of a run."""
    project.pytester.makepyfile(eager=EAGER)
    master, slave = os.openpty()
    command = [sys.executable, "-m", "pytest", *project.arguments("-p", "eager", *arguments)]
    environment = project.environment()
    with subprocess.Popen(command, cwd=project.path, stdout=subprocess.PIPE, stderr=slave, env=environment) as run:
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 65536):
                shown += piece
        except OSError:  # Linux says so when the other side of a terminal is closed
            pass
        assert run.stdout is not None
        out = run.stdout.read()
        run.wait(timeout=60)
    os.close(master)
    return out.decode(), shown.decode()


def test_a_line_on_a_terminal_while_pytest_captures(project: Project) -> None:
    out, shown = on_a_terminal(project, "-k", "layer_0")
    steps = [step.rstrip() for step in shown.split("\r") if step.strip()]
    assert steps[0] == "reading corpus text"
    assert "loading trained" in steps
    assert any(re.fullmatch(r"trained on text: fitting  \d+%(  \d+ s left)?", step) for step in steps)
    assert any(re.fullmatch(r"trained on text: evaluating  59%  \d+ s left", step) for step in steps)
    assert "\n" not in shown
    assert shown.endswith("\r" + " " * 79 + "\r")  # and the line is gone before pytest prints its own
    assert "evaluating" not in out
    assert "1 passed" in out


def test_no_line_where_standard_error_is_no_terminal(project: Project) -> None:
    project.pytester.makepyfile(eager=EAGER)
    result = project.run_apart("-p", "eager", "-k", "layer_0")
    assert result.errlines == []
    assert "evaluating" not in result.stdout.str()


def test_no_line_from_workers(project: Project) -> None:
    pytest.importorskip("xdist")
    _, shown = on_a_terminal(project, "-n", "2", "-k", "layer_0")
    assert "evaluating" not in shown


@pytest.mark.parametrize(
    ("done", "of", "elapsed", "began", "shown"),
    [
        (0, 1, 5, 0, "what"),
        (0, 10, 0, 0, "what  0%"),
        (1, 10, 3, 0, "what  10%  27 s left"),
        (6, 10, 60, 4, "what  60%  2 min left"),  # began at 4 of 10: 2 took a minute, and 4 are left
        (4, 10, 60, 4, "what  40%"),
        (1, 10, 3600, 0, "what  10%  9.0 h left"),
        (10, 10, 60, 0, "what  100%  0 s left"),
    ],
)
def test_time_left(done: float, of: float, elapsed: float, began: float, shown: str) -> None:
    assert line("what", done, of, elapsed, began) == shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress_on(terminal: Terminal, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Progress:
    """A progress line on `terminal`, without pytest's capture in between (which would put back the real stderr)."""
    config = pytester.parseconfig("-p", "no:cacheprovider")
    monkeypatch.setattr(config.pluginmanager, "getplugin", lambda name: None)
    monkeypatch.setattr(sys, "stderr", terminal)
    return Progress(config)


def test_at_most_one_line_a_second(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    told = progress_on(terminal := Terminal(), pytester, monkeypatch)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for step in range(11):
        told("counting", step, 100)
        now[0] += 0.3
    shown = [step.strip() for step in terminal.getvalue().split("\r") if step.strip()]
    assert shown == ["counting  0%", "counting  4%  29 s left", "counting  8%  28 s left"]


def test_a_long_line_is_cut_to_the_terminal(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    told = progress_on(terminal := Terminal(), pytester, monkeypatch)
    told("a" * 200, 0, 1)
    assert max(map(len, terminal.getvalue().split("\r"))) == 79


def test_what_stays_is_on_a_line_of_its_own(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    told = progress_on(terminal := Terminal(), pytester, monkeypatch)
    told("counting", 0, 1)
    told.say("a record is damaged")
    assert terminal.getvalue().endswith("\r" + " " * 79 + "\rwanamaker: a record is damaged\n")
