"""Families, bounds over layers, the cheapest layer: against loops, exhaustive closed testing, statsmodels."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from harness.errors import MeasurementError
from harness.statistics import captured, cost_family, family
from harness.statistics.bounds import OrderBound, simes_count
from harness.statistics.resampling import RESAMPLES

quick = settings(max_examples=15, deadline=None)
COSTS = np.linspace(0.005, 0.05, 10)


def make(seed=0, costs=COSTS, D=60, noise=0.3, names=None, build=cost_family):
    """A family of costs with a shared document effect; about 150 tokens a document."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(60, 240, D).astype(float)
    own = rng.normal(0, noise, (len(costs), D)) + 0.5 * rng.normal(0, noise, D)
    sums = np.log1p(costs)[:, None] * tokens + own * np.sqrt(tokens)
    return build(names or range(len(costs)), sums, tokens, [f"d{i:03d}" for i in range(D)])


# ---- simultaneous intervals


def test_simultaneous_intervals_are_max_t_with_a_critical_value_for_each_tail():
    f = make()
    t, se, inner = f.smooth.t, f.smooth.se, f.smooth.inner
    rank = round((RESAMPLES + 1) * 0.025)
    highest, lowest = np.sort([max(row) for row in t]), np.sort([min(row) for row in t])
    expected = np.expm1(np.stack([inner - se * highest[-rank], inner - se * lowest[rank - 1]], axis=1))
    assert f.interval() == pytest.approx(expected, rel=1e-12)


def test_pointwise_intervals_are_those_of_the_members_alone():
    f = make()
    for i, name in enumerate(f.names):
        assert tuple(f.pointwise()[i]) == pytest.approx(f.at(name).interval(), rel=1e-12)
        assert tuple(f.only([name]).interval()[0]) == pytest.approx(f.at(name).interval(), rel=1e-12)


def test_simultaneous_intervals_are_wider_for_more_members():
    f = make()
    few, all_ = f.only(range(3)).interval(), f.interval()[:3]
    alone = f.pointwise()[:3]
    assert (np.diff(all_) >= np.diff(few)).all()
    assert (np.diff(few) > np.diff(alone)).all()


def test_a_part_of_a_family_shares_its_draws_with_one_measured_apart():
    f = make()
    part = f.only([7, 2, 5])
    assert part.names == (2, 5, 7), "parts keep the family's order"
    whole = f.smooth
    apart = cost_family((2, 5, 7), whole.numerators[0][[2, 5, 7]], whole.denominators[0][0], f.smooth.sample.strata[0])
    assert part.interval() == pytest.approx(apart.interval(), rel=1e-12)
    assert part.cheapest().members() == apart.cheapest().members()
    nested = f.only(range(1, 9)).only([7, 2, 5])
    assert nested.smooth.pairs.t == pytest.approx(apart.smooth.pairs.t, rel=1e-9)
    assert f.without(range(9)).names == (9,)


def test_the_mean_is_a_smooth_estimate_of_the_mean_cost():
    f = make()
    mean = f.mean()
    assert mean.value == pytest.approx(f.values.mean(), rel=1e-12)
    flat = family(f.names, f.smooth.numerators[0], f.smooth.denominators[0][0], f.smooth.sample.strata[0])
    one = family(["mean"], f.smooth.numerators[0].mean(axis=0), f.smooth.denominators[0][0], f.smooth.sample.strata[0])
    assert flat.mean().interval() == pytest.approx(one.at("mean").interval(), rel=1e-9)


def test_differences_of_families_are_paired_member_by_member():
    a, b = make(1), make(2)
    difference = a.minus(b)
    for i in range(len(a)):
        assert difference.pointwise()[i] == pytest.approx((a.at(i) - b.at(i)).interval(), rel=1e-9)
    with pytest.raises(MeasurementError, match="different members"):
        a.minus(b.only([1, 2]))


def test_a_member_without_spread_has_a_point_and_leaves_the_others_as_they_were():
    f = make(costs=np.asarray(COSTS) + 0.01)  # all others surely above 0
    sums = f.smooth.numerators[0].copy()
    rest = f.without([4])
    sums[4] = 0.0
    tokens, documents = f.smooth.denominators[0][0], f.smooth.sample.strata[0]
    g = cost_family(f.names, sums, tokens, documents)
    assert tuple(g.interval()[4]) == (0.0, 0.0)
    assert np.delete(g.interval(), 4, axis=0) == pytest.approx(rest.interval(), rel=1e-9)
    assert g.cheapest().value == 4
    assert g.cheapest().members() == (4,)
    assert g.minimum().interval() == (0.0, 0.0)
    assert g.count_below(0.0).interval() == (0.0, 0.0), "zero is not below zero"
    assert g.at(4).interval() == (0.0, 0.0)


