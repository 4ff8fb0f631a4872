"""With a baseline a claim fails only where its estimate got worse, beyond noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.models.sources import SHORT_NAMES, ModelSource
from harness.plugin.evaluation import Change, surely_worse
from harness.protocol import BUDGETS, parse_budget
from harness.tests.plugin_projects import BUDGET, Project, edit_report, without_times, write_corpus

ONE_CLAIM = """
from harness.plugin import claim

@claim("dear")
def test_layer_1_is_cheap(sweep, judge):
    judge(sweep.cost.at(1)).at_most(0.10)
"""


@pytest.fixture
def baseline(project: Project) -> Path:
    """The report of `trained`, to compare with."""
    project.run("--report", "before")
    return project.path / "before" / "report.json"


def comparisons(project: Project) -> dict[str, dict[str, object]]:
    return {row["id"]: row["comparison"] for row in project.report()["claims"] if row["comparison"]}


def failed(project: Project) -> set[str]:
    """Ids of the claims whose test failed."""
    return {row["id"] for row in project.report()["claims"] if row["outcome"] == "failed"}


def test_the_same_numbers_are_green_and_still_refuted(project: Project, baseline: Path) -> None:
    result = project.run("--baseline", baseline)
    result.assert_outcomes(passed=4, skipped=2)  # skipped: INCONCLUSIVE, and the claim about llama
    result.stdout.fnmatch_lines(["wanamaker: claims fail only where they got worse than before/report.json (as given)"])
    assert project.verdicts()["dear"] == "REFUTED"
    assert set(comparisons(project)) == {"idle", "dear", "dearer", "open", "first"}
    for change in comparisons(project).values():
        assert change["paired"]
        assert not change["worse"]
        assert change["difference"] == pytest.approx(0, abs=1e-8)
        assert change["p_value"] == 1
    assert project.report()["run"]["baseline"] == {"file": "report.json", "origin": "given", "model": None}


def test_a_worse_model_fails_the_claims_that_got_worse(project: Project, baseline: Path) -> None:
    worse = project.model("worse", name="trained")
    result = project.run("--model", worse, "--baseline", baseline)
    assert failed(project) == {"dear", "open"}  # a dearer layer 1 is good for "dearer", and the others do not change
    result.assert_outcomes(passed=3, failed=2, skipped=1)
    result.stdout.re_match_lines(
        [r"worse than the baseline by \+\d+ \[\d+, \d+\] points; REFUTED: title of dear: \d+ % .* is not at most 10 %"]
    )
    assert comparisons(project)["dear"]["worse"]
    assert comparisons(project)["dear"]["paired"]
    low, high = comparisons(project)["dear"]["interval"]
    assert 0 < low < comparisons(project)["dear"]["difference"] < high
    assert not comparisons(project)["dearer"]["worse"]


def test_worse_is_the_other_way_round_for_a_claim_of_at_least(project: Project) -> None:
    project.run("--model", project.model("worse", name="trained"), "--report", "before")
    project.run("--model", project.models / "trained", "--baseline", "before/report.json")
    assert failed(project) == {"dearer"}
    assert project.verdicts()["dearer"] == "SUPPORTED"  # and yet it fails: what held by a wide margin holds by less


def test_a_verdict_that_was_recorded_otherwise_fails_nothing(project: Project, baseline: Path) -> None:
    def all_supported(report: dict[str, list[dict[str, object]]]) -> None:
        for row in report["claims"]:
            row["verdict"] = "SUPPORTED"

    edit_report(baseline, all_supported)
    project.run("--baseline", baseline).assert_outcomes(passed=4, skipped=2)


@pytest.mark.parametrize(("word", "outcome"), [("skip", "skipped"), ("fail", "failed"), ("pass", "passed")])
def test_with_a_baseline_inconclusive_claims_end_as_asked(
    project: Project, baseline: Path, word: str, outcome: str
) -> None:
    project.run("--baseline", baseline, "--inconclusive", word, "-k", "at_most_what").assert_outcomes(
        **{outcome: 1}, deselected=5
    )


@pytest.fixture
def others(project: Project) -> Path:
    """Other documents of the same kind."""
    return write_corpus(project.path / "others.jsonl", seed=1)


def test_other_documents_are_compared_unpaired(project: Project, baseline: Path, others: Path) -> None:
    result = project.run("--corpus", f"text={others}", "--baseline", baseline)
    result.assert_outcomes(passed=4, skipped=2)
    change = comparisons(project)["dear"]
    assert not change["paired"]
    low, high = change["interval"]
    assert low < 0 < high
    assert change["difference"] != 0


def test_what_got_much_worse_fails_on_other_documents_too(project: Project, baseline: Path, others: Path) -> None:
    worse = project.model("worse", name="trained")
    project.run("--model", worse, "--corpus", f"text={others}", "--baseline", baseline)
    assert failed(project) == {"dear", "open"}
    assert not comparisons(project)["dear"]["paired"]


def test_unpaired_comparisons_allow_for_the_fit(
    project: Project, baseline: Path, others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--corpus", f"text={others}", "--baseline", baseline)
    project.run(*arguments)
    low, high = comparisons(project)["dear"]["interval"]
    monkeypatch.setattr("harness.plugin.evaluation._refit_variances", lambda body, subject, parts: [0.0] * parts)
    project.run(*arguments)
    narrow = comparisons(project)["dear"]["interval"]
    assert low < narrow[0] < narrow[1] < high


def test_the_comparisons_of_a_run_are_held_together() -> None:
    def change(p: float) -> Change:
        return Change("", p, 0.1, (0.0, 0.2), True, "relative")

    assert surely_worse([("a", change(0.04))]) == {"a"}
    assert surely_worse([("a", change(0.04)), ("b", change(0.04))]) == set()
    assert surely_worse([("a", change(0.01)), ("b", change(0.04)), ("c", None)]) == {"a", "b"}
    assert surely_worse([("c", None)]) == set()


def test_a_claim_without_counterpart_is_skipped(project: Project, baseline: Path) -> None:
    result = project.run("--corpus", f"another={project.corpus}", "--baseline", baseline)
    result.assert_outcomes(skipped=6)
    result.stdout.fnmatch_lines(
        ["SKIPPED * REFUTED: title of dear: * (no counterpart in the baseline; add it with --update-baseline)"]
    )


def test_a_model_is_held_against_the_one_that_it_was_made_from(project: Project, baseline: Path) -> None:
    child = project.model("worse", name="child")
    result = project.run("--model", child, "--baseline", baseline)
    assert failed(project) == {"dear", "open"}
    told = "claims fail only where they got worse than trained, the one model of before/report.json (as given)"
    result.stdout.fnmatch_lines([f"wanamaker: {told}"])
    assert project.report()["run"]["baseline"]["model"] == "trained"
    assert "its model trained in the place of this run's" in (project.path / "out" / "report.md").read_text()


def test_a_model_that_is_built_differently_has_no_parent(project: Project, baseline: Path) -> None:
    edit_report(baseline, lambda report: report["models"][0].update(family="llama"))
    project.run("--model", project.model(name="child"), "--baseline", baseline).assert_outcomes(skipped=6)


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"protocol": {"name": "published"}}, "*measured under the protocol published, this run under sound*"),
        ({"budget": {"name": "large", "fit": 99_999}}, "*measured with the budget large (fit=99999), this run with *"),
        ({"budget": {"name": "long", "context": 999}}, "*measured with the budget long (context=999), this run with *"),
    ],
)
def test_costs_by_other_rules_are_no_baseline(
    project: Project, baseline: Path, run: dict[str, object], told: str
) -> None:
    edit_report(baseline, lambda report: report["run"].update(run))
    result = project.run("--baseline", baseline)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *report.json: {told}"])
    assert not (project.path / "out").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "*missing.json: no such report; give a run's folder or its report.json"),
        ("", "*missing.json: not JSON (line 1: Expecting value), so not a report"),
        ('{"schema": 99}', "*missing.json: schema is 99, this wanamaker reads 1: run the claims again to renew it"),
    ],
)
def test_a_baseline_that_cannot_be_read_is_one_line(project: Project, content: str | None, told: str) -> None:
    if content is not None:
        (project.path / "missing.json").write_text(content, encoding="utf-8")
    result = project.run("--baseline", "missing.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.strip()]
    assert line.startswith("ERROR: ")
    pytest.LineMatcher([line]).fnmatch_lines([f"ERROR: {told}"])
    assert not project.records()


def test_update_baseline_writes_the_file(project: Project) -> None:
    project.run("--baseline", "kept/report.json", "--update-baseline").assert_outcomes(passed=5, skipped=1)
    assert project.verdicts("kept") == project.verdicts()
    assert (project.path / "kept" / "report.md").is_file()
    project.run("--baseline", "kept/report.json").assert_outcomes(passed=4, skipped=2)


def test_update_baseline_takes_what_got_worse(project: Project, baseline: Path) -> None:
    worse = project.model("worse", name="trained")
    assert project.run("--model", worse, "--baseline", baseline, "--update-baseline").ret == pytest.ExitCode.OK
    assert project.run("--model", worse, "--baseline", baseline).ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("selection", "named"),
    [
        (["-k", "cheap"], "-k"),
        (["--layers", "0"], "--layers"),
        (["--deselect", "test_claims.py::test_layer_1_is_cheap"], "--deselect"),
        (["test_claims.py::test_layer_1_is_cheap"], "test_claims.py::test_layer_1_is_cheap"),
        (["test_claims.py"], "test_claims.py"),
    ],
)
def test_update_baseline_refuses_a_part_of_a_run(
    project: Project, baseline: Path, selection: list[str], named: str
) -> None:
    before = baseline.read_bytes()
    result = project.run(*selection, "--baseline", baseline, "--update-baseline")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --update-baseline takes a whole run; leave out {named}"])
    assert baseline.read_bytes() == before


def test_update_baseline_never_writes_another_run_to_the_default_file(project: Project) -> None:
    result = project.run("--update-baseline")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --update-baseline: name the file with --baseline; *"])
    assert not (project.path / "reports").exists()


def test_update_baseline_refuses_a_run_that_was_stopped(project: Project) -> None:
    stops = ONE_CLAIM.replace("is_cheap", "stops").replace('"dear"', '"stop"')
    project.claims(ONE_CLAIM + stops + "    __import__('pytest').exit('enough')\n", "dear", "stop")
    result = project.run("--baseline", "kept/report.json", "--update-baseline")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert project.verdicts() == {"dear": "REFUTED"}  # what was found out is kept in the report
    assert not (project.path / "kept").exists()


def test_update_baseline_refuses_a_run_with_errors(project: Project, baseline: Path) -> None:
    before = baseline.read_bytes()
    project.claims(ONE_CLAIM.replace("sweep.cost", "sweep.costs"), "dear")
    result = project.run("--baseline", baseline, "--update-baseline")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["baseline not updated: that takes a whole run without errors"])
    assert baseline.read_bytes() == before


def test_update_baseline_refuses_a_run_that_lacks_claims(project: Project, baseline: Path) -> None:
    before = baseline.read_bytes()
    project.claims(ONE_CLAIM, "dear")
    result = project.run("--baseline", baseline, "--update-baseline")
    result.stdout.fnmatch_lines(["baseline not updated: this run lacks 5 of its claims; delete it to begin anew"])
    assert baseline.read_bytes() == before


@pytest.fixture
def embedded(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project in which the embedded models and what they are measured on are tiny."""
    for name in ("embedded-gpt2", "embedded-gpt-neox"):
        monkeypatch.setitem(SHORT_NAMES, name, lambda name=name: tiny(name))

    def tiny(name: str) -> ModelSource:
        return ModelSource(name, "directory", str(project.models / "trained"))

    monkeypatch.setattr("harness.run.EMBEDDED_CORPORA", (f"text={project.corpus}",))
    monkeypatch.setitem(BUDGETS, "smoke", replace(parse_budget(BUDGET), name="smoke"))
    return project


