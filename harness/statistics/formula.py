"""Smooth functions of ratios, written as data so that a report can store them, with exact gradients.

A formula is a nested list, the same in memory and in JSON:

    ["ratio", k]          the k-th ratio of per-document sums, r_k = sum_i a_ki / sum_i t_ki
    ["constant", x]       a number
    ["expm1", f], ["exp", f], ["log", f]
    ["+", f, g], ["-", f, g], ["*", f, g], ["/", f, g]
    ["mean", f, g, ...]

The gradient is needed twice: for the standard error of the estimate (delta method) and, in every bootstrap
resample, for the standard error that studentises it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Formula = list[Any]
Dual = tuple[Array, dict[int, Array]]  # a value and its gradient: ratio index -> derivative

MONOTONE: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "expm1": (np.expm1, np.log1p),
    "exp": (np.exp, np.log),
}
"""Increasing outermost functions and their inverses: intervals are studentised inside them and mapped
through."""


def _sum(f: Dual, g: Dual, sign: float) -> Dual:
    gradient = dict(f[1])
    for k, d in g[1].items():
        gradient[k] = gradient[k] + sign * d if k in gradient else sign * d
    return f[0] + sign * g[0], gradient


def _scale(f: Dual, factor: Array | float) -> dict[int, Array]:
    return {k: factor * d for k, d in f[1].items()}


def _product(f: Dual, g: Dual) -> Dual:
    return f[0] * g[0], _sum((f[0], _scale(f, g[0])), (g[0], _scale(g, f[0])), 1.0)[1]


def _quotient(f: Dual, g: Dual) -> Dual:
    value = f[0] / g[0]
    return value, _sum((f[0], _scale(f, 1.0 / g[0])), (g[0], _scale(g, value / g[0])), -1.0)[1]


def _mean(*parts: Dual) -> Dual:
    total = parts[0]
    for part in parts[1:]:
        total = _sum(total, part, 1.0)
    return total[0] / len(parts), _scale(total, 1.0 / len(parts))


_OPERATIONS: dict[str, Callable[..., Dual]] = {
    "+": lambda f, g: _sum(f, g, 1.0),
    "-": lambda f, g: _sum(f, g, -1.0),
    "*": _product,
    "/": _quotient,
    "mean": _mean,
    "expm1": lambda f: (np.expm1(f[0]), _scale(f, np.exp(f[0]))),
    "exp": lambda f: (np.exp(f[0]), _scale(f, np.exp(f[0]))),
    "log": lambda f: (np.log(f[0]), _scale(f, 1.0 / f[0])),
}


def evaluate(formula: Formula, ratios: Sequence[Array]) -> Dual:
    """Value and gradient of ``formula`` at ``ratios`` (each of shape (..., L)), by forward-mode
    differentiation."""
    head = formula[0]
    if head == "ratio":
        return ratios[formula[1]], {formula[1]: np.ones_like(ratios[formula[1]])}
    if head == "constant":
        return np.asarray(formula[1], dtype=np.float64), {}
    return _OPERATIONS[head](*(evaluate(part, ratios) for part in formula[1:]))


def shifted(formula: Formula, offset: int) -> Formula:
    """The same formula over ratios that now stand ``offset`` places later."""
    if formula[0] == "ratio":
        return ["ratio", formula[1] + offset]
    if formula[0] == "constant":
        return formula
    return [formula[0], *(shifted(part, offset) for part in formula[1:])]


def split_monotone(formula: Formula) -> tuple[str | None, Formula]:
    """``(name, inner)`` where the outermost function is increasing and has an inverse, else ``(None,
    formula)``."""
    if formula[0] in MONOTONE:
        return formula[0], formula[1]
    return None, formula
