"""Estimates and their resampling against textbook intervals, scipy, and a naive loop over resamples."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.errors import MeasurementError
from harness.statistics import DocumentSums, Estimate
from harness.statistics.formula import evaluate, shifted, split_monotone
from harness.statistics.resampling import RESAMPLES, multiplicities

quick = settings(max_examples=15, deadline=None)


def ids(D):
    return tuple(f"doc{i:03d}" for i in range(D))


def skewed(seed, D=60, mean=0.02):
    """Unequal documents with right-skewed effects: sums of delta NLL, and tokens."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(40, 300, D).astype(float)
    return tokens * (mean + 0.03 * (rng.gamma(2, 1, D) - 2)) + rng.normal(size=D), tokens


def sums(seed, D=60, **named):
    s, tokens = skewed(seed, D)
    return DocumentSums(ids(D), tokens, {"a": s, "b": skewed(seed + 1000, D)[0] + 0.5 * s, **named})


def naive_t(columns, tokens, value, influence):
    """Bootstrap-t draws with the resampled documents spelled out: the value, its standard error, and t."""
    D = len(tokens)
    theta, draws = value(columns, tokens), []
    for weights in multiplicities((D,), 0):
        rows = np.repeat(np.arange(D), weights.astype(int))
        c, t = columns[:, rows], tokens[rows]
        psi = influence(c, t)
        draws.append((value(c, t) - theta) / np.sqrt(D / (D - 1) * np.sum(psi**2)))
    psi = influence(columns, tokens)
    return theta, np.sqrt(D / (D - 1) * np.sum(psi**2)), np.array(draws)


def ends(theta, se, draws, tail=0.025):
    rank = round((RESAMPLES + 1) * tail)
    ordered = np.sort(draws)
    return theta - se * ordered[RESAMPLES - rank], theta - se * ordered[rank - 1]


def test_interval_of_a_cost_is_the_naive_bootstrap_t_mapped_through_expm1():
    s, tokens = skewed(0)
    estimate = DocumentSums(ids(60), tokens, {"a": s}).cost("a")
    theta, se, draws = naive_t(
        s[None],
        tokens,
        lambda c, t: c[0].sum() / t.sum(),
        lambda c, t: (c[0] - c[0].sum() / t.sum() * t) / t.sum(),
    )
    assert estimate.value == pytest.approx(np.expm1(theta), rel=1e-12)
    assert estimate.se == pytest.approx(np.exp(theta) * se, rel=1e-10)
    assert estimate.interval() == pytest.approx(np.expm1(ends(theta, se, draws)), rel=1e-9)


def test_difference_of_costs_is_paired_and_studentised_by_the_delta_method():
    data = sums(1)
    a, b, tokens = data.sums["a"], data.sums["b"], data.tokens

    def value(c, t):
        return np.expm1(c[0].sum() / t.sum()) - np.expm1(c[1].sum() / t.sum())

    def influence(c, t):
        r = c.sum(axis=1) / t.sum()
        residual = (c - r[:, None] * t) / t.sum()
        return np.exp(r[0]) * residual[0] - np.exp(r[1]) * residual[1]

    difference = data.cost("a") - data.cost("b")
    theta, se, draws = naive_t(np.stack([a, b]), tokens, value, influence)
    assert difference.value == pytest.approx(theta, rel=1e-10)
    assert difference.interval() == pytest.approx(ends(theta, se, draws), rel=1e-8)
    apart = np.hypot(data.cost("a").se, data.cost("b").se)
    assert difference.se < 0.95 * apart, "the documents are shared, so part of the noise cancels"


def test_standard_error_of_equal_documents_is_the_textbook_one():
    rng = np.random.default_rng(2)
    means = rng.normal(0.03, 0.02, 50)
    estimate = DocumentSums(ids(50), np.full(50, 128.0), {"a": means * 128}).mean("a")
    assert estimate.se == pytest.approx(means.std(ddof=1) / np.sqrt(50), rel=1e-12)


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_interval_of_equal_normal_documents_is_close_to_the_t_interval(level):
    ratio = []
    for seed in range(20):
        means = np.random.default_rng(seed).normal(0.03, 0.02, 40)
        low, high = DocumentSums(ids(40), np.full(40, 128.0), {"a": means * 128}).mean("a").interval(level)
        expected = scipy.stats.t.interval(level, 39, means.mean(), scipy.stats.sem(means))
        ratio.append((high - low) / (expected[1] - expected[0]))
        assert low == pytest.approx(expected[0], abs=0.25 * (expected[1] - expected[0]))
    assert np.mean(ratio) == pytest.approx(1, abs=0.04)