def default(project: Project, *arguments: str) -> pytest.RunResult:
    """``pytest`` with nothing overridden."""
    return project.pytester.runpytest_inprocess("--device", "cpu", *arguments)


def test_the_default_run_has_a_default_baseline(embedded: Project) -> None:
    missing = default(embedded)
    assert missing.ret == pytest.ExitCode.USAGE_ERROR
    missing.stderr.fnmatch_lines(["ERROR: *reports/embedded/report.json: no such report*"])

    default(embedded, "--update-baseline").assert_outcomes(passed=10, skipped=2, deselected=36)
    result = default(embedded)
    result.assert_outcomes(passed=8, skipped=4, deselected=36)
    result.stdout.fnmatch_lines(
        [
            "wanamaker: claims fail only where they got worse than reports/embedded/report.json "
            "(the committed baseline; --strict turns it off)"
        ]
    )
    assert embedded.report("reports/embedded-smoke")["run"]["baseline"]["origin"] == "default"
    kept, fresh = (embedded.report(f"reports/{name}") for name in ("embedded", "embedded-smoke"))
    assert without_times(kept)["measurements"] == without_times(fresh)["measurements"]


def test_strict_turns_the_default_baseline_off(embedded: Project) -> None:
    result = default(embedded, "--strict")
    result.assert_outcomes(passed=6, failed=2, skipped=4, deselected=36)
    result.stdout.no_fnmatch_line("wanamaker: claims fail only*")
    report = embedded.report("reports/embedded-smoke")
    assert report["run"]["strict"]
    assert report["run"]["baseline"] is None


def test_tests_that_are_no_claims_are_compared_with_nothing(project: Project) -> None:
    project.pytester.makepyfile(test_claims="def test_plain(): pass")
    result = project.pytester.runpytest_inprocess(".")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("wanamaker: *")


@pytest.mark.parametrize(
    ("arguments", "compared"),
    [
        ([], True),
        (["-m", "not slow"], True),
        (["-k", "dear"], True),
        (["--inconclusive", "fail"], True),
        (["-m", "gpu"], False),
        (["--model", "gpt2-medium"], False),
        (["--budget", "quick"], False),
        (["--corpus", "scipy"], False),
        (["--layers", "0"], False),
        (["--dtype", "bfloat16"], False),
        (["--protocol", "published"], False),
    ],
)
def test_only_the_run_that_made_it_is_compared_with_the_default_baseline(
    project: Project, arguments: list[str], compared: bool
) -> None:
    result = project.pytester.runpytest_inprocess(".", "--collect-only", *arguments)
    said = any("claims fail only where they got worse" in line for line in result.outlines)
    assert said == compared
