"""Only what the selected claims need is measured, once, and told where it was asked to be."""

from __future__ import annotations

import json
import weakref
from typing import Any

import pytest

import harness.models.loading
from harness.plugin.options import parse_layers
from harness.tests.plugin_projects import CLAIM_IDS, CLAIMS, COMPARISON, Project, without_times

ONLY_LAYER_0 = ("-k", "layer_0")


def test_a_claim_about_layer_0_measures_layer_0(project: Project) -> None:
    project.run(*ONLY_LAYER_0).assert_outcomes(passed=1, deselected=5)
    assert project.measured_layers() == [0]
    (measurement,) = project.report()["measurements"]
    assert (measurement["layers"], measurement["depth"]) == ([0], 3)


def test_a_whole_run_takes_what_a_part_has_measured(project: Project) -> None:
    project.run(*ONLY_LAYER_0)
    first = project.records()
    project.run().assert_outcomes(passed=3, failed=1, skipped=2)
    assert project.measured_layers() == [0, 1, 2]
    assert {name: written for name, written in project.records().items() if name in first} == first


def test_the_order_of_selections_moves_no_number(project: Project) -> None:
    project.run(*ONLY_LAYER_0)
    project.run("--report", "by parts")
    project.run("--evidence", "other", "--report", "at once")
    assert without_times(project.report("by parts")) == without_times(project.report("at once"))


def test_a_comparison_measures_what_it_needs_of_each_model(project: Project) -> None:
    project.claims(COMPARISON, "pair")
    project.run("--model", project.model(), "--model", project.model("llama")).assert_outcomes(passed=1)
    assert project.measured_layers() == [0, 0]


def test_one_model_is_in_memory_at_a_time(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[weakref.ref[object]] = []
    load = harness.models.loading.load

    def watched(*arguments: Any, **settings: Any) -> Any:
        assert [model() for model in loaded] == [None] * len(loaded)  # those before are gone
        subject = load(*arguments, **settings)
        loaded.append(weakref.ref(subject.model))
        return subject

    monkeypatch.setattr(harness.models.loading, "load", watched)
    project.claims(CLAIMS + COMPARISON.replace("from harness.plugin import claim\n", ""), *CLAIM_IDS, "pair")
    result = project.run("--model", project.model(), "--model", project.model("llama"))
    result.assert_outcomes(passed=8, failed=2, skipped=3)
    assert len(loaded) == 2


def test_layers_restricts_what_is_measured(project: Project) -> None:
    result = project.run("--layers", "0")
    result.assert_outcomes(passed=1, skipped=5)
    assert project.measured_layers() == [0]
    reasons = {row["id"]: row["reason"] for row in project.report()["claims"]}
    assert reasons["idle"] == "the claim needs all layers; 1 of 3 were measured (--layers)"
    assert project.verdicts()["first"] == "SUPPORTED"


def test_a_part_of_the_claims_leaves_the_whole_report_alone(project: Project) -> None:
    """Without --report both go to folders of their own, and the report says what was asked for."""
    project.run("--report", "")
    (whole,) = project.path.glob("reports/*/report.json")
    kept = whole.read_bytes()
    part = whole.parent.with_name(f"{whole.parent.name}-part") / whole.name
    for given, told in ((("-k", "cheap"), "-k cheap"), (("--layers", "0"), "--layers 0")):
        project.run("--report", "", *given)
        assert json.loads(part.read_text(encoding="utf-8"))["run"]["selection"] == told
    assert whole.read_bytes() == kept
    assert json.loads(kept)["run"]["selection"] is None


def test_a_run_by_the_published_protocol_has_a_report_of_its_own(project: Project) -> None:
    lines = project.path / "lines.txt"
    lines.write_text("".join(f"line {n} says {n * n} and {n**3 % 997}\n" for n in range(2_100)), encoding="utf-8")
    project.budget = "quick,fit=400,test=600,context=48"
    project.run("--report", "", "--corpus", f"text={lines}", "--protocol", "published")
    (folder,) = (project.path / "reports").iterdir()
    assert folder.name.endswith("-published")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["run"]["protocol"]["name"] == "published"
    (measurement,) = report["measurements"]
    assert measurement["windows"]["unit"] == "line"
    assert {int(d["name"].removeprefix("line ")) for d in measurement["documents"]} <= set(range(2_001, 2_101))


def test_layers_without_the_one_that_a_claim_needs(project: Project) -> None:
    project.run("--layers", "1-2").assert_outcomes(skipped=6)
    reasons = {row["id"]: row["reason"] for row in project.report()["claims"]}
    assert reasons["first"] == "layer 0 was not measured (--layers)"
    assert project.measured_layers() == [1, 2]


def test_layers_that_leave_nothing_to_measure(project: Project) -> None:
    result = project.run("--layers", "1", *ONLY_LAYER_0)
    result.assert_outcomes(skipped=1, deselected=5)
    result.stdout.fnmatch_lines(["SKIPPED * not applicable: --layers leaves out the layers that this claim is about"])
    assert not project.records()


@pytest.mark.parametrize(
    ("text", "layers"), [("0", (0,)), ("0,5-8", (0, 5, 6, 7, 8)), (" 3 , 1-1,3", (1, 3)), (None, None)]
)
def test_layers_are_numbers_and_ranges(text: str | None, layers: tuple[int, ...] | None) -> None:
    assert parse_layers(text) == layers


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x", "--layers x: 'x' is not a layer or a range; write 0,5-8"),
        ("3-1", "--layers 3-1: the range 3-1 runs backwards"),
        ("", "--layers : '' is not a layer or a range; write 0,5-8"),
        ("2,3", "--layers: trained has layers 0 to 2, not 3"),
    ],
)
def test_layers_that_are_none(project: Project, text: str, told: str) -> None:
    result = project.run("--layers", text)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {told}"])
    assert not project.records()


