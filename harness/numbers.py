"""Numbers as a reader wants them: percent for costs and shares, as many digits as the interval can carry."""

from __future__ import annotations

import math
from collections.abc import Sequence

Ends = Sequence[float | None]
"""Two ends of an interval; None, NaN or infinity for one that does not exist."""

NOTHING = "—"
"""Stands for a number that does not exist; the text around it says why."""
_PERCENT = {"cost", "share", "relative perplexity", "%"}
"""Units whose values are fractions and are printed as percent (as `harness.statistics` names them)."""
_POINTS = "points"
"""Differences of such fractions, printed as percentage points."""
_COUNTS = {"layers", "documents", "tokens"}
"""Units of whole numbers, in the plural."""
_MOST = 4
"""Most decimals ever printed: a cost of 0 within float32 noise prints as zero."""


def number(value: float | None, decimals: int | None = None) -> str:
    """`value` with `decimals`, or with three significant digits; from ten million on as 3.10e+09.

    >>> number(227.8042), number(0.0158), number(-1234567.0), number(None)
    ('228', '0.0158', '−1,234,567', '—')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if decimals is None:
        decimals = _decimals_of(abs(value))
    shown = f"{value:.2e}" if abs(value) >= 1e7 else f"{value:,.{decimals}f}"
    if not shown.strip("-0.,"):  # "-0.00" would claim a negative effect where there is none to see
        shown = shown.lstrip("-")
    return shown.replace("-", "−")


def exact(value: float | None) -> str:
    """A threshold, margin or planned effect: four significant digits, no zeros at the end (``70``)."""
    if value is None or not math.isfinite(value):
        return NOTHING
    rounded = float(f"{value:.4g}")
    return number(rounded, next((d for d in range(9) if round(rounded, d) == rounded), 9))


def percent(fraction: float | None) -> str:
    """A fraction as percent, without the sign (table heads carry it); two decimals at most."""
    if fraction is None or not math.isfinite(fraction):
        return NOTHING
    return number(100 * fraction, min(2, _decimals_of(abs(100 * fraction))))


def percent_in(fraction: float | None, ends: Ends | None) -> tuple[str, str]:
    """A fraction and its interval as percent, without the sign, at the precision of the interval's width."""
    value, limits = estimate(fraction, ends, "%")
    return value.removesuffix(" %"), limits


def estimate(value: float | None, ends: Ends | None, unit: str | None) -> tuple[str, str]:
    """Value with its unit, and its interval without, both at the precision of the interval's width.

    >>> estimate(0.0158, [0.0142, 0.0175], "cost"), estimate(5, [3, 8], "layers")
    (('1.58 %', '[1.42, 1.75]'), ('5 layers', '[3, 8]'))
    """
    k = scale(unit)
    scaled = [] if ends is None else [_finite(end, k) for end in ends]
    decimals = 0 if unit in _COUNTS and value == _whole(value) else _decimals_for(scaled)
    if unit == "share" and decimals == 0:
        decimals = 1  # 16 of 23 layers are 69.6 %, which is not the 70 % that was claimed
    shown = number(_finite(value, k), decimals)
    return shown if shown == NOTHING else shown + suffix(unit, value), _limits(scaled, decimals)


def quantity(value: float | None, unit: str | None) -> str:
    """A single exact value with its unit: ``70 %``, ``2 layers``."""
    shown = exact(_finite(value, scale(unit)))
    return shown if shown == NOTHING else shown + suffix(unit, value)


def difference(value: float | None, unit: str | None) -> str:
    """A distance between two values of `unit`: percentage points for costs and shares."""
    shown = exact(_finite(value, scale(unit)))
    return shown if shown == NOTHING else shown + _apart(unit, value)


def change(value: float | None, ends: Ends | None, unit: str | None) -> str:
    """A signed difference with its interval: ``+5.0 [2.0, 8.0] points``."""
    shown, limits = estimate(value, ends, unit)
    if shown == NOTHING:
        return NOTHING
    bare = shown.removesuffix(suffix(unit, value))
    return ("" if bare.startswith("−") else "+") + bare + f" {limits}" + _apart(unit, value)


def scale(unit: str | None) -> float:
    """What a value of `unit` is multiplied by before it is printed."""
    return 100.0 if unit in _PERCENT or unit == _POINTS else 1.0


def suffix(unit: str | None, value: float | None = None) -> str:
    """What stands after the number; one layer is not "1 layers"."""
    if unit in _PERCENT:
        return " %"
    if unit in _COUNTS and value == 1:
        return " " + unit[:-1]
    return f" {unit}" if unit else ""


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return NOTHING if value is None else f"{value:,}"


def plural(n: int, noun: str) -> str:
    """``1 claim``, ``2 claims``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, to two or three digits."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 99.5 else f"{minutes / 60:.1f} h"


def ascii_only(shown: str) -> str:
    """The same for a terminal that may not speak Unicode."""
    return shown.translate({ord("−"): "-", ord("—"): "-", ord("≥"): ">=", ord("≤"): "<=", ord("±"): "+-"})


def _apart(unit: str | None, value: float | None) -> str:
    return " points" if unit in _PERCENT else suffix(unit, value)


def _limits(scaled: Ends, decimals: int | None) -> str:
    if all(end is None for end in scaled):
        return NOTHING
    low, high = ("none" if end is None else number(end, decimals) for end in scaled)
    return f"[{low}, {high}]"


def _decimals_for(scaled: Ends) -> int | None:
    """Decimals at which half the width shows two significant digits; None leaves it to the value's size."""
    if len(scaled) != 2 or scaled[0] is None or scaled[1] is None or scaled[0] == scaled[1]:
        return None
    half = abs(scaled[1] - scaled[0]) / 2
    return min(_MOST, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else None


def _decimals_of(size: float) -> int:
    """Decimals that give `size` three significant digits."""
    if size < 10**-_MOST:
        return 2
    return min(_MOST, max(0, 2 - math.floor(math.log10(size))))


def _finite(value: float | None, k: float = 1.0) -> float | None:
    return k * value if value is not None and math.isfinite(value) else None


def _whole(value: float | None) -> float | None:
    return float(round(value)) if value is not None and math.isfinite(value) else None
