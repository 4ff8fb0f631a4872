"""Bytes of text files: plain or under gzip, never more than fits, and which files of a folder are text."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from harness.corpora.sources import CorpusSource
from harness.errors import CorpusError

#: Bytes of text that a corpus may have, unpacked: some hundred times what `--budget full` reads, and little enough to
#: be held in memory. A small gzip file can hold a thousand times its size.
LARGEST = 1 << 30

#: A file with a null byte within its first bytes is taken for binary, as git and grep do.
HEAD = 8192

#: UTF-16 and UTF-32 are full of null bytes; their mark says that they are text all the same.
WIDE_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def is_binary(head: bytes) -> bool:
    """Whether a file that begins so is not text in any encoding that says so itself."""
    return b"\0" in head[:HEAD] and not head.startswith(tuple(WIDE_MARKS))


@dataclass(frozen=True)
class Folder:
    """The text files of a folder and what was left out of it."""

    files: tuple[tuple[str, bytes], ...]
    """(path within the folder with `/`, bytes unpacked), in the order of the paths."""
    notes: tuple[str, ...]
    """What a report says about files that were left out."""


def read_file(source: CorpusSource, path: Path) -> tuple[bytes, bool]:
    """The bytes of a file, or of its first `source.rows` lines, unpacked where its name ends with `.gz`.

    With them, whether the file goes on after them. Raises CorpusError for a file that cannot be read, is cut off or
    damaged, or has more than LARGEST bytes.
    """
    label = f"corpus {source.name}: {path.name}"
    with _opened(path, label, f"give a text file with --corpus {source.name}=FILE") as file:
        if source.rows is None:
            data, more = file.read(LARGEST + 1), False
        else:
            data = _lines(file, source.rows)
            more = len(data) <= LARGEST and bool(file.read(1))
    if len(data) > LARGEST:
        raise CorpusError(f"{label}: {too_much()}: read its first lines only, with ?rows=N")
    return data, more


def read_folder(source: CorpusSource) -> Folder:
    """Every text file below a folder: hidden ones, binary ones and links that lead out of the folder are left out.

    Raises CorpusError for a folder or file that cannot be read, for more than LARGEST bytes, and where nothing is left.
    """
    root = Path(source.location)
    files: list[tuple[str, bytes]] = []
    binary: list[str] = []
    outside = size = 0
    seen = others = 0
    for name in _names(source, root):
        seen += 1
        path = root / name
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            outside += 1
            continue
        if not path.is_file():  # a socket, a link to nothing
            continue
        if source.suffix and not name.lower().endswith((*source.suffix, *(f"{end}.gz" for end in source.suffix))):
            others += 1
            continue
        shown = os.fsencode(name).decode("utf-8", "replace")
        label = f"corpus {source.name}: {source.label}/{shown}"
        with _opened(path, label, "leave it out, or take away what is not to be read") as file:
            head = file.read(HEAD)
            if is_binary(head):
                binary.append(shown)
                continue
            data = head + file.read(LARGEST + 1 - size)
        size += len(data)
        if size > LARGEST:
            raise CorpusError(
                f"corpus {source.name}: the folder {source.label}: {too_much()}: choose with ?suffix=.txt"
            )
        files.append((shown, data))
    notes = []
    if binary:
        more = ", …" if len(binary) > 1 else ""
        notes.append(f"{len(binary):,} binary file{'s' * (len(binary) > 1)} left out ({binary[0]}{more})")
    if outside:
        notes.append(f"{outside:,} link{'s' * (outside > 1)} out of the folder left out")
    if not files:
        found = [*notes, *([f"{others:,} of other suffixes"] if others else [])]
        raise CorpusError(
            f"corpus {source.name}: the folder {source.label} holds no text file"
            f"{' that ends with ' + ' or '.join(source.suffix) if source.suffix else ''} "
            f"({', '.join(found) if found else 'nothing but hidden files' if any(root.iterdir()) else 'it is empty'}): "
            f"give a folder that does, or one file with --corpus {source.name}=FILE"
        )
    return Folder(tuple(files), tuple(notes))


def too_much() -> str:
    """What is wrong with a corpus beyond LARGEST."""
    return f"it holds more than {LARGEST / 2**20:,.6g} MiB of text, which is as much as is read"


def _names(source: CorpusSource, root: Path) -> list[str]:
    """Paths of all files below a folder that are not hidden, sorted. Links to folders are not followed."""

    def refuse(error: OSError) -> None:
        place = source.label if error.filename in (None, str(root)) else f"{source.label}/{Path(error.filename).name}"
        raise CorpusError(
            f"corpus {source.name}: the folder {place} cannot be read ({error.strerror}): "
            "change its permissions, or give another folder"
        ) from error

    names = []
    for folder, below, files in os.walk(root, onerror=refuse):
        below[:] = [name for name in below if not name.startswith(".")]
        names += [(Path(folder) / name).relative_to(root).as_posix() for name in files if not name.startswith(".")]
    return sorted(names)


def _lines(file: BinaryIO, rows: int) -> bytes:
    """The first lines; more than LARGEST bytes where they are that long."""
    data = io.BytesIO()
    for line in islice(iter(lambda: file.readline(LARGEST + 1 - data.tell()), b""), rows):
        data.write(line)
    return data.getvalue()


@contextmanager
def _opened(path: Path, label: str, remedy: str) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb") as file:
            yield cast("BinaryIO", file)  # a GzipFile reads as one
    except EOFError as error:
        raise CorpusError(f"{label}: the gzip file is cut off before its end: copy or download it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(
            f"{label}: this is not a whole gzip file, though its name says gzip: copy or download it again"
        ) from error
    except OSError as error:
        raise CorpusError(f"{label} cannot be read ({error.strerror or error}): {remedy}") from error
