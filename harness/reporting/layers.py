"""The layer table of one model on one corpus: costs, controls and fit of every measured layer.

Everything is recomputed from the per-document sums that report.json carries, with the statistics that the
claims use; so the table cannot disagree with the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.protocol import LINEAR, LINEAR_HALF_A, LINEAR_HALF_B, MEAN
from harness.statistics.families import Family, captured, cost_family
from harness.statistics.resampling import multiplicities

Floats = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True)
class LayerTable:
    """One row a measured layer; L rows. Costs and shares are fractions, not percent."""

    model: str
    corpus: str
    depth: int
    """Layers that the model has; L may be fewer."""
    layers: tuple[int, ...]
    documents: int
    """Test documents."""
    choices: str
    """What choices were made on, in words."""
    tokens: int
    """Test tokens that have a target."""
    perplexity: float
    """Of the intact model on the same tokens."""
    cost: Mapping[str, Floats]
    """(L,) for each variant: relative change of perplexity."""
    cost_interval: Floats
    """(L, 2) simultaneous interval of the linear map's cost; NaN where documents are too few for one."""
    unpaired_interval: Floats | None
    """(L, 2) interval of the linear map's cost as the paper's author made it; where documents are lines, as his."""
    standard_error: float
    """Standard error of a cost over test documents, the median over layers."""
    captured: Floats | None
    """(L,) share of the MLP's effect captured; NaN where the effect's interval does not exclude 0."""
    captured_interval: Floats | None
    """(L, 2), simultaneous over the layers that have one."""
    r2: Mapping[str, Floats]
    """(L,) held-out R² of the MLP's output for each fitted map, positions after the first."""
    curve_rows: tuple[int, ...]
    """Fitting rows at which R² was measured, K of them."""
    curve: Floats | None
    """(L, K) R² on the documents for choices."""
    first_norm: Floats | None
    """(L,) mean norm of the MLP's output at first positions."""
    other_norm: Floats | None
    """(L,) the same at all other positions."""
    refit: Floats | None
    """(L,) standard deviation of a cost over refits, from the two halves of the fitting documents."""


def layer_table(measurement: Mapping[str, Any], seed: int = 0) -> LayerTable:
    """Recompute the layer table of a measurement dict (see `harness.reporting.shape`).

    `seed` is that of the run's resampling weights, so that intervals are the ones that the claims saw.
    """
    tokens = np.array([document["targets"] for document in measurement["documents"]], dtype=np.float64)  # (D,)
    delta = {v: np.array(measurement["delta"][v], dtype=np.float64) for v in measurement["variants"]}  # (L, D)
    cost = {variant: np.expm1(sums.sum(axis=1) / tokens.sum()) for variant, sums in delta.items()}
    linear, mean = (_family(measurement, delta[v], tokens, seed) if v in delta else None for v in (LINEAR, MEAN))
    assert linear is not None  # `parse_budget` refuses a budget without it
    share = captured(linear, mean) if mean is not None else None
    fit = measurement["fit"]
    curve = fit.get("curve") or {}
    return LayerTable(
        model=measurement["model"],
        corpus=measurement["corpus"],
        depth=measurement["depth"],
        layers=tuple(measurement["layers"]),
        documents=len(tokens),
        choices="the first of the test lines" if by_line(measurement) else "the documents kept for choices",
        tokens=int(tokens.sum()),
        perplexity=float(np.exp(np.sum(measurement["nll"]) / tokens.sum())),
        cost=cost,
        r2={variant: _r2(squares) for variant, squares in (measurement.get("squares") or {}).items()},
        curve_rows=tuple(curve.get("rows") or ()),
        curve=_column(curve.get("r2")),
        first_norm=_column(fit.get("first_norm")),
        other_norm=_column(fit.get("other_norm")),
        refit=_refit(cost),
        cost_interval=_bounded(linear.interval(LEVEL)),
        unpaired_interval=_unpaired(measurement, delta[LINEAR], tokens, seed) if by_line(measurement) else None,
        standard_error=_standard_error(linear),
        captured=None if share is None else np.where(share.known, share.values, np.nan),
        captured_interval=None if share is None else _bounded(share.interval(LEVEL)),
    )


def by_line(measurement: Mapping[str, Any]) -> bool:
    """Whether the documents of a measurement are single lines."""
    return measurement["windows"].get("unit") == "line"


def _unpaired(measurement: Mapping[str, Any], sums: Floats, tokens: Floats, seed: int) -> Floats:
    """(L, 2) 95 % percentiles of the perplexity with the map over resampled lines, by the one perplexity without it.

    How the paper's intervals were made. That the same lines are hard for both models does not cancel, so they are far
    too wide; that neighbouring lines are alike is ignored, so they are too narrow.
    """
    base = np.array(measurement["nll"], dtype=np.float64)
    weights = multiplicities((len(tokens),), seed)  # (B, D)
    drawn = np.exp(weights @ (base + sums).T / (weights @ tokens)[:, None])  # (B, L)
    ends: Floats = np.percentile(drawn, [2.5, 97.5], axis=0).T / np.exp(base.sum() / tokens.sum()) - 1
    return ends


def _r2(squares: Mapping[str, Any]) -> Floats:
    residual, total = (np.array(squares[part], dtype=np.float64).sum(axis=1) for part in ("residual", "total"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, 1 - residual / total, np.nan)


def _refit(cost: Mapping[str, Floats]) -> Floats | None:
    """The halves share no document, so half of their squared difference estimates the variance of one fit. (One
    difference a layer: only its mean square over layers says much.)"""
    if LINEAR_HALF_A not in cost or LINEAR_HALF_B not in cost:
        return None
    return np.abs(cost[LINEAR_HALF_A] - cost[LINEAR_HALF_B]) / np.sqrt(2)


def _column(values: Any) -> Floats | None:
    """Numbers of the JSON, null as NaN."""
    return np.array(values, dtype=np.float64) if values else None


def _family(measurement: Mapping[str, Any], sums: Floats, tokens: Floats, seed: int) -> Family:
    documents = [document["id"] for document in measurement["documents"]]
    return cost_family(measurement["layers"], sums, tokens, documents, seed=seed)


def _bounded(intervals: Floats) -> Floats:
    """NaN in place of intervals without an end: a cost between -100 % and infinity tells nothing."""
    return np.where(np.isfinite(intervals).all(axis=1, keepdims=True), intervals, np.nan)


def _standard_error(costs: Family) -> float:
    """Median over layers of the standard error of a cost, over documents."""
    return float(np.median([costs.at(layer).se for layer in costs.names]))
