"""One self-verifying file: JSON that says what is in it, then the arrays, and a checksum over every byte.

::

    wanamaker-evidence 1 <bytes of the JSON> <sha256 of the JSON>\\n
    <JSON: {"content": ..., "arrays": [{name, dtype, shape, offset, bytes, sha256}, ...]}>
    <the arrays, C order, back to back, in the order of that list>

Nothing in it is executed when read (no pickle), every byte is under some checksum, and the length is exact,
so a flipped bit, a truncated or a lengthened file is always found. ``offset`` counts from the end of the
JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .record import STORABLE_KINDS, canonical_json, read_only

MAGIC = b"wanamaker-evidence 1"
_FIRST_LINE = len(MAGIC) + len(b" 0123456789 ") + 64 + len(b"\n")


class Damaged(Exception):
    """A file is not what was written; the message says in a few words what is wrong with it."""


def write_file(path: Path, temporary: Path, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file so that, whatever happens, `path` is the old file, if any, or the whole new one.

    The bytes go to `temporary` (a new name on the same file system), reach the disk, and only then take the
    name `path`.

    Raises:
        OSError: the disk is full, read-only, gone; `temporary` is removed first.
    """
    temporary.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("xb") as file:
            for part in _parts(content, arrays):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _parts(content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[bytes | memoryview]:
    # Widest alignment first: each array then begins at a multiple of its own alignment without padding, which
    # would be bytes under no checksum.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.alignment, name))
    data = [_raw(arrays[name]) for name in order]
    table, offset = [], 0
    for name, raw in zip(order, data, strict=True):
        array = arrays[name]
        entry = {"name": name, "dtype": array.dtype.str, "shape": array.shape}
        table.append({**entry, "offset": offset, "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()})
        offset += len(raw)
    text = canonical_json({"content": content, "arrays": table}).encode()
    text += b" " * (-(_FIRST_LINE + len(text)) % 64)  # so that the arrays begin at a multiple of 64 bytes
    return [_first_line(text), text, *data]


def _first_line(text: bytes) -> bytes:
    return b"%s %010d %s\n" % (MAGIC, len(text), hashlib.sha256(text).hexdigest().encode())


def _raw(array: np.ndarray) -> bytes | memoryview:
    if array.nbytes == 0:
        return b""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _sync_folder(folder: Path) -> None:
    """Make a rename durable. Only a crash of the machine could undo it, so failing to is no error."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # a platform or file system that does not open folders
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Content and arrays of a file, every byte checked. The arrays are read-only views of one buffer.

    Raises:
        Damaged: the file is not what was written.
        OSError: the file is missing or cannot be read.
    """
    data = path.read_bytes()
    if not data:
        raise Damaged("it is empty")
    line, rest = data[:_FIRST_LINE], memoryview(data)[_FIRST_LINE:]
    if not line.startswith((MAGIC + b" ")[: len(line)]):
        raise Damaged("it does not begin like an evidence file of this version")
    length = line[len(MAGIC) + 1 : len(MAGIC) + 11]
    if len(line) < _FIRST_LINE or not length.isdigit() or int(length) > len(rest):
        raise Damaged("it is cut short")
    text = bytes(rest[: int(length)])
    if line != _first_line(text):
        raise Damaged("the checksum of its header is wrong")
    try:
        header = json.loads(text)
        return header["content"], _arrays(header["arrays"], rest[len(text) :])
    except (KeyError, TypeError, ValueError) as error:  # whole, but written by something else
        raise Damaged(f"its header is not understood ({error!r})") from error


def _arrays(table: list[dict[str, Any]], body: memoryview) -> dict[str, np.ndarray]:
    expected = sum(entry["bytes"] for entry in table)
    if len(body) != expected:
        raise Damaged(f"its arrays have {len(body)} bytes in place of {expected}")
    arrays = {}
    for entry in table:
        raw = body[entry["offset"] : entry["offset"] + entry["bytes"]]
        if hashlib.sha256(raw).hexdigest() != entry["sha256"]:
            raise Damaged(f"the checksum of its array {entry['name']!r} is wrong")
        dtype = np.dtype(entry["dtype"])
        if dtype.kind not in STORABLE_KINDS:  # whatever the header says, never build Python objects
            raise Damaged(f"its array {entry['name']!r} has dtype {dtype}")
        flat = np.frombuffer(raw, dtype) if len(raw) else np.empty(0, dtype)
        arrays[entry["name"]] = read_only(entry["name"], flat.reshape(entry["shape"]))
    return arrays
