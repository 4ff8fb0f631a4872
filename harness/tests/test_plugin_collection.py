"""What is collected: one item for a claim and a model, and nothing that this run cannot judge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.models.sources import PAPER_MODELS
from harness.tests.plugin_projects import CLAIM_IDS, CLAIMS, COMPARISON, WATCH, Project, paper

ROOT = Path(__file__).parents[2]
NO_CUDA = "no CUDA device; add --device cpu to run on the CPU"

REPRODUCTION = """
from harness.plugin import claim

@claim("cheapest")
def test_the_cheapest_layer_is_in_the_middle(sweep, judge):
    judge(sweep.cost.cheapest()).lies_in(sweep.middle_half)

@claim("cheapest", model="gpt2-medium")
def test_gpt2_medium_layer_8_is_the_cheapest(sweep, judge):
    judge(sweep.cost.cheapest()).is_exactly(8)
"""


def collected(result: pytest.RunResult) -> list[str]:
    """The items that ``--collect-only -q`` lists, without their file."""
    return [line.partition("::")[2] for line in result.outlines if "::" in line]


def test_one_item_for_each_claim_and_model(project: Project) -> None:
    result = project.run("--collect-only", "-q", "--model", project.model(), "--model", project.model("llama"))
    names = [line.split("(")[0].removeprefix("def ") for line in CLAIMS.splitlines() if line.startswith("def ")]
    expected = [f"{name}[{model}]" for model in ("trained", "llama") for name in names]
    assert collected(result) == expected  # the claims about one model together, so that it is loaded once


def test_ids_are_names_and_never_paths(project: Project) -> None:
    deep = project.model(name="a folder.with=signs")
    result = project.run("--collect-only", "-q", "--model", deep, "--model", "owner/name@main")
    ids = {item.partition("[")[2].rstrip("]") for item in collected(result)}
    assert ids == {"a folder.with=signs", "owner--name"}


def test_a_comparison_of_models_is_one_item(project: Project) -> None:
    project.claims(CLAIMS + COMPARISON.replace("from harness.plugin import claim\n", ""), *CLAIM_IDS, "pair")
    result = project.run("--collect-only", "-q", "--model", project.model(), "--model", project.model("llama"))
    assert collected(result)[-1] == "test_layer_0_costs_the_same[trained+llama]"
    assert len(collected(result)) == 13


def test_a_reproduction_takes_the_place_of_the_general_claim(project: Project) -> None:
    project.claims(REPRODUCTION, "cheapest")
    both = project.run("--collect-only", "-q", "--model", "gpt2-medium", "--model", "gpt2-large")
    assert collected(both) == [
        "test_gpt2_medium_layer_8_is_the_cheapest[gpt2-medium]",
        "test_the_cheapest_layer_is_in_the_middle[gpt2-large]",
    ]


def test_a_reproduction_vanishes_where_its_model_is_not_judged(project: Project) -> None:
    project.claims(REPRODUCTION, "cheapest")
    result = project.run("--collect-only", "-q", "--model", "gpt2-large")
    assert collected(result) == ["test_the_cheapest_layer_is_in_the_middle[gpt2-large]"]
    result.stdout.no_fnmatch_line("*NOTSET*")


def bare(project: Project, *arguments: str) -> pytest.RunResult:
    """A run in which no model is named."""
    return project.pytester.runpytest_inprocess(".", "-p", "no:cacheprovider", *arguments)


def test_the_papers_models_are_left_out_by_default(project: Project) -> None:
    project.claims(REPRODUCTION, "cheapest")
    items = collected(bare(project, "--collect-only", "-q"))
    assert items == [f"test_the_cheapest_layer_is_in_the_middle[embedded-{kind}]" for kind in ("gpt2", "gpt-neox")]


def test_the_papers_models_are_selected_by_their_mark(project: Project) -> None:
    project.claims(REPRODUCTION + COMPARISON, "cheapest", "pair")
    result = bare(project, "--collect-only", "-q", "-m", "gpu")
    ids = [item.partition("[")[2].rstrip("]") for item in collected(result)]
    assert ids[:-1] == list(PAPER_MODELS)
    assert ids[-1] == "paper"


@pytest.mark.parametrize("expression", ["not gpu", "not slow"])
def test_another_mark_expression_does_not_ask_for_the_papers_models(project: Project, expression: str) -> None:
    project.claims(REPRODUCTION, "cheapest")
    items = collected(bare(project, "--collect-only", "-q", "-m", expression))
    assert items == [f"test_the_cheapest_layer_is_in_the_middle[embedded-{kind}]" for kind in ("gpt2", "gpt-neox")]


def test_without_cuda_the_papers_models_are_skipped_with_the_remedy(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    project.claims(REPRODUCTION, "cheapest")
    result = bare(project, "-m", "gpu", "--report", "out")
    result.assert_outcomes(skipped=6, deselected=2)
    result.stdout.fnmatch_lines([f"SKIPPED [[]6[]] *: {NO_CUDA}"])
    assert not (project.path / "out").exists()  # nothing was found out
    assert not project.records()


def test_a_model_named_on_the_command_line_needs_no_gpu_mark(project: Project) -> None:
    project.claims(REPRODUCTION, "cheapest")
    result = project.run("--collect-only", "-q", "--model", "pythia-160m")
    assert collected(result) == ["test_the_cheapest_layer_is_in_the_middle[pythia-160m]"]


@pytest.mark.parametrize("arguments", [[], ["-m", "gpu"], ["--model", "owner/name", "--corpus", "wikitext"]])
def test_collecting_the_real_claims_opens_no_connection_and_loads_no_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    (tmp_path / "watch.py").write_text(WATCH, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    command = [sys.executable, "-m", "pytest", "claims", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "-p", "watch", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("::test_") > 20
    assert "heavy modules: none" in done.stdout


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        (None, "there are claims here, but no paper.toml beside them"),
        ("", "paper.toml: not a list of [[claim]] entries ('claim')"),
        (
            '[[claim]]\nid = "other"\n',
            "paper.toml: other: the keys 'title', 'statement', 'section', 'model', 'reported', 'ledger' are missing",
        ),
        (paper("idle"), "test_layer_1_is_cheap: paper.toml has no claim 'dear'"),
    ],
)
def test_a_claim_without_its_entry_is_one_line(project: Project, toml: str | None, told: str) -> None:
    file = project.path / "paper.toml"
    file.unlink() if toml is None else file.write_text(toml, encoding="utf-8")
    result = project.run("--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    heading = next(i for i, line in enumerate(result.outlines) if "ERROR collecting test_claims.py" in line)
    assert result.outlines[heading + 1] == told
    assert result.outlines[heading + 2].startswith("===")


def test_other_tests_are_left_alone(project: Project) -> None:
    project.pytester.makepyfile(
        test_other="""
        import pytest

        @pytest.fixture
        def sweep():
            return 1

        @pytest.mark.parametrize("n", [1, 2])
        def test_plain(sweep, n):
            assert n == sweep
        """
    )
    result = project.run()
    result.assert_outcomes(passed=7 - 3, failed=2, skipped=2)
    result.stdout.fnmatch_lines(["*assert 2 == 1"])
    assert len(project.report()["claims"]) == 6
