"""The table at the end of a terminal run: 80 columns, whatever the names."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.reporting import terminal
from harness.tests.reporting_example import HOSTILE, claim, part, report

SMALL = "smollm2-135m"


def test_the_example() -> None:
    lines = terminal.render(report())
    assert lines[0] == f"{SMALL}: 1 SUPPORTED, 1 REFUTED, 1 INCONCLUSIVE, 1 n/a, 1 ERROR"
    assert lines[1] == "Most layers cost little                  SUPPORTED     50.0 % [33.3, 66.7]"
    assert any("REFUTED" in line and "22,780 % [21,010, 24,170]" in line for line in lines)
    assert sum("ERROR" in line for line in lines) == 2, "one in the tally, one in its row"
    assert lines[-1] == "error: alllin-broken: non-finite logits in layer 2"


def test_rows_are_plain_ascii_but_for_names() -> None:
    lines = terminal.render(report())
    assert all(line.isascii() for line in lines if "‹U+" not in line)


def test_every_judged_claim_has_a_row() -> None:
    told = report()
    told["claims"] = [claim("x", "REFUTED", [SMALL]) | {"title": f"claim-number-{i}"} for i in range(30)]
    lines = terminal.render(told)
    assert [line.split()[0] for line in lines[1:31]] == [f"claim-number-{i}" for i in range(30)]


def test_a_title_of_42_columns_is_whole() -> None:
    told = report()
    title = "the linear map captures 96 % of the effect"
    told["claims"] = [claim("x", "INCONCLUSIVE", [SMALL]) | {"title": title}]
    assert terminal.render(told)[1].startswith(title)


def test_a_lead_is_called_one() -> None:
    told = report()
    lead = part(
        "SUPPORTED",
        predicate="lies in 6-17",
        value=0.004,
        interval=[0.001, 0.007],
        unit="relative perplexity",
    )
    told["claims"] = [claim("cheapest", "SUPPORTED", [SMALL], parts=[lead])]
    assert terminal.render(told)[1].endswith("lead 0.40 % [0.10, 0.70]")


def test_nothing_judged() -> None:
    told = report()
    told.update(claims=[], errors=[])
    assert terminal.render(told) == []
    assert terminal.summary_line(told) == "0 judgements: none"
    assert terminal.summary_line(report()).startswith("7 judgements: 1 SUPPORTED, 2 REFUTED, 2 INCONCLUSIVE")


NAMES = st.text(st.characters(codec=None) | st.sampled_from(HOSTILE + "漢字語\u0301"), max_size=120)


@settings(deadline=None, max_examples=100)
@given(NAMES, NAMES, st.floats(), st.sampled_from(["cost", "layers", "", "nats"]))
def test_no_line_is_wider_than_80_columns(name: str, words: str, value: float, unit: str) -> None:
    told = report()
    judged = part("REFUTED", value=value, interval=[value, value], predicate=words, unit=unit)
    told["claims"] = [
        claim(words, "REFUTED", [name], parts=[judged]),
        claim("plain", "error", [name], reason=words),
        claim("compared", "INCONCLUSIVE", [name, name, "x"]),
    ]
    told["errors"] = [{"item": name, "message": words}]
    for line in [*terminal.render(told), terminal.summary_line(told)]:
        assert terminal.width(line) <= 80
        assert "\n" not in line
        assert "\x1b" not in line


def test_width_and_clip() -> None:
    assert terminal.width("漢字e\u0301") == 5
    assert terminal.clip("abcdef", 6) == "abcdef"
    assert terminal.clip("abcdefg", 6) == "abc..."
    assert terminal.clip("漢字漢字", 6) == "漢..."
    assert terminal.clip("abcdef", 2) == ".."
