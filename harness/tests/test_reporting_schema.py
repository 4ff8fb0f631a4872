"""report.json: writing and reading lose nothing that can be kept, and faults are named in one line."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ReportError
from harness.reporting import schema
from harness.tests.reporting_example import report

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("reports")


@settings(deadline=None, max_examples=25)
@given(extra=JSON, value=st.floats(), name=st.text(st.characters(codec=None)))
def test_what_is_written_is_read(folder: Path, extra: object, value: float, name: str) -> None:
    told = report()
    told["extra"] = extra
    told["claims"][0]["parts"][0]["value"] = value
    told["claims"][0]["parts"][0]["predicate"] = name
    told["models"][0]["name"] = name
    path = folder / "report.json"
    schema.write(told, path)
    read = schema.load(path)
    assert read == schema.normalise(told)
    expected = schema.normalise(value)
    assert read["claims"][0]["parts"][0]["value"] == expected
    if expected is not None and value != 0:
        assert math.isclose(expected, value, rel_tol=5e-9, abs_tol=5e-324)


@settings(deadline=None, max_examples=100)
@given(JSON)
def test_normalising_twice_is_normalising_once(value: object) -> None:
    once = schema.normalise(value)
    assert schema.normalise(once) == once
    assert json.loads(json.dumps(once, allow_nan=False)) == once


def test_numbers_of_numpy_become_plain(tmp_path: Path) -> None:
    told = report()
    told["claims"][0]["parts"][0].update(value=np.float32(0.5), interval=np.array([0.25, np.nan]))
    told["claims"][0]["parts"][0]["documents"] = np.int64(24)
    schema.write(told, tmp_path / "report.json")
    part = schema.load(tmp_path)["claims"][0]["parts"][0]
    assert (part["value"], part["interval"], part["documents"]) == (0.5, [0.25, None], 24)


def test_the_file_is_strict_json_with_nine_digits(tmp_path: Path) -> None:
    told = report()
    told["measurements"][0]["seconds"] = math.nan
    told["measurements"][0]["nll"][0] = 1 / 3
    schema.write(told, tmp_path / "report.json")
    content = (tmp_path / "report.json").read_text(encoding="utf-8")
    assert "NaN" not in content
    assert "0.333333333," in content
    assert max(map(len, content.splitlines())) < 2_000  # a row of sums a line, not the file in one


def test_messages_lose_absolute_paths_and_keep_names(tmp_path: Path) -> None:
    told = report()
    told["errors"][0]["message"] = "/home/someone/models/m.safetensors: truncated (see https://example.org/a/b)"
    told["claims"][0]["reason"] = "cannot read '/srv/my data/x.jsonl'"
    schema.write(told, tmp_path / "report.json")
    read = schema.load(tmp_path)
    assert read["errors"][0]["message"] == "m.safetensors: truncated (see https://example.org/a/b)"
    assert read["claims"][0]["reason"] == "cannot read 'x.jsonl'"


def test_a_failed_write_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    schema.write(report(), path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match=r"report\.json: cannot be written \(No space left on device\)"):
        schema.write(report(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["report.json"]


def test_an_invalid_report_is_not_written(tmp_path: Path) -> None:
    told = report()
    del told["claims"][3]["reason"]
    with pytest.raises(ReportError, match=r"^claims\[3\]\.reason is missing$"):
        schema.write(told, tmp_path / "report.json")
    assert not list(tmp_path.iterdir())


def _set(path: str, value: object):  # type: ignore[no-untyped-def]
    """A change of a report: set the field at a dotted path; a number is a place in a list."""

    def change(told: dict) -> None:
        *parents, last = (int(step) if step.isdigit() else step for step in path.split("."))
        for step in parents:
            told = told[step]
        told[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_set("schema", 2), "schema is 2, this wanamaker reads 1"),
        (_set("schema", True), "schema is True"),
        (_set("run.device", 3), "run.device must be text, it is 3"),
        (_set("run.strict", 0), "run.strict must be true or false, it is 0"),
        (_set("run", []), "run must be an object, it is []"),
        (_set("claims", {}), "claims must be a list, it is {}"),
        (_set("claims.1.verdict", "PROVEN"), "claims[1].verdict is 'PROVEN', not one of SUPPORTED, REFUTED"),
        (_set("claims.1.parts.1.status", "error"), "claims[1].parts[1].status is 'error'"),
        (_set("claims.1.parts.1.interval", [1.0]), "claims[1].parts[1].interval has 1 ends"),
        (_set("claims.1.parts.1.documents", True), "claims[1].parts[1].documents must be a whole number"),
        (
            _set("claims.2.elsewhere.0.parts.0.interval", [1, 2, 3]),
            "claims[2].elsewhere[0].parts[0].interval has 3",
        ),
        (_set("claims.2.comparison.interval", []), "claims[2].comparison.interval has 0 ends"),
        (_set("claims.0.models", None), "claims[0].models must be a list, it is null"),
        (_set("models.0.layers", "24"), "models[0].layers must be a whole number, it is '24'"),
        (_set("measurements.1.nll", [1.0]), "measurements[1].nll has 1 entries for 24 documents"),
        (
            _set("measurements.1.delta.linear.2", [1]),
            "measurements[1].delta.linear has 1 entries for 24 documents in",
        ),
        (_set("measurements.1.delta.mean", []), "measurements[1].delta.mean has 0 rows for 6 layers"),
        (
            _set("measurements.1.delta.mean.0.0", "x"),
            "measurements[1].delta.mean[0][0] must be a number, it is 'x'",
        ),
        (_set("measurements.1.delta", {}), "measurements[1].delta.linear must be a list, it is null"),
        (_set("measurements.0.squares.linear", 1), "measurements[0].squares.linear must be an object"),
        (
            _set("measurements.0.squares.linear.total", None),
            "measurements[0].squares.linear.total must be a list",
        ),
        (
            _set("measurements.0.fit.first_norm", [1.0]),
            "measurements[0].fit.first_norm has 1 entries for 6 layers",
        ),
        (
            _set("measurements.0.fit.curve.r2", [[0.1]]),
            "measurements[0].fit.curve.r2 has 1 entries for 6 layers",
        ),
        (_set("measurements.0.drift", {"dtype": "float16"}), "measurements[0].drift.tokens is missing"),
        (
            _set(
                "measurements.0.drift",
                {"dtype": "float16", "tokens": 9, "loss": 3.0, "loss32": 3.0, "cost": [0.1], "cost32": [0.1] * 6},
            ),
            "measurements[0].drift.cost has 1 entries for 6 layers",
        ),
    ],
)
def test_faults_are_named_in_one_line(change, complaint: str) -> None:  # type: ignore[no-untyped-def]
    told = report()
    schema.validate(told)
    change(told)
    with pytest.raises(ReportError) as caught:
        schema.validate(told)
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


def test_every_field_that_must_be_there_is_missed() -> None:
    """Take each field out of a sound report in turn: either it may be left out, or the complaint names it."""
    optional = set()
    for path in _fields(report()):
        told = report()
        *parents, last = path
        inner = told
        for step in parents:
            inner = inner[step]
        del inner[last]
        complaint = _complaint(told)
        if complaint is None:
            optional.add(last)
        assert complaint is None or str(last) in complaint
    assert {"note", "revision", "elsewhere", "comparison", "standing", "selection"} <= optional
    assert not optional & {
        "id",
        "verdict",
        "models",
        "nll",
        "weights_sha256",
        "fingerprint",
        "statement",
        "claims",
    }


def _complaint(told: dict) -> str | None:
    try:
        schema.validate(told)
    except ReportError as error:
        return str(error)
    return None


def _fields(value: object, path: tuple = ()):  # type: ignore[no-untyped-def]
    """Paths of all fields, going into the first entry of a list only."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from _fields(item, (*path, key))
    elif isinstance(value, list) and value:
        yield from _fields(value[0], (*path, 0))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, r"no such report; give a run's folder or its report\.json"),
        (b"", r"not JSON \(line 1: "),
        (b"{\n1", r"not JSON \(line 2: "),
        (b'{"a": "\xff"}', r"not UTF-8 \(byte 7\)"),
        (b'{"schema": NaN}', "NaN is not a JSON number"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "a report is a JSON object, this is list"),
        (b"{}", "schema is None"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ReportError, match=complaint) as caught:
        schema.load(path)
    assert "\n" not in str(caught.value)
    assert "report.json" in str(caught.value)


def test_a_folder_without_a_report_and_a_folder_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no such report"):
        schema.load(tmp_path)
    (tmp_path / "report.json").mkdir()
    with pytest.raises(ReportError, match="cannot be read"):
        schema.load(tmp_path)
