"""Fit every surrogate of every layer from one pass over the fitting text.

The rows (positions) of the `fit` split are read as one stream: first those of every other document (half a), then
those of the rest (half b). First positions are set aside, because a few of their rows can dominate least squares
(SmolLM2-135M, layer 28: output norm 14,453 against 199). One stream then serves every fit, at equal numbers of rows:

    linear              rows 1..N, first positions left out
    linear_with_first   the F first positions and rows 1..N−F
    linear_half_a, _b   rows 1..N/2 and N/2+1..N: two independent fits at half the sample

A protocol that fits on first positions has them in the stream, among the rows, and no `linear_with_first`; one that
splits by lines has a stream of one part, the lines in reading order, whose halves are its first and its last rows.

Penalties are chosen on the `select` split by held-out squared error in closed form, without forward passes.
`linear_with_first` takes the penalty of `linear`, so that the two differ by the rows alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from harness.corpora import Windows
from harness.errors import CorpusError, MeasurementError
from harness.evidence import Journal
from harness.models.loading import Subject
from harness.protocol import LINEAR, LINEAR_HALF_A, LINEAR_HALF_B, LINEAR_WITH_FIRST, Protocol
from harness.substitution import stream_mlps
from harness.surrogates import LinearSurrogate, RidgeStatistics, choose_lambda

CURVE = (8, 4, 2, 1)
"""The curve over N: held-out R² of fits on N/8, N/4, N/2 and N rows."""
_BATCH_WINDOWS = 8
_CHECKPOINT_SECONDS = 60.0

Progress = Callable[[str, float, float], None]
"""(what is going on, done, of how much)."""


@dataclass(frozen=True)
class LayerFit:
    """The fitted surrogates of one layer and how they were chosen."""

    surrogates: dict[str, LinearSurrogate]
    """One for each linear fit."""
    mean: Tensor
    """Mean MLP output over rows 1..N, (d,) float32."""
    curve: np.ndarray
    """(4,) R² on the select split of the fits on N/8, N/4, N/2 and N rows."""
    first_norm: float
    """Mean norm of the MLP's output at first positions."""
    other_norm: float
    """Mean norm of the MLP's output at the other positions."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything as arrays, for a checkpoint."""
        named = {
            "mean": self.mean.numpy(),
            "curve": self.curve,
            "norms": np.array([self.first_norm, self.other_norm]),
        }
        for name, s in self.surrogates.items():
            named |= {
                f"{name}.W": s.W.numpy(),
                f"{name}.b": s.b.numpy(),
                f"{name}.n": np.array([s.lam, s.count]),
            }
        return named

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> LayerFit:
        """The inverse of `arrays`."""
        names = [name.removesuffix(".W") for name in arrays if name.endswith(".W")]

        def surrogate(name: str) -> LinearSurrogate:
            lam, count = arrays[f"{name}.n"]
            W, b = (torch.from_numpy(arrays[f"{name}.{part}"].copy()) for part in "Wb")
            return LinearSurrogate(W, b, float(lam), int(count))

        first, other = arrays["norms"]
        mean = torch.from_numpy(arrays["mean"].copy())
        return cls({n: surrogate(n) for n in names}, mean, arrays["curve"], float(first), float(other))


@dataclass
class _Rows:
    """What one layer has shown so far: moments of half a and half b, and the few rows that are used two ways."""

    d: int
    a: RidgeStatistics = field(init=False)
    b: RidgeStatistics = field(init=False)
    first: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    tail: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    norm_: float = 0.0
    curve: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.a, self.b = RidgeStatistics(self.d, self.d), RidgeStatistics(self.d, self.d)

    def arrays(self) -> dict[str, np.ndarray]:
        named = {f"a.{k}": v for k, v in self.a.arrays().items()} | {f"b.{k}": v for k, v in self.b.arrays().items()}
        for name in ("first", "tail"):
            for part, rows in zip("xy", _stack(getattr(self, name), self.d), strict=True):
                named[f"{name}.{part}"] = rows.numpy()
        return named | {"norm_": np.array(self.norm_), "curve": np.array(self.curve)}

    @classmethod
    def from_arrays(cls, d: int, arrays: Mapping[str, np.ndarray]) -> _Rows:
        self = cls(d)
        self.a = RidgeStatistics.from_arrays(_under("a.", arrays))
        self.b = RidgeStatistics.from_arrays(_under("b.", arrays))
        for name in ("first", "tail"):
            x, y = (torch.from_numpy(arrays[f"{name}.{part}"].copy()) for part in "xy")
            setattr(self, name, [(x, y)] if len(x) else [])
        self.norm_ = float(arrays["norm_"])
        self.curve = arrays["curve"].tolist()
        return self


def rows_available(parts: Sequence[Windows], budget_rows: int, protocol: Protocol) -> int:
    """N: the rows that every part can supply an equal share of, at most the budget's, at least 8 for the curve's sake.

    A multiple of 8 where there are two parts, so that both halves have as many.
    """
    N = min(budget_rows, len(parts) * min(_rows(part, protocol) for part in parts))
    N -= N % 8 if len(parts) > 1 else 0
    if N < 8:
        raise CorpusError("the fit split holds fewer than 8 positions; give a longer text or more documents")
    return N


