"""Records, their keys, and the file format: what goes in comes out bit for bit, and any damage is found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.evidence import Record, canonical_json, key
from harness.evidence.files import Damaged, read_file, write_file
from harness.evidence.record import same_arrays

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON_SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | st.text()
JSON_VALUES = st.recursive(
    JSON_SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SETTINGS = st.dictionaries(st.text(), JSON_VALUES, max_size=4)
DTYPES = (
    st.just(np.dtype(bool))
    | hnp.integer_dtypes(endianness="?")
    | hnp.unsigned_integer_dtypes(endianness="?")
    | hnp.floating_dtypes(endianness="?")
    | hnp.complex_number_dtypes(endianness="?")
    | hnp.unicode_string_dtypes(endianness="?", max_len=5)
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))


@st.composite
def records(draw: st.DrawFn) -> Record:
    arrays = draw(st.dictionaries(st.text(), ARRAYS, max_size=4))
    axes = {name: [f"{name}:{i}" for i in range(array.ndim)] for name, array in arrays.items()}
    lengths = {axis: n for name in arrays for axis, n in zip(axes[name], arrays[name].shape, strict=True)}
    coordinates = {
        axis: draw(st.lists(JSON_SCALARS, min_size=n, max_size=n)) for axis, n in lengths.items() if draw(st.booleans())
    }
    return Record(draw(st.text()), draw(SETTINGS), arrays, axes, coordinates, draw(SETTINGS))


def write(path: Path, content: dict, arrays: dict) -> bytes:
    write_file(path, path.with_suffix(".tmp"), content, arrays)
    return path.read_bytes()


@given(content=SETTINGS, arrays=st.dictionaries(st.text(), ARRAYS, max_size=4))
@settings(deadline=None)
def test_a_file_gives_back_what_was_written(tmp_path_factory, content, arrays):
    path = tmp_path_factory.mktemp("files") / "x.evidence"
    write(path, content, arrays)
    found_content, found_arrays = read_file(path)
    assert canonical_json(found_content) == canonical_json(content)
    assert same_arrays(found_arrays, arrays)
    assert not any(array.flags.writeable for array in found_arrays.values())
    assert [entry.name for entry in path.parent.iterdir()] == ["x.evidence"]


def small_file(folder: Path) -> tuple[Path, bytes]:
    path = folder / "x.evidence"
    nll = np.linspace(0, 1, 7, dtype="f4")
    arrays = {"nll": nll, "ids": np.array(["a", "bc"]), "ok": np.array([True, False])}
    return path, write(path, {"experiment": "e"}, arrays)


def test_a_flipped_bit_in_any_byte_is_found(tmp_path):
    path, whole = small_file(tmp_path)
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 1 << position % 8
        path.write_bytes(broken)
        with pytest.raises(Damaged):
            read_file(path)
    path.write_bytes(whole)
    assert read_file(path)[0] == {"experiment": "e"}


def test_every_truncation_and_any_tail_is_found(tmp_path):
    path, whole = small_file(tmp_path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(Damaged, match="empty" if length == 0 else r"cut short|bytes in place of"):
            read_file(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(Damaged, match="bytes in place of"):
        read_file(path)


def test_arrays_are_aligned_in_the_file(tmp_path):
    arrays = {"a": np.zeros(3, "i1"), "b": np.zeros(3, "f8"), "c": np.zeros(5, "f4"), "d": np.array(["xyz"])}
    data = write(tmp_path / "x.evidence", {}, arrays)
    line, _, rest = data.partition(b"\n")
    text = rest[: int(line.split()[2])]
    begin = len(line) + 1 + len(text)
    assert begin % 64 == 0
    for entry in json.loads(text)["arrays"]:
        assert (begin + entry["offset"]) % np.dtype(entry["dtype"]).alignment == 0


def test_a_file_cannot_make_python_objects(tmp_path, monkeypatch):
    path, _ = small_file(tmp_path)
    monkeypatch.setattr("harness.evidence.files._raw", lambda array: bytes(array.nbytes))
    write(path, {}, {"x": np.zeros(2, dtype=object)})
    with pytest.raises(Damaged, match="object"):
        read_file(path)


def test_a_well_formed_header_of_another_kind_is_damage_not_a_crash(tmp_path):
    from harness.evidence.files import _first_line

    path = tmp_path / "x.evidence"
    for text in (b"[]", b"{}", b'{"content": {}, "arrays": [{}]}', b'{"content": 1, "arrays": 2}', b"\xff"):
        path.write_bytes(_first_line(text) + text)
        with pytest.raises(Damaged, match="not understood"):
            read_file(path)


@given(SETTINGS)
def test_a_key_does_not_depend_on_order_or_on_tuples(value):
    def shuffled(inner):
        if isinstance(inner, dict):
            return {name: shuffled(inner[name]) for name in reversed(list(inner))}
        return tuple(map(shuffled, inner)) if isinstance(inner, list) else inner

    assert key("e", shuffled(value)) == key("e", value)
    assert len(key("e", value)) == 64


def test_keys_tell_apart_what_differs():
    different = [{}, {"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": None}, {"a": [1]}, {"b": 1}]
    assert len({key(name, value) for name in ("e", "f") for value in different}) == 2 * len(different)
    assert key("e", {"a": np.int64(1), "b": np.float64(0.5)}) == key("e", {"a": 1, "b": 0.5})


def test_a_key_stays_what_it_was():
    """Stores outlive versions: a change of this number throws away everything anybody has measured."""
    expected = "226c2890"
    assert key("near-linearity", {"model": {"name": "gpt2"}, "tokens": 4096})[:8] == expected


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({1: "a"}, TypeError),
        ({"a": [{2: 3}]}, TypeError),
        ({"a": float("nan")}, ValueError),
        ({"a": float("inf")}, ValueError),
        ({"a": Path("x")}, TypeError),
        ({"a": np.zeros(2)}, TypeError),
        ({"a": {1, 2}}, TypeError),
    ],
)
def test_settings_that_have_no_exact_json_are_refused(value, error):
    with pytest.raises(error):
        key("e", value)


def test_a_record_checks_its_axes():
    nll = np.zeros((2, 3))
    Record("e", {}, {"nll": nll}, {"nll": ("layer", "document")}, {"layer": [0, 1]})
    with pytest.raises(ValueError, match="axes are named for"):
        Record("e", {}, {"nll": nll}, {})
    with pytest.raises(ValueError, match="has axes"):
        Record("e", {}, {"nll": nll}, {"nll": ("layer",)})
    with pytest.raises(ValueError, match="axis 'layer' has length 4"):
        Record("e", {}, {"nll": nll, "n": np.zeros(4)}, {"nll": ("layer", "document"), "n": ("layer",)})
    with pytest.raises(ValueError, match="3 coordinates"):
        Record("e", {}, {"nll": nll}, {"nll": ("layer", "document")}, {"layer": [0, 1, 2]})
    with pytest.raises(TypeError, match="dtype object"):
        Record("e", {}, {"nll": np.array([None])}, {"nll": ("layer",)})


def test_a_record_is_read_only_and_leaves_the_callers_array_alone():
    mine = np.zeros(3)
    record = Record("e", {}, {"nll": mine}, {"nll": ("document",)})
    with pytest.raises(ValueError, match="read-only"):
        record.arrays["nll"][0] = 1
    mine[0] = 1


@given(records())
@settings(deadline=None)
def test_equality_is_of_numbers_and_settings_not_of_provenance(record):
    names = ("experiment", "settings", "arrays", "axes", "coordinates")
    fields = {name: getattr(record, name) for name in names}
    assert Record(**fields, provenance={"seconds": 3}) == record
    assert Record(**{**fields, "settings": {**fields["settings"], "one more": 1}}) != record
    for name, array in record.arrays.items():
        if array.size and array.dtype.kind == "f":
            moved = array.copy()
            moved.flat[0] = 0.0 if array.flat[0] else 1.0
            assert Record(**{**fields, "arrays": {**record.arrays, name: moved}}) != record