def test_a_family_of_zeros_has_points_everywhere():
    f = cost_family(range(4), np.zeros((4, 30)), np.full(30, 99.0), [f"d{i}" for i in range(30)])
    assert not f.interval().any()
    for bound in (f.maximum(), f.minimum(), f.median(), f.count_above(0.1), f.share_above(0.0)):
        assert bound.value == 0
        assert bound.interval() == (0.0, 0.0)
    assert f.share_below(0.03).interval() == (1.0, 1.0)
    assert set(f.cheapest().members()) == set(range(4)), "ties are not surely worse"
    assert f.mean().interval() == (0.0, 0.0)


def test_one_document_gives_no_limits_and_no_nan():
    f = cost_family(range(3), np.ones((3, 1)), np.array([50.0]), ["only"])
    assert (f.interval() == [-1.0, np.inf]).all()
    assert f.share_below(0.03).interval() == (0.0, 1.0)
    assert f.cheapest().members() == (0, 1, 2)


def test_names_must_be_there_and_distinct():
    f = make()
    for wrong in (lambda: f.at(99), lambda: f.only([99]), lambda: f.only([])):
        with pytest.raises(MeasurementError):
            wrong()
    with pytest.raises(MeasurementError, match="same name"):
        make(names=[0] * len(COSTS))


# ---- counts and order statistics


def brute_force_count(p, tail):
    """The closed-testing bound with Simes' local tests, every subset looked at."""
    L = len(p)
    for m in range(L, 0, -1):
        k = L - m + 1
        subsets = (np.sort([p[i] for i in subset]) for subset in combinations(range(L), k))
        if all((q <= np.arange(1, k + 1) * tail / k).any() for q in subsets):
            return m
    return 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 1), st.floats(0, 0.05)), min_size=1, max_size=7))
def test_simes_count_is_closed_testing_over_all_subsets(p):
    assert simes_count(np.array(p), 0.05) == brute_force_count(p, 0.05)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 1), st.floats(0, 0.02)), min_size=2, max_size=30))
def test_simes_count_finds_at_least_what_hommel_rejects(p):
    assert simes_count(np.array(p), 0.05) >= multipletests(p, alpha=0.05, method="hommel")[0].sum()


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 11))
def test_counts_and_order_statistics_tell_the_same_story(seed, L):
    f = make(seed, COSTS[:L] if L <= 10 else np.linspace(0.01, 0.03, L))
    for rank in range(1, L + 1):
        low, high = OrderBound(f, "rank", rank, rank).interval()
        for c in np.unique(
            np.concatenate([np.linspace(0, 0.06, 9), [low - 1e-9, low + 1e-9, high - 1e-9, high + 1e-9]])
        ):
            fewest, most = f.count_below(float(c)).interval()
            assert (fewest >= rank) == (high < c)
            assert (most < rank) == (low >= c)


@quick
@given(st.integers(0, 10**6))
def test_bounds_hold_the_value_and_fit_together(seed):
    f = make(seed)
    for bound in (f.maximum(), f.minimum(), f.median(), f.count_below(0.03), f.share_above(0.02)):
        low, high = bound.interval()
        assert low <= bound.value <= high
        wide = bound.interval(0.99)
        assert wide[0] <= low
        assert high <= wide[1]
    below, above = f.share_below(0.03).interval(), f.share_above(0.03).interval()
    assert below == pytest.approx((1 - above[1], 1 - above[0]))
    assert f.count_below(0.03).interval() == pytest.approx(tuple(10 * end for end in below))
    assert f.minimum().interval()[1] <= f.median().interval()[1] <= f.maximum().interval()[1]


def test_the_maximum_is_bounded_above_by_the_members_own_limits_and_below_by_simultaneous_ones():
    f = make()
    low, high = f.maximum().interval()
    assert high == pytest.approx(f.pointwise()[:, 1].max())
    assert low <= f.pointwise()[:, 0].max()
    assert low == pytest.approx(f.interval()[:, 0].max(), abs=0.003)


def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two():
    f = make()
    assert f.median().value == pytest.approx(np.median(f.values))
    assert f.only(range(9)).median().value == pytest.approx(np.median(f.values[:9]))


def test_more_documents_narrow_every_bound():
    few, many = make(3, D=25), make(3, D=400)
    for bound in ("maximum", "minimum", "median"):
        assert np.diff(getattr(many, bound)().interval()) < np.diff(getattr(few, bound)().interval())


