"""Wanamaker: an independent check of "Half the Nonlinearity Is Wasted" (arXiv 2603.03459).

    from harness import Run, Settings, judge

    sweep = Run(Settings(models=("embedded-gpt2",))).sweep("embedded-gpt2", "scipy")
    judge(sweep.cost.share_below(0.03)).at_least(0.70)

Names are imported when they are first used, and none of them imports torch before something has to be measured.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.evidence import Record, Store
    from harness.protocol import BUDGETS, SOUND, Budget, Protocol, parse_budget
    from harness.run import Run, Settings
    from harness.statistics import Bound, Estimate, Family
    from harness.statistics.sweep import Sweep, Sweeps
    from harness.verdicts import Verdict, judge

_PLACES = {
    "BUDGETS": "protocol",
    "Bound": "statistics",
    "Budget": "protocol",
    "Estimate": "statistics",
    "Family": "statistics",
    "Protocol": "protocol",
    "Record": "evidence",
    "Run": "run",
    "SOUND": "protocol",
    "Settings": "run",
    "Store": "evidence",
    "Sweep": "statistics.sweep",
    "Sweeps": "statistics.sweep",
    "Verdict": "verdicts",
    "judge": "verdicts",
    "parse_budget": "protocol",
}

__all__ = [
    "BUDGETS",
    "SOUND",
    "Bound",
    "Budget",
    "Estimate",
    "Family",
    "Protocol",
    "Record",
    "Run",
    "Settings",
    "Store",
    "Sweep",
    "Sweeps",
    "Verdict",
    "judge",
    "parse_budget",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
