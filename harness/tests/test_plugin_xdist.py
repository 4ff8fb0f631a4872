"""Several workers on one store: the claims of a serial run, each measurement made once, one report."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tests.plugin_projects import CLAIM_IDS, CLAIMS, COMPARISON, Project, without_times

pytest.importorskip("xdist")

SPY = """
import os
import harness.experiments.near_linearity as experiment

_sweep = experiment._sweep

def counted(request, layers, *rest):
    with open(os.environ["SPY"], "a") as file:
        file.write(f"{request.model.name} {layers} {os.getpid()}\\n")
    return _sweep(request, layers, *rest)

def pytest_configure():
    experiment._sweep = counted

def pytest_sessionfinish(session):
    with open(os.environ["SPY"], "a") as file:
        file.write(f"session {'worker' if hasattr(session.config, 'workerinput') else 'controller'} {os.getpid()}\\n")
"""
"""A plugin that notes each sweep that is measured, and the sessions that there were."""


@pytest.fixture
def several(project: Project) -> Project:
    """A project with claims about two models, and one about both."""
    project.claims(
        CLAIMS + COMPARISON.replace("from harness.plugin import claim\n", ""),
        *CLAIM_IDS,
        "pair",
        untestable="No model knows.",
    )
    return project


def models(project: Project) -> list[str]:
    return ["--model", str(project.models / "trained"), "--model", str(project.models / "llama")]


def test_two_workers_judge_as_one_process_does(several: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    spied = several.path / "spied"
    monkeypatch.setenv("SPY", str(spied))
    several.pytester.makepyfile(spy=SPY)
    result = several.run_apart("-p", "spy", "-n", "2", *models(several), "--report", "workers")
    told = result.stdout.str().count("report: workers/report.md")
    several.run(*models(several), "--evidence", "serial", "--report", "serial-report")

    assert told == 1
    sessions = [line.split()[1] for line in spied.read_text().splitlines() if line.startswith("session")]
    assert sorted(sessions) == ["controller", "worker", "worker"]
    measured = [line.rpartition(" ")[0] for line in spied.read_text().splitlines() if not line.startswith("session")]
    assert sorted(measured) == ["llama [0, 1, 2]", "trained [0, 1, 2]"]

    workers, serial = (without_times(several.report(name)) for name in ("workers", "serial-report"))
    assert [(row["id"], row["models"], row["verdict"]) for row in workers["claims"]] == [
        (row["id"], row["models"], row["verdict"]) for row in serial["claims"]
    ]
    assert workers == serial  # to the last digit, in the same order


def test_a_warm_run_with_workers_measures_nothing(several: Project) -> None:
    several.run(*models(several))
    records = several.records()
    result = several.run_apart("-n", "2", *models(several), "--report", "again")
    assert several.records() == records
    assert without_times(several.report("again")) == without_times(several.report())
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_workers_compare_with_a_baseline(project: Project) -> None:
    project.run("--report", "before")
    worse = project.model("worse", name="trained")
    result = project.run_apart("-n", "2", "--model", worse, "--baseline", "before/report.json")
    result.assert_outcomes(passed=3, failed=2, skipped=1)
    result.stdout.fnmatch_lines(["wanamaker: claims fail only where they got worse than before/report.json (as given)"])
    assert {row["id"] for row in project.report()["claims"] if row["outcome"] == "failed"} == {"dear", "open"}


def test_an_error_in_a_worker_reaches_the_report(project: Project) -> None:
    project.budget += ",context=100"
    result = project.run_apart("-n", "2")
    result.assert_outcomes(errors=6)
    assert len(project.report()["errors"]) == 6


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--model", "nowhere"], "--model nowhere: no such folder, nor a hub id *"),
        (["--layers", "7"], "--layers: trained has layers 0 to 2, not 7"),
        (["--baseline", "nowhere.json"], "nowhere.json: no such report; *"),
        (["--corpus", "text=empty.txt"], "corpus text: empty.txt: the file is empty"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_workers_too(project: Project, arguments: list[str], told: str) -> None:
    Path(project.path / "empty.txt").touch()
    result = project.run_apart("-n", "2", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {told}"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_a_missing_default_baseline_is_an_error_of_each_claim(project: Project) -> None:
    result = project.pytester.runpytest_subprocess(".", "-n", "2", "-k", "layer_0")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*reports/embedded/report.json: no such report; *"])


def test_tests_without_claims_need_no_default_baseline(project: Project) -> None:
    project.pytester.makepyfile(test_claims="def test_plain(): pass")
    project.pytester.runpytest_subprocess(".", "-n", "2").assert_outcomes(passed=1)


def test_dry_run_with_workers(project: Project) -> None:
    result = project.run_apart("-n", "2", "--dry-run")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["trained*text *3 *"])
    assert not project.records()
