"""Numbers as a reader wants them: percent for costs and shares, as many digits as the interval can carry."""

from __future__ import annotations

import math
from collections.abc import Sequence

NOTHING = "—"
"""Stands for a number that does not exist; the text around it says why."""
_PERCENT = {"cost", "share", "relative", "relative perplexity", "fraction", "%", "percent"}
"""Units whose values are fractions and are printed as percent."""
_MOST = 4
"""Most decimals ever printed: a cost of 0 within float32 noise prints as zero."""


def number(value: float | None, decimals: int | None = None) -> str:
    """`value` with `decimals`, or with three significant digits; 22,780 and 3.1e+09 rather than long rows of digits.

    >>> number(227.8042), number(0.0158), number(-1234567.0), number(None)
    ('228', '0.0158', '−1,234,567', '—')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if decimals is None:
        decimals = _decimals_of(abs(value))
    if abs(value) >= 1e7:
        shown = f"{value:.2e}"
    else:
        shown = f"{value:,.{decimals}f}"
    if not shown.strip("-0.,"):  # "-0.00" says that there is a negative effect where there is none to see
        shown = shown.lstrip("-")
    return shown.replace("-", "−") if "e-" not in shown else shown


def percent(fraction: float | None, decimals: int | None = None) -> str:
    """A fraction as percent, without the sign for percent (table heads carry it)."""
    return number(None if fraction is None else 100 * fraction, decimals)


def interval(ends: Sequence[float | None] | None, decimals: int | None = None) -> str:
    """``[lo, hi]`` at the precision that the width carries; an end that does not exist is said to be missing."""
    if ends is None or all(_missing(end) for end in ends):
        return NOTHING
    if decimals is None:
        decimals = decimals_for(ends)
    lo, hi = ("none" if _missing(end) else number(end, decimals) for end in ends)
    return f"[{lo}, {hi}]"


def estimate(value: float | None, ends: Sequence[float | None] | None, unit: str | None) -> tuple[str, str]:
    """Value with unit, and its interval, in one unit and at one precision."""
    k = scale(unit)
    scaled = [None if _missing(end) else k * end for end in ends] if ends is not None else None  # type: ignore[operator]
    decimals = decimals_for(scaled) if scaled and not any(_missing(end) for end in scaled) else None
    if value is None or not math.isfinite(value):
        return NOTHING, interval(scaled, decimals)
    if unit in _COUNTS and value == int(value):
        decimals = 0
    return number(k * value, decimals) + suffix(unit), interval(scaled, decimals)


def quantity(value: float | None, unit: str | None) -> str:
    """A single value with its unit."""
    return estimate(value, None, unit)[0]


def difference(value: float | None, unit: str | None) -> str:
    """A distance between two values of `unit`: percentage points for costs and shares."""
    if value is None or not math.isfinite(value):
        return NOTHING
    shown = number(scale(unit) * value)
    return f"{shown} points" if unit in _PERCENT else shown + suffix(unit)


_COUNTS = {"layers", "documents", "tokens", "count", "layer"}


def scale(unit: str | None) -> float:
    """What a value of `unit` is multiplied by before it is printed."""
    return 100.0 if unit in _PERCENT else 1.0


def suffix(unit: str | None) -> str:
    """What stands after the number."""
    if unit in _PERCENT:
        return " %"
    return f" {unit}" if unit else ""


def decimals_for(ends: Sequence[float | None]) -> int:
    """Decimals at which a half-width shows two significant digits; none where it is 10 or more."""
    sizes = [abs(end) for end in ends if end is not None and math.isfinite(end)]
    if len(sizes) == 2:
        half = abs(ends[1] - ends[0]) / 2  # type: ignore[operator]
        if half > 0:
            return min(_MOST, max(0, 1 - math.floor(math.log10(half))))
    return _decimals_of(max(sizes, default=0.0))


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return NOTHING if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, to two or three digits."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 99.5 else f"{minutes / 60:.1f} h"


def plural(n: int, noun: str) -> str:
    """``1 claim``, ``2 claims``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def ascii_only(shown: str) -> str:
    """The same number for a terminal that may not speak Unicode."""
    return shown.translate({ord("−"): "-", ord("—"): "-", ord("≥"): ">=", ord("≤"): "<=", ord("±"): "+-"})


def _decimals_of(size: float) -> int:
    """Decimals that give `size` three significant digits."""
    if size == 0 or size < 10**-_MOST:
        return 2
    return min(_MOST, max(0, 2 - math.floor(math.log10(size))))


def _missing(end: float | None) -> bool:
    return end is None or not math.isfinite(end)
