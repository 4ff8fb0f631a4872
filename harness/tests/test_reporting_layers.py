"""The layer table against plain arithmetic on the sums, and against the families behind the verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.reporting.layers import layer_table
from harness.statistics.families import captured, cost_family
from harness.tests.reporting_example import DEPTH, measurement


def naive_cost(m: dict, variant: str, row: int) -> float:
    """exp(mean ΔNLL) − 1, written out."""
    return math.exp(sum(m["delta"][variant][row]) / sum(d["targets"] for d in m["documents"])) - 1


def test_costs_r2_and_perplexity_are_those_of_the_sums() -> None:
    m = measurement()
    t = layer_table(m)
    for variant in m["variants"]:
        assert t.cost[variant] == pytest.approx([naive_cost(m, variant, row) for row in range(DEPTH)])
    assert t.perplexity == pytest.approx(math.exp(3.2))
    assert t.tokens == sum(d["targets"] for d in m["documents"])
    assert t.r2["linear"] == pytest.approx([0.75] * DEPTH)
    assert t.r2["linear_with_first"] == pytest.approx([0.6] * DEPTH)


def test_intervals_are_those_of_the_claims() -> None:
    m = measurement()
    t = layer_table(m, seed=3)
    tokens = np.array([d["targets"] for d in m["documents"]], dtype=float)
    ids = [d["id"] for d in m["documents"]]
    families = {v: cost_family(m["layers"], np.array(m["delta"][v]), tokens, ids, seed=3) for v in ("linear", "mean")}
    np.testing.assert_array_equal(t.cost_interval, families["linear"].interval())
    share = captured(families["linear"], families["mean"])
    np.testing.assert_array_equal(t.captured_interval, share.interval())
    assert not np.array_equal(t.cost_interval, layer_table(m, seed=4).cost_interval)
    assert (t.cost_interval[:, 0] < t.cost["linear"]).all()
    assert (t.cost["linear"] < t.cost_interval[:, 1]).all()
    # wider than one layer's own, as they hold for all six at once
    assert np.median(np.diff(t.cost_interval)) / 2 > 1.96 * t.standard_error


def test_a_share_is_given_only_where_there_is_an_effect() -> None:
    m = measurement()
    t = layer_table(m)
    assert t.captured is not None
    assert t.captured_interval is not None
    assert list(np.isnan(t.captured)) == [False] * 5 + [True]
    assert np.isnan(t.captured_interval[5]).all()
    loss = {v: sum(m["delta"][v][1]) for v in ("linear", "mean")}
    assert t.captured[1] == pytest.approx(1 - loss["linear"] / loss["mean"])


def test_the_variance_over_refits_comes_from_the_halves() -> None:
    m = measurement()
    a, b = (naive_cost(m, f"linear_half_{half}", 1) for half in "ab")
    refit = layer_table(m).refit
    assert refit is not None
    assert refit[1] == pytest.approx(abs(a - b) / math.sqrt(2))
    m["variants"].remove("linear_half_b")
    assert layer_table(m).refit is None


def test_exactly_affine_mlps_cost_nothing_and_keep_everything() -> None:
    m = measurement()
    m["delta"]["linear"] = [[0.0] * len(m["documents"])] * DEPTH
    t = layer_table(m)
    assert t.captured is not None
    assert (t.cost["linear"] == 0).all()
    assert (t.cost_interval == 0).all()
    assert (t.captured[:5] == 1).all()


def test_some_layers_and_few_variants() -> None:
    m = measurement()
    keep = [1, 4]
    m["layers"] = keep
    m["delta"] = {"linear": [m["delta"]["linear"][layer] for layer in keep]}
    m["variants"] = ["linear"]
    m["squares"] = None
    m["fit"].update(curve=None, first_norm=None, other_norm=None)
    t = layer_table(m)
    assert t.layers == (1, 4)
    assert t.depth == DEPTH
    assert (t.captured, t.captured_interval, t.refit, t.curve, t.first_norm) == (None,) * 5
    assert t.cost_interval.shape == (2, 2)


@pytest.mark.parametrize("D", [1, 2, 3])
def test_few_documents_give_no_false_precision(D: int) -> None:
    t = layer_table(measurement(D=D))
    width = np.diff(t.cost_interval)
    assert (np.isnan(width) | (width > 0)).all()
    assert D > 1 or np.isnan(t.cost_interval).all()
