"""How far a low precision moves the numbers: the same windows and the same maps, in a float32 copy of the model.

Forward passes are in float32 unless something else was asked for; then the record says what that changed: the rounding
of weights and activations, and not the fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

LOW = ("bfloat16", "float16")
"""Precisions below float32."""


@dataclass(frozen=True)
class Drift:
    """Mean losses on the same windows in a low precision and in float32, nats."""

    dtype: str
    """The low precision."""
    tokens: int
    """How many positions with a target the means are over."""
    base: float
    """Of the unchanged model, in the low precision."""
    base32: float
    """The same in float32."""
    linear: np.ndarray
    """(layers,) with the MLP of a layer replaced by its map, in the low precision."""
    linear32: np.ndarray
    """(layers,) the same in float32."""

    @property
    def cost(self) -> np.ndarray:
        """(layers,) relative change of perplexity, exp(mean ΔNLL) − 1, in the low precision."""
        return np.expm1(self.linear - self.base)

    @property
    def cost32(self) -> np.ndarray:
        """(layers,) the same in float32."""
        return np.expm1(self.linear32 - self.base32)

    def arrays(self, row: int) -> dict[str, np.ndarray]:
        """For the record of one layer: `drift` (precision, mlp) and `drift_tokens` ()."""
        losses = [[self.base, self.linear[row]], [self.base32, self.linear32[row]]]
        return {"drift": np.array(losses), "drift_tokens": np.array(self.tokens)}


def measure_drift(dtype: str, low: Mapping[str, np.ndarray], full: Mapping[str, np.ndarray], linear: int) -> Drift:
    """Hold a chunk of the sweep in `dtype` (`low`) against one on the same windows in float32 (`full`).

    Both have nll (targets,) and nll_variant (layers, variants, targets); `linear` says which variant of `low` is the
    one that `full` has.
    """
    return Drift(
        dtype,
        tokens=len(low["nll"]),
        base=float(low["nll"].mean(dtype=np.float64)),
        base32=float(full["nll"].mean(dtype=np.float64)),
        linear=low["nll_variant"][:, linear].mean(axis=-1, dtype=np.float64),
        linear32=full["nll_variant"][:, 0].mean(axis=-1, dtype=np.float64),
    )
