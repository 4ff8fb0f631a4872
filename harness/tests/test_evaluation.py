"""From a claim's test to a verdict, to a comparison with a baseline, to which claims surely got worse."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import MeasurementError, ReportError
from harness.plugin.claims import Judge
from harness.plugin.evaluation import Baseline, Change, Judged, put, surely_worse
from harness.protocol import LINEAR, LINEAR_HALF_A, LINEAR_HALF_B, MEAN
from harness.reporting import schema
from harness.statistics.sweep import Sweep, Sweeps
from harness.tests import reporting_example
from harness.tests.sweep_example import measurement, sweep

Body = Callable[..., None]


def dearest_at_most(c: float) -> Body:
    def body(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.cost.maximum()).at_most(c)

    return body


def each_at_most(*limits: float) -> Body:
    """A claim with a part for each layer."""

    def body(sweep: Sweep, judge: Judge) -> None:
        for layer, limit in enumerate(limits):
            judge(sweep.cost.at(layer), f"layer {layer}").at_most(limit)

    return body


# ---- verdicts


@pytest.mark.parametrize(
    ("limits", "word", "reason"),
    [
        ((0.6, 0.2, 0.1), "SUPPORTED", "layer 0: "),
        ((0.6, 0.05, 0.1), "REFUTED", "layer 1: "),
        ((0.6, 0.1, 0.1), "INCONCLUSIVE", "layer 1: "),
        ((0.5, 0.1, 0.01), "REFUTED", "layer 2: "),  # one refuted part decides, whatever the others leave open
    ],
)
def test_a_claim_of_parts(limits: tuple[float, ...], word: str, reason: str) -> None:
    judged = put(each_at_most(*limits), sweep((0.5, 0.1, 0.02)))
    assert judged.word == word
    assert judged.reason.startswith(reason)
    assert [part.name for part in judged.parts] == ["layer 0", "layer 1", "layer 2"]
    assert judged.verdict is not None
    assert judged.reason == f"{reason}{judged.verdict.reason}"


def test_a_part_that_is_refuted_only_just() -> None:
    """At 95 % alone, but not as one of three parts: the claim is open, and the line says which part left it so."""
    given = sweep((0.5, 0.1, 0.02))
    low = given.cost.at(1).interval()[0]
    body = each_at_most(0.6, low - 1e-6, 0.1)
    alone = put(each_at_most(0.6, low - 1e-6, 0.1), given).parts[1].verdict
    assert alone.status == "REFUTED"
    judged = put(body, given)
    assert judged.word == "INCONCLUSIVE"
    assert judged.reason.startswith("layer 1: ")
    assert judged.reason.endswith("but not surely so as one of 3 parts")


def test_a_claim_of_one_part_names_none() -> None:
    judged = put(dearest_at_most(0.03), sweep((0.5, 0.1)))
    assert judged.word == "REFUTED"
    assert judged.reason.startswith("50")
    assert judged.corpus == "c"


def test_what_does_not_apply() -> None:
    def body(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.cost.at(0)).at_most(1)
        sweep.require(family="gpt_neox")

    judged = put(body, sweep())
    assert (judged.word, judged.parts, judged.verdict) == ("not applicable", (), None)
    assert judged.reason == "the claim is about gpt_neox models; m is gpt2"


def test_a_claim_that_judges_nothing_is_an_error() -> None:
    def test_forgetful(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.cost.at(0))

    with pytest.raises(ReportError, match="'test_forgetful' judges nothing"):
        put(test_forgetful, sweep())


def test_what_breaks_is_no_verdict() -> None:
    def body(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.cost.at(7)).at_most(1)

    with pytest.raises(MeasurementError, match="layer 7 was not measured"):
        put(body, sweep())


def test_a_comparison_of_models() -> None:
    def body(sweeps: Sweeps, judge: Judge) -> None:
        one, other = sweeps.all
        judge(one.cost_at(0) - other.cost_at(0)).above(0)

    pair = (sweep((0.5, 0.1)), sweep((0.4, 0.1)))
    assert put(body, Sweeps(pair)).word == "SUPPORTED"
    assert put(body, Sweeps(pair[::-1])).word == "REFUTED"


# ---- changes since a baseline


def baseline(folder: Path, *measurements: dict[str, Any]) -> Baseline:
    """The baseline of a report that holds these measurements."""
    report = reporting_example.report()
    model, corpus, whole = report["models"][0], report["corpora"][0], report["measurements"][0]
    fit = {"rows": 1000, "documents": 15}
    report["measurements"] = [
        whole | m | {"variants": list(m["delta"]), "nll": [150.0] * len(m["documents"]), "squares": None, "fit": fit}
        for m in measurements
    ]
    report["models"] = [model | {"name": m["model"], "family": "gpt2"} for m in measurements]
    report["corpora"] = [corpus | {"name": "c"}]
    report["claims"] = []
    schema.write(report, folder / "report.json")
    return Baseline(folder / "report.json")


def changed(folder: Path, body: Body, then: dict[str, Any], now: Sweep) -> Change:
    change = baseline(folder, then).change(body, now, put(body, now))
    assert change is not None
    return change


def elsewhere(m: dict[str, Any]) -> dict[str, Any]:
    """The same on other documents."""
    return m | {"documents": [d | {"id": f"{i:015x}x"} for i, d in enumerate(m["documents"])]}


@pytest.mark.parametrize(
    ("costs", "worse"), [((0.55, 0.1), True), ((0.5, 0.1), False), ((0.45, 0.1), False), ((0.5, 0.2), False)]
)
def test_worse_is_the_wrong_side_of_the_baseline(tmp_path: Path, costs: tuple[float, ...], worse: bool) -> None:
    then = measurement({LINEAR: [0.5, 0.1]})
    change = changed(tmp_path, dearest_at_most(0.03), then, sweep(costs, seed=1))
    assert change.difference == pytest.approx(costs[0] - 0.5, abs=1e-6)
    assert change.paired
    assert (change.p_value < 0.001) == worse
    assert surely_worse([("item", change)]) == ({"item"} if worse else set())


def test_worse_is_down_for_a_share(tmp_path: Path) -> None:
    def body(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.cost.share_below(0.03)).at_least(0.7)

    few, many = [0.02] * 4 + [0.5] * 6, [0.02] * 9 + [0.5]
    assert changed(tmp_path, body, measurement({LINEAR: many}), sweep(few, seed=1)).p_value < 0.001
    assert changed(tmp_path, body, measurement({LINEAR: few}), sweep(many, seed=1)).p_value == 1


def test_the_part_that_is_most_surely_worse(tmp_path: Path) -> None:
    def layer_1(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.cost.at(1)).at_most(0.05)

    then, body = measurement({LINEAR: [0.5, 0.1, 0.1]}), each_at_most(0.6, 0.05, 0.05)
    change = changed(tmp_path, body, then, sweep((0.5, 0.101, 0.11), seed=1))
    assert change.part == "layer 2"
    assert change.told.endswith(" (layer 2)")

    now = sweep((0.5, 0.101, 0.1), seed=1)
    alone, among_three = changed(tmp_path, layer_1, then, now), changed(tmp_path, body, then, now)
    assert 0.001 < alone.p_value < 1 / 3
    assert among_three.part == "layer 1"
    assert among_three.p_value == pytest.approx(3 * alone.p_value)  # for the number of parts


def test_no_counterpart(tmp_path: Path) -> None:
    body, then = dearest_at_most(0.03), measurement({LINEAR: [0.5, 0.1]})
    assert baseline(tmp_path, then).like(sweep(model="another")) is None
    for now in (sweep(model="another"), sweep(corpus="another")):
        assert baseline(tmp_path, then).change(body, now, put(body, now)) is None

    def mean_ablation(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.variant(MEAN).maximum()).at_most(0.03)

    now = sweep({LINEAR: [0.5, 0.1], MEAN: [0.9, 0.9]})
    assert baseline(tmp_path, then).change(mean_ablation, now, put(mean_ablation, now)) is None
    assert baseline(tmp_path, then).change(body, now, Judged("c", (), "does not apply")) is None


def test_a_comparison_of_models_against_a_baseline(tmp_path: Path) -> None:
    def body(sweeps: Sweeps, judge: Judge) -> None:
        one, other = sweeps.all
        judge(one.cost_at(0) - other.cost_at(0)).above(0)

    def pair(a: float, b: float) -> Sweeps:
        return Sweeps((sweep((a, 0.1), model="a"), sweep((b, 0.1), model="b")))

    then = [dict(one.measurement) for one in pair(0.5, 0.4).all]
    now = pair(0.45, 0.4)
    change = baseline(tmp_path, *then).change(body, now, put(body, now))
    assert change is not None
    assert change.difference == pytest.approx(-0.05, abs=1e-6)
    assert change.p_value < 0.001
    assert baseline(tmp_path, then[0]).change(body, now, put(body, now)) is None


# ---- the variance over refits


HALVES = {LINEAR: [0.50, 0.1], LINEAR_HALF_A: [0.48, 0.1], LINEAR_HALF_B: [0.56, 0.1]}


def layer_0(sweep: Sweep, judge: Judge) -> None:
    judge(sweep.cost.at(0)).at_most(0.03)


def test_refits_count_only_where_documents_differ(tmp_path: Path) -> None:
    """Two fits of half the rows are 0.08 apart: a variance of 0.0032 at N/2, of 0.0016 at N, and twice that for two."""
    then = measurement(HALVES)
    now = sweep(HALVES | {LINEAR: [0.52, 0.1]}, seed=1)
    paired = changed(tmp_path, layer_0, then, now)
    assert paired.paired
    assert paired.p_value < 0.001
    assert np.ptp(paired.interval) < 0.02

    unpaired = changed(tmp_path, layer_0, elsewhere(then), now)
    assert not unpaired.paired
    assert unpaired.difference == pytest.approx(paired.difference)
    assert unpaired.p_value > 0.3
    assert np.ptp(unpaired.interval) == pytest.approx(2 * 2.02 * math.sqrt(2 * 0.08**2 / 4), rel=0.15)

    whole = changed(tmp_path, layer_0, elsewhere(then), sweep({LINEAR: [0.52, 0.1]}, seed=1))
    assert not whole.paired
    assert whole.p_value < 0.001  # no halves, no variance over refits


def test_each_part_has_its_own_variance(tmp_path: Path) -> None:
    body = each_at_most(0.03, 0.03)
    then = elsewhere(measurement(HALVES))
    change = changed(tmp_path, body, then, sweep(HALVES | {LINEAR: [0.52, 0.12]}, seed=1))
    assert change.part == "layer 1"  # the same in both halves: nothing but documents makes it uncertain
    assert change.p_value < 0.001


# ---- what cannot be compared


def test_an_undefined_value_is_not_worse(tmp_path: Path) -> None:
    def body(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.captured.mean()).at_least(0.96)

    then = measurement({LINEAR: [0.01, 0.01], MEAN: [0.5, 0.5]})
    now = sweep({LINEAR: [0.01, 0.05], MEAN: [0.5, 0.0002]}, spread=0.001)
    assert put(body, now).word == "INCONCLUSIVE"
    assert changed(tmp_path, body, then, now).p_value == 1


def test_limits_that_do_not_exist_are_none(tmp_path: Path) -> None:
    def body(sweep: Sweep, judge: Judge) -> None:
        judge(sweep.cost.dearest()).lies_in(sweep.layers)  # no layer is outside: an infinite lead

    change = changed(tmp_path, body, measurement({LINEAR: [0.5, 0.1]}), sweep((0.5, 0.1)))
    assert change.p_value == 1
    told = change.as_dict(worse=False)
    assert told["difference"] is None
    assert told["interval"] == [None, None]
    json.dumps(told, allow_nan=False)

    half_open = Change("layer 0", 0.2, 0.5, (-math.inf, math.inf), False, "cost")
    assert half_open.as_dict(worse=True) == {
        "worse": True,
        "p_value": 0.2,
        "paired": False,
        "difference": 0.5,
        "interval": [None, None],
        "part": "layer 0",
    }


# ---- the comparisons of a run together


def of_p(p: float) -> Change:
    return Change("", p, 0.1, (0.0, 0.2), True, "cost")


def test_comparisons_of_a_run_are_held_together() -> None:
    """Holm: the smallest p of n against 5 % / n, the next against 5 % / (n − 1), up to the first that fails."""
    assert surely_worse([("a", of_p(0.04))]) == {"a"}
    assert surely_worse([("a", of_p(0.04)), ("b", of_p(0.04))]) == set()
    assert surely_worse([("a", of_p(0.024)), ("b", of_p(0.04))]) == {"a", "b"}  # Bonferroni would leave b
    assert surely_worse([("a", of_p(0.026)), ("b", of_p(0.026)), ("c", of_p(0.001))]) == {"c"}
    assert surely_worse([("c", of_p(0.001)), ("b", of_p(0.9)), ("a", of_p(0.024))]) == {"c", "a"}


def test_what_has_no_counterpart_does_not_count() -> None:
    assert surely_worse([("a", of_p(0.04)), ("b", None), ("c", None)]) == {"a"}
    assert surely_worse([("a", None)]) == set()
    assert surely_worse([]) == set()


def test_a_baseline_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ReportError):
        Baseline(tmp_path / "report.json")
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ReportError):
        Baseline(tmp_path / "report.json")
