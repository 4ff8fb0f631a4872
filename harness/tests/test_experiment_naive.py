"""The whole near-linearity experiment against the same thing written down naively.

Windows one at a time, rows by plain hooks, fits by scikit-learn, and every variant as a full forward pass of the
model with the `forward` of one MLP replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from harness.corpora import Windows, make_windows, tokenize
from harness.evidence import Record
from harness.experiments.measurement import from_records
from harness.protocol import (
    FOLDED,
    LINEAR,
    LINEAR_FIRST_KEPT,
    LINEAR_HALF_A,
    LINEAR_HALF_B,
    LINEAR_WITH_FIRST,
    MEAN,
    ZERO,
)
from harness.tests.experiment_example import LAYERS, Toy, blocks, next_token_nll, toy

FITS = (LINEAR, LINEAR_WITH_FIRST, LINEAR_HALF_A, LINEAR_HALF_B)
Rows = tuple[np.ndarray, np.ndarray]
"""x (n, d) and y (n, d) of one layer's MLP, float64."""


@dataclass(frozen=True)
class Naive:
    """What the docstring of `harness.experiments.fitting` promises, row by row."""

    stream: list[Rows]
    """Rows 1..N by layer: half a then half b, first positions left out."""
    first: list[Rows]
    """The F rows at first positions, by layer."""
    select: list[Rows]
    """Rows of the select split, first positions left out, by layer."""
    test: Windows

    def rows(self, fit: str, layer: int) -> Rows:
        x, y = self.stream[layer]
        N, F = len(x), len(self.first[layer][0])
        if fit == LINEAR_WITH_FIRST:
            first_x, first_y = self.first[layer]
            return np.concatenate([x[: N - F], first_x]), np.concatenate([y[: N - F], first_y])
        cut = {LINEAR: slice(N), LINEAR_HALF_A: slice(N // 2), LINEAR_HALF_B: slice(N // 2, N)}[fit]
        return x[cut], y[cut]


@pytest.fixture(scope="module", params=LAYERS)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A toy, its records, and the rows that a naive reader finds for them."""
    it = toy(tmp_path_factory.mktemp("toy"), request.param, bos=request.param == "llama")
    return it, it.measure(), naive(it)


def naive(it: Toy) -> Naive:
    corpus, budget, model = it.request.corpus, it.request.budget, it.subject.model
    tokens = tokenize(corpus, lambda: it.subject.tokenizer, "0" * 64, it.folder / "naive")
    order = sorted(range(len(corpus)), key=lambda i: corpus.documents[i].id)
    fit, select, test = order[:25], order[40:55], order[55:]

    def windows(documents: list[int], targets: int, least: int = 0) -> Windows:
        return make_windows(tokens, documents, context=budget.context, tokens=targets, min_documents=least)

    a, b = (windows(half, budget.fit // 2) for half in (fit[::2], fit[1::2]))
    N = min(budget.fit, 2 * a.targets, 2 * b.targets) // 8 * 8
    seen = [[one_by_one(model, in_turns(half, N // 2), layer) for half in (a, b)] for layer in layers(it)]
    stream = [join(rest(a_rows, N // 2), rest(b_rows, N // 2)) for a_rows, b_rows in seen]
    first = [join(firsts(a_rows), firsts(b_rows)) for a_rows, b_rows in seen]
    chosen = [one_by_one(model, windows(select, budget.select).ids, layer) for layer in layers(it)]
    return Naive(stream, first, [rest(rows) for rows in chosen], windows(test, budget.test, budget.documents))


def layers(it: Toy) -> range:
    return range(it.request.model.layers)


def in_turns(windows: Windows, rows: int) -> list[np.ndarray]:
    """A first window of every document, then a second of every one that has it, until there are enough rows."""
    by_document = [
        [ids for ids, d in zip(windows.ids, windows.document, strict=True) if d == document]
        for document in windows.documents
    ]
    turns = [d[k] for k in range(len(windows)) for d in by_document if k < len(d)]
    needed = next(n for n in range(len(turns) + 1) if sum(len(w) - 1 for w in turns[:n]) >= rows)
    return turns[:needed]


def one_by_one(model: Any, windows: list[np.ndarray], layer: int) -> list[Rows]:
    """x and y (T, d) of every position of each window, by a hook on the MLP."""
    caught: list[Rows] = []
    mlp = blocks(model)[layer].mlp
    hook = mlp.register_forward_hook(lambda _, args, y: caught.append((doubles(args[0]), doubles(y))))
    with torch.no_grad():
        for ids in windows:
            model(torch.from_numpy(ids.astype(np.int64))[None], use_cache=False)
    hook.remove()
    return caught


def doubles(x: Tensor) -> np.ndarray:
    return x[0].double().numpy()


def rest(windows: list[Rows], n: int | None = None) -> Rows:
    x, y = (np.concatenate([window[i][1:] for window in windows])[:n] for i in (0, 1))
    return x, y


def firsts(windows: list[Rows]) -> Rows:
    x, y = (np.concatenate([window[i][:1] for window in windows]) for i in (0, 1))
    return x, y


def join(a: Rows, b: Rows) -> Rows:
    return np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])


def penalty(record: Record, fit: str) -> float:
    return float(record.arrays["penalty"][record.coordinates["fit"].index(fit)])


def fitted(n: Naive, record: Record, fit: str, layer: int) -> Ridge:
    return Ridge(alpha=penalty(record, fit)).fit(*n.rows(fit, layer))


def squared_error(ridge: Ridge, rows: Rows) -> float:
    return float(((ridge.predict(rows[0]) - rows[1]) ** 2).sum())


@contextmanager
def replaced(mlp: nn.Module, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """The MLP with another forward, that gets the MLP's own as well."""
    mlp.forward = forward
    try:
        yield
    finally:
        del mlp.forward


def substitute(n: Naive, record: Record, variant: str, layer: int, mlp: Any) -> Callable[[Tensor], Tensor]:
    """x (1, T, d) -> what the variant puts in the place of the MLP's output."""
    own = mlp.forward
    if variant == ZERO:
        return torch.zeros_like
    if variant == MEAN:
        mean = torch.from_numpy(n.stream[layer][1].mean(0)).float()
        return lambda x: mean.expand_as(x)
    if variant == FOLDED:

        def folded(x: Tensor) -> Tensor:
            act, mlp.act = mlp.act, nn.Identity()
            try:
                return own(x)
            finally:
                mlp.act = act

        return folded
    ridge = fitted(n, record, LINEAR if variant == LINEAR_FIRST_KEPT else variant, layer)

    def linear(x: Tensor) -> Tensor:
        y = torch.from_numpy(ridge.predict(x[0].double().numpy())).float()[None]
        if variant == LINEAR_FIRST_KEPT:
            y[:, :1] = own(x)[:, :1]
        return y

    return linear


def test_every_loss_is_that_of_a_full_forward_pass(measured: tuple[Toy, dict[int, Record], Naive]) -> None:
    it, records, n = measured
    model = it.subject.model
    base = np.concatenate([next_token_nll(model, ids) for ids in n.test.ids])
    assert set(it.request.variants) >= {*FITS, LINEAR_FIRST_KEPT, MEAN, ZERO}
    for layer, record in records.items():
        np.testing.assert_allclose(record.arrays["nll"], base, rtol=0, atol=1e-5)
        mlp = blocks(model)[layer].mlp
        for variant, nll in zip(it.request.variants, record.arrays["nll_variant"], strict=True):
            with replaced(mlp, substitute(n, record, variant, layer, mlp)):
                expected = np.concatenate([next_token_nll(model, ids) for ids in n.test.ids])
            assert np.abs(expected - base).mean() > 0.01  # there is something to get wrong
            np.testing.assert_allclose(nll, expected, rtol=0, atol=1e-4, err_msg=f"{variant}, layer {layer}")


def test_penalties_and_the_curve_are_chosen_on_the_select_split(
    measured: tuple[Toy, dict[int, Record], Naive],
) -> None:
    it, records, n = measured
    for layer, record in records.items():
        select = n.select[layer]
        spread = float(((select[1] - select[1].mean(0)) ** 2).sum())

        def choose(rows: Rows, select: Rows = select) -> tuple[float, float]:
            """The penalty with the least squared error on `select`, and that error."""
            unit = rows[0].var(0).mean() * len(rows[0])
            penalties = [alpha * unit for alpha in it.request.protocol.ridge_grid]
            errors = [squared_error(Ridge(alpha=p).fit(*rows), select) for p in penalties]
            return penalties[int(np.argmin(errors))], min(errors)

        for fit in (LINEAR, LINEAR_HALF_A, LINEAR_HALF_B):
            assert penalty(record, fit) == pytest.approx(choose(n.rows(fit, layer))[0], rel=1e-5)
        assert penalty(record, LINEAR_WITH_FIRST) == penalty(record, LINEAR)
        x, y = n.stream[layer]
        assert record.arrays["rows"] == len(x)
        for r2, part in zip(record.arrays["curve"], (8, 4, 2, 1), strict=True):
            error = choose((x[: len(x) // part], y[: len(x) // part]))[1]
            assert r2 == pytest.approx(1 - error / spread, abs=1e-5)


def test_squared_errors_leave_first_positions_out(measured: tuple[Toy, dict[int, Record], Naive]) -> None:
    it, records, n = measured
    for layer, record in records.items():
        mean = n.stream[layer][1].mean(0)
        windows = [rest([rows]) for rows in one_by_one(it.subject.model, n.test.ids, layer)]
        total = [((y - mean) ** 2).sum() for _, y in windows]
        np.testing.assert_allclose(record.arrays["total"], total, rtol=1e-4)
        assert record.coordinates["fit"] == list(FITS)
        for fit, residual in zip(FITS, record.arrays["residual"], strict=True):
            expected = [squared_error(fitted(n, record, fit, layer), rows) for rows in windows]
            np.testing.assert_allclose(residual, expected, rtol=1e-3)


def test_norms_are_of_the_fitting_rows(measured: tuple[Toy, dict[int, Record], Naive]) -> None:
    _, records, n = measured
    for layer, record in records.items():
        norms = [np.linalg.norm(rows[layer][1], axis=1).mean() for rows in (n.first, n.stream)]
        np.testing.assert_allclose(record.arrays["norms"], norms, rtol=1e-5)


def test_the_measurement_sums_by_document(measured: tuple[Toy, dict[int, Record], Naive]) -> None:
    it, records, n = measured
    found = from_records(it.request, records)
    corpus = it.request.corpus
    base = [next_token_nll(it.subject.model, ids) for ids in n.test.ids]
    for place, document in enumerate(n.test.documents):
        own = [i for i, d in enumerate(n.test.document) if d == document]
        told = found["documents"][place]
        assert (told["id"], told["name"]) == (corpus.documents[document].id, corpus.documents[document].name)
        assert told["targets"] == sum(len(n.test.ids[i]) - 1 for i in own)
        assert found["nll"][place] == pytest.approx(sum(base[i].sum() for i in own), abs=1e-3)
        mlp = blocks(it.subject.model)[1].mlp
        with replaced(mlp, torch.zeros_like):
            without = sum(next_token_nll(it.subject.model, n.test.ids[i]).sum() for i in own)
        delta = without - sum(base[i].sum() for i in own)
        assert found["delta"][ZERO][1][place] == pytest.approx(delta, abs=1e-3)
        squares = found["squares"][LINEAR_HALF_B]
        row = FITS.index(LINEAR_HALF_B)
        assert squares["residual"][1][place] == pytest.approx(records[1].arrays["residual"][row, own].sum())
        assert squares["total"][1][place] == pytest.approx(records[1].arrays["total"][own].sum())
