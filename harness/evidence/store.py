"""The store of Records: a folder in which what was measured once is found again, whatever happened since.

::

    records/<key>.evidence          one Record a file, named by its settings
    partial/<key>/<chunk>.chunk     the chunks of measurements that are not finished
    damaged/                        what did not verify, for a person to look at
    locks/, tmp/                    who is measuring, and what is being written
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from ..errors import EvidenceError
from . import record as records
from .files import Damaged
from .folder import Arrays, Content, Folder
from .journal import Journal
from .record import Record

_KEY = re.compile(r"[0-9a-f]{64}")


class Store:
    """Records by key. Nothing is created before the first write, so a read-only store serves a warm run."""

    def __init__(self, folder: str | os.PathLike[str], report: Callable[[str], None] | None = None) -> None:
        """`report` gets one line for each damaged file; by default a WARNING of this module's logger."""
        self.folder = Path(folder).absolute()
        self._files = Folder(self.folder, report)
        self._remove_finished_journals()

    def __contains__(self, key: str) -> bool:
        """Whether there is a file for the key. It is not verified: `get` may still find it damaged."""
        return self._path(key).is_file()

    def keys(self) -> list[str]:
        """Keys that have a file, sorted."""
        return sorted(path.stem for path in self._path("0" * 64).parent.glob("*.evidence"))

    def get(self, key: str) -> Record | None:
        """The verified Record, or None. A damaged one is reported, moved to ``damaged/``, and absent.

        Raises:
            EvidenceError: the store cannot be read.
        """

        def parse(content: Content, arrays: Arrays) -> Record:
            try:
                found = Record(arrays=arrays, **content)
            except (TypeError, ValueError) as error:
                raise Damaged(f"it is no Record ({error})") from error
            if found.key != key:
                raise Damaged("it is another Record under this one's name")
            return found

        return self._files.load(self._path(key), key, parse)

    def put(self, record: Record) -> None:
        """Write a Record, wholly or not at all.

        Raises:
            EvidenceError: the store cannot be written, or is full; it is then as it was before.
        """
        content = {
            "experiment": record.experiment,
            "settings": record.settings,
            "axes": record.axes,
            "coordinates": record.coordinates,
            "provenance": record.provenance,
        }
        self._files.save(self._path(record.key), record.key, content, record.arrays)

    def lock(self, key: str, on_wait: Callable[[float], None] | None = None) -> AbstractContextManager[None]:
        """Hold a key while it is measured. Look again with `get` once it is held. Dying frees it.

        `on_wait` is called with the seconds waited so far: at once when another thread or process holds the
        key, then every second.

        Raises:
            EvidenceError: the store cannot be written.
        """
        self._path(key)  # refuse what is no key before a lock file is named after it
        return self._files.lock(key, on_wait)

    def partial(self, key: str, settings: Mapping[str, Any] | None = None) -> Journal:
        """The journal of a measurement that is not finished. `settings` say how it is cut into chunks."""
        self._path(key)
        return Journal(self._files, key, settings)

    def get_or_measure(
        self,
        experiment: str,
        settings: Mapping[str, Any],
        measure: Callable[[Journal], Record],
        *,
        chunks: Mapping[str, Any] | None = None,
        on_wait: Callable[[float], None] | None = None,
    ) -> Record:
        """The Record of an experiment under its settings, measured only where no process has measured it.

        `measure` gets the journal for its chunks (`chunks`: how it is cut) and runs while the key is locked.

        Raises:
            EvidenceError: the store cannot be read or written.
            ValueError: `measure` gave a Record of another experiment or other settings.
        """
        key = records.key(experiment, settings)
        found = self.get(key)
        if found is not None:
            return found
        with self.lock(key, on_wait):
            found = self.get(key)  # whoever held the lock before us may have measured it
            if found is not None:
                return found
            journal = self.partial(key, chunks)
            record = measure(journal)
            if record.key != key:
                raise ValueError(f"asked for {experiment} under {settings}, got a Record under {record.settings}")
            self.put(record)
            journal.clear()
            return record

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a key of 64 hex digits")
        return self.folder / "records" / f"{key}.evidence"

    def _remove_finished_journals(self) -> None:
        """Remove the chunks of a run that was killed between writing its Record and clearing its journal."""
        with suppress(EvidenceError), self._files.explained("read"):
            for path in (self.folder / "partial").glob("*"):
                if _KEY.fullmatch(path.name) and path.name in self:
                    with self._files.lock_if_free(path.name) as held:
                        if held:
                            self.partial(path.name).clear()
