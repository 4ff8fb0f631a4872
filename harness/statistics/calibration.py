"""Do the intervals cover, and do verdicts come? A simulated world with article-like dependence, where the truth is known.

    python -m harness.statistics.calibration            # the full table, some minutes
    python -m harness.statistics.calibration --simulations 100

The world: delta NLL of a token is the layer's true mean, plus an effect of its document, plus noise of its own.

- Document effects are skewed to the right (standardized gamma, shape 2) and correlate between layers through a part that
  all layers share: an article that is hard for one layer is hard for others.
- Token noise is heavy-tailed and skewed to the right (Student t with 5 degrees of freedom plus an exponential), with a part
  that all layers share.
- Document lengths are log-normal, so costs are ratios of two random sums.
- The intraclass correlation is such that the design effect, the variance of a mean over that of as many independent
  tokens, is about 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from harness.statistics.families import Family, cost_family
from harness.statistics.formula import Array
from harness.verdicts import SUPPORTED, judge

PROFILE = (
    0.0038, 0.0061, 0.0066, 0.0075, 0.0076, 0.0085, 0.0088, 0.0097, 0.0106, 0.0111, 0.0126, 0.0131,
    0.0134, 0.0147, 0.0150, 0.0170, 0.0177, 0.0187, 0.0202, 0.0261, 0.0266, 0.0331, 0.0361, 0.0369,
)  # fmt: skip

_POOL = 1 << 20
