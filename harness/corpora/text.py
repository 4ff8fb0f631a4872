"""From bytes to text, and from text to (name, text) pairs: WikiText articles, paragraphs, blocks of one long text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, pairwise

from harness.corpora.files import WIDE_MARKS, is_binary
from harness.errors import CorpusError

GZIP_MARK = b"\x1f\x8b"

Named = list[tuple[str, str]]

#: A block of a long text is a 60th of it, within these numbers of characters (4 characters are about one
#: token).
BLOCKS, SHORTEST_BLOCK, LONGEST_BLOCK = 60, 500, 8_000

# ` = Title = `; ` = = Section = = ` is not one. The space in front is missing in some copies.
_TITLE = re.compile(r" ?= (?![=\s])(.*[^=\s]) = ?")


def decode(data: bytes, label: str) -> str:
    """`utf8`, of a file that must hold something: CorpusError where it is empty or blank."""
    text = utf8(data, label)
    if not text.strip(" \t\n"):
        raise CorpusError(f"{label}: the file is empty")
    return text


def utf8(data: bytes, label: str) -> str:
    """UTF-8 as text with line feeds for line ends and no byte order mark.

    Raises CorpusError for anything else, with what it looks like, or with the first byte that shows it.
    """
    if encoding := next((name for mark, name in WIDE_MARKS.items() if data.startswith(mark)), None):
        raise CorpusError(
            f"{label}: {encoding} by its byte order mark, not UTF-8: convert it with iconv -f {encoding} -t UTF-8"
        )
    if data.startswith(GZIP_MARK):
        raise CorpusError(f"{label}: compressed by gzip: give it a name that ends with .gz, or unpack it")
    if is_binary(data):
        raise CorpusError(
            f"{label}: not a text file, byte {data.index(0):,} is null: give a text file, or convert one in another "
            "encoding to UTF-8 with iconv"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"{label}: not UTF-8 at byte {error.start:,} (line {line:,}): convert it, for instance with "
            f"iconv -f LATIN1 -t UTF-8; the byte there is 0x{data[error.start]:02X}"
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def split_lines(text: str) -> Iterator[str]:
    """The lines of a text, each with its line feed; no other character ends one."""
    return (match[0] for match in re.finditer(r"[^\n]*\n|[^\n]+", text))


def cut_articles(lines: Iterable[str]) -> Named:
    """WikiText's articles as (title, text); empty where the first line that is not blank is no title.

    An article starts with a line ` = Title = `. Some lines of that shape are formulas in the middle of a
    sentence (`… frequency of ωc`, ` = 1 rad / s and a nominal impedance k = `, `1 Ω . This is …`). Where
    blank lines set headings off from text, a title has one before and after it and a formula has none.
    Where they do not (there are none, or one after every line), a line is a formula when the line before
    it ends, and the line after it begins, in the middle of a sentence. Blank lines are dropped, so that all
    copies of the corpus give the same text.
    """
    rest = iter(lines)
    head: list[str] = []
    while not (head and head[-1].strip()) and (line := next(rest, None)) is not None:
        head.append(line)
    if not head or not _TITLE.fullmatch(head[-1].rstrip("\r\n")):
        return []  # before every line of a long text is held apart
    spread = [line.rstrip("\r\n") for line in chain(head, rest)]
    full = [i for i, line in enumerate(spread) if line.strip()]  # where the lines that are not blank stand
    text = [spread[i] for i in full]
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


def cut_paragraphs(lines: Iterable[str]) -> Named:
    """What stands between blank lines, as (`paragraph N`, text)."""
    bare = (line.rstrip("\r\n") for line in lines)
    runs = (list(run) for full, run in groupby(bare, key=lambda line: bool(line.strip())) if full)
    return [(f"paragraph {number}", "\n".join(run)) for number, run in enumerate(runs, start=1)]


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
