"""Numbers, names and paths as a reader sees them."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import numbers
from harness.reporting.escape import block, slug, text, visible, without_paths
from harness.reporting.tables import listed, table


def test_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(numbers)
    assert results.attempted >= 2
    assert results.failed == 0


@pytest.mark.parametrize(
    ("value", "ends", "unit", "shown"),
    [
        (227.8, (210.1, 241.7), "cost", ("22,780 %", "[21,010, 24,170]")),
        (0.0158, (0.0142, 0.0175), "cost", ("1.58 %", "[1.42, 1.75]")),
        (0.0158, (-0.2, 0.3), "cost", ("2 %", "[−20, 30]")),
        (-0.0004, (-0.0011, 0.0003), "%", ("−0.040 %", "[−0.110, 0.030]")),
        (3e-9, (-1e-9, 7e-9), "cost", ("0.0000 %", "[0.0000, 0.0000]")),
        (0.0, (0.0, 0.0), "cost", ("0.00 %", "[0.00, 0.00]")),
        (0.7, (16 / 24, 20 / 24), "share", ("70.0 %", "[66.7, 83.3]")),
        (16 / 23, (0.43, 0.87), "share", ("69.6 %", "[43.0, 87.0]")),
        (5, (3, 8), "layers", ("5 layers", "[3, 8]")),
        (1, (1, 1), "layers", ("1 layer", "[1, 1]")),
        (1.98, (1.7, 2.31), "", ("1.98", "[1.70, 2.31]")),
        (0.0793, (0.071, 0.088), "nats", ("0.0793 nats", "[0.0710, 0.0880]")),
        (1e9, None, "cost", ("1.00e+11 %", "—")),
        (None, (None, None), "cost", ("—", "—")),
        (math.nan, (math.nan, math.inf), "cost", ("—", "—")),
        (0.05, (0.01, math.inf), "cost", ("5.00 %", "[1.00, none]")),
        (0.05, (None, 0.1), None, ("0.0500", "[none, 0.100]")),
    ],
)
def test_estimates_carry_the_digits_that_their_interval_can(value, ends, unit, shown) -> None:  # type: ignore[no-untyped-def]
    assert numbers.estimate(value, ends, unit) == shown


@pytest.mark.parametrize(
    ("value", "unit", "quantity", "difference"),
    [
        (0.70, "share", "70 %", "70 points"),
        (0.0255, "cost", "2.55 %", "2.55 points"),
        (0.1 + 0.2, "cost", "30 %", "30 points"),
        (210.0, "", "210", "210"),
        (2, "layers", "2 layers", "2 layers"),
        (0, "cost", "0 %", "0 points"),
        (-0.0025, "cost", "−0.25 %", "−0.25 points"),
        (None, "cost", "—", "—"),
    ],
)
def test_thresholds_are_exact(value, unit, quantity, difference) -> None:  # type: ignore[no-untyped-def]
    assert numbers.quantity(value, unit) == quantity
    assert numbers.difference(value, unit) == difference


def test_changes_are_signed() -> None:
    assert numbers.change(0.05, (0.02, 0.08), "share") == "+5.0 [2.0, 8.0] points"
    assert numbers.change(-2, (-4, 0), "layers") == "−2 [−4, 0] layers"
    assert numbers.change(None, None, "cost") == "—"


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_a_printed_value_is_within_its_interval_and_close(value: float, half: float) -> None:
    shown, limits = numbers.estimate(value, (value - half, value + half), "")
    read = float(shown.replace("−", "-").replace(",", ""))
    assert abs(read - value) <= 0.05 * half + 1e-4
    low, high = (float(end.replace("−", "-").replace(",", "")) for end in limits.strip("[]").split(", "))
    assert low <= read <= high


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0 s"),
        (83.2, "83 s"),
        (99.6, "2 min"),
        (431, "7 min"),
        (5_930, "99 min"),
        (7_200, "2.0 h"),
        (None, "—"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert numbers.duration(seconds) == shown


# ---- names and paths


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("smollm2-135m", "smollm2-135m"),
        ("linear_with_first", "linear_with_first"),
        ("_private_", r"\_private\_"),
        ("a|b", r"a\|b"),
        ("<script>", r"\<script>"),
        ("cost < 3 %", "cost < 3 %"),
        ("50 % [33, 67] is", "50 % [33, 67] is"),
        ("[1](x)", r"\[1\](x)"),
        ("[x](y)", r"\[x\](y)"),
        ("a\r\n\tb", "a b"),
        ("\u202eabc\u200b", "‹U+202E›abc‹U+200B›"),
        ("\ud800", "‹U+D800›"),
        ("&lt; & co", r"\&lt; & co"),
        ("https://x.org www.x.org", r"https\://x.org www\.x.org"),
    ],
)
def test_text(name: str, shown: str) -> None:
    assert text(name) == shown


@pytest.mark.parametrize(("name", "shown"), [("1. x", r"1\. x"), ("# x", r"\# x"), ("- x", r"\- x"), ("> x", r"\> x")])
def test_block(name: str, shown: str) -> None:
    assert block(name) == shown


def test_slugs_are_those_of_github() -> None:
    assert slug("alllin-gpt2m-middle-under-3.5") == "alllin-gpt2m-middle-under-35"
    assert slug("What an interval does not cover") == "what-an-interval-does-not-cover"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("/root/models/m/model.safetensors: truncated", "model.safetensors: truncated"),
        ("cannot read '/srv/my data/x.jsonl' (missing)", "cannot read 'x.jsonl' (missing)"),
        (r"C:\Users\me\x.json is empty", "x.json is empty"),
        ("~/work/x.json", "x.json"),
        ("file:///tmp/a/b.txt", "b.txt"),
        ("openai/gpt2@abc and https://huggingface.co/a/b", "openai/gpt2@abc and https://huggingface.co/a/b"),
        ("16/23 layers, 3/4 and/or", "16/23 layers, 3/4 and/or"),
        ("in /tmp/a/, /tmp/b/", "in a, b"),
    ],
)
def test_absolute_paths_become_names(message: str, shown: str) -> None:
    assert without_paths(message) == shown


@given(st.text(st.characters(codec=None)))
def test_visible_is_one_printable_line(name: str) -> None:
    shown = visible(name)
    assert shown.isprintable() or all(c.isprintable() or c.isspace() for c in shown)
    assert len(shown.splitlines()) <= 1


def test_tables_and_lists() -> None:
    assert table(["a", "b"], [["x", "1.50"], ["y", "1,234"]]).splitlines() == [
        "| a   |     b |",
        "|:----|------:|",
        "| x   |  1.50 |",
        "| y   | 1,234 |",
    ]
    assert table(["a"], []) == "*None.*"
    assert [listed(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
