"""Files of the corpus cache: written whole or not at all, checked when read, discarded when damaged."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.errors import CorpusError


def sha256(data: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """64 hex digits of a file's contents, without holding it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checked(path: Path, payload: bytes) -> None:
    """Write a payload under a first line with its hash; a reader sees the old file, the new one or none."""
    with _as_corpus_error(path.parent):
        temporary = _beside(path)
        try:
            with temporary.open("xb") as file:
                file.write(f"{sha256(payload)}\n".encode())
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def read_checked(path: Path) -> bytes | None:
    """The payload that `write_checked` wrote; None where there is none, or a damaged one (with a warning)."""
    try:
        digest, _, payload = path.read_bytes().partition(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        discard(path, error.strerror or "cannot be read")
        return None
    if digest.decode("ascii", "replace") != sha256(payload):
        discard(path, "damaged")
        return None
    return payload


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block ends well.

    Two processes may do this at once: they write the same thing, and the one that comes second keeps the
    first's.
    """
    with _as_corpus_error(path.parent):
        temporary = _beside(path)
        temporary.mkdir()
        try:
            yield temporary
            for file in temporary.iterdir():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
            try:
                os.rename(temporary, path)
            except OSError:
                if not path.is_dir():
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def discard(path: Path, reason: str) -> None:
    """Take a damaged file or folder out of the cache, and say so; what it held is made again."""
    warnings.warn(f"corpus cache: {path.name} is discarded and made again ({reason})", stacklevel=3)
    aside = _beside(path)
    with _as_corpus_error(path.parent), suppress(FileNotFoundError):  # another process may have been quicker
        path.rename(aside)
        if aside.is_dir():
            shutil.rmtree(aside)
        else:
            aside.unlink()


def _beside(path: Path) -> Path:
    """A new hidden name in the same folder, which is made, so that a rename to `path` is atomic."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


@contextmanager
def _as_corpus_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CorpusError(
            f"the corpus cache {folder} cannot be written ({error.strerror or error}): "
            "free space or choose another folder with --evidence DIR"
        ) from error
