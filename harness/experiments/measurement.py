"""From Records to the measurement dict: per-document sums, the least from which every statistic follows.

Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.evidence import Record
from harness.experiments.request import NEAR_LINEARITY, Request


def from_records(request: Request, records: Mapping[int, Record]) -> dict[str, Any]:
    """The sums per document of the records of one model on one corpus (layer -> Record), ready for JSON."""
    layers = sorted(records)
    some = records[layers[0]]
    document = some.arrays["window_document"]
    targets = some.arrays["targets"]
    D = len(targets)

    def by_document(values: np.ndarray) -> np.ndarray:
        """(..., targets) -> (..., D), summed in float64."""
        per_window = _sum_by(some.arrays["window"], values.astype(np.float64), len(document))
        return _sum_by(document, per_window, D)

    delta: dict[str, list[list[float]]] = {variant: [] for variant in request.variants}
    squares: dict[str, dict[str, list[list[float]]]] = {
        fit: {"residual": [], "total": []} for fit in some.coordinates["fit"]
    }
    for layer in layers:
        record = records[layer].arrays
        change = by_document(record["nll_variant"].astype(np.float64) - record["nll"].astype(np.float64))
        for variant, sums in zip(request.variants, change, strict=True):
            delta[variant].append(sums.tolist())
        total = _sum_by(document, record["total"], D).tolist()
        for fit, residual in zip(some.coordinates["fit"], record["residual"], strict=True):
            squares[fit]["residual"].append(_sum_by(document, residual, D).tolist())
            squares[fit]["total"].append(total)
    N = int(some.arrays["rows"])
    windows = some.arrays["windows"].tolist()
    return {
        "experiment": NEAR_LINEARITY,
        "model": request.model.name,
        "corpus": request.corpus.source.name,
        "depth": request.model.layers,
        "layers": layers,
        "variants": list(request.variants),
        "documents": [
            {"id": id, "name": name, "targets": int(n)}
            for id, name, n in zip(some.coordinates["document"], some.provenance["names"], targets, strict=True)
        ],
        "nll": by_document(some.arrays["nll"]).tolist(),
        "delta": delta,
        "squares": squares,
        "fit": {
            "rows": N,
            "documents": int(some.arrays["documents_fit"]),
            "penalty": {
                fit: [float(records[layer].arrays["penalty"][j]) for layer in layers]
                for j, fit in enumerate(some.coordinates["fit"])
            },
            "curve": {
                "rows": [N // 8, N // 4, N // 2, N],
                "r2": [records[layer].arrays["curve"].tolist() for layer in layers],
            },
            "first_norm": [float(records[layer].arrays["norms"][0]) for layer in layers],
            "other_norm": [float(records[layer].arrays["norms"][1]) for layer in layers],
        },
        "windows": {
            "context": request.budget.context,
            **dict(zip(("fit", "select", "test"), windows, strict=True)),
            "bos": " ".join(str(i) for i in some.arrays["bos"]) or None,
            "unit": request.protocol.unit,
        },
        "records": [records[layer].key for layer in layers],
        "seconds": max(records[layer].provenance["seconds"] for layer in layers),
        "device": some.provenance["device"],
        "versions": dict(some.provenance["versions"]),
        **_drift(request.dtype, [records[layer] for layer in layers]),
    }


def _drift(dtype: str, records: Sequence[Record]) -> dict[str, Any]:
    """How far a precision below float32 moved losses and costs, or why that is not known; nothing in float32."""
    why_not = next((r.provenance["drift"] for r in records if "drift" in r.provenance), None)
    if why_not is not None:
        return {"drift": {"dtype": dtype, "why_not": why_not}}
    if not all("drift" in record.arrays for record in records):
        return {}
    losses = np.stack([record.arrays["drift"] for record in records])  # (L, precision, mlp)
    cost, cost32 = np.expm1(losses[:, :, 1] - losses[:, :, 0]).T.tolist()
    return {
        "drift": {
            "dtype": dtype,
            "tokens": int(records[0].arrays["drift_tokens"]),
            "loss": float(losses[0, 0, 0]),
            "loss32": float(losses[0, 1, 0]),
            "cost": cost,
            "cost32": cost32,
        }
    }


def _sum_by(group: np.ndarray, values: np.ndarray, groups: int) -> np.ndarray:
    """Sum the last axis of values (..., n) by group (n,) -> (..., groups)."""
    flat = values.reshape(-1, values.shape[-1])
    summed = np.stack([np.bincount(group, weights=row, minlength=groups) for row in flat])
    return summed.reshape(*values.shape[:-1], groups)
