"""The measurements of a report as Markdown: layer tables, controls, the curve over fitting rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
from harness.reporting.escape import text
from harness.reporting.layers import Floats, LayerTable, layer_table
from harness.reporting.numbers import NOTHING, count, duration, interval, number, percent, plural
from harness.reporting.tables import listed, table

MEANINGS = {
    LINEAR: (
        "linear",
        "one affine map a layer, fitted by ridge regression to the MLP's inputs and outputs; first positions are left "
        "out of the fit. This is the map that the verdicts are about.",
    ),
    LINEAR_WITH_FIRST: (
        "with first",
        "the same map fitted on as many rows, first positions among them. Where it costs far more than *linear*, a few "
        "huge outputs at first positions have spoilt the fit, and the layer is not to be called nonlinear for it.",
    ),
    LINEAR_FIRST_KEPT: (
        "first kept",
        "*linear*, with the true MLP kept at first positions. Where it costs far less than *linear*, the damage comes "
        "from replacing the first positions.",
    ),
    LINEAR_HALF_A: (
        "half a",
        "*linear* fitted on half as many rows, from one half of the fitting documents. Where it costs more than "
        "*linear*, the map still wants data.",
    ),
    LINEAR_HALF_B: (
        "half b",
        "the same from the other half of the documents: the difference between the halves is the chance in a fit.",
    ),
    MEAN: (
        "mean",
        "mean ablation: the MLP's output is replaced by its average. Where it costs as little as *linear*, the layer "
        "is cheap because it is unimportant, not because it is linear.",
    ),
    ZERO: ("zero", "zero ablation: the MLP is cut out. A second measure of how much the layer matters at all."),
    FOLDED: (
        "folded",
        "the MLP's own two weight matrices multiplied, its activation dropped, nothing fitted. Where it costs much "
        "more than *linear*, the fitted map is another map than the one in the weights.",
    ),
}
"""Table head and meaning of each variant."""


def section(measurements: Sequence[Mapping[str, Any]]) -> str:
    """All measurements: what the columns mean, once, then the tables of each model on each corpus."""
    if not measurements:
        return "No measurement was made."
    used = [variant for variant in MEANINGS if any(variant in m["variants"] for m in measurements)]
    legend = [f"- **{MEANINGS[v][0]}**: {MEANINGS[v][1]}" for v in used]
    if any(m.get("squares") for m in measurements):
        legend.append(
            "- **R²**: share of the variance of the MLP's output, at positions after the first of the test documents, "
            "that the map explains. It weighs every direction alike; the loss does not."
        )
    if MEAN in used:
        legend.append(
            "- **captured**: 1 − (loss with *linear* − loss) / (loss with *mean* − loss): the share of the MLP's "
            "effect on the loss that the map keeps; 100 % is a perfect stand-in, 0 % no better than the average "
            "output. Given only where the interval of the denominator excludes 0."
        )
    parts = ["\n".join(["Each column of costs replaces the MLP of one layer, at all positions, by:", "", *legend])]
    parts += [_measurement(m) for m in measurements]
    return "\n\n".join(parts)


def _measurement(m: Mapping[str, Any]) -> str:
    t = layer_table(m)
    parts = [f"### {text(t.model)} on {text(t.corpus)}", _sample(m, t), _costs(t), _fits(t), _readings(t), _curve(t)]
    return "\n\n".join(part for part in parts if part)


def _sample(m: Mapping[str, Any], t: LayerTable) -> str:
    which = f"all {t.depth} layers" if len(t.layers) == t.depth else f"{len(t.layers)} of {t.depth} layers"
    windows, fit = m["windows"], m["fit"]
    start = f"windows begin with {text(windows['bos'])}" if windows.get("bos") else "windows begin with their own text"
    fitted = f"{count(fit['rows'])} rows" + (
        f" from {plural(fit['documents'], 'document')}" if fit.get("documents") else ""
    )
    return (
        f"Evaluated: {plural(t.documents, 'test document')}, {plural(t.tokens, 'token')} with a target, windows of at "
        f"most {count(windows['context'])} tokens ({start}); {which}. Perplexity of the intact model: "
        f"{number(t.perplexity)}. Maps fitted on {fitted}. Measured in {duration(m.get('seconds'))}."
    )


def _costs(t: LayerTable) -> str:
    order = [v for v in MEANINGS if v in t.cost and v != LINEAR]
    heads = ["layer", "linear", "95 % interval", *(MEANINGS[v][0] for v in order)]
    rows = []
    for i, layer in enumerate(t.layers):
        ends = None if t.cost_interval is None else [100 * end for end in t.cost_interval[i]]
        costs = [percent(t.cost[v][i]) for v in order]
        rows.append([str(layer), percent(t.cost[LINEAR][i]), interval(ends), *costs])
    caption = "**Cost in percent of perplexity.** The intervals hold for all layers of the column at once."
    if t.cost_interval is None:
        caption = "**Cost in percent of perplexity.** Too few documents for intervals."
    return f"{caption}\n\n{table(heads, rows)}"


def _fits(t: LayerTable) -> str:
    columns: list[tuple[str, list[str]]] = []
    notes = []
    if t.captured is not None:
        columns.append(("captured, %", [percent(value) for value in t.captured]))
        if t.captured_interval is not None:
            ends = [[100 * end for end in pair] for pair in t.captured_interval]
            columns.append(("95 % interval", [interval(pair) for pair in ends]))
        if bare := [str(t.layers[i]) for i in np.flatnonzero(np.isnan(t.captured))]:
            notes.append(
                f"{NOTHING}: the interval of the effect of mean ablation does not exclude 0 in "
                f"{'layer' if len(bare) == 1 else 'layers'} {listed(bare)}, so there is no effect to have a share of."
            )
    heads = {LINEAR: "R²", LINEAR_WITH_FIRST: "R² with first"}
    columns += [(heads.get(v, f"R² {text(v)}"), [number(value, 3) for value in r2]) for v, r2 in t.r2.items()]
    if t.first_norm is not None:
        columns.append(("output norm, first", [number(value) for value in t.first_norm]))
    if t.other_norm is not None:
        columns.append(("output norm, others", [number(value) for value in t.other_norm]))
    if not columns:
        return ""
    rows = [[str(layer), *(cells[i] for _, cells in columns)] for i, layer in enumerate(t.layers)]
    body = table(["layer", *(head for head, _ in columns)], rows)
    return "\n\n".join(["**How good the map is, and how large the MLP's output is at first and other positions.**", body, *notes])


def _curve(t: LayerTable) -> str:
    if t.curve is None:
        return ""
    heads = ["layer", *(f"N = {count(rows)}" for rows in t.curve_rows)]
    rows = [[str(layer), *(number(value, 3) for value in t.curve[i])] for i, layer in enumerate(t.layers)]
    return (
        "**R² over the number of fitting rows N**, on the documents kept for choices. Where the last steps still "
        f"rise, the cost of that layer is partly a cost of too little data.\n\n{table(heads, rows)}"
    )


def _readings(t: LayerTable) -> str:
    """What the controls say here, a sentence each; point estimates, so that nobody takes them for verdicts."""
    linear = t.cost[LINEAR]
    lines = []
    for variant, words in ((LINEAR_WITH_FIRST, "fitted with first positions"), (LINEAR_FIRST_KEPT, "first positions kept")):
        if variant in t.cost:
            lines.append(_furthest(t, variant, words))
    if t.refit is not None:
        lines.append(_refit_line(t))
    for variant, words in ((MEAN, "mean ablation"), (ZERO, "zero ablation"), (FOLDED, "the folded map")):
        if variant in t.cost:
            cheaper = np.flatnonzero(t.cost[variant] < linear)
            where = f" ({_layers(t, cheaper)})" if len(cheaper) else ""
            lines.append(f"- {words} costs less than *linear* in {len(cheaper)} of {len(t.layers)} layers{where}.")
    return "\n".join(["Read from the table (point estimates, no verdicts):", "", *lines]) if lines else ""


def _furthest(t: LayerTable, variant: str, words: str) -> str:
    linear, other = t.cost[LINEAR], t.cost[variant]
    # In log perplexity, so that a change from 17 to 767 % counts for more than one from 22,000 to 23,000 %.
    i = int(np.argmax(np.abs(np.log1p(other) - np.log1p(linear))))
    return (
        f"- {words}: furthest from *linear* in layer {t.layers[i]}, {percent(other[i])} % against "
        f"{percent(linear[i])} %."
    )


def _refit_line(t: LayerTable) -> str:
    assert t.refit is not None
    i = int(np.argmax(t.refit))
    line = (
        f"- chance in the fit: at half of the rows, the standard deviation of a layer's cost over refits is "
        f"{percent(float(np.median(t.refit)))} points (median over layers; largest in layer {t.layers[i]}, "
        f"{percent(t.refit[i])} points)"
    )
    if t.half_width is None:
        return line + "."
    return line + f"; half the width of one layer's interval is {percent(t.half_width)} points (median)."


def _layers(t: LayerTable, where: Floats, most: int = 8) -> str:
    named = [str(t.layers[int(i)]) for i in where]
    if len(named) > most:
        return f"{', '.join(named[:most])} and {len(named) - most} more"
    return listed(named)
