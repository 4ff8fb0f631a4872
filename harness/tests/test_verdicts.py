"""Verdicts: what an interval says of a predicate, in words and numbers."""

import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.weightstats import DescrStatsW
from threadpoolctl import threadpool_limits

from harness.statistics import DocumentSums, captured, cost_family
from harness.statistics.resampling import multiplicities
from harness.verdicts import INCONCLUSIVE, REFUTED, SUPPORTED, Printed, combine, judge, ranges, standing

quick = settings(max_examples=15, deadline=None)


def estimate(mean=0.02, D=60, noise=3.0, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(60, 240, D).astype(float)
    sums = mean * tokens + rng.normal(0, noise, D)
    return DocumentSums(tuple(f"d{i:03d}" for i in range(D)), tokens, {"a": sums}).cost("a")


def layers(costs, D=60, noise=3.0, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(60, 240, D).astype(float)
    sums = np.log1p(costs)[:, None] * tokens + rng.normal(0, noise, (len(costs), D))
    return cost_family(range(len(costs)), sums, tokens, [f"d{i:03d}" for i in range(D)])


def test_the_whole_interval_decides():
    e = estimate()
    low, high = e.interval()
    middle, width = e.value, high - low
    assert judge(e).at_least(low).status == SUPPORTED
    assert judge(e).at_least(low + 1e-9).status == INCONCLUSIVE
    assert judge(e).at_least(high + 1e-9).status == REFUTED
    assert judge(e).at_most(high).status == SUPPORTED
    assert judge(e).at_most(middle).status == INCONCLUSIVE
    assert judge(e).at_most(low - 1e-9).status == REFUTED
    assert judge(e).above(low - 1e-9).status == SUPPORTED
    assert judge(e).above(low).status == INCONCLUSIVE
    assert judge(e).above(high).status == REFUTED
    assert judge(e).below(high + 1e-9).status == SUPPORTED
    assert judge(e).below(low).status == REFUTED
    assert judge(e).between(low - width, high + width).status == SUPPORTED
    assert judge(e).between(low - width, middle).status == INCONCLUSIVE
    assert judge(e).between(high + width, high + 2 * width).status == REFUTED


def test_equivalence_is_two_one_sided_tests_at_five_percent():
    e = estimate()
    low, high = e.interval(0.90)
    margin = max(0.02 - low, high - 0.02)
    verdict = judge(e).equivalent_to(0.02, margin=margin + 1e-9)
    assert verdict.status == SUPPORTED
    assert verdict.level == 0.90
    assert verdict.interval == (low, high)
    assert judge(e).equivalent_to(0.02, margin=margin - 1e-9).status == INCONCLUSIVE
    assert judge(e).equivalent_to(high + 0.02, margin=0.01).status == REFUTED


def test_equivalence_agrees_with_statsmodels_tost():
    agree = []
    for seed in range(60):
        values = np.random.default_rng(seed).normal(0.03, 0.25, 60)
        e = DocumentSums(tuple(map(str, range(60))), np.full(60, 100.0), {"a": 100 * values}).mean("a")
        p, *_ = DescrStatsW(values).ttost_mean(-0.1, 0.1)
        if abs(p - 0.05) > 0.01:  # where a resampled quantile may fall on the other side
            agree.append((judge(e).equivalent_to(0.0, margin=0.1).status == SUPPORTED) == (p <= 0.05))
    assert len(agree) > 30
    assert all(agree)


def test_not_significant_is_not_equal():
    e = estimate(mean=0.0, D=20, noise=10.0)
    low, high = e.interval()
    assert low < 0 < high
    assert judge(e).equivalent_to(0.0, margin=0.005).status == INCONCLUSIVE


@pytest.mark.parametrize(("D", "status"), [(1, INCONCLUSIVE), (19, INCONCLUSIVE), (20, SUPPORTED)])
def test_fewer_than_twenty_documents_carry_no_verdict(D, status):
    verdict = judge(estimate(D=D, noise=0.1)).at_most(0.5)
    assert verdict.status == status
    if D < 20:
        assert f"{D} documents are too few" in verdict.reason
        assert verdict.documents_needed is None or verdict.documents_needed >= 20
    family = layers([0.01, 0.02], D=D, noise=0.1)
    assert judge(family.share_below(0.5)).at_least(0.9).status == status
    assert judge(family.cheapest()).is_exactly(0).status == status


def test_a_verdict_carries_its_numbers_in_one_line_and_in_plain_json():
    verdict = judge(estimate()).at_most(0.01)
    assert verdict.status == REFUTED
    assert "is not at most 1" in verdict.reason
    assert verdict.reason.startswith(f"{100 * verdict.value:.2f} % [")
    assert "\n" not in verdict.reason
    assert verdict.predicate.startswith("at most 1")
    assert (verdict.documents, verdict.direction, verdict.unit) == (60, +1, "cost")
    stored = verdict.as_dict()
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert "estimate" not in stored
    assert stored["value"] == verdict.value
    assert stored["interval"] == list(verdict.interval)


def test_an_inconclusive_verdict_says_what_would_settle_it():
    e = estimate()
    verdict = judge(e).at_most(e.value + 0.002)
    assert verdict.status == INCONCLUSIVE
    half = e.interval()[1] - e.value + 0.8416 * e.se  # four samples in five
    assert verdict.documents_needed == pytest.approx(60 * (half / 0.002) ** 2, rel=0.05)
    told = float(f"{verdict.documents_needed:.2g}")
    assert f"about {told:,.0f} documents would settle it (60 measured)" in verdict.reason
    assert judge(e).at_most(0.5).documents_needed is None, "nothing is left to settle"


def test_documents_that_would_settle_it_do_so_in_a_sample_of_that_size():
    family = layers(np.linspace(0.01, 0.04, 12), noise=3.0, seed=1)
    verdict = judge(family.share_below(0.03)).at_least(0.5)
    assert verdict.status == INCONCLUSIVE
    assert verdict.documents_needed is not None
    scale = np.sqrt(60 / verdict.documents_needed)
    limits = family.share_below(0.03).limits
    assert limits(0.025, scale=scale, power=0.8416)[0] >= 0.5
    assert limits(0.025, scale=np.sqrt(60 / (verdict.documents_needed - 1)), power=0.8416)[0] < 0.5


def test_on_the_threshold_no_number_of_documents_is_promised():
    e = estimate()
    verdict = judge(e).above(e.value)
    assert (verdict.status, verdict.documents_needed) == (INCONCLUSIVE, None)
    assert "sits on the threshold" in verdict.reason


def test_the_smallest_effect_is_what_would_have_been_shown_in_four_samples_of_five():
    """Were the truth that far below the threshold, some 80 % of samples would support the claim."""
    effects, supported = [], 0
    for seed in range(60):
        effects.append(judge(estimate(seed=seed)).at_most(0.05).smallest_effect)
    mean = np.log1p(0.05 - np.mean(effects))
    for seed in range(300):
        supported += judge(estimate(mean=mean, seed=1000 + seed)).at_most(0.05).status == SUPPORTED
    assert supported / 300 == pytest.approx(0.8, abs=0.08)


@quick
@given(st.integers(0, 10**6), st.floats(-0.05, 0.1), st.floats(0, 0.05))
def test_what_is_supported_stays_so_under_a_laxer_threshold(seed, c, slack):
    e = estimate(D=25, seed=seed)
    family = layers([0.01, 0.02, 0.03, 0.04], D=25, seed=seed)
    bounds = (family.maximum(), family.median(), family.minimum(), family.cheapest().advantage([0, 1]))
    for x in (e, *bounds):
        for strict, lax in (
            ("at_most", c + slack),
            ("below", c + slack),
            ("at_least", c - slack),
            ("above", c - slack),
        ):
            if getattr(judge(x), strict)(c).status == SUPPORTED:
                assert getattr(judge(x), strict)(lax).status == SUPPORTED
            if getattr(judge(x), strict)(lax).status == REFUTED:
                assert getattr(judge(x), strict)(c).status == REFUTED
    more, fewer = family.share_below(c + slack).interval(), family.share_below(c).interval()
    assert more[0] >= fewer[0]
    assert more[1] >= fewer[1]


@quick
@given(st.integers(0, 10**6), st.floats(0, 0.05))
def test_opposite_predicates_get_opposite_verdicts(seed, c):
    opposite = {SUPPORTED: REFUTED, REFUTED: SUPPORTED, INCONCLUSIVE: INCONCLUSIVE}
    family = layers([0.01, 0.02, 0.03], D=30, seed=seed)
    for x in (family.at(0), family.maximum(), family.count_below(0.02)):
        assert judge(x).at_least(c).status == opposite[judge(x).below(c).status]
        assert judge(x).at_most(c).status == opposite[judge(x).above(c).status]


# ---- layers


def test_the_cheapest_layer_is_judged_by_its_lead():
    family = layers([0.05, 0.01, 0.012, 0.06], noise=1.0)
    inside = judge(family.cheapest()).lies_in([1, 2])
    assert inside.status == SUPPORTED
    assert inside.predicate == "lies in layers 1-2"
    assert "not surely worse: 1-2" in inside.reason
    assert "lead of 1-2 over all others" in inside.reason
    assert judge(family.cheapest()).lies_in([0, 3]).status == REFUTED
    one = judge(family.cheapest()).is_exactly(1)
    assert one.status == INCONCLUSIVE
    assert "documents would settle it" in one.reason
    assert judge(family.dearest()).is_exactly(3).status == SUPPORTED
    assert judge(family.dearest()).is_exactly(1).status == REFUTED
    assert inside.direction == -1
    assert inside.as_dict()["interval"][0] > 0
    everything = judge(family.cheapest()).lies_in(range(4))
    assert everything.status == SUPPORTED
    assert everything.as_dict()["value"] is None


def test_names_and_numbers_have_their_own_predicates():
    family = layers([0.01, 0.02])
    with pytest.raises(TypeError):
        judge(family.cheapest()).at_least(0.1)
    with pytest.raises(TypeError):
        judge(family.cheapest()).between(0, 1)
    with pytest.raises(TypeError):
        judge(family.maximum()).is_exactly(0)


def test_names_are_shown_as_ranges():
    assert ranges([3, 1, 2, 7]) == "1-3, 7"
    assert ranges(["a", "b"]) == "a, b"
    assert ranges([]) == ""


# ---- exactly affine MLPs, undefined shares


def test_exactly_affine_layers_cost_nothing_and_nothing_about_them_is_catastrophic():
    D, tokens = 40, np.full(40, 120.0)
    ids = [f"d{i}" for i in range(D)]
    exact = cost_family(range(3), np.zeros((3, D)), tokens, ids)
    assert judge(exact.at(0)).at_least(1.0).status == REFUTED
    assert judge(exact.maximum()).at_most(0.0).status == SUPPORTED
    assert judge(exact.minimum()).below(0.0).status == REFUTED
    assert judge(exact.share_below(0.03)).at_least(0.7).status == SUPPORTED
    assert judge(exact.at(1)).equivalent_to(0.0, margin=1e-6).status == SUPPORTED
    assert judge(exact.dearest()).is_exactly(0).status != SUPPORTED, "all layers tie"
    ablated = layers([0.3, 0.2, 0.4], D=D, noise=1.0)
    ablated = cost_family(range(3), ablated.smooth.numerators[0], tokens, ids)
    assert judge(captured(exact, ablated).minimum()).at_least(0.96).status == SUPPORTED


def test_no_verdict_rests_on_a_share_of_nothing():
    ablated = layers([0.3, 0.0])
    tokens, ids = ablated.smooth.denominators[0][0], ablated.smooth.sample.strata[0]
    share = captured(cost_family(range(2), np.zeros((2, 60)), tokens, ids), ablated)
    verdict = judge(share.minimum()).at_least(0.96)
    assert verdict.status == INCONCLUSIVE
    assert "ablating layer 1 has no sure effect" in verdict.reason
    assert json.dumps(verdict.as_dict(), allow_nan=False)
    assert judge(share.at(0)).at_least(0.96).status == SUPPORTED


def test_unknown_limits_are_no_numbers_in_json():
    sums = np.zeros(40)
    sums[0] = 9.0
    e = DocumentSums(tuple(map(str, range(40))), np.full(40, 99.0), {"a": sums}).cost("a")
    verdict = judge(e).at_most(0.01)
    assert verdict.status == INCONCLUSIVE
    assert verdict.as_dict()["interval"][1] is None
    assert verdict.as_dict()["smallest_effect"] is None
    assert "no limit" in verdict.reason


# ---- numbers as printed, claims of several parts, the reported number


def test_a_printed_number_is_judged_as_one_run():
    verdict = judge(Printed(16 / 23, "share")).at_least(0.70)
    assert verdict.status == REFUTED
    assert "one run" in verdict.reason
    assert (verdict.interval, verdict.documents, verdict.documents_needed) == (None, None, None)
    assert judge(3.7).at_most(3.7).status == SUPPORTED


def test_parts_combine():
    e = estimate()
    yes, no, open_ = judge(e).at_most(0.5), judge(e).at_least(0.5), judge(e).at_most(e.value)
    assert combine([yes]) is yes
    assert combine([yes, yes]).status == SUPPORTED
    assert combine([yes, open_]).status == INCONCLUSIVE
    assert combine([yes, open_, no]).status == REFUTED
    assert combine([yes, open_, no]).reason == no.reason
    assert combine([yes, no]).predicate == f"{yes.predicate} and {no.predicate}"
    with pytest.raises(ValueError):
        combine([])


def test_standing_towards_the_reported_number():
    e = estimate(noise=0.5)
    assert standing(e, e.value, 0.01, comparable=True) == "reproduced"
    assert standing(e, e.value, 0.01, comparable=False) == "not comparable"
    assert standing(e, e.value + 0.1, 0.01, comparable=True) == "excluded"
    assert standing(e, e.value, 1e-6, comparable=True) == "too wide to say"
    assert standing(e, e.value, None, comparable=True) == "too wide to say"
    assert standing(estimate(D=10), 9.0, 0.1, comparable=True) == "too wide to say"
    family = layers([0.05, 0.01, 0.012, 0.06], noise=1.0)
    assert standing(family.cheapest(), 0, None, comparable=True) == "excluded"
    assert standing(family.cheapest(), 1, None, comparable=True) == "too wide to say"
    assert standing(family.dearest(), 3, None, comparable=True) == "reproduced"


# ---- a warm run


def test_verdicts_need_neither_torch_nor_scipy():
    heavy = "('torch', 'transformers', 'scipy')"
    code = f"import sys, harness.verdicts; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def _judge_two_models_of_thirty_layers() -> None:
    for seed in range(2):
        f, g = (
            layers(np.linspace(0.005, 0.05, 30), seed=seed),
            layers(np.linspace(0.1, 0.5, 30), seed=seed + 9),
        )
        middle = range(8, 23)
        for c in (0.02, 0.025, 0.03, 0.035):
            judge(f.share_below(c)).at_least(0.7)
            judge(f.only(middle).maximum()).at_most(c)
            judge(f.only(middle).minimum()).below(c)
        for some in (middle, range(7), range(10)):
            judge(f.cheapest()).lies_in(some)
            judge(f.dearest()).lies_in(some)
        judge(f.only(range(1, 30)).dearest()).is_exactly(29)
        judge(captured(f, g).only(middle).minimum()).at_least(0.96)
        judge(f.only(range(1, 30)).median() - g.only(range(1, 30)).median()).above(0)
        judge(f.only([0, 29]).mean() - f.only(middle).mean()).above(0)


def _studentised_bootstrap_of_all_pairs() -> None:
    """The least that a bootstrap-t of the differences between layers takes, written out: every difference resampled,
    divided by that resample's own standard error, and sorted.

    Elementwise work and matrix products stand in it as they do in what it is compared with; one that only resamples
    and sorts is faster or slower beside it by a factor of two from one processor to the next.
    """
    i, j = np.triu_indices(30, 1)
    for seed in range(2):
        for first, last, its_seed in ((0.005, 0.05, seed), (0.1, 0.5, seed + 9)):
            it = layers(np.linspace(first, last, 30), seed=its_seed).smooth
            weights = multiplicities(it.sample.sizes, it.sample.seed, it.sample.resamples)
            (sums,), (tokens,) = it.numerators, it.denominators
            differences = sums[i] - sums[j]
            of_one = differences.sum(axis=1) / tokens.sum()
            centred = differences - of_one[:, None] * tokens
            total = weights @ tokens.T
            shift = (weights @ centred.T) / total
            squares = weights @ (centred**2).T - 2 * shift * (weights @ (centred * tokens).T)
            squares += shift**2 * (weights @ (tokens**2).T)
            np.sort(shift / (np.sqrt(squares) / total), axis=0)


def _processor_seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def test_judging_two_models_of_thirty_layers_takes_little_time():
    with threadpool_limits(1):  # BLAS threads that wait for each other burn processor time without working
        _studentised_bootstrap_of_all_pairs()  # draws the resamples, which both then find
        ratios = [
            _processor_seconds(_judge_two_models_of_thirty_layers)
            / _processor_seconds(_studentised_bootstrap_of_all_pairs)
            for _ in range(2)
        ]
    assert min(ratios) < 1.75  # 1.3 on one machine; 2 or more where the layers of a claim do not share their draws
