"""The store in one process: what is damaged or half-done is reported, set aside and measured again."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.evidence import Record, Store, key
from harness.evidence.record import same_arrays

SETTINGS = {"model": "m", "tokens": 4}
KEY = key("e", SETTINGS)


def record(value: float = 1.0, size: int = 4) -> Record:
    nll = np.full((2, size), value)
    axes = {"nll": ("layer", "document")}
    return Record("e", SETTINGS, {"nll": nll}, axes, {"layer": [0, 1]}, {"seconds": 2.5})


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, reports: list[str]) -> Store:
    return Store(tmp_path / "evidence", reports.append)


def files(store: Store) -> set[str]:
    """Files of a store but for its locks."""
    found = (path.relative_to(store.folder) for path in store.folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in found if path.parts[0] != "locks"}


def test_a_record_comes_back(store):
    assert store.get(KEY) is None
    assert KEY not in store
    assert not store.folder.exists(), "looking something up creates nothing"
    store.put(record())
    again = Store(store.folder)
    assert again.get(KEY) == record()
    assert again.get(KEY).provenance == {"seconds": 2.5}
    assert KEY in again
    assert again.keys() == [KEY]
    assert again.get(key("e", {**SETTINGS, "tokens": 5})) is None
    assert files(store) == {f"records/{KEY}.evidence"}


def test_a_record_is_replaced_whole(store):
    store.put(record(1.0))
    store.put(record(2.0))
    assert store.get(KEY) == record(2.0)


def flip(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


DAMAGES = {
    "flipped bit": (flip, "checksum of its array 'nll' is wrong"),
    "truncated": (lambda data: data[: len(data) // 2], "cut short|in place of"),
    "empty": (lambda data: b"", "it is empty"),
    "another format": (lambda data: b"PK\x03\x04" + data, "does not begin like an evidence file"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_record_is_reported_set_aside_and_measured_again(store, reports, how):
    damage, words = DAMAGES[how]
    store.put(record())
    path = store.folder / "records" / f"{KEY}.evidence"
    broken = damage(path.read_bytes())
    path.write_bytes(broken)

    assert store.get_or_measure("e", SETTINGS, lambda journal: record(2.0)) == record(2.0)
    assert store.get(KEY) == record(2.0)
    (line,) = reports
    assert "\n" not in line
    assert path.name in line
    assert re.search(words, line)
    (aside,) = (store.folder / "damaged").iterdir()
    assert aside.read_bytes() == broken
    assert f"damaged/{aside.name}" in line


def test_damage_is_a_warning_where_nobody_asked_for_reports(store, caplog):
    silent = Store(store.folder)
    silent.put(record())
    (store.folder / "records" / f"{KEY}.evidence").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert silent.get(KEY) is None
    (entry,) = caplog.records
    assert entry.levelname == "WARNING"
    assert KEY in entry.message


def test_a_record_under_anothers_name_is_damaged(store, reports):
    store.put(record())
    other = key("e", {**SETTINGS, "tokens": 5})
    shutil.copy(store.folder / "records" / f"{KEY}.evidence", store.folder / "records" / f"{other}.evidence")
    assert store.get(other) is None
    assert "another Record" in reports[0]
    assert store.get(KEY) == record()


def test_damage_is_not_touched_while_somebody_else_measures(store, reports):
    """Otherwise a slow reader could set aside the good Record that replaced the damaged one it saw."""
    store.put(record())
    path = store.folder / "records" / f"{KEY}.evidence"
    path.write_bytes(b"")
    code = """
import sys
from harness.evidence import Store
with Store(sys.argv[1]).lock(sys.argv[2]):
    print(flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store.folder), KEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        assert store.get(KEY) is None
        assert "left in its place" in reports[0]
        assert path.exists()
        other.communicate(b"\n")
    assert store.get(KEY) is None
    assert "moved to damaged" in reports[1]


def test_only_what_is_missing_is_measured(store):
    measured = []

    def measure(journal):
        measured.append(1)
        return record()

    for _ in range(3):
        assert store.get_or_measure("e", SETTINGS, measure) == record()
    assert len(measured) == 1


def test_a_measurement_of_something_else_is_refused(store):
    with pytest.raises(ValueError, match="asked for"):
        store.get_or_measure("e", {**SETTINGS, "tokens": 5}, lambda journal: record())
    assert files(store) == set()


