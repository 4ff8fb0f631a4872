"""Cutting text into documents: articles, JSONL lines, blocks."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.corpora.records import parse_jsonl
from harness.corpora.text import cut_articles, cut_blocks, decode
from harness.errors import CorpusError
from harness.tests.corpora_example import SHARED, TITLES, set_off, wikitext_lines


def test_formulas_are_no_titles_in_any_layout():
    lines = wikitext_lines()
    crlf = decode("\r\n".join(lines).encode(), "")
    layouts = {
        "CRLF, no blank lines": crlf,
        "LF, headings set off": set_off(lines),
        "LF, a blank line after each": "\n\n".join(lines),
        "CR": decode("\r".join(lines).encode(), ""),
        "blank lines in front": "\n \n" + "\n".join(lines),
    }
    articles = {name: cut_articles(text.split("\n")) for name, text in layouts.items()}
    assert [title for title, _ in articles["CRLF, no blank lines"]] == list(TITLES)
    for name, cut in articles.items():
        assert cut == articles["CRLF, no blank lines"], name
    assert " = 1 henry and capacitance C = " in articles["CRLF, no blank lines"][2][1]


def test_hub_rows_are_cut_like_lines():
    text = set_off(wikitext_lines())
    rows = ["" if not line.strip() else f"{line}\n" for line in text.split("\n")]  # as Salesforce/wikitext has them
    assert cut_articles(rows) == cut_articles(text.split("\n"))


def test_a_title_after_an_open_line_and_before_a_number_is_one_where_headings_are_set_off():
    lines = [
        " = A = ",
        " Text . ",
        " It ends in Nero ",
        " = 1 Corinthians = ",
        " 1 Corinthians is a letter . ",
    ] * 2
    assert [title for title, _ in cut_articles(set_off(lines).split("\n"))] == ["A", "1 Corinthians"] * 2


def test_text_without_a_title_in_front_has_no_articles():
    assert cut_articles(["Once upon a time", " = Title = ", " text . "]) == []
    assert cut_articles([" = = Section = = ", " text . "]) == []
    assert cut_articles(["", " "]) == []


@pytest.fixture(scope="module")
def wikitext() -> bytes:
    path = SHARED / "wikitext-103-raw-test.txt"
    if not path.exists():
        pytest.skip("the WikiText test file is not beside this checkout")
    return path.read_bytes()


def test_wikitext_has_sixty_articles_in_every_copy(wikitext: bytes):
    crlf = decode(wikitext, "")
    lines = crlf.removesuffix("\n").split("\n")
    articles = cut_articles(lines)
    assert len(articles) == 60
    assert (articles[0][0], articles[-1][0]) == ("Robert Boulter", "The Hustler ( film )")
    assert sum(title.startswith("1 ") for title, _ in articles) == 0
    assert "\n".join(text for _, text in articles) == crlf.removesuffix("\n")  # not a line is lost
    heading = [line.startswith(" = ") and not line.startswith((" = 1 rad", " = 1 henry")) for line in lines]
    set_off_copy = "".join(
        f" \n{line}\n \n" if is_one else f"{line}\n" for line, is_one in zip(lines, heading, strict=True)
    )
    assert cut_articles(set_off_copy.split("\n")) == articles
    assert cut_articles("\n\n".join(lines).split("\n")) == articles


def test_decode_names_the_byte_and_the_line():
    with pytest.raises(CorpusError, match=r"wiki\.txt: not UTF-8 at byte 9 \(line 2\)"):
        decode("eins\nzwei\xfc".encode("latin-1"), "wiki.txt")


@pytest.mark.parametrize("data", [b"", b" \r\n\n", b"\xef\xbb\xbf\n"])
def test_decode_refuses_an_empty_file(data: bytes):
    with pytest.raises(CorpusError, match=r"wiki\.txt: the file is empty"):
        decode(data, "wiki.txt")


def test_decode_drops_the_mark_and_the_carriage_returns():
    assert decode(b"\xef\xbb\xbfa\r\nb\rc\n", "") == "a\nb\nc\n"


def test_jsonl_keeps_text_and_line_numbers():
    # U+2028 ends no line of JSONL, though str.splitlines says so.
    text = '{"text": "a\u2028b"}\n\n{"text": "c\\r\\nd", "more": 1}\n'
    assert parse_jsonl(text, "") == [("line 1", "a\u2028b"), ("line 3", "c\nd")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{'text': 1}", "line 2 is not JSON"),
        ('{"text": "a"', "line 2 is not JSON"),
        ('{"Text": "a"}', 'line 2 has no "text"'),
        ('{"text": 3}', 'line 2 has no "text"'),
        ('["text"]', 'line 2 has no "text"'),
        ('{"text": "\\ud800"}', "line 2 holds half of a surrogate pair"),
    ],
)
def test_jsonl_names_the_line(line: str, complaint: str):
    with pytest.raises(CorpusError, match=complaint) as caught:
        parse_jsonl(f'{{"text": "good"}}\n{line}\n', "x.jsonl")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("x.jsonl: ")


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab \n.\u2028", max_size=900), max_size=12).map("".join))
def test_blocks_put_together_are_the_text(text: str):
    blocks = [block for _, block in cut_blocks(text)]
    assert "".join(blocks) == text
    assert all(len(block) >= 500 for block in blocks[:-1])
    assert all(len(block) <= 2 * 500 + 250 for block in blocks)


@pytest.mark.parametrize("unit", ["word ", "line of words\n", "x"])
def test_a_long_text_gives_about_sixty_blocks(unit: str):
    text = unit * (300_000 // len(unit))
    blocks = [block for _, block in cut_blocks(text)]
    assert 55 <= len(blocks) <= 61
    assert max(map(len, blocks)) <= 2 * min(map(len, blocks))
    if unit == "word ":
        assert all(block.startswith("word") and block.endswith("word ") for block in blocks)
    if unit == "line of words\n":
        assert all(block.endswith("\n") for block in blocks)


def test_the_lambada_file_is_the_one_of_the_pinned_commit():
    path = SHARED / "lambada-test.jsonl"
    if not path.exists():
        pytest.skip("the LAMBADA test file is not beside this checkout")
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest().startswith("4aa8d02c")
    assert len(parse_jsonl(decode(data, ""), "")) == 5_153
