"""paper.toml: read and checked, complete against the claims ledger, its numbers those that the paper prints."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from claims import test_architecture, test_near_linearity
from harness.errors import WanamakerError
from harness.models.sources import PAPER_MODELS
from harness.paper import PaperClaim, load_paper
from harness.plugin.claims import ClaimTest, claim_of

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT.parent / "shared" / "paper"

LEDGER = [
    "alllin-gpt2m-70pct-under-3",
    "alllin-gpt2m-l2-l15-range",
    "alllin-gpt2m-middle-under-3.5",
    "alllin-gpt2m-only-first-last-exceptions",
    "alllin-pattern-replicates-exactly",
    "alllin-gpt2m-cheapest-l8",
    "alllin-gpt2m-worst-l23",
    "alllin-gpt2l-max-3.7",
    "alllin-gpt2l-min-l5",
    "alllin-p160m-range",
    "alllin-p410m-worst-l6",
    "alllin-p410m-cheapest-l12",
    "alllin-p1b-worst-l2",
    "alllin-p2.8b-range",
    "alllin-p2.8b-l7-l15-under-4",
    "alllin-every-model-sweet-spot-4",
    "alllin-one-or-two-critical",
    "alllin-any-single-layer-cheap",
    "alllin-gpt2m-l4-l18-under-3",
    "alllin-96pct-of-effect",
    "alllin-p2.8b-u-shape",
    "alllin-gpt2l-worst-barely-above-p2.8b-best",
    "scaling-median-monotone-pythia",
    "scaling-gpt2-cheaper",
    "fig3-pythia-sampled-layers",
    "layer0-sharp-threshold",
    "layer0-not-in-gpt2",
    "layer0-160m-vs-gpt2l",
    "seed-half-the-stations",
]
"""Rows of the claims ledger that claims about single layers cover: its sections A and I, and one of section M."""

PRINTED: dict[str, tuple[str, ...]] = {
    "alllin-gpt2m-70pct-under-3": ("paper.alllin.gpt2m.share_lt3",),
    "alllin-gpt2m-l2-l15-range": ("paper.alllin.gpt2m.L2_15.max",),
    "alllin-gpt2m-cheapest-l8": ("paper.alllin.gpt2m.cheapest",),
    "alllin-gpt2m-worst-l23": ("paper.alllin.gpt2m.most_expensive",),
    "alllin-gpt2l-max-3.7": ("paper.alllin.gpt2l.most_expensive",),
    "alllin-gpt2l-min-l5": ("paper.alllin.gpt2l.cheapest",),
    "alllin-p160m-range": ("paper.alllin.p160m.cheapest", "paper.alllin.p160m.most_expensive"),
    "alllin-p410m-worst-l6": ("paper.alllin.p410m.most_expensive",),
    "alllin-p410m-cheapest-l12": ("paper.alllin.p410m.cheapest",),
    "alllin-p1b-worst-l2": ("paper.alllin.p1b.most_expensive",),
    "alllin-p2.8b-range": ("paper.alllin.p2.8b.cheapest", "paper.alllin.p2.8b.most_expensive"),
    "layer0-not-in-gpt2": ("paper.layer0.gpt2l.all_linear",),
    "layer0-160m-vs-gpt2l": ("paper.layer0.p160m.all_linear", "paper.layer0.gpt2l.all_linear"),
    "alllin-gpt2l-worst-barely-above-p2.8b-best": (
        "paper.alllin.gpt2l.most_expensive",
        "paper.alllin.p2.8b.cheapest",
    ),
}
"""Claim id -> the printed figures behind it; the first is `reported.value` unless `DERIVED` says otherwise."""

BOUNDS = {
    "alllin-p2.8b-l7-l15-under-4": "paper.alllin.p2.8b.L7_15.max_bound",
    "alllin-gpt2m-l4-l18-under-3": "paper.alllin.gpt2m.L4_18.max_bound",
    "alllin-96pct-of-effect": "paper.alllin.middle.effect_captured",
}
"""Claim id -> a bound that the paper prints, which no measurement can reproduce or miss."""

DERIVED = {
    "layer0-160m-vs-gpt2l": lambda p160m, gpt2l: p160m - gpt2l,
    "alllin-gpt2l-worst-barely-above-p2.8b-best": lambda worst, best: worst / best,
}


@pytest.fixture(scope="module")
def paper() -> dict[str, PaperClaim]:
    return load_paper(ROOT / "claims" / "paper.toml")


def claim_tests() -> list[ClaimTest]:
    found = [claim_of(f) for module in (test_near_linearity, test_architecture) for f in vars(module).values()]
    return [test for test in found if test]


# ---- complete


def test_every_row_of_the_ledger_is_in_one_entry(paper: dict[str, PaperClaim]) -> None:
    covered = Counter(row for entry in paper.values() for row in entry.ledger)
    assert set(LEDGER) <= set(covered)
    assert all(n == 1 for n in covered.values()), covered.most_common(1)
    for entry in paper.values():
        if len(entry.ledger) == 1:
            assert entry.id == entry.ledger[0]


def test_the_ledger_has_these_rows() -> None:
    ledger = PAPER / "claims_ledger.md"
    if not ledger.is_file():
        pytest.skip("the claims ledger is not here")
    sections = re.split(r"^## ", ledger.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rows = {s[0]: re.findall(r"^\|`([^`]+)`\|", s, flags=re.MULTILINE) for s in sections}
    assert len(rows["A"]) == 25
    assert len(rows["I"]) == 3
    assert [*rows["A"], *rows["I"], "seed-half-the-stations"] == LEDGER
    assert LEDGER[-1] in rows["M"]


def test_every_claim_has_a_test_or_a_reason(paper: dict[str, PaperClaim]) -> None:
    tested = {test.id for test in claim_tests()}
    assert tested == {id for id, entry in paper.items() if not entry.untestable}
    for entry in paper.values():
        assert entry.untestable is None or len(entry.untestable) > 40, "a reason, not a word"


def test_one_general_test_a_claim_and_one_a_model(paper: dict[str, PaperClaim]) -> None:
    counted = Counter((test.id, test.model) for test in claim_tests())
    assert set(counted.values()) == {1}
    for id, model in counted:
        assert (id, None) in counted  # any model can be put to any claim
        assert model is None or paper[id].models == (model,)


def test_entries_can_be_read_in_tables(paper: dict[str, PaperClaim]) -> None:
    titles = [entry.title for entry in paper.values()]
    assert max(map(len, titles)) <= 42
    assert len(set(titles)) == len(titles)
    for entry in paper.values():
        assert set(entry.models) <= set(PAPER_MODELS), entry.id
        assert len(set(entry.models)) == len(entry.models) > 0
        assert entry.statement.endswith("."), entry.id
        assert entry.general.endswith("."), entry.id


# ---- numbers


def figures() -> dict[str, dict[str, Any]]:
    file = PAPER / "reported_figures.json"
    if not file.is_file():
        pytest.skip("the paper's figures are not here")
    return {figure["id"]: figure for figure in json.loads(file.read_text(encoding="utf-8"))["figures"]}


def test_values_are_those_that_the_paper_prints(paper: dict[str, PaperClaim]) -> None:
    known = figures()
    for id, ids in PRINTED.items():
        entry, printed = paper[id], [known[figure] for figure in ids]
        values = [f["value"] / (100 if f["unit"] == "percent" else 1) for f in printed]
        expected = DERIVED[id](*values) if id in DERIVED else values[0]
        assert entry.reported.value == pytest.approx(expected, abs=0.005 if id in DERIVED else 1e-9), id
        models = {figure["model"].split("/")[-1] for figure in printed}
        assert set(entry.models) == models, id
        for figure in printed:
            number = f"{figure['value']:g}"
            shown = {number, f"{100 * figure['value']:g}"} if figure["unit"] == "fraction" else {number}
            assert any(s in entry.reported.text for s in shown), (id, figure["value"])
            if figure["layer"] is not None and id.startswith("alllin-") and len(entry.models) == 1:
                assert re.search(rf"\b[lL](ayer )?{figure['layer']}\b", entry.reported.text), (id, figure["layer"])


def test_bounds_are_those_that_the_paper_prints(paper: dict[str, PaperClaim]) -> None:
    known = figures()
    for id, figure in BOUNDS.items():
        assert f"than {known[figure]['value']:g} %" in paper[id].reported.text
        assert paper[id].models == (known[figure]["model"].split("/")[-1],)


def test_no_other_entry_has_a_value_without_a_source(paper: dict[str, PaperClaim]) -> None:
    valued = {id for id, entry in paper.items() if entry.reported.value is not None}
    assert valued == {*PRINTED, "seed-half-the-stations"}  # "half", in words
    assert paper["seed-half-the-stations"].reported.value == 0.5
    assert all(paper[id].reported.margin for id in valued)


# ---- reading

ENTRY = """
[[claim]]
id = "one"
title = "a title"
statement = "What is said."
section = "S1"
model = ["gpt2-medium"]
reported = { text = "3 %", value = 0.03, margin = 0.01 }
ledger = ["row"]
"""


def read(tmp_path: Path, text: str) -> dict[str, PaperClaim]:
    file = tmp_path / "paper.toml"
    file.write_text(text, encoding="utf-8")
    return load_paper(file)


def test_an_entry(tmp_path: Path) -> None:
    entry = read(tmp_path, ENTRY)["one"]
    assert entry.general == entry.statement == "What is said."
    assert entry.models == ("gpt2-medium",)
    assert (entry.reported.text, entry.reported.value, entry.reported.margin) == ("3 %", 0.03, 0.01)
    assert entry.untestable is None
    more = read(tmp_path, ENTRY + 'general = "For any."\nuntestable = "It is not about a model."\n')["one"]
    assert (more.general, more.untestable) == ("For any.", "It is not about a model.")


def test_a_claim_of_our_own_reports_nothing(tmp_path: Path) -> None:
    ours = '[[claim]]\nid = "one"\ntitle = "a title"\nstatement = "What is said."\nsection = "ours"\n'
    entry = read(tmp_path, ours)["one"]
    assert (entry.models, entry.ledger, entry.reported.text, entry.reported.value) == ((), (), "", None)
    with pytest.raises(WanamakerError, match=r"one: the key 'ledger' is about the paper, and the section is 'ours'$"):
        read(tmp_path, ours + 'ledger = ["row"]\n')
    with pytest.raises(WanamakerError, match=r"^paper.toml: one: the keys 'model', 'reported', 'ledger' are missing"):
        read(tmp_path, ours.replace('"ours"', '"S1"'))


def test_entries_keep_their_order(tmp_path: Path) -> None:
    assert list(read(tmp_path, ENTRY.replace("one", "z") + ENTRY.replace("one", "a"))) == ["z", "a"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "a title"', "", "paper.toml: one: the key 'title' is missing"),
        ('id = "one"', "", "paper.toml: an entry without id: the key 'id' is missing"),
        ('title = "a title"', 'title = ""', "paper.toml: one: the key 'title' must be a text"),
        ('title = "a title"', "title = 3", "paper.toml: one: the key 'title' must be a text"),
        ('["gpt2-medium"]', '"gpt2-medium"', "paper.toml: one: the key 'model' must be a list of texts"),
        ('["row"]', "[1]", "paper.toml: one: the key 'ledger' must be a list of texts"),
        ('section = "S1"', 'section = "S1"\nsektion = "S1"', "paper.toml: one: unknown key 'sektion'"),
        (
            '{ text = "3 %", value = 0.03, margin = 0.01 }',
            '"3 %"',
            "paper.toml: one: the key 'reported' must be a table",
        ),
        ('text = "3 %", ', "", "paper.toml: one: reported: the key 'text' is missing"),
        ("value = 0.03", 'value = "3 %"', "paper.toml: one: reported: the key 'value' must be a number"),
        ("value = 0.03", "value = true", "paper.toml: one: reported: the key 'value' must be a number"),
        ("margin = 0.01", "margins = 0.01", "paper.toml: one: reported: unknown key 'margins'"),
        ("margin = 0.01", "margin = -0.01", "paper.toml: one: reported: a margin is a distance from a value"),
        ("value = 0.03, ", "", "paper.toml: one: reported: a margin is a distance from a value"),
        ("[[claim]]", "[claim]", "paper.toml: not a list of [[claim]] entries"),
        ("[[claim]]", "[[claims]]", "paper.toml: not a list of [[claim]] entries ('claim')"),
        ("[[claim]]", "[[claim]", "paper.toml: not a list of [[claim]] entries (Expected"),
    ],
)
def test_a_wrong_entry_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert ENTRY.count(old) == 1
    with pytest.raises(WanamakerError) as error:
        read(tmp_path, ENTRY.replace(old, new))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_an_id_is_used_once(tmp_path: Path) -> None:
    with pytest.raises(WanamakerError, match=r"paper.toml: two entries have the id 'one'"):
        read(tmp_path, ENTRY + ENTRY)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(WanamakerError, match=r"paper.toml: cannot be read \(No such file"):
        load_paper(tmp_path / "paper.toml")
    (tmp_path / "paper.toml").write_bytes(b'title = "\xff"')
    with pytest.raises(WanamakerError, match=r"paper.toml: not a list of \[\[claim\]\] entries \('utf-8' codec"):
        load_paper(tmp_path / "paper.toml")