def test_a_measurement_that_breaks_keeps_its_chunks_and_frees_the_key(store):
    arrays = {"x": np.arange(3.0)}

    def breaks(journal):
        journal.write("layer-0", arrays)
        raise ZeroDivisionError

    def resumes(journal):
        assert journal.done() == ["layer-0"]
        assert same_arrays(journal.read("layer-0"), arrays)
        return record()

    with pytest.raises(ZeroDivisionError):
        store.get_or_measure("e", SETTINGS, breaks)
    store.get_or_measure("e", SETTINGS, resumes)
    assert files(store) == {f"records/{KEY}.evidence"}, "a finished measurement leaves no chunks"


def test_chunks_of_another_cut_are_not_used(store):
    ours, theirs = store.partial(KEY, {"windows": 8}), store.partial(KEY, {"windows": 16})
    theirs.write("0", {"x": np.zeros(16)})
    assert ours.done() == []
    assert ours.read("0") is None
    ours.write("0", {"x": np.zeros(8)})
    ours.write("1", {"x": np.ones(8)})
    assert ours.done() == ["0", "1"]
    assert theirs.done() == []
    assert store.partial(key("e", {}), {"windows": 8}).done() == []
    ours.clear()
    assert ours.done() == []
    assert files(store) == set()


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_chunk_is_as_if_absent(store, reports, how):
    journal = store.partial(KEY)
    for chunk in "abc":
        journal.write(chunk, {"nll": np.arange(4.0)})
    path = store.folder / "partial" / KEY / "b.chunk"
    path.write_bytes(DAMAGES[how][0](path.read_bytes()))
    assert store.partial(KEY).done() == ["a", "c"]
    assert len(reports) == 1
    assert "b.chunk" in reports[0]
    journal.write("b", {"nll": np.arange(4.0)})
    assert journal.done() == ["a", "b", "c"]


def test_a_chunk_under_anothers_name_is_damaged(store, reports):
    journal = store.partial(KEY)
    journal.write("a", {"x": np.zeros(2)})
    folder = store.folder / "partial" / KEY
    shutil.copy(folder / "a.chunk", folder / "b.chunk")
    assert journal.done() == ["a"]
    assert "another chunk" in reports[0]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "é"])
def test_chunk_ids_are_file_names(store, name):
    with pytest.raises(ValueError, match="chunk id"):
        store.partial(KEY).write(name, {})


@pytest.mark.parametrize("name", ["", "x", "../" + KEY, KEY[:-1], KEY.upper()])
def test_keys_are_keys(store, name):
    for look in (store.get, store.partial, store.__contains__, store.lock):
        with pytest.raises(ValueError, match="not a key"):
            look(name)


def test_what_dead_writers_left_is_removed(store):
    store.put(record())
    other = key("e", {})
    store.partial(KEY).write("a", {"x": np.zeros(2)})  # as if killed before its journal was cleared
    store.partial(other).write("a", {"x": np.zeros(2)})
    for name in (KEY, other):
        (store.folder / "tmp" / f"{name}~0123").write_bytes(b"half")
    Store(store.folder)
    assert files(store) == {f"records/{KEY}.evidence", f"partial/{other}/a.chunk"}
    (store.folder / "tmp" / f"{other}~0123").write_bytes(b"half")
    with store.lock(other):
        assert not (store.folder / "tmp" / f"{other}~0123").exists()


def test_temporaries_of_a_living_writer_stay(store):
    with store.lock(KEY):
        temporary = store.folder / "tmp" / f"{KEY}~0123"
        temporary.parent.mkdir()
        temporary.write_bytes(b"half")
        code = "import sys; from harness.evidence import Store; Store(sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, str(store.folder)], check=True)
        store.put(record())
        assert temporary.exists()


def test_an_error_of_the_measurement_is_not_mistaken_for_one_of_the_store(store):
    with pytest.raises(FileNotFoundError, match="weights"), store.lock(KEY):
        raise FileNotFoundError("weights")


def test_a_store_loads_without_torch():
    heavy = {"torch", "transformers", "datasets", "pytest", "scipy"}
    code = f"import sys, harness.evidence; print({heavy} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
