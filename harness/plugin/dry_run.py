"""What a run would measure, without measuring it: tokens, time, memory and disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from tabulate import tabulate

from harness.errors import WanamakerError
from harness.experiments.request import Request, stored
from harness.run import Run

_GIB = 2**30


def describe(run: Run, models: Sequence[str]) -> Iterator[str]:
    """Lines for the terminal. Nothing is downloaded: of a model or corpus that is not here, the line says so."""
    speed = _flops_per_second()
    rows = []
    for model in models:
        for corpus in _corpora(run, model):
            rows.append([run.source(model).name, corpus, *_row(run, model, corpus, speed)])
    heads = ["model", "corpus", "layers to do", "test tokens", "minutes", "memory GiB", "disk MB"]
    yield from tabulate(rows, heads, floatfmt=".1f", disable_numparse=False).splitlines()
    yield f"minutes: arithmetic at {speed / 1e9:.0f} GFLOP/s, a matrix product timed just now; nothing was measured"


def _corpora(run: Run, model: str) -> list[str]:
    return [source.name for source in run.corpora(model)]


def _row(run: Run, model: str, corpus: str, speed: float) -> list[object]:
    source = next(s for s in run.corpora(model) if s.name == corpus)
    if run.source(model).kind == "hub" or source.kind == "hub":
        return ["not known before it is downloaded", "", "", "", ""]
    try:
        request = run.request(model, source)
        layers = run.layers(model)
        missing = len(layers) - len(stored(run.store, request, layers))
    except WanamakerError as error:
        return [f"error: {error}", "", "", "", ""]
    if not missing:
        return [0, 0, 0.0, 0.0, 0.0]
    flops, memory, disk, tokens = needs(request, missing)
    return [missing, tokens, flops / speed / 60, memory / _GIB, disk / 1e6]


def needs(request: Request, layers: int) -> tuple[float, float, float, int]:
    """Floating-point operations, bytes of memory, bytes of disk, and evaluated tokens, for `layers` layers."""
    m, b = request.model, request.budget
    d, L, V = m.width, m.layers, len(request.variants)
    block, head = 2 * 12 * d * d, 2 * d * m.vocabulary
    tokens = max(b.test, b.documents * min(b.context, b.test // max(b.documents, 1)))
    evaluate = tokens * layers * V * (block * L / 2 + head)
    fit = (b.fit + b.select) * (block * L + layers * 2 * 2 * d * d * 2)  # float64 counts twice
    weights = 4 * (m.parameters or 12 * d * d * L + d * m.vocabulary)
    moments = layers * 8 * 4 * d * d * 3
    disk = layers * tokens * 4 * (V + 2) * 2 + moments
    return evaluate + fit, weights + moments + 0.8 * _GIB, disk, tokens


def _flops_per_second() -> float:
    """Speed of a float32 matrix product, the best of three."""
    a = np.ones((1024, 1024), dtype=np.float32)
    best = float("inf")
    for _ in range(4):
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    return 2 * 1024**3 / best
