"""Near-linearity: what it costs to replace each MLP by a linear map, with the controls that give a cost its meaning.

One pass over the `fit` split fits every surrogate (`fitting`); then, chunk by chunk of `test` windows, one base pass
and every variant of every layer from that layer's residual on. Each chunk goes to the journal, so a run that is
killed repeats at most one; when all are there, each layer becomes a Record. Source: the paper's section 3.1 and
Table 3, by the rules of the request's protocol.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.errors import WanamakerError
from harness.evidence import Journal, Record, Store, key
from harness.experiments.fitting import LayerFit, Progress, fit_layers
from harness.experiments.layout import Layout
from harness.experiments.precision import LOW, Drift, measure_drift
from harness.experiments.request import NEAR_LINEARITY, Request, stored
from harness.models.loading import Subject
from harness.protocol import FOLDED, LINEAR, LINEAR_FIRST_KEPT, MEAN, ZERO
from harness.substitution import MEMORY_TOKENS, Layer, base_pass, batches, variant_nll

_GIB = 2**30


def measure(
    request: Request,
    layers: Sequence[int],
    *,
    subject: Callable[[], Subject],
    store: Store,
    cache: Path,
    memory: float,
    progress: Progress,
    log: Callable[[str], None],
    reference: Callable[[], Subject] | None = None,
) -> dict[int, Record]:
    """Measure those of `layers` that the store lacks, and return the records of all of them.

    `subject` loads the model and is called only if something is missing once the lock is held. `memory` is in GiB.
    `reference` loads it in float32, to be held against a precision below that; where it raises, the records say why.
    Two processes that ask for the same thing do not both measure: the second waits, then finds the records.

    Raises
    ------
    CorpusError
        Where a split has too little text.
    MeasurementError
        Where a loss is not finite.
    """
    settings = request.settings()

    def waiting(seconds: float) -> None:
        if seconds == 0:
            log(f"waiting for another run that measures {request.model.name} on {request.corpus.source.name}")

    with store.lock(key(NEAR_LINEARITY, settings), waiting):
        records = stored(store, request, layers)
        missing = [layer for layer in layers if layer not in records]
        if missing:
            home = journal_key(request, layers)
            begun = _begun(store.partial(home).cuts(), missing)
            journal = store.partial(home, {"layers": begun})
            for record in _sweep(request, begun, subject(), journal, cache, memory, progress, reference):
                if record.settings["layer"] in missing:
                    store.put(record)
                    records[record.settings["layer"]] = record
            journal.clear()
    return {layer: records[layer] for layer in layers}


def journal_key(request: Request, layers: Sequence[int]) -> str:
    """Where the chunks are of a run that wants these layers: apart from those of a run that wants others."""
    return key(NEAR_LINEARITY, {**request.settings(), "layers": sorted(layers)})


def _begun(cuts: Sequence[Mapping[str, Any]], missing: Sequence[int]) -> list[int]:
    """The layers to measure: those of the chunks that are there, if they have all that is missing, else these.

    They have more than that where a run was killed while it wrote its records, one by one.
    """
    enough = [list(cut["layers"]) for cut in cuts if set(missing) <= set(cut["layers"])]
    return min(enough, key=len, default=list(missing))


def _sweep(
    request: Request,
    layers: Sequence[int],
    subject: Subject,
    journal: Journal,
    cache: Path,
    memory: float,
    progress: Progress,
    reference: Callable[[], Subject] | None,
) -> list[Record]:
    started = time.time()
    label = f"{request.model.name} on {request.corpus.source.name}"
    layout = Layout.of(request, subject, cache)

    def told(what: str, done: float, of: float) -> None:
        progress(f"{label}: {what}", done, of)

    fits = fit_layers(
        subject,
        layout.fit,
        layout.select,
        layers,
        rows=layout.rows,
        protocol=request.protocol,
        journal=journal,
        progress=told,
    )
    per_token = _bytes_per_position(request)
    memory_tokens = max(request.budget.context, min(MEMORY_TOKENS, int(memory * _GIB / per_token)))
    chunks = []
    step = request.windows_per_chunk
    for start in range(0, len(layout.test), step):
        told("evaluating", start, len(layout.test))
        name = f"test-{start:06d}"
        arrays = journal.read(name)
        if arrays is None:
            arrays = _chunk(
                subject, fits, layers, request.variants, layout.test.ids[start : start + step], memory_tokens
            )
            journal.write(name, arrays)
        chunks.append(arrays)
    told("evaluating", len(layout.test), len(layout.test))
    drift: Drift | str | None = None
    if reference is not None and request.dtype in LOW:
        told("evaluating in float32", 0, 1)
        drift = _drift(request, fits, layers, layout.test.ids[:step], chunks[0], reference, journal, memory_tokens)
    provenance = _provenance(subject, time.time() - started)
    if isinstance(drift, str):
        provenance["drift"], drift = drift, None
    return [
        _record(request, layout, fits[layer], chunks, i, layer, provenance, drift) for i, layer in enumerate(layers)
    ]


def _drift(
    request: Request,
    fits: Mapping[int, LayerFit],
    layers: Sequence[int],
    windows: Sequence[np.ndarray],
    low: Mapping[str, np.ndarray],
    reference: Callable[[], Subject],
    journal: Journal,
    memory_tokens: int,
) -> Drift | str:
    """The first chunk (`low`) held against one of the model in float32, or why it could not be."""
    full = journal.read("float32")
    if full is None:
        try:
            full = _chunk(reference(), fits, layers, (LINEAR,), windows, memory_tokens)
        except WanamakerError as error:
            return str(error).partition(";")[0]  # what would help there is no help here
        journal.write("float32", full)
    return measure_drift(request.dtype, low, full, request.variants.index(LINEAR))


def _chunk(
    subject: Subject,
    fits: Mapping[int, LayerFit],
    layers: Sequence[int],
    variants: Sequence[str],
    windows: Sequence[np.ndarray],
    memory_tokens: int,
) -> dict[str, np.ndarray]:
    """Every variant of every layer on a few windows.

    Returns nll (targets,), nll_variant (layers, variants, targets), and residual and total (layers, linear fits or
    one, windows): squared error and spread of the MLP's output, first positions left out.
    """
    counts = [len(window) - 1 for window in windows]
    offsets = np.cumsum([0, *counts])
    fitted = [v for v in variants if v in fits[layers[0]].surrogates]
    nll = np.empty(offsets[-1], dtype=np.float32)
    changed = np.empty((len(layers), len(variants), offsets[-1]), dtype=np.float32)
    residual = np.empty((len(layers), len(fitted), len(windows)))
    total = np.empty((len(layers), len(windows)))
    for index, ids, lengths in batches(windows, memory_tokens):
        base = base_pass(subject, ids, lengths, layers)
        places = [np.arange(offsets[i], offsets[i + 1]) for i in index]

        def spread(values: Tensor, out: np.ndarray, places: list[np.ndarray] = places) -> None:
            for row, place in enumerate(places):
                out[..., place] = values[..., row, : len(place)].cpu().numpy()

        spread(base.nll, nll)
        inside = torch.arange(1, ids.shape[1]) < lengths[:, None]  # (B, T−1): positions after the first
        for i, layer in enumerate(layers):
            seen = base.layers[layer]
            outputs = torch.stack([substitute(subject, fits[layer], layer, v, seen) for v in variants])
            spread(
                variant_nll(subject, base, layer, outputs, names=variants, memory_tokens=memory_tokens),
                changed[i],
            )
            true = seen.y.cpu().double()[:, 1:] * inside[..., None]
            for j, variant in enumerate(fitted):
                error = (outputs[variants.index(variant)].cpu().double()[:, 1:] * inside[..., None] - true).square()
                residual[i, j, index] = error.sum((1, 2)).numpy()
            about = (true - fits[layer].mean.double() * inside[..., None]).square()
            total[i, index] = about.sum((1, 2)).numpy()
    return {"nll": nll, "nll_variant": changed, "residual": residual, "total": total}


def substitute(subject: Subject, fit: LayerFit, layer: int, variant: str, seen: Layer) -> Tensor:
    """What a variant puts in place of the MLP's output (B, T, d)."""
    x, y = seen.x, seen.y
    if variant in fit.surrogates:
        return fit.surrogates[variant].to(x.device)(x)
    if variant == LINEAR_FIRST_KEPT:
        out = fit.surrogates[LINEAR].to(x.device)(x)
        out[:, 0] = y[:, 0]
        return out
    if variant == MEAN:
        return fit.mean.to(y).expand_as(y)
    if variant == ZERO:
        return torch.zeros_like(y)
    if variant == FOLDED:
        folded = subject.anatomy.folded(layer)
        assert folded is not None, "a request has no `folded` where the MLP is gated"
        W, b = folded
        return torch.nn.functional.linear(x, W.to(x), b.to(x))
    raise ValueError(f"no variant {variant!r}")