def test_interval_and_standard_error_agree_with_scipys_bootstrap():
    s, tokens = skewed(3, D=120)
    estimate = DocumentSums(ids(120), tokens, {"a": s}).mean("a")
    oracle = scipy.stats.bootstrap(
        (s, tokens),
        lambda a, t, axis: a.sum(axis=axis) / t.sum(axis=axis),
        paired=True,
        n_resamples=4000,
        method="BCa",
        rng=np.random.default_rng(0),
    )
    assert estimate.se == pytest.approx(oracle.standard_error, rel=0.06)
    width = oracle.confidence_interval.high - oracle.confidence_interval.low
    assert estimate.interval() == pytest.approx(tuple(oracle.confidence_interval), abs=0.12 * width)


def test_estimates_on_other_documents_are_independent():
    a = DocumentSums(ids(60), skewed(4)[1], {"a": skewed(4)[0]}).mean("a")
    other = tuple(f"other{i}" for i in range(40))
    b = DocumentSums(other, skewed(5, 40)[1], {"a": skewed(5, 40)[0]}).mean("a")
    difference = a - b
    assert difference.documents == 40
    assert difference.se == pytest.approx(np.hypot(a.se, b.se), rel=1e-10)
    low, high = difference.interval()
    assert low < a.value - b.value < high


def test_a_difference_with_itself_is_zero_without_spread():
    estimate = sums(6).cost("a")
    assert (estimate - estimate).interval() == pytest.approx((0, 0), abs=1e-15)


def test_a_ratio_is_undefined_where_its_denominator_may_be_zero():
    s, tokens = skewed(7)
    data = DocumentSums(ids(60), tokens, {"a": s, "sure": s + tokens, "unsure": s - s.sum() / tokens.sum() * tokens})
    ratio = data.ratio("a", "sure")
    assert not ratio.undefined
    assert ratio.value == pytest.approx(s.sum() / (s + tokens).sum())
    assert "includes 0" in data.ratio("a", "unsure").undefined


@quick
@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_counting_tokens_in_another_unit_changes_nothing_but_the_scale(seed, k):
    s, tokens = skewed(seed, 30)
    a = DocumentSums(ids(30), tokens, {"a": s}).mean("a").interval()
    b = DocumentSums(ids(30), tokens * k, {"a": s * k}).mean("a").interval()
    c = DocumentSums(ids(30), tokens, {"a": s * k}).mean("a").interval()
    assert b == pytest.approx(a, rel=1e-9, abs=1e-12)
    assert c == pytest.approx(tuple(k * end for end in a), rel=1e-9, abs=1e-12)


@quick
@given(st.integers(0, 10**6), st.floats(-3, 3))
def test_shifting_every_token_shifts_the_interval(seed, shift):
    s, tokens = skewed(seed, 30)
    a = DocumentSums(ids(30), tokens, {"a": s}).mean("a").interval()
    b = DocumentSums(ids(30), tokens, {"a": s + shift * tokens}).mean("a").interval()
    assert b == pytest.approx(tuple(end + shift for end in a), rel=1e-8, abs=1e-10)


@quick
@given(st.permutations(range(25)))
def test_the_order_of_documents_does_not_matter(order):
    order = list(order)
    s, tokens = skewed(8, 25)
    a = DocumentSums(ids(25), tokens, {"a": s}).cost("a")
    b = DocumentSums(tuple(ids(25)[i] for i in order), tokens[order], {"a": s[order]}).cost("a")
    assert b.interval() == a.interval()
    assert (a - b).interval() == (0.0, 0.0), "and both stay paired"


def test_duplicating_the_documents_keeps_the_value_and_narrows_the_interval_by_the_root_of_two():
    s, tokens = skewed(9, 80)
    once = DocumentSums(ids(80), tokens, {"a": s}).mean("a")
    copies = (*ids(80), *(f"copy of {name}" for name in ids(80)))
    twice = DocumentSums(copies, np.tile(tokens, 2), {"a": np.tile(s, 2)}).mean("a")
    assert twice.value == pytest.approx(once.value)
    assert twice.se == pytest.approx(once.se * np.sqrt(79 / 159), rel=1e-10)
    narrower = np.diff(twice.interval()) / np.diff(once.interval())
    assert narrower == pytest.approx(np.sqrt(0.5), rel=0.08)


@quick
@given(st.integers(0, 10**6))
def test_a_higher_level_holds_the_lower_one(seed):
    estimate = sums(seed, 24).cost("a")
    wide, narrow = estimate.interval(0.99), estimate.interval(0.8)
    assert wide[0] <= narrow[0] <= estimate.value <= narrow[1] <= wide[1]


# ---- degenerate cases


def test_no_spread_gives_a_point_and_not_nan():
    estimate = DocumentSums(ids(30), np.full(30, 50.0), {"a": np.zeros(30)}).cost("a")
    assert estimate.interval() == (0.0, 0.0)
    assert estimate.se == 0.0


