"""Chunks of a measurement that is not finished, so that a run that is killed repeats at most one of them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .files import Damaged
from .folder import Arrays, Content, Folder
from .record import canonical_json, read_only

_CHUNK_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Journal:
    """The chunks of one key, one verified file each. A chunk is there wholly or not at all.

    How a measurement is cut into chunks need not be part of its key (a memory limit moves the cuts, not the
    numbers), but chunks of two cuts must not be mixed. So every chunk names the settings that it was cut
    under, and a journal sees only the chunks of its own.
    """

    def __init__(self, folder: Folder, key: str, settings: Mapping[str, Any] | None = None) -> None:
        self._folder = folder
        self._key = key
        self._settings = json.loads(canonical_json(settings or {}))
        self._chunks = folder.path / "partial" / key

    def done(self) -> list[str]:
        """Ids of the chunks that are whole, sorted. Every one is read and verified."""
        names = sorted(path.stem for path in self._chunks.glob("*.chunk"))
        return [chunk for chunk in names if self.read(chunk) is not None]

    def cuts(self) -> list[dict[str, Any]]:
        """The settings of the chunks that are there, of this cut or another, each once."""
        found: list[dict[str, Any]] = []
        for path in sorted(self._chunks.glob("*.chunk")):
            settings = self._folder.load(path, self._key, lambda content, _: content["settings"])
            if settings is not None and settings not in found:
                found.append(settings)
        return found

    def read(self, chunk: str) -> Arrays | None:
        """The arrays of a chunk (read-only), or None. A damaged chunk is reported, set aside, and absent.

        Raises:
            EvidenceError: the store cannot be read.
        """

        def parse(content: Content, arrays: Arrays) -> Arrays | None:
            if (content.get("key"), content.get("chunk")) != (self._key, chunk):
                raise Damaged("it is another chunk under this one's name")
            return arrays if content["settings"] == self._settings else None

        return self._folder.load(self._path(chunk), self._key, parse)

    def write(self, chunk: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Add or replace a chunk. Once this returns, the chunk survives the death of the process.

        Raises:
            EvidenceError: the store cannot be written, or is full; the chunk is then as it was before.
            TypeError: an array has a dtype that is not stored.
        """
        content = {"key": self._key, "chunk": chunk, "settings": self._settings}
        plain = {name: read_only(name, array) for name, array in arrays.items()}
        self._folder.save(self._path(chunk), self._key, content, plain)

    def clear(self) -> None:
        """Forget every chunk, those of other cuts too.

        Raises:
            EvidenceError: the store cannot be written.
        """
        with self._folder.lock(self._key), self._folder.explained("write"):
            if self._chunks.exists():
                shutil.rmtree(self._chunks)

    def _path(self, chunk: str) -> Path:
        if not _CHUNK_ID.fullmatch(chunk):
            raise ValueError(f"the chunk id {chunk!r} has other characters than letters, digits, '_', '-' and '.'")
        return self._chunks / f"{chunk}.chunk"
