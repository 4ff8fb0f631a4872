"""The thresholds that claims are judged by are those of their statements: a hair to either side decides."""

from __future__ import annotations

import numpy as np
import pytest

from harness.paper import load_paper
from harness.plugin.evaluation import put
from harness.protocol import LINEAR, MEAN
from harness.statistics.sweep import Sweeps
from harness.tests.sweep_example import PAPER_TOML, at, functions_of, sweep

YES, NO = "SUPPORTED", "REFUTED"


@pytest.mark.parametrize(
    ("id", "words", "inside", "outside"),
    [
        ("alllin-gpt2m-70pct-under-3", ["70 %", "3 %"], [2.99] * 7 + [3.01] * 3, [2.99] * 6 + [3.01] * 4),
        (
            "alllin-gpt2m-l2-l15-range",
            ["2.55 %", "2 to 15 of 24"],
            at(24, 9, **{f"l{i}": 2.54 for i in range(2, 16)}),
            at(24, 1, l15=2.56),
        ),
        (
            "alllin-gpt2m-middle-under-3.5",
            ["half", "3.5 %"],
            at(8, 9, l2=3.49, l3=3.49, l4=3.49),
            at(8, 1, l2=3.51, l3=3.51),
        ),
        (
            "alllin-gpt2m-only-first-last-exceptions",
            ["3.5 %"],
            at(6, 3.49, l0=3.51, l5=3.51),
            at(6, 3.4, l0=9, l2=3.51, l5=9),
        ),
        (
            "alllin-gpt2m-only-first-last-exceptions",
            ["3.5 %"],
            at(6, 3.49, l0=3.51, l5=3.51),
            at(6, 3.4, l0=9, l5=3.49),
        ),
        ("alllin-pattern-replicates-exactly", ["doubles"], at(6, 9, l0=100.1), at(6, 9, l0=99.9)),
        ("alllin-pattern-replicates-exactly", ["most expensive"], at(6, 9, l0=150), at(6, 9, l0=150, l1=151)),
        ("alllin-gpt2m-cheapest-l8", ["middle half"], at(8, 2, l2=1.9), at(8, 2, l1=1.9)),
        (
            "alllin-gpt2m-worst-l23",
            ["the last", "other than the first"],
            at(8, 2, l0=9, l7=2.1),
            at(8, 2, l7=2.1, l5=2.2),
        ),
        ("alllin-gpt2l-max-3.7", ["3.7 %"], at(8, 1, l3=3.69), at(8, 1, l3=3.71)),
        ("alllin-gpt2l-min-l5", ["first quarter"], at(8, 2, l1=1.9), at(8, 2, l2=1.9)),
        ("alllin-p160m-range", ["middle half", "first quarter"], at(8, 2, l3=1.9, l1=2.1), at(8, 2, l3=1.9, l2=2.1)),
        ("alllin-p160m-range", ["middle half", "first quarter"], at(8, 2, l3=1.9, l1=2.1), at(8, 2, l6=1.9, l1=2.1)),
        ("alllin-p410m-worst-l6", ["first third"], at(9, 2, l2=2.1), at(9, 2, l3=2.1)),
        ("alllin-p410m-cheapest-l12", ["middle third"], at(9, 2, l3=1.9), at(9, 2, l6=1.9)),
        ("alllin-p410m-cheapest-l12", ["middle third"], at(9, 2, l5=1.9), at(9, 2, l2=1.9)),
        ("alllin-p1b-worst-l2", ["first quarter"], at(8, 2, l1=2.1), at(8, 2, l2=2.1)),
        ("alllin-p2.8b-range", ["middle half", "the first"], at(8, 2, l0=9, l3=1.9), at(8, 2, l1=9, l3=1.9)),
        ("alllin-p2.8b-range", ["middle half", "the first"], at(8, 2, l0=9, l3=1.9), at(8, 2, l0=9, l6=1.9)),
        (
            "alllin-p2.8b-l7-l15-under-4",
            ["4 %", "7 to 15 of 32"],
            at(32, 9, **{f"l{i}": 3.99 for i in range(7, 16)}),
            at(32, 1, l7=4.01),
        ),
        ("alllin-every-model-sweet-spot-4", ["4 %", "middle half"], at(8, 9, l4=3.99), at(8, 4.01, l0=1, l1=1)),
        (
            "alllin-one-or-two-critical",
            ["two", "10 %"],
            at(8, 1, l0=11, l1=11, l2=9.99),
            at(8, 1, l0=11, l1=11, l2=10.01),
        ),
        ("alllin-any-single-layer-cheap", ["10 %"], at(8, 1, l3=9.99), at(8, 1, l3=10.01)),
        (
            "alllin-gpt2m-l4-l18-under-3",
            ["3 %", "4 to 18 of 24"],
            at(24, 9, **{f"l{i}": 2.99 for i in range(4, 19)}),
            at(24, 1, l18=3.01),
        ),
        (
            "alllin-p2.8b-u-shape",
            ["0-2 and 28-31 of 32", "7-15 of 32"],
            at(32, 2, **{f"l{i}": 1.9 for i in range(7, 16)}),
            at(32, 2, l3=99, l27=99, l6=0.1, l16=0.1, **{f"l{i}": 2.1 for i in range(7, 16)}),
        ),
        ("layer0-not-in-gpt2", ["double"], at(4, 900, l0=99.9), at(4, 1, l0=100.1)),
        ("seed-half-the-stations", ["half", "2.5 %"], [2.49, -0.02, 9, 9], [2.51, -0.02, 9, 9]),
        ("seed-half-the-stations", ["less than nothing (-0.01 %)"], [2, -0.011, 9, 9], [2, -0.009, 9, 9]),
    ],
)
def test_thresholds_are_those_of_the_statement(
    id: str, words: list[str], inside: list[float], outside: list[float]
) -> None:
    entry = load_paper(PAPER_TOML)[id]
    assert all(word in entry.general for word in words), entry.general
    test = functions_of(id)[None]
    for costs, word in ((inside, YES), (outside, NO)):
        judged = put(test, sweep([c / 100 for c in costs], spread=1e-7))
        assert judged.word == word, judged.reason