def test_dry_run_measures_nothing(project: Project) -> None:
    result = project.run_watched("--dry-run")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "model*corpus*layers to do*tokens*minutes*memory GiB*disk MB",
            "trained*text *3 *8?? *0.0 *0.? *0.?",
            "minutes: * nothing was measured",
            "heavy modules: none",
        ]
    )
    assert not (project.path / ".evidence" / "records").exists()
    assert not (project.path / "out").exists()


def test_dry_run_counts_what_is_already_there(project: Project) -> None:
    project.run(*ONLY_LAYER_0)
    result = project.run("--dry-run")
    result.stdout.fnmatch_lines(["trained*text *2 *8?? *"])
    project.run()
    project.run("--dry-run").stdout.fnmatch_lines(["trained*text *0 *0 *"])


def test_dry_run_downloads_nothing(project: Project) -> None:
    result = project.run_watched("--dry-run", "--model", "owner/name")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["owner/name*not known before it is downloaded*"])


def test_a_warm_run_loads_no_torch_and_gives_the_same_report(project: Project) -> None:
    cold = project.run_watched("--report", "cold")
    cold.stdout.fnmatch_lines(["heavy modules: *torch, transformers"])
    warm = project.run_watched("--report", "warm")
    warm.stdout.fnmatch_lines(["heavy modules: none"])
    warm.assert_outcomes(passed=3, failed=1, skipped=2)
    assert without_times(project.report("warm")) == without_times(project.report("cold"))
    assert (project.path / "warm" / "report.md").is_file()


def test_a_warm_run_with_a_baseline_loads_no_torch(project: Project) -> None:
    project.run("--report", "before")
    result = project.run_watched("--baseline", "before/report.json")
    result.assert_outcomes(passed=4, skipped=2)
    result.stdout.fnmatch_lines(["heavy modules: none"])


def test_a_warm_run_needs_no_write_to_the_store(project: Project) -> None:
    project.run()
    evidence = project.path / ".evidence"
    before = {path: path.stat().st_mtime_ns for path in evidence.rglob("*") if path.is_file()}
    project.run("--report", "warm").assert_outcomes(passed=3, failed=1, skipped=2)
    assert {path: path.stat().st_mtime_ns for path in evidence.rglob("*") if path.is_file()} == before


def test_the_report_goes_where_it_is_asked_for(project: Project) -> None:
    result = project.run("--report", "here/and there")
    result.stdout.fnmatch_lines(["report: here/and there/report.md"])
    assert {path.name for path in (project.path / "here" / "and there").iterdir()} == {"report.json", "report.md"}


def test_the_report_goes_to_a_folder_of_the_runs_name(project: Project) -> None:
    model = project.model(name="My Model@v1")
    arguments = [".", "--model", str(model), "--corpus", f"text={project.corpus}", "--budget", project.budget]
    result = project.pytester.runpytest_inprocess(*arguments, "--device", "cpu")
    (folder,) = (project.path / "reports").iterdir()
    assert folder.name.startswith("my-model-v1-smoke")
    assert project.report(f"reports/{folder.name}")["run"]["name"] == folder.name
    result.stdout.fnmatch_lines([f"report: reports/{folder.name}/report.md"])


def test_no_claim_no_report(project: Project) -> None:
    project.pytester.makepyfile(test_claims="def test_plain(): pass")
    project.run().assert_outcomes(passed=1)
    assert not (project.path / "out").exists()
    assert not project.records()


def test_the_seed_moves_intervals_and_nothing_else(project: Project) -> None:
    project.run("--report", "0")
    project.run("--report", "same")
    records = project.records()
    project.run("--seed", "1", "--report", "1")
    assert project.records() == records
    zero, one = project.report("0"), project.report("1")
    assert without_times(project.report("same")) == without_times(zero)
    assert one["measurements"] == zero["measurements"]
    assert (zero["run"]["seed"], one["run"]["seed"]) == (0, 1)
    for before, after in zip(zero["claims"], one["claims"], strict=True):
        assert before["verdict"] == after["verdict"]
        for part, other in zip(before["parts"], after["parts"], strict=True):
            assert part["value"] == other["value"]
            assert part["interval"] != other["interval"]
            assert part["interval"] == pytest.approx(other["interval"], rel=0.2, abs=1e-4)


def test_the_reports_name_files_and_no_paths(project: Project) -> None:
    project.run("--model", project.model(), "--corpus", f"text={project.corpus}")
    for name in ("report.json", "report.md"):
        written = (project.path / "out" / name).read_text(encoding="utf-8")
        assert str(project.path) not in written
        assert str(project.corpus.parent) not in written
