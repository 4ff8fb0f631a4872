"""In a world with article-like dependence, intervals cover and true claims get their verdict.

Few simulations, so the tolerances are wide; ``python -m harness.calibration`` is the full run.
"""

import numpy as np
import pytest

from harness import calibration
from harness.calibration import GPT2_LARGE, TIED, World

SIMULATIONS = 60


@pytest.fixture(scope="module")
def covered():
    return {row.what: row for row in calibration.coverage(40, SIMULATIONS)}


@pytest.mark.parametrize(
    "what",
    [
        "cost of 1.3 %",
        "difference of two costs, paired",
        "24 layers at once",
        "maximum of 24 layers, spread",
        "maximum of 24 layers, tied",
        "set of cheapest layers, tied",
        "share below 3 %, others at 3 %",
    ],
)
def test_nominal_95_percent_intervals_cover(covered, what):
    row = covered[what]
    assert row.rate >= 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / SIMULATIONS)


def test_true_claims_are_supported_and_false_ones_are_not():
    rows = {row.what: row.rate for row in calibration.power(60, 40)}
    assert rows["cost of 1.5 % is at most 3 %"] >= 0.8
    assert rows["share of 22/24 is at least 70 %"] >= 0.65
    assert rows["false: share of 17/24 is at least 18/24"] <= 0.15


def test_the_world_is_what_it_says():
    assert np.mean(np.array(GPT2_LARGE) < 0.03) == pytest.approx(0.917, abs=0.001)
    assert calibration.design_effect(200) == pytest.approx(2.0, abs=0.35)
    world = World(TIED)
    rng = np.random.default_rng(0)
    families = [world.sample(rng) for _ in range(200)]
    inner = np.array([family.smooth.inner for family in families])
    assert inner.mean() == pytest.approx(np.log1p(0.02), abs=0.0005)
    between_layers = np.corrcoef(inner.T)[np.triu_indices(24, 1)].mean()
    assert 0.25 < between_layers < 0.55
    assert families[0].tokens / 60 == pytest.approx(190, rel=0.15)


def test_a_row_reports_its_simulation_error():
    row = calibration.Row("x", 40, 400, 380)
    assert row.rate == 0.95
    assert row.error == pytest.approx(np.sqrt(0.95 * 0.05 / 400))
    assert calibration.Row("x", 40, 400, 400).error == pytest.approx(1 / 400)


def test_the_table_prints(capsys):
    calibration.main(["--simulations", "2", "--documents", "20"])
    out = capsys.readouterr().out
    assert "intraclass correlation 0.0047" in out
    assert "D = 20" in out
    assert "share of 22/24 is at least 70 %" in out
