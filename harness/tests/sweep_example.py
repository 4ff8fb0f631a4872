"""Sweeps made up from costs: what a measurement would hold had a model these costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from claims import test_architecture, test_near_linearity
from harness.plugin.claims import claim_of
from harness.protocol import LINEAR
from harness.statistics.sweep import Sweep

PAPER_TOML = Path(test_near_linearity.__file__).with_name("paper.toml")
Test = Callable[..., None]

D = 40
"""Documents."""
TARGETS = 50
"""Evaluated tokens of each."""


def measurement(
    costs: dict[str, list[float]],
    *,
    layers: list[int] | None = None,
    spread: float = 0.002,
    seed: int = 0,
    **other: Any,
) -> dict[str, Any]:
    """A measurement dict whose costs, by variant and layer, are as given; documents scatter around them.

    `spread` is the standard deviation over documents of the mean ΔNLL, in nats, and `seed` that of their scatter,
    which leaves the costs alone.
    """
    L = len(next(iter(costs.values())))
    rng = np.random.default_rng([L, seed])
    delta = {}
    for variant, values in costs.items():
        noise = rng.normal(0, spread, (L, D))
        rows = TARGETS * (np.log1p(values)[:, None] + noise - noise.mean(1, keepdims=True))
        delta[variant] = [row for i, row in enumerate(rows.tolist()) if layers is None or i in layers]
    return {
        "model": "m",
        "corpus": "c",
        "depth": L,
        "layers": list(range(L)) if layers is None else layers,
        "documents": [{"id": f"{i:016x}", "name": str(i), "targets": TARGETS} for i in range(D)],
        "delta": delta,
        **other,
    }


def sweep(costs: Any = (0.5, 0.1, 0.02), *, family: str = "gpt2", parameters: int | None = 1000, **more: Any) -> Sweep:
    """A sweep with these costs of the linear map, or of several variants."""
    given = costs if isinstance(costs, dict) else {LINEAR: list(costs)}
    return Sweep(measurement(given, **more), {"family": family, "parameters": parameters})


def functions_of(id: str) -> dict[str | None, Test]:
    """The tests of a claim by the model that they are about; None for any other."""
    functions = [*vars(test_near_linearity).values(), *vars(test_architecture).values()]
    return {test.model: f for f in functions if (test := claim_of(f)) and test.id == id}


def at(L: int, others: float, **layers: float) -> list[float]:
    """Costs in percent of L layers: those given as l3=…, the others alike but for a thousandth of a point."""
    costs = [others + 0.001 * (i % 3) for i in range(L)]
    for name, cost in layers.items():
        costs[int(name[1:])] = cost
    return costs
