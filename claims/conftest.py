"""What a claim is given: the sweep of its model (or of all models that it compares), and a judge.

Measurements are made here, once for each model and corpus, so that one that breaks is an error of the set-up and
never a verdict.
"""

from __future__ import annotations

import pytest

from fixtures.models import run
from harness.plugin.claims import Judge
from harness.plugin.items import Group
from harness.run import Run
from harness.statistics.sweep import Sweep, Sweeps

__all__ = ["run"]


@pytest.fixture
def sweep(run: Run, request: pytest.FixtureRequest) -> Sweep:
    """The near-linearity sweep of the item's model on the first corpus."""
    model: str = request.param
    return run.sweeps(model)[0]


@pytest.fixture
def sweeps(run: Run, request: pytest.FixtureRequest) -> Sweeps:
    """The sweeps of all models that the item compares, on the first corpus."""
    group: Group = request.param
    return Sweeps(tuple(run.sweeps(model)[0] for model in group.models))


@pytest.fixture
def judge() -> Judge:
    """Judges estimates."""
    return Judge()