def _record(
    request: Request,
    layout: Layout,
    fit: LayerFit,
    chunks: Sequence[Mapping[str, np.ndarray]],
    row: int,
    layer: int,
    provenance: Mapping[str, Any],
    drift: Drift | None,
) -> Record:
    test, corpus = layout.test, request.corpus
    used = test.documents  # indices into the corpus, ascending
    place = np.searchsorted(used, test.document)
    targets = np.array([len(window) - 1 for window in test.ids])
    fitted = [v for v in request.variants if v in fit.surrogates]
    penalties = [fit.surrogates[v].lam for v in fitted]
    return Record(
        NEAR_LINEARITY,
        request.layer_settings(layer),
        arrays={
            "nll": np.concatenate([c["nll"] for c in chunks]),
            "nll_variant": np.concatenate([c["nll_variant"][row] for c in chunks], axis=-1),
            "window": np.repeat(np.arange(len(test)), targets),
            "window_document": place,
            "window_start": test.start,
            "residual": np.concatenate([c["residual"][row] for c in chunks], axis=-1),
            "total": np.concatenate([c["total"][row] for c in chunks], axis=-1),
            "penalty": np.array(penalties),
            "curve": fit.curve,
            "norms": np.array([fit.first_norm, fit.other_norm]),
            "rows": np.array(layout.rows),
            "documents_fit": np.array(sum(len(part.documents) for part in layout.fit)),
            "windows": np.array([sum(map(len, layout.fit)), len(layout.select), len(test)]),
            "targets": np.bincount(place, weights=targets, minlength=len(used)).astype(np.int64),
            "bos": np.array(layout.leading, dtype=np.int64),
            **({} if drift is None else drift.arrays(row)),
        },
        axes={
            "nll": ("target",),
            "nll_variant": ("variant", "target"),
            "window": ("target",),
            "window_document": ("window",),
            "window_start": ("window",),
            "residual": ("fit", "window"),
            "total": ("window",),
            "penalty": ("fit",),
            "curve": ("rows",),
            "norms": ("position",),
            "rows": (),
            "documents_fit": (),
            "windows": ("split",),
            "targets": ("document",),
            "bos": ("leading",),
            **({} if drift is None else {"drift": ("precision", "mlp"), "drift_tokens": ()}),
        },
        coordinates={
            "variant": list(request.variants),
            "fit": fitted,
            "position": ["first", "other"],
            "split": ["fit", "select", "test"],
            "document": [corpus.documents[i].id for i in used],
            **({} if drift is None else {"precision": [drift.dtype, "float32"], "mlp": ["full", LINEAR]}),
        },
        provenance={**provenance, "names": [corpus.documents[i].name for i in used]},
    )


def _bytes_per_position(request: Request) -> float:
    """Memory of one position on its way through a block: some 24 vectors of width d and the widest product."""
    return 4.0 * (24 * request.model.width)


def _provenance(subject: Subject, seconds: float) -> dict[str, Any]:
    import transformers

    device = torch.cuda.get_device_name() if subject.device.type == "cuda" else subject.device.type
    if subject.device_map:
        device += f", model spread over {' and '.join(sorted(set(subject.device_map.values())))}"
    return {
        "seconds": round(seconds, 3),
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
    }