def fit_layers(
    subject: Subject,
    parts: Sequence[Windows],
    select: Windows,
    layers: Sequence[int],
    *,
    rows: int,
    protocol: Protocol,
    journal: Journal,
    progress: Progress,
) -> dict[int, LayerFit]:
    """Fit every surrogate of `layers` on `rows` (N) rows, as many of each part, penalties chosen on `select`.

    A fit that was finished before a kill is read back from `journal`; one that was not goes on from a checkpoint.
    """
    saved = {layer: journal.read(f"fit-{layer:04d}") for layer in layers}
    fits = {layer: LayerFit.from_arrays(arrays) for layer, arrays in saved.items() if arrays is not None}
    left = [layer for layer in layers if layer not in fits]
    if not left:
        return fits
    held_out = _moments(subject, select, left, progress)
    stream = _Stream(subject, parts, left, rows, held_out, protocol)
    stream.restore(journal)
    last = time.monotonic()
    for position in stream:
        progress("fitting", position, rows)
        if time.monotonic() - last > _CHECKPOINT_SECONDS and position < rows:
            stream.checkpoint(journal)
            last = time.monotonic()
    for layer in left:
        fits[layer] = stream.finish(layer)
        journal.write(f"fit-{layer:04d}", fits[layer].arrays())
    return fits


