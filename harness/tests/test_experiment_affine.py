"""Models whose MLPs are affine: no cost at all, and what the claims must then say, from text to verdict."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from claims import test_architecture as architecture
from claims import test_near_linearity as near_linearity
from harness.experiments.measurement import from_records
from harness.plugin.claims import claim_of
from harness.plugin.evaluation import Judged, put
from harness.protocol import CONTROLS, MEAN, ZERO
from harness.statistics.sweep import Sweep, Sweeps
from harness.tests.experiment_example import toy, toy_model

EXACT = set(CONTROLS) - {MEAN, ZERO}
"""All that an affine map can be told by; the folded weights too are exact where there is no activation."""
AFFINE = {"gpt2": {"activation_function": "linear"}, "gpt_neox parallel": {"hidden_act": "linear"}}


def sweep_of(folder: Any, name: str, model: Any) -> Sweep:
    """The sweep of a model on 100 documents of one window each, written by the model."""
    it = toy(folder, name, model=model, lengths=[16] * 100)
    return Sweep(from_records(it.request, it.measure()), it.request.model.as_dict())


@pytest.fixture(scope="module", params=AFFINE)
def affine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A model with activation f(x) = x, its blocks sequential (GPT-2) or parallel (GPT-NeoX)."""
    name = request.param
    return sweep_of(tmp_path_factory.mktemp("affine"), name, toy_model(name, **AFFINE[name]))


def claims(module: ModuleType) -> dict[str, Any]:
    """The tests of a module of claims that any model can be put to, by the claim's id."""
    tests = [(found, f) for f in vars(module).values() if (found := claim_of(f))]
    return {found.id: f for found, f in tests if found.model is None}


def said(id: str, sweep: Sweep) -> Judged:
    return put(claims(near_linearity)[id], sweep)


def test_an_affine_mlp_costs_nothing(affine: Sweep) -> None:
    for variant in EXACT:
        np.testing.assert_allclose(affine.variant(variant).values, 0, atol=1e-6, err_msg=variant)
    for variant in (MEAN, ZERO):
        assert (affine.variant(variant).interval()[:, 0] > 0.03).all()  # and yet it does something
    assert affine.captured.known.all()
    np.testing.assert_allclose(affine.captured.values, 1, atol=1e-5)
    assert affine.measurement["fit"]["curve"]["r2"] == [pytest.approx([1] * 4)] * 3


@pytest.mark.parametrize(
    ("id", "word"),
    [
        ("alllin-gpt2m-70pct-under-3", "SUPPORTED"),
        ("alllin-gpt2m-middle-under-3.5", "SUPPORTED"),
        ("alllin-gpt2l-max-3.7", "SUPPORTED"),
        ("alllin-every-model-sweet-spot-4", "SUPPORTED"),
        ("alllin-one-or-two-critical", "SUPPORTED"),
        ("alllin-any-single-layer-cheap", "SUPPORTED"),
        ("alllin-96pct-of-effect", "SUPPORTED"),
        ("alllin-pattern-replicates-exactly", "REFUTED"),
        ("alllin-gpt2m-only-first-last-exceptions", "REFUTED"),
    ],
)
def test_claims_about_an_affine_model(affine: Sweep, id: str, word: str) -> None:
    judged = said(id, affine)
    assert judged.word == word, judged.reason


def test_rounding_is_no_improvement(affine: Sweep) -> None:
    """Costs of some 1e-8 to either side of 0 do not show that a layer does better without its nonlinearity."""
    parts = {part.name: part.verdict.status for part in said("seed-half-the-stations", affine).parts}
    assert parts == {"layers that cost under 2.5 %": "SUPPORTED", "the cheapest layer's cost": "REFUTED"}


def test_layer_0_of_an_affine_model_is_not_catastrophic(affine: Sweep) -> None:
    judged = put(claims(architecture)["layer0-not-in-gpt2"], affine)
    assert judged.word == ("SUPPORTED" if affine.info["family"] == "gpt2" else "not applicable")


def test_every_general_claim_can_be_put_to_a_shallow_model(affine: Sweep) -> None:
    """Three layers lack some depths that claims name; then a claim does not apply, and nothing breaks."""
    words = {put(test, affine).word for test in claims(near_linearity).values()}
    pair = Sweeps((affine, affine))
    words |= {put(f, pair).word for f in claims(architecture).values() if "sweeps" in f.__code__.co_varnames}
    assert words <= {"SUPPORTED", "REFUTED", "INCONCLUSIVE", "not applicable"}
