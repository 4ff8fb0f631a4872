"""The measurements of a report as Markdown: layer tables, controls, the curve over fitting rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.numbers import NOTHING, count, duration, number, percent, percent_in, plural
from harness.protocol import FOLDED, LINEAR, LINEAR_FIRST_KEPT, LINEAR_WITH_FIRST, MEAN, ZERO
from harness.reporting.escape import text
from harness.reporting.layers import LayerTable, layer_table
from harness.reporting.tables import listed, table
from harness.reporting.words import CAPTURED, COLUMNS, MEANINGS, NORM, R2, UNPAIRED


def section(measurements: Sequence[Mapping[str, Any]], seed: int = 0) -> str:
    """All measurements: what the columns mean, once, then the tables of each model on each corpus."""
    if not measurements:
        return "No measurement was made."
    return "\n\n".join([_legend(measurements), *(_measurement(m, seed) for m in measurements)])


def _legend(measurements: Sequence[Mapping[str, Any]]) -> str:
    used = {variant for m in measurements for variant in m["variants"]}
    meanings = [(COLUMNS[variant], MEANINGS[variant]) for variant in COLUMNS if variant in used]
    if MEAN in used:
        meanings.append(("captured", CAPTURED))
    if any(m.get("squares") for m in measurements):
        meanings.append(("R²", R2))
    if any(m["fit"].get("first_norm") for m in measurements):
        meanings.append(("output norm", NORM))
    intro = "A column of costs replaces the MLP of one layer, at all positions; the columns are:"
    return "\n".join([intro, "", *(f"- **{name}**: {meaning}" for name, meaning in meanings)])


def _measurement(m: Mapping[str, Any], seed: int) -> str:
    t = layer_table(m, seed)
    head = f"### {text(t.model)} on {text(t.corpus)}"
    return "\n\n".join(filter(None, [head, _sample(m, t), _drift(m, t), _costs(t), _readings(t), _fits(t), _curve(t)]))


def _sample(m: Mapping[str, Any], t: LayerTable) -> str:
    fit, windows = m["fit"], m["windows"]
    which = f"all {t.depth} layers" if len(t.layers) == t.depth else f"{len(t.layers)} of {t.depth} layers"
    start = f"beginning with {text(windows['bos'])}" if windows.get("bos") else "with nothing put in front"
    unit = windows.get("unit") or "document"
    source = f" from {plural(fit['documents'], unit)}" if fit.get("documents") else ""
    return (
        f"{plural(t.documents, f'test {unit}')} with {plural(t.tokens, 'token')} that have a target, in "
        f"windows of at most {plural(windows['context'], 'token')} {start}; {which}. The intact model's "
        f"perplexity is {number(t.perplexity)}. Maps were fitted on {plural(fit['rows'], 'row')}{source}. "
        f"The measurement took {duration(m.get('seconds'))}."
    )


def _drift(m: Mapping[str, Any], t: LayerTable) -> str:
    """How far a precision below float32 moved the numbers; nothing to say in float32."""
    drift = m.get("drift")
    if not drift:
        return ""
    dtype = text(drift["dtype"])
    if drift.get("why_not") is not None:
        return f"How far {dtype} moves these numbers against float32 was not measured: {text(drift['why_not'])}."
    cost, cost32 = np.array(drift["cost"]), np.array(drift["cost32"])
    i = int(np.argmax(np.abs(cost - cost32)))
    return (
        f"Computed in {dtype}. On the first {plural(drift['tokens'], 'token')}, in float32 with the same maps, the "
        f"intact model's loss is {drift['loss32']:.4f} nats against {drift['loss']:.4f} in {dtype}, and the cost that "
        f"differs most is that of layer {t.layers[i]}: {percent(cost32[i])} % against {percent(cost[i])} %."
    )


def _costs(t: LayerTable) -> str:
    order = [variant for variant in COLUMNS if variant in t.cost and variant != LINEAR]
    rows = []
    for i, layer in enumerate(t.layers):
        linear = [*percent_in(t.cost[LINEAR][i], t.cost_interval[i])]
        if t.unpaired_interval is not None:
            linear.append(percent_in(t.cost[LINEAR][i], t.unpaired_interval[i])[1])
        rows.append([str(layer), *linear, *(percent(t.cost[variant][i]) for variant in order)])
    told = "95 % intervals that hold for all layers at once; the other columns are point estimates."
    if not np.isfinite(t.cost_interval).any():
        told = f"{plural(t.documents, 'document')} {'gives' if t.documents == 1 else 'give'} no interval."
    heads = ["layer", COLUMNS[LINEAR], "95 % interval", *(COLUMNS[variant] for variant in order)]
    if t.unpaired_interval is not None:
        heads.insert(3, "as the paper's")
        told += f" {UNPAIRED}"
    return f"**Cost, in percent of perplexity.** {told[0].upper()}{told[1:]}\n\n{table(heads, rows)}"


def _readings(t: LayerTable) -> str:
    """What the controls show, a sentence each; said to be point estimates, lest they pass for verdicts."""
    lines = []
    for variant in (LINEAR_WITH_FIRST, LINEAR_FIRST_KEPT):
        if variant in t.cost:
            lines.append(_furthest(t, variant))
    for variant in (MEAN, ZERO, FOLDED):
        if variant in t.cost:
            lines.append(_cheaper(t, variant))
    if t.refit is not None:
        lines.append(_refit(t))
    if not lines:
        return ""
    return "\n".join(["What the controls show here (read off the point estimates; no verdicts):", "", *lines])


def _furthest(t: LayerTable, variant: str) -> str:
    linear, other = t.cost[LINEAR], t.cost[variant]
    # On the scale of the loss, where 17 against 767 % is further than 22,000 against 23,000 %.
    i = int(np.argmax(np.abs(np.log1p(other) - np.log1p(linear))))
    return (
        f"- *{COLUMNS[variant]}* is furthest from *linear* in layer {t.layers[i]}: {percent(other[i])} % "
        f"against {percent(linear[i])} %."
    )


def _cheaper(t: LayerTable, variant: str) -> str:
    less = t.cost[variant] < t.cost[LINEAR]
    found = [layer for layer, cheaper in zip(t.layers, less, strict=True) if cheaper]
    if not found:
        return f"- *{COLUMNS[variant]}* costs no less than *linear* in any layer."
    where = f"{_layers(found)} ({len(found)} of {len(t.layers)})"
    return f"- *{COLUMNS[variant]}* costs less than *linear* in {where}."


def _refit(t: LayerTable) -> str:
    assert t.refit is not None
    i = int(np.argmax(t.refit))
    typical = float(np.sqrt(np.mean(np.square(t.refit))))
    line = (
        "- Chance in the fit, at half of the rows: the standard deviation of a layer's cost over refits "
        f"is {percent(typical)} points (root mean square over layers; most of it from layer {t.layers[i]}, where the "
        f"two fits differ by {percent(t.refit[i] * np.sqrt(2))} points)"
    )
    if np.isfinite(t.standard_error):
        own = percent(t.standard_error)
        line += f". For scale: the standard error that the test documents leave is {own} points (median over layers)"
    return line + "."


def _fits(t: LayerTable) -> str:
    columns: list[tuple[str, list[str]]] = []
    note = ""
    if t.captured is not None and t.captured_interval is not None:
        shown = [percent_in(value, ends) for value, ends in zip(t.captured, t.captured_interval, strict=True)]
        columns.append(("captured, %", [value for value, _ in shown]))
        columns.append(("95 % interval", [ends for _, ends in shown]))
        if bare := [layer for layer, value in zip(t.layers, t.captured, strict=True) if np.isnan(value)]:
            note = (
                f"{NOTHING} The interval of the effect of mean ablation does not exclude 0 in "
                f"{_layers(bare)}: there is no sure effect to have a share of."
            )
    for variant, r2 in t.r2.items():
        head = "R²" if variant == LINEAR else f"R² {COLUMNS.get(variant, text(variant))}"
        columns.append((head, [number(value, 3) for value in r2]))
    for head, norms in (("output norm, first", t.first_norm), ("others", t.other_norm)):
        if norms is not None:
            columns.append((head, [number(value) for value in norms]))
    if not columns:
        return ""
    rows = [[str(layer), *(cells[i] for _, cells in columns)] for i, layer in enumerate(t.layers)]
    body = table(["layer", *(head for head, _ in columns)], rows)
    return "\n\n".join(filter(None, ["**How good the map is, and the size of the MLP's output.**", body, note]))


def _curve(t: LayerTable) -> str:
    if t.curve is None:
        return ""
    heads = ["layer", *(f"N = {count(rows)}" for rows in t.curve_rows)]
    rows = [[str(layer), *(number(value, 3) for value in t.curve[i])] for i, layer in enumerate(t.layers)]
    return (
        f"**R² of *linear* over the number N of fitting rows**, on {t.choices}. Where "
        "the last step still rises, a part of that layer's cost is the cost of too little "
        f"data.\n\n{table(heads, rows)}"
    )


def _layers(layers: Sequence[int], most: int = 8) -> str:
    """``layer 5``, ``layers 1, 2 and 5``; the end of a long list is counted."""
    named = [str(layer) for layer in layers[:most]]
    if len(layers) > most:
        named.append(f"{len(layers) - most} more")
    return f"{'layer' if len(layers) == 1 else 'layers'} {listed(named)}"