class _Stream:
    """The stream of fitting rows, batch by batch; iterating yields how many rows have been read."""

    def __init__(
        self,
        subject: Subject,
        parts: Sequence[Windows],
        layers: Sequence[int],
        rows: int,
        held_out: Mapping[int, RidgeStatistics],
        protocol: Protocol,
    ) -> None:
        self.subject, self.layers, self.N, self.held_out, self.protocol = subject, layers, rows, held_out, protocol
        self.parts = [_enough(part, rows // len(parts), protocol) for part in parts]
        self.windows = [window for part in self.parts for window in part]
        self.F = 0 if protocol.first_positions else len(self.windows)
        """How many first positions there are that are set aside."""
        if rows < 2 * self.F:
            raise CorpusError("the fit split's windows are too short for a fit with first positions")
        self.state = {layer: _Rows(subject.anatomy.width) for layer in layers}
        self.batch = 0
        self.position = 0

    def __iter__(self) -> Iterator[int]:
        plan = self._plan()
        while self.batch < len(plan):
            self._read(plan[self.batch])
            self.batch += 1
            yield self.position

    def _plan(self) -> list[tuple[int, int, int]]:
        """Batches of windows: the first, one past the last, and where rows end; none spans two parts."""
        plan, first = [], 0
        for i, part in enumerate(self.parts, 1):
            end = first + len(part)
            bounds = [*range(first, end, _BATCH_WINDOWS), end]
            plan += [(start, stop, self.N * i // len(self.parts)) for start, stop in itertools.pairwise(bounds)]
            first = end
        return plan

    def _read(self, span: tuple[int, int, int]) -> None:
        first, end, limit = span
        ids, keep = _padded(self.windows[first:end], first_positions=self.protocol.first_positions)
        start, stop = self.position, min(self.position + int(keep.sum()), limit)
        later = (torch.arange(keep.shape[1]) > 0).expand_as(keep)[keep]  # of the rows, those after first positions

        def visit(layer: int, x: Tensor, y: Tensor) -> None:
            state = self.state[layer]
            x, y = x.cpu(), y.cpu()
            state.first.append((x[:, 0].float().clone(), y[:, 0].float().clone()))
            rest_x, rest_y = x[keep][: stop - start], y[keep][: stop - start]
            state.norm_ += float(rest_y[later[: stop - start]].double().norm(dim=1).sum())
            self._add(layer, state, start, rest_x, rest_y)

        stream_mlps(self.subject, ids, visit, self.layers)
        self.position = stop

    def _add(self, layer: int, state: _Rows, start: int, x: Tensor, y: Tensor) -> None:
        """Add rows start.. of the stream, cut where the curve over N is drawn and where the tail begins."""
        N, stop = self.N, start + len(x)
        cuts = [N // part for part in CURVE[:3]] + [N - self.F, N]
        bounds = sorted({start, stop, *(cut for cut in cuts if start < cut < stop)})
        for low, high in itertools.pairwise(bounds):
            part = slice(low - start, high - start)
            if low >= N - self.F:
                state.tail.append((x[part].float().clone(), y[part].float().clone()))
            else:
                (state.a if low < N // 2 else state.b).update(x[part], y[part])
            if high in cuts[:3]:
                state.curve.append(self._r2(layer, state.a))

    def _r2(self, layer: int, statistics: RidgeStatistics) -> float:
        return self.held_out[layer].r2(self._solve(layer, statistics))

    def _solve(self, layer: int, statistics: RidgeStatistics, lam: float | None = None) -> LinearSurrogate:
        """The fit with penalty `lam`, by default the one that does best on `select`."""
        try:
            if lam is None:
                lam = self._penalty(statistics, self.held_out[layer])
            return statistics.solve(lam)
        except MeasurementError as error:
            raise MeasurementError(f"layer {layer}: {error}") from None

    def _penalty(self, statistics: RidgeStatistics, held_out: RidgeStatistics) -> float:
        """The penalty of the protocol's grid that does best on the held-out rows, or the only one."""
        grid = self.protocol.ridge_grid
        if self.protocol.ridge_scaled:
            return choose_lambda(statistics, held_out, grid).lam
        return min(grid, key=lambda lam: held_out.squared_error(statistics.solve(lam))) if len(grid) > 1 else grid[0]

    def finish(self, layer: int) -> LayerFit:
        """The surrogates of a layer, once all rows are read. Lets the layer's moments go."""
        state = self.state.pop(layer)
        d = state.d
        head = state.a + state.b  # rows 1..N−F
        b = state.b.update(*_stack(state.tail, d))
        full = state.a + b
        first_x, first_y = _stack(state.first, d)
        surrogates = {
            LINEAR: self._solve(layer, full),
            LINEAR_HALF_A: self._solve(layer, state.a),
            LINEAR_HALF_B: self._solve(layer, b),
        }
        if not self.protocol.first_positions:
            with_first = head.update(first_x, first_y)
            surrogates[LINEAR_WITH_FIRST] = self._solve(layer, with_first, surrogates[LINEAR].lam)
        curve = np.array([*state.curve, self.held_out[layer].r2(surrogates[LINEAR])])
        first_norm = float(first_y.double().norm(dim=1).mean())
        later = self.N - (len(self.windows) if self.protocol.first_positions else 0)
        return LayerFit(surrogates, full.mean_y.float(), curve, first_norm, state.norm_ / later)

    def checkpoint(self, journal: Journal) -> None:
        """Write the state between two batches, so that a killed run repeats at most what came after."""
        arrays = {"cursor": np.array([self.batch, self.position]), "layers": np.array(self.layers)}
        for layer, state in self.state.items():
            arrays |= {f"{layer}:{name}": array for name, array in state.arrays().items()}
        journal.write("moments", arrays)

    def restore(self, journal: Journal) -> None:
        """Go on from the last checkpoint, where there is one of these layers."""
        arrays = journal.read("moments")
        if arrays is None or not set(self.layers) <= set(arrays["layers"].tolist()):
            return
        self.batch, self.position = (int(n) for n in arrays["cursor"])
        d = self.subject.anatomy.width
        self.state = {layer: _Rows.from_arrays(d, _under(f"{layer}:", arrays)) for layer in self.layers}


def _moments(
    subject: Subject, windows: Windows, layers: Sequence[int], progress: Progress
) -> dict[int, RidgeStatistics]:
    """Moments of all rows of `windows` but the first positions, by layer."""
    d = subject.anatomy.width
    moments = {layer: RidgeStatistics(d, d) for layer in layers}
    for start in range(0, len(windows), _BATCH_WINDOWS):
        progress("reading the select split", start, len(windows))
        ids, keep = _padded(windows.ids[start : start + _BATCH_WINDOWS])

        def visit(layer: int, x: Tensor, y: Tensor, keep: Tensor = keep) -> None:
            moments[layer].update(x.cpu()[keep], y.cpu()[keep])

        stream_mlps(subject, ids, visit, layers)
    return moments


def _rows(windows: Windows, protocol: Protocol) -> int:
    """How many rows of a fit windows hold."""
    return windows.targets + (len(windows) if protocol.first_positions else 0)


def _enough(windows: Windows, rows: int, protocol: Protocol) -> list[np.ndarray]:
    """Windows in turns over the documents, until they hold `rows` rows."""
    turn: dict[int, int] = {}
    order = []
    for index, document in enumerate(windows.document):
        order.append((turn.setdefault(int(document), 0), index))
        turn[int(document)] += 1
    chosen, held = [], 0
    for _, index in sorted(order):
        if held >= rows:
            break
        chosen.append(windows.ids[index])
        held += len(windows.ids[index]) - (0 if protocol.first_positions else 1)
    return chosen


def _padded(windows: Sequence[np.ndarray], *, first_positions: bool = False) -> tuple[Tensor, Tensor]:
    """ids (B, T) padded with 0 on the right, and which positions are rows of a fit: inside the window and, unless
    `first_positions`, not the first.
    """
    T = max(len(window) for window in windows)
    ids = torch.zeros(len(windows), T, dtype=torch.long)
    keep = torch.zeros(len(windows), T, dtype=torch.bool)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = torch.from_numpy(window.astype(np.int64))
        keep[row, 0 if first_positions else 1 : len(window)] = True
    return ids, keep


def _stack(rows: Sequence[tuple[Tensor, Tensor]], d: int) -> tuple[Tensor, Tensor]:
    if not rows:
        return torch.zeros(0, d), torch.zeros(0, d)
    return torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows])


def _under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
