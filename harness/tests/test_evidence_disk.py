"""A store on a disk that is full, and in a folder that is read-only: one line, and nothing half-written.

Both for real where that can be had: a limit on the size of files makes a write stop half-way, and a child
without root's rights meets the folder's permissions even where the tests run as root.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

from harness.errors import EvidenceError
from harness.evidence import Record, Store, key

from .test_evidence_store import KEY, files, record

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits and permissions of Unix")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "evidence")


def run_child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_write_that_stops_half_way_leaves_nothing(store):
    store.put(record(1.0))
    store.partial(KEY).write("a", {"x": np.zeros(4)})
    result = run_child(
        """
        import resource, sys
        import numpy as np
        from harness.errors import EvidenceError
        from harness.evidence import Record, Store
        store = Store(sys.argv[1])
        nll = np.random.default_rng(0).random((2, 100_000))
        big = Record("e", {"model": "m", "tokens": 4}, {"nll": nll}, {"nll": ("layer", "document")})
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        for write in (lambda: store.put(big), lambda: store.partial(big.key).write("b", {"nll": nll})):
            try:
                write()
            except EvidenceError as error:
                print(error)
        """,
        str(store.folder),
    )
    lines = result.stdout.splitlines()
    assert len(lines) == 2, result.stderr
    assert all("File too large" in line and "free some space" in line and "--evidence" in line for line in lines)
    assert files(store) == {f"records/{KEY}.evidence"}, "neither a temporary file nor a chunk is left"
    assert store.get(KEY) == record(1.0)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_one_line_and_changes_nothing(store, monkeypatch, call):
    store.put(record(1.0))
    journal = store.partial(key("e", {}))
    journal.write("a", {"x": np.zeros(2)})
    before = files(store)

    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    for write in (lambda: store.put(record(2.0)), lambda: journal.write("b", {"x": np.zeros(2)})):
        with pytest.raises(EvidenceError) as caught:
            write()
        assert "No space left on device" in str(caught.value)
        assert "free some space" in str(caught.value)
        assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert files(store) == before
    assert store.get(KEY) == record(1.0)
    store.put(record(2.0))
    assert store.get(KEY) == record(2.0)


def test_a_read_only_store_is_read_and_says_that_it_cannot_be_written():
    with tempfile.TemporaryDirectory() as home:  # not tmp_path, which only its owner may enter
        os.chmod(home, 0o755)
        store = Store(Path(home) / "evidence")
        store.put(record())
        damaged = Record("e", {}, {}, {})
        store.put(damaged)
        (store.folder / "records" / f"{damaged.key}.evidence").write_bytes(b"")
        before = files(store)
        for path in [store.folder, *store.folder.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            result = run_child(
                """
                import os, sys
                from harness.errors import EvidenceError
                from harness.evidence import Record, Store
                if os.getuid() == 0:
                    os.setuid(65534)
                lines = []
                store = Store(sys.argv[1], lines.append)
                print(store.get(sys.argv[2]).arrays["nll"].tolist())
                print(store.get(sys.argv[3]), *lines)
                put = lambda: store.put(Record("f", {}, {}, {}))
                lock = lambda: store.lock(sys.argv[2]).__enter__()
                for write in (put, lock):
                    try:
                        write()
                    except EvidenceError as error:
                        print(error)
                """,
                str(store.folder),
                KEY,
                damaged.key,
            )
        finally:
            for path in [store.folder, *store.folder.rglob("*")]:
                path.chmod(0o755)
        numbers, damage, *errors = result.stdout.splitlines() or [result.stderr, ""]
        assert numbers == str(record().arrays["nll"].tolist())
        assert damage.startswith("None")
        assert "left in its place" in damage
        assert len(errors) == 2
        assert all("cannot write" in line and "Permission denied" in line and "--evidence" in line for line in errors)
        assert files(store) == before


def test_a_store_that_is_a_file_is_one_line(tmp_path):
    (tmp_path / "evidence").write_text("not a folder")
    store = Store(tmp_path / "evidence")
    with pytest.raises(EvidenceError, match=r"cannot read .*Not a directory.*--evidence DIR"):
        store.get(KEY)
    with pytest.raises(EvidenceError, match=r"cannot write .*--evidence DIR"):
        store.put(record())