@pytest.mark.parametrize(("mean", "word"), [(0.2501, YES), (0.2499, NO)])
def test_the_share_captured_is_of_middle_layers(mean: float, word: str) -> None:
    """0.01 nats of 0.25 are 4 %; outside the middle half the linear map may do as badly as it likes."""
    nats = {LINEAR: [0.2, 0.2] + [0.01] * 4 + [0.2, 0.2], MEAN: [0.21, 0.21] + [mean] + [0.9] * 3 + [0.21, 0.21]}
    it = sweep({variant: np.expm1(values).tolist() for variant, values in nats.items()}, spread=1e-7)
    judged = put(functions_of("alllin-96pct-of-effect")[None], it)
    assert judged.word == word, judged.reason


@pytest.mark.parametrize(
    ("id", "gpt2", "small", "large", "word"),
    [
        ("layer0-sharp-threshold", [1, 1], [99.9, 1], [100.1, 1], YES),
        ("layer0-sharp-threshold", [1, 1], [100.1, 1], [999, 1], NO),
        ("layer0-sharp-threshold", [1, 1], [1, 1], [99.9, 1], NO),
        ("layer0-160m-vs-gpt2l", [2.0, 9], [2.1, 1], [1, 1], YES),
        ("layer0-160m-vs-gpt2l", [2.0, 1], [1.9, 9], [9, 9], NO),
        ("alllin-gpt2l-worst-barely-above-p2.8b-best", [1, 2.48], [9, 9], [9, 2], YES),
        ("alllin-gpt2l-worst-barely-above-p2.8b-best", [1, 2.52], [2, 2], [9, 2], NO),
        ("alllin-gpt2l-worst-barely-above-p2.8b-best", [1, 1.48], [1, 1], [9, 2], NO),
        ("scaling-median-monotone-pythia", [1, 1, 1], [1, 2.9, 3.04], [99, 2.9, 3.0], YES),
        ("scaling-median-monotone-pythia", [9, 9, 9], [99, 3.0, 3.0], [1, 3.1, 3.1], NO),
        ("scaling-gpt2-cheaper", [99, 2.9, 3.0], [1, 1, 1], [1, 2.9, 3.04], YES),
        ("scaling-gpt2-cheaper", [1, 3.1, 3.1], [9, 9, 9], [99, 3.0, 3.0], NO),
    ],
)
def test_thresholds_between_models(
    id: str, gpt2: list[float], small: list[float], large: list[float], word: str
) -> None:
    """GPT-2 is of the size of the larger of two GPT-NeoX models; medians leave layer 0 out."""
    given = [("gpt2", "gpt2", gpt2, 900), ("small", "gpt_neox", small, 100), ("large", "gpt_neox", large, 1000)]
    sweeps = [
        sweep([c / 100 for c in costs], model=model, family=family, parameters=n, spread=1e-7)
        for model, family, costs, n in given
    ]
    judged = put(functions_of(id)[None], Sweeps(tuple(sweeps)))
    assert judged.word == word, judged.reason
