"""A measurement that was killed, cut up or damaged ends in the same numbers, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from harness.evidence import Journal, Record
from harness.experiments import fitting
from harness.experiments.near_linearity import journal_key
from harness.tests.experiment_example import Toy, same, toy


class Killed(BaseException):
    """Stands for the end of the process: nothing in the harness may catch it."""


@pytest.fixture(scope="module")
def it(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def whole(it: Toy) -> dict[int, Record]:
    """The records of a run that nothing interrupted."""
    return it.measure()


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A checkpoint after every batch of the fit; the ids of the chunks as they are written."""
    monkeypatch.setattr(fitting, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(fitting, "_BATCH_WINDOWS", 5)
    written: list[str] = []
    write = Journal.write

    def noted(journal: Journal, chunk: str, arrays: Mapping[str, np.ndarray]) -> None:
        write(journal, chunk, arrays)
        written.append(chunk)

    monkeypatch.setattr(Journal, "write", noted)
    return written


@pytest.fixture
def uninterrupted(it: Toy, writes: list[str], tmp_path: Path) -> tuple[dict[int, Record], list[str]]:
    """The records of a run with as many checkpoints as there can be, and all that it wrote to its journal."""
    records = it.elsewhere(tmp_path / "uninterrupted").measure()
    written = writes.copy()
    writes.clear()
    assert written[:7] == ["moments"] * 7
    assert written[7:] == ["fit-0000", "fit-0001", "fit-0002", "test-000000", "test-000016", "test-000032"]
    return records, written


def kill_after(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Die once `n` chunks more have been written."""
    left = [n]
    write = Journal.write

    def fatal(journal: Journal, chunk: str, arrays: Mapping[str, np.ndarray]) -> None:
        write(journal, chunk, arrays)
        left[0] -= 1
        if not left[0]:
            raise Killed

    monkeypatch.setattr(Journal, "write", fatal)


def test_killed_once_anywhere(
    it: Toy,
    uninterrupted: tuple[dict[int, Record], list[str]],
    writes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records, whole = uninterrupted
    for n in range(1, len(whole) + 1):
        writes.clear()
        again = it.elsewhere(tmp_path / str(n))
        with monkeypatch.context() as patch:
            kill_after(patch, n)
            with pytest.raises(Killed):
                again.measure()
        assert same(again.measure(), records), f"killed after {whole[n - 1]}"
        finished = [chunk for chunk in whole[:n] if chunk.startswith("test")]
        assert all(writes.count(chunk) == 1 for chunk in finished)  # what was there was not measured again
        assert writes.count("moments") == 7  # nor was a batch of the fit read twice


def test_killed_after_every_single_step(
    it: Toy,
    uninterrupted: tuple[dict[int, Record], list[str]],
    writes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each run gets one step further than the last, fits and chunks alike."""
    records, whole = uninterrupted
    again = it.elsewhere(tmp_path / "again")
    for _ in whole:
        with monkeypatch.context() as patch:
            kill_after(patch, 1)
            with pytest.raises(Killed):
                again.measure()
    assert same(again.measure(), records)
    assert writes == whole


def test_layers_measured_alone(it: Toy, whole: dict[int, Record], tmp_path: Path) -> None:
    for layers in ([2], [1, 0]):
        alone = it.elsewhere(tmp_path / "-".join(map(str, layers))).measure(layers)
        assert same(alone, {layer: whole[layer] for layer in layers})


def test_only_missing_layers_are_measured(it: Toy, whole: dict[int, Record], tmp_path: Path) -> None:
    again = it.elsewhere(tmp_path / "again")
    again.measure([1])
    stamp = [p.stat().st_mtime_ns for p in (again.folder / "records").iterdir()]
    assert same(again.measure(), whole)
    assert again.loads == 2
    assert stamp[0] in [p.stat().st_mtime_ns for p in (again.folder / "records").iterdir()]
    assert same(again.measure(), whole)
    assert again.loads == 2  # a warm run loads no model
    assert not any((again.folder / "partial").glob("*/*"))


def test_chunks_of_other_layers_are_not_taken_for_ones_own(
    it: Toy, whole: dict[int, Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = it.elsewhere(tmp_path / "again")
    with monkeypatch.context() as patch:
        kill_after(patch, 4)  # the three fits and the first chunk
        with pytest.raises(Killed):
            again.measure()
    assert same(again.measure([1]), {1: whole[1]})
    assert same(again.measure(), whole)


def test_a_damaged_chunk_is_measured_again(
    it: Toy,
    uninterrupted: tuple[dict[int, Record], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records, whole = uninterrupted
    for chunk in ("moments", "fit-0001", "test-000016"):
        again = it.elsewhere(tmp_path / chunk)
        with monkeypatch.context() as patch:
            kill_after(patch, whole.index(chunk) + 1 + 3 * (chunk == "moments"))
            with pytest.raises(Killed):
                again.measure()
        damage(again.folder / "partial" / journal_key(again.request, range(3)) / f"{chunk}.chunk")
        assert same(again.measure(), records)
        assert any("damaged" in line for line in again.said), again.said


def test_a_checkpoint_of_too_few_layers_is_left_alone(
    it: Toy, uninterrupted: tuple[dict[int, Record], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layer 0 is fitted, the fit of the others begins anew, and then the fit of layer 0 turns out damaged."""
    records, whole = uninterrupted
    again = it.elsewhere(tmp_path / "again")
    chunks = again.folder / "partial" / journal_key(again.request, range(3))
    for writes, damaged in ((whole.index("fit-0000") + 1, "moments"), (2, "fit-0000")):
        with monkeypatch.context() as patch:
            kill_after(patch, writes)
            with pytest.raises(Killed):
                again.measure()
        damage(chunks / f"{damaged}.chunk")
    assert same(again.measure(), records)


def test_a_damaged_record_is_measured_again(it: Toy, whole: dict[int, Record], tmp_path: Path) -> None:
    again = it.elsewhere(tmp_path / "again")
    again.measure()
    damage(again.folder / "records" / f"{whole[1].key}.evidence")
    assert same(again.measure(), whole)
    assert again.loads == 2
    assert any("damaged" in line for line in again.said), again.said


def damage(file: Path) -> None:
    """Flip a bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("memory", [1e-6, 64.0])
def test_memory_moves_no_number(it: Toy, whole: dict[int, Record], tmp_path: Path, memory: float) -> None:
    """Smaller steps round differently, and that is all."""
    found = it.elsewhere(tmp_path / "again").measure(memory=memory)
    for layer, record in whole.items():
        assert found[layer].key == record.key
        for name in ("nll", "nll_variant", "residual", "total"):
            np.testing.assert_allclose(found[layer].arrays[name], record.arrays[name], rtol=1e-5, atol=1e-5)
