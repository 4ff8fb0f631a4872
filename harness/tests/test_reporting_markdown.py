"""report.md: complete, readable, and proof against names that try to be Markdown."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from html import unescape

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.reporting import markdown, schema, terminal
from harness.reporting.escape import block, slug, text
from harness.reporting.shape import VERDICTS
from harness.reporting.summary import counts
from harness.statistics.families import cost_family
from harness.tests.reporting_example import HOSTILE, claim, measurement, part, report
from harness.verdicts import judge

SMALL = "smollm2-135m"


@pytest.fixture(scope="module")
def rendered() -> str:
    return markdown.render(report())


def section(rendered: str, heading: str) -> str:
    """The text below a heading, up to the next heading of its level or above."""
    level = heading.split(" ")[0]
    body = rendered.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"\n#{{1,{len(level)}}} ", body)[0]


def rows(body: str) -> list[list[str]]:
    """Cells of all pipe tables in `body`, a list for each line, split at pipes that are not escaped."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines]


def test_rendering_is_pure_and_deterministic(rendered: str) -> None:
    told = report()
    assert markdown.render(told) == rendered
    assert told == report()


def test_the_same_after_writing_and_reading(rendered: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    schema.write(report(), tmp_path / "report.json")
    assert markdown.render(schema.load(tmp_path)) == rendered


def test_sections_stand_in_the_order_of_reading(rendered: str) -> None:
    assert re.findall(r"^## (.*)$", rendered, re.MULTILINE) == [
        "How to read this",
        "Verdicts",
        "Claims",
        "Measurements",
        "What an interval does not cover",
        "What was not tested",
        "What broke",
        "Provenance",
    ]


def test_every_claim_has_a_row_and_a_section(rendered: str) -> None:
    told = report()
    verdicts = rows(section(rendered, "## Verdicts"))[2:]
    assert len(verdicts) == len(told["claims"])
    for row, judged in zip(verdicts, told["claims"], strict=True):
        assert row[0] == f"[{judged['id']}](#{slug(judged['id'])})"
        assert row[3].strip("*") == judged["verdict"]
        assert f"\n### {judged['id']}\n" in rendered


def test_links_lead_to_headings(rendered: str) -> None:
    anchors = {slug(heading) for heading in re.findall(r"^#+ (.*)$", rendered, re.MULTILINE)}
    links = re.findall(r"\]\(#([^)]*)\)", rendered)
    assert links
    assert set(links) <= anchors


def test_verdict_counts_add_up(rendered: str) -> None:
    told = report()
    headline = rendered.split("\n\n")[1]
    for verdict in ("SUPPORTED", "REFUTED", "INCONCLUSIVE"):
        found = [int(n) for n in re.findall(rf"(\d+) {verdict}", headline)]
        assert sum(found) == sum(judged["verdict"] == verdict for judged in told["claims"])
    assert "6 claims" in headline
    assert "7 tests" in headline
    assert sum(counts(told["claims"]).values()) == len(told["claims"])
    assert set(counts(told["claims"])) == set(VERDICTS)


def test_the_headline_says_how_many_false_verdicts_to_expect() -> None:
    told = report()
    told["claims"] = [claim(f"c{i}", "SUPPORTED", [SMALL], parts=[part("SUPPORTED")] * 2) for i in range(20)]
    told["claims"].append(claim("printed", "REFUTED", [], parts=[part("REFUTED", interval=None)]))
    headline = markdown.render(told).split("\n\n")[1]
    assert "40 parts of these tests were judged by an interval" in headline
    assert "up to 2.0 false verdicts" in headline
    assert "the paper's own record" in headline


def test_provenance_tells_what_was_found_and_how_weights_are_stored() -> None:
    given = report()
    given["models"][1]["stored"] = "Q4_1"
    given["models"][0] |= {
        "stored": "BF16",
        "quantization": None,
        "structure": {"blocks": "model.layers", "mlp": "feed_forward"},
    }
    first, second = (part.split("\n### ")[0] for part in markdown.render(given).split("\n### Model ")[1:])
    assert "- stored as: BF16, most of them" in first
    assert "the MLPs were found at model.layers.N.feed_forward, and" in first.replace("\\", "")
    assert "stored as" not in second
    assert "layout" not in second


def test_a_claim_of_our_own_is_told_from_the_papers() -> None:
    given = report()
    given["claims"][0] = claim("own", "REFUTED", [SMALL], section="ours", reported={"text": ""})
    shown = markdown.render(given)
    assert "put 6 claims of the paper and 1 claim of our own to 7 tests" in shown
    own = section(shown, "### own")
    assert "Not a claim of the paper: one of our own." in own
    assert "generalization" not in own
    given["claims"] = given["claims"][:1]
    shown = markdown.render(given)
    assert "put 1 claim of our own to 1 test" in shown
    assert "No model here is one of the paper's" not in shown


def test_a_model_at_chance_is_warned_of_at_the_top() -> None:
    for loss, warned in ((np.log(49_152) - 1e-6, False), (np.log(49_152) + 1e-6, True)):
        given = report()
        m = given["measurements"][0]
        m["nll"] = [loss * document["targets"] for document in m["documents"]]
        head = markdown.render(given).split("## How to read this")[0]
        assert ("**Warning**: smollm2-135m predicts wikitext no better than chance: " in head) == warned
        shown = " ".join(" ".join(terminal.render(given)).split())
        assert ("warning: smollm2-135m predicts wikitext no better than chance: " in shown) == warned


def test_a_claim_tells_all_that_its_verdict_rests_on(rendered: str) -> None:
    body = section(rendered, "### alllin-gpt2m-only-first-last-exceptions")
    head, _, here, there = rows(body)
    told = dict(zip(head, here, strict=True))
    assert told == {
        "corpus": "wikitext",
        "part": "share of layers below 3 %",
        "predicate": "at least 70 %",
        "verdict": "**INCONCLUSIVE**",
        "measured": "50.0 %",
        "interval": "[33.3, 66.7]",
        "level": "95 %",
        "documents": "24",
        "tokens": "2,500",
        "could have shown": "21 points",
        "settled by": "113 documents",
    }
    assert there[0] == "lambada"
    assert "> 70% of GPT-2 Medium layers can be linearised for < 3% PPL" in body
    assert "Paper: S1. It reports: 16/23 layers, 70 % (reproduced means: equal within ±5 points)." in body
    assert f"**{SMALL} on wikitext: INCONCLUSIVE** (generalization). the share is 50 % [33, 67]" in body
    assert "Towards the paper's number: not comparable" in body
    assert "On lambada: **REFUTED**. too dear." in body
    assert "+5.0 [2.0, 8.0] points (paired by document, one-sided p < 0.001): **worse, beyond noise**" in body


def test_a_low_precision_says_how_far_it_moved_the_numbers() -> None:
    told = report()
    told["measurements"][0]["drift"] = {
        "dtype": "bfloat16",
        "tokens": 1270,
        "loss": 3.2041,
        "loss32": 3.2,
        "cost": [2.0, 0.04, 0.02, -0.004, 0.025, 0.01],
        "cost32": [2.0, 0.04, 0.03, -0.004, 0.026, 0.01],
    }
    told["measurements"][1]["drift"] = {"dtype": "float16", "why_not": "it needs 9.0 GiB, of which 1.0 GiB are free"}
    here, there = re.split(r"^### ", section(markdown.render(told), "## Measurements"), flags=re.MULTILINE)[1:]
    assert (
        "Computed in bfloat16. On the first 1,270 tokens, in float32 with the same maps, the intact model's loss is "
        "3.2000 nats against 3.2041 in bfloat16, and the cost that differs most is that of layer 2: 3.00 % against "
        "2.00 %."
    ) in here
    assert (
        "How far float16 moves these numbers against float32 was not measured: it needs 9.0 GiB, of which 1.0 GiB are "
        "free."
    ) in there
    assert "float32" not in section(markdown.render(report()), "## Measurements")


def test_a_generalization_says_what_was_asked_instead() -> None:
    told = report()
    general = "At least 70 % of the layers cost less than 3 %."
    told["claims"] = [
        claim("one", "REFUTED", [SMALL], general=general),
        claim("two", "REFUTED", [SMALL], general=told["claims"][0]["statement"]),
        claim("three", "REFUTED", [SMALL], general=general, role="reproduction"),
    ]
    rendered = markdown.render(told)
    assert [general in section(rendered, f"### {name}") for name in ("one", "two", "three")] == [
        True,
        False,
        False,
    ]
    assert rendered.count("Asked here: ") == 1


def test_costs_of_hundreds_of_times_print_well(rendered: str) -> None:
    found = next(row for row in rows(section(rendered, "## Verdicts")) if "any-single-layer" in row[0])
    assert found[4:7] == ["22,780 %", "[21,010, 24,170]", "at most 3 % (cost of layer 0; 1 of 2 parts)"]


def test_the_layer_table_has_both_fits_and_the_controls(rendered: str) -> None:
    body = section(rendered, f"### {SMALL} on wikitext")
    table = rows(body)
    assert table[0] == [
        *["layer", "linear", "95 % interval", "with first", "first kept"],
        *["half a", "half b", "mean", "zero"],
    ]
    assert [row[0] for row in table[2:8]] == list("012345")
    layer_4 = table[6]
    assert 0 < float(layer_4[1]) < 5 < 300 < float(layer_4[3])
    assert "*with first* is furthest from *linear* in layer 4" in body
    assert "*mean* costs less than *linear* in layer 5 (1 of 6)" in body
    quality = table[8:16]
    assert quality[0][:2] == ["layer", "captured, %"]
    assert quality[7][1:3] == ["—", "—"]
    assert "does not exclude 0 in layer 5" in body
    assert "standard deviation of a layer's cost over refits" in body
    assert table[16] == ["layer", "N = 2,500", "N = 5,000", "N = 10,000", "N = 20,000"]


def test_only_what_was_measured_is_explained() -> None:
    told = report()
    quick = measurement()
    quick["variants"] = ["linear"]
    quick["squares"] = None
    quick["fit"].update(curve=None, first_norm=None, other_norm=None)
    told["measurements"] = [quick]
    schema.validate(told)
    body = section(markdown.render(told), "## Measurements")
    assert "**linear**" in body
    assert not re.search("ablation|captured|R²|output norm|refits|controls show", body)


def test_verdicts_of_the_statistics_fit_in(tmp_path) -> None:  # type: ignore[no-untyped-def]
    m = measurement()
    tokens = np.array([document["targets"] for document in m["documents"]], dtype=float)
    costs = cost_family(m["layers"], np.array(m["delta"]["linear"]), tokens, [d["id"] for d in m["documents"]])
    verdicts = {
        "share": judge(costs.share_below(0.03)).at_least(0.70),
        "count": judge(costs.count_above(0.10)).at_most(2),
        "cost": judge(costs.at(0)).below(1.0),
        "same": judge(costs.at(1)).equivalent_to(0.04, margin=0.05),
        "cheapest": judge(costs.cheapest()).lies_in([2, 3]),
        "any": judge(costs.cheapest()).lies_in(range(6)),
        "printed": judge(16 / 23).at_least(0.70),
    }
    told = report()
    told["claims"] = [
        claim(name, v.status, [SMALL], parts=[{"name": name, **v.as_dict()}], reason=v.reason)
        for name, v in verdicts.items()
    ]
    schema.write(told, tmp_path / "report.json")
    rendered = markdown.render(schema.load(tmp_path))
    found = {name: rows(section(rendered, f"### {name}"))[2] for name in verdicts}
    assert found["share"][2:5] == ["at least 70 %", f"**{verdicts['share'].status}**", "66.7 %"]
    assert found["count"][2:6] == ["at most 2 layers", "**SUPPORTED**", "1 layer", "[1, 1]"]
    assert found["cost"][2:4] == ["below 100 %", "**REFUTED**"]
    assert float(found["cost"][4].removesuffix(" %").replace(",", "")) > 20_000
    assert found["same"][6] == "90 %"
    assert found["cheapest"][4].startswith("lead ")
    assert found["printed"][5:9] == ["—"] * 4
    assert not re.search(r"\b(nan|inf|None|null)\b", rendered)


def test_provenance_names_everything_and_no_path(rendered: str) -> None:
    body = section(rendered, "## Provenance")
    wanted = [
        "cd" * 32,
        "ef" * 32,
        "12" * 32,
        "ab" * 6,
        "smollm2.gguf",
        "Q4\\_1",
        "fit 15, gate 9, select 9, test 27",
    ]
    wanted += [
        "sound: fit share 0.25; ridge grid 1e-08, 1.0",
        "quick: fit 20,000",
        "cpu, float32",
        "torch 2.13.0",
    ]
    wanted += ["7 min", "report.json (the committed default)", "134,515,008 parameters"]
    for fact in wanted:
        assert fact.replace("\\_", "_") in body.replace("\\_", "_")
    assert not re.search(r"(?<![\w:<*\\])/[\w.-]+/", rendered)


def test_what_was_not_tested_and_what_broke(rendered: str) -> None:
    untested = rows(section(rendered, "## What was not tested"))
    assert untested[2] == ["fig3-sampled", "Fig 3", "Pythia uses sampled layers", "no model to run"]
    assert rows(section(rendered, "## What broke"))[2] == ["alllin-broken", "non-finite logits in layer 2"]


def test_a_run_without_anything_still_renders() -> None:
    told = report()
    told.update(claims=[], measurements=[], untested=[], errors=[], models=[], corpora=[])
    schema.validate(told)
    rendered = markdown.render(told)
    assert "judged no claim" in rendered
    assert "What broke" not in rendered


def test_numbers_that_do_not_exist_are_dashes_not_nan() -> None:
    told = report()
    bare = part("INCONCLUSIVE", value=None, interval=[None, None], smallest_effect=None, documents_needed=None)
    half = part("INCONCLUSIVE", interval=[0.1, None], unit="cost")
    told["claims"] = [claim("bare", "INCONCLUSIVE", [SMALL], parts=[bare, half])]
    single = measurement(D=1)
    told["measurements"] = [single]
    told["measurements"][0]["fit"]["curve"]["r2"][0][0] = None
    schema.validate(told)
    rendered = markdown.render(told)
    assert not re.search(r"\b(nan|inf|None|null)\b", rendered)
    first, second = rows(section(rendered, "### bare"))[2:]
    assert first[4:6] == ["—", "—"]
    assert first[9:] == ["—", "—"]
    assert second[5] == "[10.0, none]"
    assert "1 document gives no interval" in rendered


# ---- hostile names


def assert_harmless(rendered: str) -> None:
    """Nothing hidden, no table torn, no heading, tag or link that the report itself did not write."""
    for character in rendered:
        assert character == "\n" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    width = 0
    for line in rendered.split("\n"):
        cells = len(re.split(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (cells and width) or cells == width
        width = cells
    assert len(re.findall(r"^## ", rendered, re.MULTILINE)) == 8
    assert len(re.findall(r"^# ", rendered, re.MULTILINE)) == 1


def html(rendered: str) -> str:
    """What a Markdown parser makes of it, with raw HTML let through, so that an unescaped tag would show."""
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True})
    return parser.enable(["table", "strikethrough"]).render(rendered)


def assert_only_our_markup(shown: str) -> None:
    assert set(re.findall(r"<(\w+)", shown)) <= {
        *["h1", "h2", "h3", "p", "em", "strong", "ul", "li", "blockquote", "code"],
        *["table", "thead", "tbody", "tr", "th", "td", "a"],
    }
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', shown))


def test_hostile_names_stay_text(rendered: str) -> None:
    assert_harmless(rendered)
    assert "‹U+202E›" in rendered
    assert "‹U+001B›" in rendered


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(codec=None) | st.sampled_from("|`<>\n\r#*_[]()!&\\~$-+=:1.\u202e\u2028"), max_size=30))
def test_any_name_stays_text(name: str) -> None:
    told = report()
    told["measurements"] = []
    told["models"] = told["models"][:1]
    told["models"][0]["name"] = name
    told["corpora"][0]["name"] = name
    told["run"]["name"] = name
    told["claims"] = [
        claim("one", "REFUTED", [name], corpus=name, reason=name, statement=name, title=name),
        claim("two", "REFUTED", [name], parts=[part("REFUTED", name=name, predicate=name, unit=name)]),
    ]
    told["errors"] = [{"item": name, "message": name}]
    rendered = markdown.render(told)
    assert_harmless(rendered)
    assert_only_our_markup(html(rendered))


def test_a_markdown_parser_finds_only_our_own_markup(rendered: str) -> None:
    shown = html(rendered)
    assert_only_our_markup(shown)
    # a name is shown as it is, but for what is hidden: one line, and code points for what cannot be seen
    as_text = HOSTILE.replace("\n", " ").replace("\u202e", "‹U+202E›").replace("\x1b", "‹U+001B›")
    assert unescape(shown).count(as_text) == rendered.count(text(HOSTILE)) > 10


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20))
def test_escaped_text_is_read_back_as_it_was(name: str) -> None:
    shown = re.sub(r"^<p>(.*)</p>\n$", r"\1", html(f"x {text(name)} x"), flags=re.DOTALL)
    assert unescape(shown) == f"x {re.sub(' +', ' ', name).strip()} x"


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("#-+=:>*1.)`~[]x _|"), min_size=1, max_size=8))
def test_text_that_opens_a_block_opens_nothing(name: str) -> None:
    shown = html(block(name))
    assert re.fullmatch(r"(<p>[^<]*</p>\n)?", shown)


def test_reporting_loads_no_torch() -> None:
    code = "import sys, harness.cli, harness.reporting.terminal; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "datasets", "pytest"} & set(done.stdout.split())
