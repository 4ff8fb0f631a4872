"""report.json: its version, its shape, and reading and writing it without loss or half-written files."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from harness.errors import ReportError
from harness.reporting.escape import without_paths
from harness.reporting.shape import first_fault

SCHEMA = 1
"""Version of report.json; raised when a reader of the old one would misread the new."""
FILE_NAME = "report.json"
_DIGITS = 9
"""Significant digits in report.json: finer than float32 losses, far finer than any interval."""


def validate(report: Any) -> None:
    """Raise a one-line `ReportError` naming the first field that is missing or not what it should be."""
    if not isinstance(report, dict):
        raise ReportError(f"a report is a JSON object, this is {type(report).__name__}")
    version = report.get("schema")
    if version != SCHEMA or isinstance(version, bool):
        raise ReportError(f"schema is {version!r}, this wanamaker reads {SCHEMA}: run the claims again to renew it")
    if fault := first_fault(report):
        raise ReportError(fault)


def normalise(value: Any) -> Any:
    """`value` as JSON holds it: nine digits, no NaN or infinity (they become null), lists, valid Unicode."""
    if hasattr(value, "tolist"):  # numpy scalars and arrays, without importing numpy
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {normalise(str(key)): normalise(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [normalise(item) for item in value]
    if isinstance(value, str):  # lone surrogates stand for file names that are not UTF-8
        return value.encode("utf-8", "replace").decode("utf-8")
    if value is None or isinstance(value, bool | int):
        return value
    raise ReportError(f"a report cannot hold a {type(value).__name__}")


def write(report: dict[str, Any], path: Path) -> None:
    """Validate and write `report` in one step: readers see the old file or the new one, never half of it.

    Absolute paths in messages (errors quote them) are cut down to file names.

    Raises
    ------
    ReportError
        When the report is not valid or the file cannot be written.
    """
    clean = _without_paths(normalise(report))
    validate(clean)
    write_text(_encode(clean) + "\n", path)


def write_text(content: str, path: Path) -> None:
    """Write a UTF-8 text file atomically, folders included. Raises `ReportError` when that is impossible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)  # mkstemp makes files that only their owner may read
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ReportError(f"{path}: cannot be written ({error.strerror or error}); choose another --report") from None


def locate(path: Path) -> Path:
    """The report.json meant by a run's folder or by the file itself."""
    return path / FILE_NAME if path.is_dir() else path


def load(path: Path) -> dict[str, Any]:
    """Read a report from its file, or from the folder of its run.

    Raises
    ------
    ReportError
        In one line, with the file's name, when it is missing, not JSON, of another schema or damaged.
    """
    file = locate(Path(path))
    try:
        report = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError:
        raise ReportError(f"{file}: no such report; give a run's folder or its {FILE_NAME}") from None
    except OSError as error:
        raise ReportError(f"{file}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{file}: not UTF-8 (byte {error.start}), so not a report") from None
    except json.JSONDecodeError as error:
        raise ReportError(f"{file}: not JSON (line {error.lineno}: {error.msg}), so not a report") from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{file}: not JSON ({error}), so not a report") from None
    try:
        validate(report)
    except ReportError as error:
        raise ReportError(f"{file}: {error}") from None
    return report


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")


_MESSAGES = {"message", "reason", "why"}


def _without_paths(value: Any, key: str | None = None) -> Any:
    """`value` with absolute paths cut down to names in the fields that hold messages."""
    if isinstance(value, dict):
        return {name: _without_paths(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item, key) for item in value]
    return without_paths(value) if isinstance(value, str) and key in _MESSAGES else value


def _encode(value: Any, indent: str = "") -> str:
    """JSON with a line for each field, but lists of plain values on one line: diffs that can be read."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        fields = (
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_encode(item, inner)}" for key, item in value.items()
        )
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(inner + _encode(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
