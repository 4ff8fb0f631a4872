"""Results that cost seconds to read out of a large file, kept until the file changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def remembered(file: Path, what: str, cache: Path, compute: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """`compute(file)`, or its earlier result for the file of this path, size and time of change.

    The result must survive JSON. A cache that is damaged or cannot be written costs time and nothing else.
    """
    status = file.stat()
    identity = f"{what}\n{file.resolve()}\n{status.st_size}\n{status.st_mtime_ns}"
    entry = cache / f"{what}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        kept = json.loads(entry.read_text(encoding="utf-8"))
        if kept["identity"] == identity:
            return dict(kept["result"])
    result = compute(file)
    with contextlib.suppress(OSError):
        _write(entry, json.dumps({"identity": identity, "result": result}))
    return result


def _write(entry: Path, text: str) -> None:
    """Whole or not at all, also with several workers on one cache."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=entry.parent, prefix=f".{entry.stem}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(temporary, entry)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
