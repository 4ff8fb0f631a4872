"""What a record of a precision below float32 says of it: losses and costs in both, by an independent forward pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import ModelError
from harness.evidence import Record, Store
from harness.experiments import near_linearity
from harness.experiments.fitting import LayerFit
from harness.experiments.measurement import from_records
from harness.experiments.near_linearity import measure
from harness.experiments.precision import LOW, measure_drift
from harness.models.loading import Subject, load
from harness.models.sources import resolve_model
from harness.protocol import LINEAR, MEAN
from harness.tests.experiment_example import BUDGET, Toy, blocks, next_token_nll, toy

LAYERS = [0, 2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A toy in float32, small enough for one chunk of windows to be a part of its test text."""
    return toy(tmp_path_factory.mktemp("precision"), budget=replace(BUDGET, variants=(LINEAR, MEAN)))


def low(whole: Toy, dtype: str) -> Subject:
    """The toy's model in another precision."""
    return load(resolve_model(str(whole.folder.parent / "model")), whole.request.model, dtype=dtype)


def measured(whole: Toy, subject: Subject, folder: Path, reference: Callable[[], Subject] | None) -> dict[int, Record]:
    dtype = str(subject.dtype).removeprefix("torch.")
    return measure(
        replace(whole.request, dtype=dtype),
        LAYERS,
        subject=lambda: subject,
        store=Store(folder, report=pytest.fail),
        cache=folder / "cache",
        memory=4.0,
        progress=lambda what, done, of: None,
        log=pytest.fail,
        reference=reference,
    )


def spied(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[int, LayerFit], list[list[np.ndarray]]]:
    """The fits of the next measurement, and the windows of each of its chunks."""
    fits: dict[int, LayerFit] = {}
    windows: list[list[np.ndarray]] = []
    fit, chunk = near_linearity.fit_layers, near_linearity._chunk

    def keep_fits(*args: Any, **kwargs: Any) -> dict[int, LayerFit]:
        fits.update(fit(*args, **kwargs))
        return fits

    def keep_windows(*args: Any) -> dict[str, np.ndarray]:
        windows.append(args[4])
        return chunk(*args)

    monkeypatch.setattr(near_linearity, "fit_layers", keep_fits)
    monkeypatch.setattr(near_linearity, "_chunk", keep_windows)
    return fits, windows


@pytest.mark.parametrize("dtype", LOW)
def test_drift_is_that_of_a_plain_forward_pass(
    dtype: str, whole: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, windows = spied(monkeypatch)
    subject = low(whole, dtype)
    records = measured(whole, subject, tmp_path, lambda: whole.subject)
    first, *others, again = windows
    assert others  # the drift is of a part of the test text
    assert [ids.tolist() for ids in again] == [ids.tolist() for ids in first]
    tokens = sum(len(ids) - 1 for ids in first)
    for layer in LAYERS:
        loss = records[layer].arrays["drift"]
        assert records[layer].coordinates["precision"] == [dtype, "float32"]
        assert records[layer].arrays["drift_tokens"] == tokens
        for row, it in enumerate((subject, whole.subject)):
            exact = row == 1
            close = {"rel": 1e-6} if exact else {"abs": 2e-2}  # the engine's padding moves a low precision's last bits

            def mean(model: Any = it.model) -> float:
                return float(np.concatenate([next_token_nll(model, ids) for ids in first]).mean())

            assert loss[row, 0] == pytest.approx(mean(), **close)
            surrogate = fits[layer].surrogates[LINEAR]
            mlp = blocks(it.model)[layer].mlp
            with mlp.register_forward_hook(lambda _, x, y, s=surrogate: s(x[0])):
                assert loss[row, 1] == pytest.approx(mean(), **close)
        assert (loss[0] != loss[1]).all()  # and so there is something to tell
        kept = {name: records[layer].arrays[name][..., :tokens] for name in ("nll", "nll_variant")}
        assert loss[0, 0] == pytest.approx(kept["nll"].astype(float).mean())
        assert loss[0, 1] == pytest.approx(kept["nll_variant"][0].astype(float).mean())


def test_the_measurement_tells_costs_in_both_precisions(whole: Toy, tmp_path: Path) -> None:
    records = measured(whole, low(whole, "bfloat16"), tmp_path, lambda: whole.subject)
    told = from_records(replace(whole.request, dtype="bfloat16"), records)["drift"]
    assert json.loads(json.dumps(told)) == told
    (base, linear), (base32, linear32) = records[2].arrays["drift"]
    assert (told["dtype"], told["loss"], told["loss32"]) == ("bfloat16", base, base32)
    assert told["cost"][1] == pytest.approx(np.exp(linear - base) - 1)
    assert told["cost32"][1] == pytest.approx(np.exp(linear32 - base32) - 1)


def test_the_same_model_twice_has_no_drift(whole: Toy, tmp_path: Path) -> None:
    subject = low(whole, "bfloat16")
    for record in measured(whole, subject, tmp_path, lambda: subject).values():
        assert np.array_equal(record.arrays["drift"][0], record.arrays["drift"][1])


def test_a_record_says_why_its_drift_is_not_known(whole: Toy, tmp_path: Path) -> None:
    def too_large() -> Subject:
        raise ModelError("tiny needs 9.0 GiB in float32 on cpu, of which 1.0 GiB are free; add --dtype bfloat16")

    records = measured(whole, low(whole, "bfloat16"), tmp_path, too_large)
    assert "drift" not in records[0].arrays
    assert from_records(replace(whole.request, dtype="bfloat16"), records)["drift"] == {
        "dtype": "bfloat16",
        "why_not": "tiny needs 9.0 GiB in float32 on cpu, of which 1.0 GiB are free",
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_record_of_full_precision_is_as_it_was(dtype: str, whole: Toy, tmp_path: Path) -> None:
    records = measured(whole, low(whole, dtype), tmp_path / "with", pytest.fail)
    before = measured(whole, low(whole, dtype), tmp_path / "without", None)
    assert records == before
    assert not {"drift", "drift_tokens"} & records[0].arrays.keys()
    assert "drift" not in from_records(replace(whole.request, dtype=dtype), records)


def test_a_run_that_was_killed_does_not_load_the_second_copy_again(
    whole: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = 0

    def reference() -> Subject:
        nonlocal loads
        loads += 1
        return whole.subject

    subject = low(whole, "bfloat16")
    with monkeypatch.context() as patched:
        patched.setattr(near_linearity, "_record", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            measured(whole, subject, tmp_path, reference)
    records = measured(whole, subject, tmp_path, reference)
    assert loads == 1
    assert (
        records[0].arrays["drift"] == measured(whole, subject, tmp_path / "new", reference)[0].arrays["drift"]
    ).all()


def test_losses_are_averaged_in_double_precision() -> None:
    nll = np.full(3_000_000, 16.1, dtype=np.float32)
    chunk = {"nll": nll, "nll_variant": nll[None, None]}
    drift = measure_drift("float16", chunk, chunk, 0)
    assert drift.base == pytest.approx(float(np.float32(16.1)), rel=1e-12)
    assert drift.cost == drift.cost32 == 0