def test_a_constant_per_token_is_recognised_as_no_spread_despite_rounding():
    tokens = np.random.default_rng(0).integers(30, 200, 40).astype(float)
    low, high = DocumentSums(ids(40), tokens, {"a": 0.1 * tokens}).mean("a").interval()
    assert low == pytest.approx(0.1, abs=1e-12)
    assert high == pytest.approx(0.1, abs=1e-12)


def test_one_document_has_no_limits():
    low, high = DocumentSums(("only",), np.array([100.0]), {"a": np.array([3.0])}).mean("a").interval()
    assert (low, high) == (-np.inf, np.inf)


def test_a_document_without_tokens_says_nothing():
    s, tokens = skewed(10, 25)
    without = DocumentSums(ids(25), tokens, {"a": s}).cost("a")
    extra = DocumentSums((*ids(25), "empty"), np.append(tokens, 0), {"a": np.append(s, 0.0)}).cost("a")
    assert extra.documents == 25
    assert extra.interval() == without.interval()


def test_one_document_that_differs_gives_no_limit_rather_than_a_narrow_one():
    s = np.zeros(40)
    s[7] = 5.0
    estimate = DocumentSums(ids(40), np.full(40, 100.0), {"a": s}).mean("a")
    assert not np.isnan(estimate.interval()).any()
    assert estimate.interval()[1] == np.inf


@pytest.mark.parametrize(
    ("documents", "tokens", "a", "message"),
    [
        (("x", "x"), [1, 1], [1, 1], "occurs twice"),
        (("x", "y"), [1, -1], [1, 1], "token counts"),
        (("x", "y"), [1, 0], [1, 1], "but no token"),
        (("x", "y"), [0, 0], [0, 0], "no document has a token"),
        (("x", "y"), [1, 1], [1, np.nan], "document y"),
        (("x", "y"), [1, 1], [1], "not one number for each"),
    ],
)
def test_sums_that_make_no_sense_are_refused_in_one_line(documents, tokens, a, message):
    with pytest.raises(MeasurementError, match=message) as error:
        DocumentSums(documents, np.array(tokens, float), {"a": np.array(a, float)}).mean("a")
    assert "\n" not in str(error.value)


# ---- formulas

leaf = st.one_of(st.integers(0, 2).map(lambda k: ["ratio", k]), st.floats(-2, 2).map(lambda x: ["constant", x]))
formulas = st.recursive(
    leaf,
    lambda f: st.one_of(
        st.tuples(st.sampled_from("+-*/"), f, f).map(list),
        st.tuples(st.sampled_from(["exp", "expm1"]), f).map(list),
        st.tuples(st.just("mean"), f, f, f).map(list),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(formulas, st.lists(st.floats(0.2, 1.5), min_size=3, max_size=3))
def test_gradients_agree_with_finite_differences(formula, at):
    ratios = [np.array([x]) for x in at]
    with np.errstate(all="ignore"):
        value, gradient = evaluate(formula, ratios)
        assume(np.isfinite(value).all() and np.abs(value).max() < 1e3)
        for k in range(3):
            h = 1e-6
            up, down = ([x + s * h * (i == k) for i, x in enumerate(ratios)] for s in (1, -1))
            slope = (evaluate(formula, up)[0] - evaluate(formula, down)[0]) / (2 * h)
            analytic = gradient.get(k, np.zeros(1))
            assume(np.isfinite(analytic).all() and np.abs(analytic).max() < 1e3)
            assert slope == pytest.approx(analytic, rel=1e-3, abs=1e-4)


def test_formulas_shift_and_split():
    formula = ["expm1", ["-", ["ratio", 0], ["constant", 1.0]]]
    assert shifted(formula, 2) == ["expm1", ["-", ["ratio", 2], ["constant", 1.0]]]
    assert split_monotone(formula) == ("expm1", formula[1])
    assert split_monotone(formula[1]) == (None, formula[1])


def test_resamples_are_multinomial_shared_and_fixed_by_the_seed():
    weights = multiplicities((30, 20), 0)
    assert weights.shape == (RESAMPLES, 50)
    assert (weights[:, :30].sum(axis=1) == 30).all()
    assert (weights[:, 30:].sum(axis=1) == 20).all()
    assert weights.mean() == pytest.approx(1)
    assert multiplicities((30, 20), 0) is weights
    assert not np.array_equal(multiplicities((30, 20), 1), weights)


def test_perplexity_is_the_exponential_of_the_mean():
    s, tokens = skewed(11)
    estimate = DocumentSums(ids(60), tokens, {"nll": s + 3 * tokens}).perplexity("nll")
    assert isinstance(estimate, Estimate)
    assert estimate.value == pytest.approx(np.exp((s + 3 * tokens).sum() / tokens.sum()))
    assert estimate.se == pytest.approx(estimate.value * float(estimate.smooth.se[0]))
