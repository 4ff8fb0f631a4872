"""`wanamaker report RUN`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli
from harness.reporting import markdown, schema
from harness.tests.reporting_example import report


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "a run"
    schema.write(report(), folder / "report.json")
    return folder


@pytest.mark.parametrize("given_as", ["folder", "file"])
@pytest.mark.parametrize("options", [[], ["--format", "md"]])
def test_report_renders_beside_the_json(run: Path, given_as: str, options: list[str], capsys) -> None:  # type: ignore[no-untyped-def]
    source = run if given_as == "folder" else run / "report.json"
    assert cli.main(["report", str(source), *options]) == 0
    assert (run / "report.md").read_text(encoding="utf-8") == markdown.render(report())
    assert capsys.readouterr().out.strip() == str(run / "report.md")
    assert sorted(path.name for path in run.iterdir()) == ["report.json", "report.md"]


def test_rendering_again_replaces_the_old_one(run: Path) -> None:
    (run / "report.md").write_text("old")
    cli.main(["report", str(run)])
    assert (run / "report.md").read_text(encoding="utf-8").startswith("# Replication report")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda run: (run / "report.json").unlink(), "no such report"),
        (lambda run: (run / "report.json").write_text("{"), "not JSON"),
        (lambda run: (run / "report.json").write_text(json.dumps({"schema": 99})), "schema is 99"),
        (lambda run: (run / "report.md").mkdir(), "cannot be written"),
    ],
)
def test_errors_are_one_line(run: Path, spoil, complaint: str, capsys) -> None:  # type: ignore[no-untyped-def]
    spoil(run)
    before = sorted(run.iterdir())
    assert cli.main(["report", str(run)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("wanamaker: ")
    assert complaint in err
    assert err.count("\n") == 1
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("arguments", [[], ["report"], ["report", "x", "--format", "docx"], ["mesure"]])
def test_wrong_usage_is_exit_2(arguments: list[str], capsys) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: wanamaker" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["report", "--help"], ["--version"]])
def test_help_and_version(arguments: list[str], capsys) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "wanamaker" in shown
    assert "report.md" in shown or arguments != ["report", "--help"]


def test_as_a_module(run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "report", str(run)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (run / "report.md").exists()
