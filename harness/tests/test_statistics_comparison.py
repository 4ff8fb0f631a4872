"""Comparison with a baseline: what got worse beyond noise, and what did not."""

import json

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from harness.errors import ReportError
from harness.statistics import DocumentSums, compare_to_baseline, cost_family, holm
from harness.statistics.comparison import TOLERANCE, tail_probability

D = 60
IDS = tuple(f"d{i:03d}" for i in range(D))
TOKENS = np.random.default_rng(0).integers(60, 240, D).astype(float)


def sums(seed, mean=0.02, noise=4.0):
    return mean * TOKENS + np.random.default_rng(seed).normal(0, noise, D)


def cost(values, ids=IDS):
    return DocumentSums(ids, TOKENS, {"a": values}).cost("a")


def layers(values, ids=IDS):
    return cost_family(range(len(values)), np.array(values), TOKENS, ids)


def test_the_same_numbers_are_not_worse():
    now = compare_to_baseline(cost(sums(1)), cost(sums(1)), +1)
    assert (now.difference, now.interval, now.p_value, now.paired) == (0.0, (0.0, 0.0), 1.0, True)
    family = layers([sums(1), sums(2), sums(3)])
    for bound in (family.maximum(), family.share_below(0.02), family.cheapest().advantage([1])):
        for direction in (+1, -1):
            same = compare_to_baseline(bound, bound, direction)
            assert (same.difference, same.p_value) == (0.0, 1.0)


def test_rounding_of_another_machine_is_not_a_change():
    moved = sums(1) + 0.5 * TOLERANCE * TOKENS  # the same for every document, so without any spread
    assert compare_to_baseline(cost(moved), cost(sums(1)), +1).p_value == 1.0
    assert compare_to_baseline(cost(sums(1) + 0.01 * TOKENS), cost(sums(1)), +1).p_value < 1e-6


@pytest.mark.parametrize("direction", [+1, -1])
def test_worse_is_up_or_down_as_told(direction):
    then = sums(2)
    worse = then + direction * 0.01 * TOKENS + sums(3, 0.0, 0.3)
    assert compare_to_baseline(cost(worse), cost(then), direction).p_value < 1e-4
    assert compare_to_baseline(cost(worse), cost(then), -direction).p_value > 0.999


def test_pairing_finds_what_independent_documents_would_not():
    then = sums(4, noise=8.0)
    now = then + 0.005 * TOKENS + sums(5, 0.0, 0.3)
    paired = compare_to_baseline(cost(now), cost(then), +1)
    other = compare_to_baseline(cost(now), cost(then, tuple(f"other{i}" for i in range(D))), +1)
    assert paired.paired
    assert paired.p_value < 0.001
    assert not other.paired
    assert other.p_value > 0.1
    assert other.difference == pytest.approx(paired.difference)


def test_refits_widen_unpaired_comparisons_only():
    then, elsewhere = cost(sums(6)), cost(sums(7), tuple(f"other{i}" for i in range(D)))
    plain, refitted = (compare_to_baseline(then, elsewhere, +1, v) for v in (0.0, 1e-4))
    half = [np.diff(c.interval)[0] / 2 for c in (plain, refitted)]
    assert half[1] / half[0] == pytest.approx(np.hypot((then - elsewhere).se, np.sqrt(2e-4)) / (then - elsewhere).se)
    same = compare_to_baseline(cost(sums(8)), then, +1, 1e-4)
    assert same.interval == compare_to_baseline(cost(sums(8)), then, +1).interval
    family, other = layers([sums(6)]), layers([sums(7)], tuple(f"other{i}" for i in range(D)))
    wide, narrow = (compare_to_baseline(family.maximum(), other.maximum(), +1, v).interval for v in (1e-4, 0.0))
    assert wide[0] < narrow[0]
    assert wide[1] > narrow[1]


def test_p_values_of_equal_normal_documents_are_those_of_the_paired_t_test():
    rng = np.random.default_rng(9)
    tokens = np.full(D, 100.0)
    then = rng.normal(2, 1, D)
    for shift in (0.0, 0.15, 0.3, 0.6):
        now = then + rng.normal(shift, 1, D)
        a, b = (DocumentSums(IDS, tokens, {"a": x}).mean("a") for x in (now, then))
        ours = compare_to_baseline(a, b, +1).p_value
        oracle = scipy.stats.ttest_1samp((now - then) / 100, TOLERANCE, alternative="greater").pvalue
        if ours < 1:  # an observed improvement is not tested further
            assert ours == pytest.approx(oracle, rel=0.35, abs=0.02)


def test_p_values_hold_their_level_without_a_change():
    p = [
        compare_to_baseline(cost(sums(s, 0.02 - TOLERANCE)), cost(sums(s + 5000, 0.02)), +1).p_value for s in range(300)
    ]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_tails_beyond_the_draws_are_continued_and_fall():
    t = np.random.default_rng(0).standard_t(30, 1999)
    at = [tail_probability(t, x, 31) for x in (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0)]
    assert at == sorted(at, reverse=True)
    assert at[-1] < 1e-6
    assert at == pytest.approx(scipy.stats.t.sf([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0], 30), rel=0.8, abs=0.02)


def test_a_family_that_got_dearer_is_found_through_its_bounds():
    then = [sums(s, 0.02, 1.0) for s in range(6)]
    now = [x + 0.02 * TOKENS for x in then]
    a, b = layers(now), layers(then)
    for bound, direction in (("maximum", +1), ("minimum", +1), ("median", +1)):
        found = compare_to_baseline(getattr(a, bound)(), getattr(b, bound)(), direction)
        assert found.p_value < 0.001
        assert found.interval[0] > 0
        assert compare_to_baseline(getattr(b, bound)(), getattr(a, bound)(), direction).p_value == 1.0
    share = compare_to_baseline(a.share_below(0.03), b.share_below(0.03), -1)
    assert share.difference == -1.0
    assert share.p_value < 0.001


def test_a_bound_is_judged_no_less_cautiously_than_its_only_member():
    then, now = sums(11, 0.02, 2.0), sums(12, 0.024, 2.0)
    smooth = compare_to_baseline(cost(now), cost(then), +1)
    bound = compare_to_baseline(layers([now]).maximum(), layers([then]).maximum(), +1)
    assert bound.difference == pytest.approx(smooth.difference)
    assert bound.p_value >= smooth.p_value


def test_another_kind_of_number_is_refused():
    family = layers([sums(1)])
    with pytest.raises(ReportError, match="another kind"):
        compare_to_baseline(family.maximum(), family.at(0), +1)


def test_a_comparison_is_plain_json():
    zeros = np.zeros(D)
    zeros[3] = 9.0
    comparison = compare_to_baseline(cost(zeros), cost(np.zeros(D)), +1).as_dict()
    assert json.loads(json.dumps(comparison, allow_nan=False)) == comparison


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=12), st.sampled_from([0.05, 0.2]))
def test_holm_is_statsmodels_holm(p, alpha):
    assert holm(p, alpha) == multipletests(p, alpha=alpha, method="holm")[0].tolist()
