"""From text to (name, text) pairs: WikiText articles, JSONL lines, blocks of one long text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise

from harness.errors import CorpusError

Named = list[tuple[str, str]]

#: A block of a long text is a 60th of it, within these numbers of characters (4 characters are about one
#: token).
BLOCKS, SHORTEST_BLOCK, LONGEST_BLOCK = 60, 500, 8_000

# ` = Title = `; ` = = Section = = ` is not one. The space in front is missing in some copies.
_TITLE = re.compile(r" ?= (?![=\s])(.*[^=\s]) = ?")


def decode(data: bytes, label: str) -> str:
    """UTF-8 as text with line feeds for line ends and no byte order mark.

    Raises CorpusError for an empty file, and for one that is not UTF-8, with the first byte that shows it.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"{label}: not UTF-8 at byte {error.start:,} (line {line:,}): convert it, "
            "for instance with iconv -f LATIN1 -t UTF-8"
        ) from error
    if not text.strip("\ufeff \t\r\n"):
        raise CorpusError(f"{label}: the file is empty")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def cut_articles(lines: Iterable[str]) -> Named:
    """WikiText's articles as (title, text); empty where the first line that is not blank is no title.

    An article starts with a line ` = Title = `. Some lines of that shape are formulas in the middle of a
    sentence (`… frequency of ωc`, ` = 1 rad / s and a nominal impedance k = `, `1 Ω . This is …`). Where
    blank lines set headings off from text, a title has one before and after it and a formula has none.
    Where they do not (there are none, or one after every line), a line is a formula when the line before
    it ends, and the line after it begins, in the middle of a sentence. Blank lines are dropped, so that all
    copies of the corpus give the same text.
    """
    spread = [line.rstrip("\r\n") for line in lines]
    full = [i for i, line in enumerate(spread) if line.strip()]  # where the lines that are not blank stand
    text = [spread[i] for i in full]
    if not text or not _TITLE.fullmatch(text[0]):
        return []
    apart = [True, *(b - a > 1 for a, b in pairwise(full)), True]  # a blank line before line k (or an end)
    set_off = apart[1] and not all(apart)
    articles: list[tuple[str, list[str]]] = []
    for k, line in enumerate(text):
        title = _TITLE.fullmatch(line)
        if title and k > 0:
            broken = _ends_open(text[k - 1]) and _begins_open(text[k + 1] if k + 1 < len(text) else "")
            if not (apart[k] and apart[k + 1] if set_off else not broken):
                title = None
        if title:
            articles.append((title[1], []))
        articles[-1][1].append(line)
    return [(title, "\n".join(body)) for title, body in articles]


def _ends_open(line: str) -> bool:
    """Whether the line breaks off in the middle of a sentence: its last character is a letter or a digit."""
    return line.strip()[-1:].isalnum()


def _begins_open(line: str) -> bool:
    """Whether the line goes on with a sentence: its first character is a digit or a small letter."""
    first = line.strip()[:1]
    return first.isdigit() or first.islower()


def parse_jsonl(text: str, label: str) -> Named:
    """The `text` of each line, as (`line N`, text); blank lines are skipped. CorpusError names the line."""
    documents: Named = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{label}: line {number:,} is not JSON ({error}): write one object a line") from error
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise CorpusError(f'{label}: line {number:,} has no "text" of type string: write {{"text": "…"}} a line')
        try:
            entry["text"].encode("utf-8")
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{label}: line {number:,} holds half of a surrogate pair: correct the escape sequence"
            ) from error
        documents.append((f"line {number}", entry["text"].replace("\r\n", "\n").replace("\r", "\n")))
    return documents


def cut_blocks(text: str) -> Named:
    """One long text as consecutive blocks that serve as documents; put together they are the text.

    A block ends with a line (with a word, where a line is longer than a block, with a character where a
    word is). Neighbouring blocks are less independent than articles are, so an interval over them is
    somewhat too narrow; the report says that it is over blocks.
    """
    size = min(max(len(text) // BLOCKS, SHORTEST_BLOCK), LONGEST_BLOCK)
    blocks = [""]
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        for piece in re.findall(rf"(?s).{{1,{size}}}(?:\s+|$)|.{{1,{size}}}", line):
            if len(blocks[-1]) >= size:
                blocks.append("")
            blocks[-1] += piece
    if len(blocks) > 1 and len(blocks[-1]) < size // 2:
        tail = blocks.pop()
        blocks[-1] += tail
    return [(f"block {number}", block) for number, block in enumerate(blocks, start=1)]
