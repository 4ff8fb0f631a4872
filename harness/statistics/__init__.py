"""Intervals over documents: estimates, families of layers, bounds for counts and maxima, comparison with a
baseline.

Nothing here loads torch: every statistic is recomputed from per-document sums.
"""

from harness.statistics.argsets import Advantage, ArgSet
from harness.statistics.bounds import Bound
from harness.statistics.comparison import Comparison, compare_to_baseline, holm
from harness.statistics.estimates import DocumentSums, Estimate
from harness.statistics.families import Family, captured, cost_family, family

__all__ = [
    "Advantage",
    "ArgSet",
    "Bound",
    "Comparison",
    "DocumentSums",
    "Estimate",
    "Family",
    "captured",
    "compare_to_baseline",
    "cost_family",
    "family",
    "holm",
]
