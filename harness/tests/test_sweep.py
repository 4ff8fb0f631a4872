"""A sweep over layers: parts of the depth, variants, what does not apply, and models side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.protocol import FOLDED, LINEAR, LINEAR_HALF_A, LINEAR_HALF_B, MEAN
from harness.statistics.sweep import NotApplicable, Sweep, Sweeps
from harness.tests.sweep_example import TARGETS, D, measurement, sweep


def of_depth(L: int) -> Sweep:
    return sweep([0.01] * L)


# ---- parts of the depth


@pytest.mark.parametrize(
    ("depth", "first", "last", "of", "found"),
    [
        (24, 2, 15, 24, range(2, 16)),
        (24, 4, 18, 24, range(4, 19)),
        (32, 7, 15, 32, range(7, 16)),
        (12, 2, 15, 24, range(1, 8)),
        (30, 2, 15, 24, range(2, 20)),
        (36, 2, 15, 24, range(3, 24)),
        (32, 0, 2, 32, range(3)),
        (32, 28, 31, 32, range(28, 32)),
        (30, 0, 2, 32, range(3)),
        (30, 28, 31, 32, range(26, 30)),
        (12, 28, 31, 32, range(10, 12)),
        (8, 7, 15, 32, range(2, 4)),
    ],
)
def test_like_is_where_layers_stand(depth: int, first: int, last: int, of: int, found: range) -> None:
    assert of_depth(depth).like(first, last, of=of) == list(found)


@pytest.mark.parametrize("depth", [12, 16, 24, 30, 32, 36])
def test_like_its_own_layers_are_exactly_those(depth: int) -> None:
    it = of_depth(depth)
    for first in range(depth):
        for last in range(first, depth):
            assert it.like(first, last, of=depth) == list(range(first, last + 1))


@pytest.mark.parametrize(
    ("depth", "found"),
    [
        (1, [0]),
        (3, [1]),
        (4, [1, 2]),
        (8, range(2, 6)),
        (12, range(3, 9)),
        (24, range(6, 18)),
        (30, range(7, 23)),
        (36, range(9, 27)),
    ],
)
def test_middle_half(depth: int, found: Any) -> None:
    assert of_depth(depth).middle_half == list(found)


@pytest.mark.parametrize("depth", [1, 2, 5, 6, 12, 25, 30, 36])
def test_parts_of_the_depth_are_the_same_from_either_end(depth: int) -> None:
    it = of_depth(depth)
    for low, high in ((0, 1 / 4), (0, 1 / 3), (1 / 3, 2 / 3), (1 / 4, 3 / 4), (0, 1)):
        try:
            from_start = it.depths(low, high)
        except NotApplicable:
            from_start = []
        try:
            from_end = [depth - 1 - layer for layer in reversed(it.depths(1 - high, 1 - low))]
        except NotApplicable:
            from_end = []
        assert from_start == from_end


@pytest.mark.parametrize(
    ("paper", "depth", "low", "high", "layer"),
    [
        ("gpt2-medium", 24, 1 / 4, 3 / 4, 8),
        ("gpt2-large", 36, 0, 1 / 4, 5),
        ("pythia-160m", 12, 1 / 4, 3 / 4, 5),
        ("pythia-160m", 12, 0, 1 / 4, 2),
        ("pythia-410m", 24, 0, 1 / 3, 6),
        ("pythia-410m", 24, 1 / 3, 2 / 3, 12),
        ("pythia-1b", 16, 0, 1 / 4, 2),
        ("pythia-2.8b", 32, 1 / 4, 3 / 4, 10),
    ],
)
def test_general_claims_hold_where_the_paper_has_them(
    paper: str, depth: int, low: float, high: float, layer: int
) -> None:
    """The part of the depth that a general claim names holds the layer that the paper names."""
    assert layer in of_depth(depth).depths(low, high), paper


def test_a_shallow_model_lacks_some_depths() -> None:
    with pytest.raises(NotApplicable, match="a model of 4 layers has none at that depth"):
        of_depth(4).like(0, 2, of=32)


def test_other_layers() -> None:
    it = of_depth(5)
    assert it.other_than(0) == [1, 2, 3, 4]
    assert it.other_than(0, 4) == [1, 2, 3]
    with pytest.raises(NotApplicable, match="a model of 2 layers has no others"):
        of_depth(2).other_than(0, 1)


# ---- costs


def test_costs_are_relative_perplexities() -> None:
    it = sweep({LINEAR: [0.5, 0.1, -0.02], MEAN: [2.0, 0.3, 0.01]})
    np.testing.assert_allclose(it.cost.values, [0.5, 0.1, -0.02])
    np.testing.assert_allclose(it.variant(MEAN).values, [2.0, 0.3, 0.01])
    assert it.cost_at(1).value == pytest.approx(0.1)
    assert it.cost.names == (0, 1, 2)
    assert (it.cost.unit, it.cost.documents, it.cost.tokens) == ("cost", D, D * TARGETS)


def test_tokens_weigh_and_documents_do_not() -> None:
    given = measurement({LINEAR: [0.0]})
    given["documents"][0]["targets"] = 10 * TARGETS
    given["delta"][LINEAR] = [[10 * TARGETS * 0.3] + [0.0] * (D - 1)]
    it = Sweep(given, {"family": "gpt2", "parameters": 1})
    assert it.cost.values == pytest.approx(np.expm1(0.3 * 10 / (10 + D - 1)))
    assert it.targets.tolist() == [10 * TARGETS] + [TARGETS] * (D - 1)


def test_half_a_plays_the_linear_map() -> None:
    costs = {LINEAR: [0.3, 0.1], LINEAR_HALF_A: [0.4, 0.2], MEAN: [0.6, 0.5]}
    it = Sweep(measurement(costs), {"family": "gpt2"}, linear=LINEAR_HALF_A)
    np.testing.assert_allclose(it.cost.values, [0.4, 0.2])
    assert it.cost_at(0).value == pytest.approx(0.4)
    np.testing.assert_allclose(it.captured.values, 1 - np.log1p([0.4, 0.2]) / np.log1p([0.6, 0.5]))
    np.testing.assert_allclose(it.variant(MEAN).values, [0.6, 0.5])
    with pytest.raises(NotApplicable, match=f"'{LINEAR_HALF_B}' was not measured"):
        _ = Sweep(measurement(costs), {}, linear=LINEAR_HALF_B).cost


def test_the_share_captured_is_in_nats() -> None:
    it = sweep({LINEAR: [0.02, 0.0, 0.3], MEAN: [0.5, 0.4, 0.2]})
    np.testing.assert_allclose(it.captured.values, 1 - np.log1p([0.02, 0.0, 0.3]) / np.log1p([0.5, 0.4, 0.2]))
    assert it.captured.known.all()
    assert it.captured.unit == "share"


def test_nothing_is_captured_where_ablation_does_nothing() -> None:
    it = sweep({LINEAR: [0.02, 0.01, 0.03], MEAN: [0.5, 0.0001, 0.4]}, spread=0.02)
    assert it.captured.known.tolist() == [True, False, True]
    worst = it.captured.minimum()
    assert "ablating layer 1 has no sure effect" in worst.undefined
    assert it.captured.only([0, 2]).minimum().undefined == ""
    assert np.isnan(it.captured.interval()[1]).all()


def test_what_was_not_measured_does_not_apply() -> None:
    part = sweep({LINEAR: [0.3, 0.1, 0.2], MEAN: [1.0, 1.0, 1.0]}, layers=[0, 2])
    assert part.cost_at(2).value == pytest.approx(0.2)
    assert part.layers == [0, 1, 2]
    with pytest.raises(NotApplicable, match=r"layer 1 was not measured \(--layers\)"):
        part.cost_at(1)
    for ask in (lambda: part.cost, lambda: part.variant(MEAN), lambda: part.captured):
        with pytest.raises(NotApplicable, match="needs all layers; 2 of 3 were measured"):
            ask()
    with pytest.raises(NotApplicable, match="the variant 'folded' was not measured with this budget and protocol"):
        sweep().variant(FOLDED)
    with pytest.raises(NotApplicable, match="'mean' was not measured"):
        _ = sweep().captured


def test_a_claim_about_a_family() -> None:
    sweep(family="gpt2").require(family="gpt2")
    with pytest.raises(NotApplicable, match="about gpt2 models; m is llama"):
        sweep(family="llama").require(family="gpt2")


# ---- models side by side


def sized(name: str, family: str, parameters: int | None) -> Sweep:
    return sweep(model=name, family=family, parameters=parameters)


PAPER = Sweeps(
    (
        sized("gpt2-large", "gpt2", 774_030_080),
        sized("pythia-2.8b", "gpt_neox", 2_775_208_960),
        sized("gpt2-medium", "gpt2", 354_823_168),
        sized("pythia-160m", "gpt_neox", 162_322_944),
        sized("pythia-1b", "gpt_neox", 1_011_781_632),
        sized("pythia-410m", "gpt_neox", 405_334_016),
    )
)


def names(sweeps: list[Sweep]) -> list[str]:
    return [one.model for one in sweeps]


def test_a_family_comes_smallest_first() -> None:
    assert names(PAPER.of_family("gpt2")) == ["gpt2-medium", "gpt2-large"]
    pythia = ["pythia-160m", "pythia-410m", "pythia-1b", "pythia-2.8b"]
    assert names(PAPER.of_family("gpt_neox", at_least=2)) == pythia
    assert names(PAPER.of_family("gpt_neox", at_least=4)) == pythia


@pytest.mark.parametrize(
    ("at_least", "message"),
    [(1, "needs a llama model; this run has none"), (2, "needs 2 llama models of different sizes; this run has none")],
)
def test_a_family_that_is_not_there(at_least: int, message: str) -> None:
    with pytest.raises(NotApplicable, match=message):
        PAPER.of_family("llama", at_least=at_least)


@pytest.mark.parametrize("second", [1000, 1050])
def test_two_models_of_one_size_are_not_two_sizes(second: int) -> None:
    """Nor is a copy with a few more words in its vocabulary another size."""
    twins = Sweeps((sized("a", "gpt_neox", 1000), sized("b", "gpt_neox", second)))
    assert len(twins.of_family("gpt_neox")) == 2
    with pytest.raises(NotApplicable, match="of different sizes; a and b are of one size"):
        twins.of_family("gpt_neox", at_least=2)
    more = Sweeps((*twins.all, sized("c", "gpt_neox", 5000)))
    with pytest.raises(NotApplicable, match="a and b are of one size"):
        more.of_family("gpt_neox", at_least=2)


def test_an_unknown_size_is_no_size() -> None:
    pickled = Sweeps((sized("a", "gpt_neox", 1000), sized("b", "gpt_neox", None)))
    with pytest.raises(NotApplicable, match="the size of b is not known"):
        pickled.of_family("gpt_neox", at_least=2)


def test_models_of_like_size() -> None:
    pairs = [(a.model, b.model) for a, b in PAPER.like_sized("gpt2", "gpt_neox")]
    assert pairs == [("gpt2-medium", "pythia-410m"), ("gpt2-large", "pythia-1b")]
    one = Sweeps((sized("a", "gpt2", 1000), sized("b", "gpt_neox", 1600)))
    with pytest.raises(NotApplicable, match="no gpt2 and gpt_neox model of this run are of like size"):
        one.like_sized("gpt2", "gpt_neox")
    with pytest.raises(NotApplicable, match="needs a llama model"):
        one.like_sized("gpt2", "llama")
    pickled = Sweeps((sized("a", "gpt2", None), sized("b", "gpt_neox", 1000)))
    with pytest.raises(NotApplicable, match="of like size"):
        pickled.like_sized("gpt2", "gpt_neox")


def test_models_side_by_side_share_their_documents() -> None:
    one, other = sized("a", "gpt2", 1000), sized("b", "gpt2", 2000)
    assert PAPER.corpus == "c"
    difference = one.cost_at(0) - other.cost_at(0)
    assert difference.documents == D
    assert difference.interval() == (0.0, 0.0)  # the same numbers on the same documents