def test_planning_scales_limits_about_the_value():
    f = make()
    for bound in (
        f.maximum(),
        f.median(),
        f.cheapest().advantage([0, 1]),
        f.maximum() - f.minimum(),
        f.at(3),
    ):
        low, high = bound.limits(0.025)
        close = bound.limits(0.025, scale=1e-6)
        assert close == pytest.approx((bound.value, bound.value), abs=1e-6)
        wide = bound.limits(0.025, power=1.0)
        assert wide[0] < low <= bound.value <= high < wide[1]


def test_differences_and_ratios_of_bounds_are_as_wide_as_both_sides_allow():
    a, b = make(1), make(2)
    difference, ratio = a.maximum() - b.minimum(), a.maximum() / b.maximum()
    (al, ah), (bl, bh) = a.maximum().limits(0.0125), b.minimum().limits(0.0125)
    assert difference.interval() == pytest.approx((al - bh, ah - bl))
    assert difference.value == pytest.approx(a.maximum().value - b.minimum().value)
    assert ratio.interval()[0] < ratio.value < ratio.interval()[1]
    assert not ratio.undefined
    assert "includes 0" in (a.maximum() / make(2, COSTS - 0.03).median()).undefined


# ---- the share of an effect that is captured


def test_captured_share_is_one_for_an_affine_mlp_and_undefined_without_an_effect():
    ablated = make(4, np.array([0.3, 0.2, 0.0]))
    tokens, documents = ablated.smooth.denominators[0][0], ablated.smooth.sample.strata[0]
    exact = cost_family(range(3), np.zeros((3, 60)), tokens, documents)
    share = captured(exact, ablated)
    assert share.known.tolist() == [True, True, False]
    assert share.values[:2] == pytest.approx([1, 1])
    assert tuple(share.interval()[0]) == pytest.approx((1, 1))
    assert np.isnan(share.interval()[2]).all()
    assert "layer 2" in share.at(2).undefined
    assert not share.at(0).undefined
    assert not share.only([0, 1]).minimum().undefined
    assert "layer 2" in share.minimum().undefined


def test_captured_share_is_a_paired_ratio_of_nats():
    linear, ablated = make(5, np.array([0.02, 0.03])), make(6, np.array([0.3, 0.2]))
    share = captured(linear, ablated)
    expected = 1 - np.log1p(linear.values) / np.log1p(ablated.values)
    assert share.values == pytest.approx(expected)
    low, high = share.interval().T
    assert (low < expected).all()
    assert (expected < high).all()


# ---- the cheapest and the dearest layer


def test_the_cheapest_layer_is_among_those_not_surely_worse():
    f = make(7, np.array([0.05, 0.010, 0.012, 0.05, 0.08]))
    cheapest, dearest = f.cheapest(), f.dearest()
    assert set(cheapest.members()) == {1, 2}
    assert dearest.members() == (4,)
    assert cheapest.value in (1, 2)
    assert dearest.value == 4
    assert set(cheapest.members(0.999)) >= set(cheapest.members(0.8))


def test_the_lead_of_some_layers_over_the_others():
    f = make(7, np.array([0.05, 0.010, 0.012, 0.05, 0.08]))
    lead = f.cheapest().advantage([1, 2])
    inner = f.smooth.inner
    assert lead.value == pytest.approx(np.expm1(min(inner[[0, 3, 4]]) - min(inner[[1, 2]])))
    low, high = lead.interval()
    assert 0 < low < lead.value < high
    behind = f.cheapest().advantage([0, 3, 4])
    assert behind.interval()[1] < 0
    # the same comparison from the other side: relative perplexities are each other's inverses
    assert 1 + behind.interval()[0] == pytest.approx(1 / (1 + high))
    assert 1 + behind.interval()[1] == pytest.approx(1 / (1 + low))
    assert f.dearest().advantage([4]).interval()[0] > 0
    with pytest.raises(MeasurementError, match="none of the layers"):
        f.cheapest().advantage([17])
    assert f.cheapest().advantage(range(5)).interval() == (np.inf, np.inf)


def test_the_lead_of_one_layer_over_one_other_is_their_paired_difference():
    f = make(8, np.array([0.02, 0.03]), build=family)
    lead = f.cheapest().advantage([0])
    assert lead.interval() == pytest.approx((f.at(1) - f.at(0)).interval(), rel=1e-9)


def test_a_layer_is_left_out_of_the_set_exactly_where_the_others_lead_it():
    f = make(9)
    members = f.cheapest().members()
    for k in f.names:
        others = [name for name in f.names if name != k]
        assert (f.cheapest().advantage(others).interval()[0] > 0) == (k not in members)
