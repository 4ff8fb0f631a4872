"""The folder of a store: who may write which key, and what becomes of damaged and half-written files."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock, Timeout

from ..errors import EvidenceError
from .files import Damaged, read_file, write_file

T = TypeVar("T")
Content = dict[str, Any]
Arrays = dict[str, np.ndarray]

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}

_logger = logging.getLogger(__name__)


class Folder:
    """Verified files that belong to keys, with one lock a key.

    Only the holder of a key's lock writes that key's files. The operating system frees the lock of a
    process that dies, however it dies; a temporary file that a new holder finds is therefore a dead
    writer's, and is removed.
    """

    def __init__(self, path: Path, report: Callable[[str], None] | None = None) -> None:
        self.path = path
        self._report = report or _logger.warning
        self._locks: dict[str, FileLock] = {}
        self._remove_leftovers()

    @contextmanager
    def lock(self, key: str, on_wait: Callable[[float], None] | None = None) -> Iterator[None]:
        """Hold a key against every other thread and process. The same thread may take it again inside.

        `on_wait` is called with the seconds waited so far: at once when somebody else holds the key, then
        every second.

        Raises:
            EvidenceError: the folder cannot be written.
        """
        started = time.monotonic()
        held = self._acquire(key, timeout=0)
        while not held:
            if on_wait is not None:
                on_wait(time.monotonic() - started)
            held = self._acquire(key, timeout=1)
        try:
            yield
        finally:
            self._locks[key].release()

    @contextmanager
    def lock_if_free(self, key: str) -> Iterator[bool]:
        """Hold a key if nobody else does, and say whether it is held.

        Raises:
            EvidenceError: the folder cannot be written.
        """
        held = self._acquire(key, timeout=0)
        try:
            yield held
        finally:
            if held:
                self._locks[key].release()

    def _acquire(self, key: str, timeout: float) -> bool:
        path = self.path / "locks" / f"{key}.lock"
        with self.explained("write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            # A singleton, so that two Folders on one path in one thread do not wait for each other for ever.
            lock = self._locks.setdefault(key, FileLock(path, is_singleton=True))
            try:
                lock.acquire(timeout=timeout)
            except Timeout:
                return False
        if lock.lock_counter == 1:
            for leftover in self._temporaries().glob(f"{key}~*"):
                with suppress(OSError):
                    leftover.unlink()
        return True

    def load(self, path: Path, key: str, parse: Callable[[Content, Arrays], T]) -> T | None:
        """What `parse` makes of a file of `key`, or None where there is none.

        A damaged file (`parse` may raise Damaged too) is reported, moved to ``damaged/``, and counts as none.

        Raises:
            EvidenceError: the folder cannot be read.
        """
        with self.explained("read"):
            try:
                return parse(*read_file(path))
            except FileNotFoundError:
                return None
            except Damaged as found:
                damage = found
        where = "left in its place"
        # A read-only store can be neither locked nor mended; its damaged files are only reported.
        with suppress(EvidenceError), self.lock_if_free(key) as held:
            if held:  # look again: by now another process may have written a good one
                try:
                    return parse(*read_file(path))
                except FileNotFoundError:
                    return None
                except Damaged as found:
                    damage = found
                with self.explained("write"):
                    where = f"moved to {self._set_aside(path)}"
        name = path.relative_to(self.path)
        self._report(f"{name} in the evidence store {self.path} is damaged: {damage}; {where}, to be measured again")
        return None

    def _set_aside(self, path: Path) -> Path:
        name = "-".join(path.relative_to(self.path).parts)
        target = self.path / "damaged" / f"{name}.{secrets.token_hex(4)}"
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
        return target.relative_to(self.path)

    def save(self, path: Path, key: str, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write a file of `key`, wholly or not at all.

        Raises:
            EvidenceError: the folder cannot be written, or is full.
        """
        with self.lock(key), self.explained("write"):
            write_file(path, self._temporaries() / f"{key}~{secrets.token_hex(8)}", content, arrays)

    @contextmanager
    def explained(self, verb: str) -> Iterator[None]:
        """Turn an error of the operating system into one line that says what to do."""
        try:
            yield
        except OSError as error:
            remedy = "choose another folder with --evidence DIR"
            if error.errno in _NO_SPACE:
                remedy = f"free some space or {remedy}"
            elif error.errno in _NO_PERMISSION:
                remedy = f"let this user {verb} it or {remedy}"
            reason = error.strerror or str(error) or type(error).__name__
            raise EvidenceError(f"cannot {verb} the evidence store {self.path} ({reason}): {remedy}") from error

    def _temporaries(self) -> Path:
        return self.path / "tmp"

    def _remove_leftovers(self) -> None:
        """Remove the temporary files of dead writers, of keys that nobody may ever ask for again."""
        with suppress(EvidenceError), self.explained("read"):
            for key in {path.name.partition("~")[0] for path in self._temporaries().glob("*~*")}:
                with self.lock_if_free(key):
                    pass  # taking the lock removes them
