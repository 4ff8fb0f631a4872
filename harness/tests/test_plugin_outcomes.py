"""What pytest makes of a verdict, and what a broken measurement is."""

from __future__ import annotations

import re

import pytest

from harness.evidence import Store
from harness.tests.models_on_disk import edit_weights
from harness.tests.plugin_projects import CLAIM_IDS, CLAIMS, COMPARISON, Project, told

TWO_PARTS = """
from harness.plugin import claim

@claim("parts")
def test_both(sweep, judge):
    judge(sweep.cost.at(0), "the first layer").at_most(0.01)
    judge(sweep.cost.at(1), "the second layer").at_most(0.10)
"""
BROKEN_CLAIMS = """
from harness.plugin import claim

@claim("silent")
def test_judges_nothing(sweep, judge):
    assert sweep.depth == 3

@claim("buggy")
def test_is_wrong_itself(sweep, judge):
    judge(sweep.costs).at_most(1)

@claim("idle")
def test_is_right(sweep, judge):
    judge(sweep.cost.at(0)).at_most(0.01)
"""


def outcomes(project: Project) -> dict[str, str]:
    """Claim id -> pytest's outcome, as the report has it."""
    return {row["id"]: row["outcome"] for row in project.report()["claims"]}


def test_a_verdict_becomes_an_outcome(project: Project) -> None:
    result = project.run()
    result.assert_outcomes(passed=3, failed=1, skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.verdicts() == {
        "idle": "SUPPORTED",
        "dear": "REFUTED",
        "dearer": "SUPPORTED",
        "open": "INCONCLUSIVE",
        "first": "SUPPORTED",
        "llama": "not applicable",
    }
    assert outcomes(project) == {
        "idle": "passed",
        "dear": "failed",
        "dearer": "passed",
        "open": "skipped",
        "first": "passed",
        "llama": "skipped",
    }


def test_a_refuted_claim_is_one_line_with_both_numbers(project: Project) -> None:
    (line,) = told(project.run(), "FAILURES")
    assert re.fullmatch(r"REFUTED: title of dear: \d+ % \[\d+, \d+\] is not at most 10 %", line)


def test_an_inconclusive_claim_says_what_would_settle_it(project: Project) -> None:
    result = project.run()
    result.stdout.fnmatch_lines(
        ["SKIPPED [[]1[]] test_claims.py:*: INCONCLUSIVE: title of open: * too wide to say whether at most * %;*"]
    )


def test_a_claim_that_does_not_apply_is_skipped_with_the_reason(project: Project) -> None:
    result = project.run("--inconclusive", "fail")
    result.stdout.fnmatch_lines(
        ["SKIPPED [[]1[]] test_claims.py:*: not applicable: the claim is about llama models; trained is gpt2"]
    )


@pytest.mark.parametrize(("word", "outcome"), [("skip", "skipped"), ("fail", "failed"), ("pass", "passed")])
def test_inconclusive_claims_end_as_asked(project: Project, word: str, outcome: str) -> None:
    result = project.run("--inconclusive", word, "-k", "at_most_what_it_costs")
    result.assert_outcomes(**{outcome: 1}, deselected=5)
    assert project.verdicts() == {"open": "INCONCLUSIVE"}
    assert outcomes(project) == {"open": outcome}


def test_of_several_parts_the_worst_decides(project: Project) -> None:
    project.claims(TWO_PARTS, "parts")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REFUTED: title of parts: the second layer: * is not at most 10 %"])
    (row,) = project.report()["claims"]
    assert [(part["name"], part["status"]) for part in row["parts"]] == [
        ("the first layer", "SUPPORTED"),
        ("the second layer", "REFUTED"),
    ]


def test_every_corpus_is_judged_and_the_first_decides(project: Project) -> None:
    other = project.path / "other.jsonl"
    other.write_text(project.corpus.read_text(encoding="utf-8").replace("a", "b"), encoding="utf-8")
    project.run("--corpus", f"text={project.corpus}", "--corpus", f"other={other}", "-k", "layer_1_is_cheap")
    (row,) = project.report()["claims"]
    assert row["corpus"] == "text"
    assert [elsewhere["corpus"] for elsewhere in row["elsewhere"]] == ["other"]
    assert row["elsewhere"][0]["parts"][0]["value"] != row["parts"][0]["value"]
    assert [measurement["corpus"] for measurement in project.report()["measurements"]] == ["text", "other"]


def break_weights(project: Project, tensor: str, name: str) -> str:
    """A copy of the model in which one tensor is as large as float32 goes, so that products with it overflow."""
    from safetensors.torch import load_file

    folder = project.model(name=name)
    weight = load_file(folder / "model.safetensors")[tensor]
    edit_weights(folder, add={tensor: 3e38 * weight.sign()})
    return str(folder)


def test_a_loss_that_is_not_finite_is_an_error(project: Project) -> None:
    result = project.run("--model", break_weights(project, "transformer.ln_f.weight", "huge"))
    result.assert_outcomes(errors=6)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert told(result, "ERRORS") == ["the unchanged model's loss is not finite; try --dtype float32"] * 6
    assert not project.records()
    assert set(project.verdicts().values()) == {"error"}


def test_a_loss_that_overflows_under_one_variant_names_layer_and_variant(project: Project) -> None:
    """In float16, whose largest number is 65,504: layers 0, 1 and 2 add 6e4, -6e4 and 3e4 to one component."""
    import torch
    from safetensors.torch import load_file

    folder = project.model(name="overflow")
    weights = load_file(folder / "model.safetensors")
    changed = {}
    for layer, added in enumerate((6e4, -6e4, 3e4)):
        name = f"transformer.h.{layer}.mlp.c_proj.bias"
        changed[name] = weights[name] + added * torch.eye(8)[0]
    edit_weights(folder, add=changed)
    result = project.run("--model", folder, "--dtype", "float16", "-k", "cheap")
    result.assert_outcomes(errors=1, deselected=5)
    (error,) = project.report()["errors"]
    assert error["message"] == "layer 1, variant 'zero': the loss is not finite; try --dtype float32"


def test_an_mlp_whose_output_is_not_finite_names_the_layer(project: Project) -> None:
    project.run("--model", break_weights(project, "transformer.h.1.mlp.c_fc.weight", "huge"), "-k", "cheap")
    (error,) = project.report()["errors"]
    told = "layer 1: MLP inputs or outputs are not finite, so no linear map fits; try --dtype float32"
    assert error == {"item": "test_layer_1_is_cheap[huge]", "message": told}


def test_what_broke_is_in_the_report_beside_what_did_not(project: Project) -> None:
    good, bad = project.model(), break_weights(project, "transformer.ln_f.weight", "huge")
    result = project.run("--model", good, "--model", bad)
    result.assert_outcomes(passed=3, failed=1, skipped=2, errors=6)
    report = project.report()
    assert {row["verdict"] for row in report["claims"] if row["models"] == ["huge"]} == {"error"}
    assert {row["verdict"] for row in report["claims"] if row["models"] == ["trained"]} >= {"SUPPORTED", "REFUTED"}
    assert [m["model"] for m in report["measurements"]] == ["trained"]
    assert len(report["errors"]) == 6
    assert "test_layer_1_is_cheap[huge]" in {error["item"] for error in report["errors"]}
    assert (project.path / "out" / "report.md").read_text(encoding="utf-8").count("not finite")


def test_a_broken_measurement_is_tried_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    import harness.models.loading

    loaded: list[str] = []
    load = harness.models.loading.load

    def counted(source: object, info: object, **settings: object) -> object:
        loaded.append(str(source))
        return load(source, info, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(harness.models.loading, "load", counted)
    project.run("--model", break_weights(project, "transformer.ln_f.weight", "huge")).assert_outcomes(errors=6)
    assert len(loaded) == 1


def test_a_comparison_with_a_broken_model_is_an_error(project: Project) -> None:
    project.claims(COMPARISON, "pair")
    bad = break_weights(project, "transformer.ln_f.weight", "huge")
    project.run("--model", project.model(), "--model", bad).assert_outcomes(errors=1)
    assert project.verdicts() == {"pair": "error"}


def test_a_claim_that_is_wrong_itself_is_an_error_and_no_verdict(project: Project) -> None:
    project.claims(BROKEN_CLAIMS, "silent", "buggy", "idle")
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(project) == {"silent": "error", "buggy": "error", "idle": "passed"}
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*the claim 'test_judges_nothing' judges nothing; it needs a judge(...) call"])
    result.stdout.fnmatch_lines(["*AttributeError: 'Sweep' object has no attribute 'costs'*"])  # with its traceback


def test_a_damaged_record_is_told_and_measured_again(project: Project) -> None:
    project.run("-k", "cheap")
    before = project.report()
    record = next((project.path / ".evidence" / "records").iterdir())
    record.write_bytes(record.read_bytes()[:-1])
    result = project.run("-k", "cheap")
    result.assert_outcomes(failed=1, deselected=5)
    assert any("is damaged" in line for line in result.errlines)
    assert project.report()["measurements"][0]["delta"] == before["measurements"][0]["delta"]
    assert len(Store(project.path / ".evidence", report=pytest.fail).keys()) == 3


def test_entries_without_a_test_are_listed(project: Project) -> None:
    project.claims(CLAIMS, *CLAIM_IDS, untestable="No model knows.")
    project.run("-k", "cheap")
    assert [(entry["id"], entry["why"]) for entry in project.report()["untested"]] == [("untold", "No model knows.")]
