"""Names of models, corpora and documents come from outside; here they become harmless Markdown.

A name may hold table pipes, code fences, HTML, line breaks, or characters that reorder or hide the text
around them. Nothing is dropped silently: what cannot be shown is shown as its code point.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories never printed as they are: controls, formats (right-to-left marks), surrogates, unassigned."""

_ACTIVE = re.compile(
    r"""(?P<plain>\[(?=[^\]]*\d)[\d.,%+−\ einf-]+\](?![(\[:]))  # an interval is no link
        |[\\`*\[\]|~$]
        |<(?=[A-Za-z/!?])                # opens a tag; "< 3 %" does not
        |&(?=[#]?[0-9A-Za-z]+;)          # opens an entity
        |(?<![^\W_])_|_(?![^\W_])        # an underscore within a word is only that""",
    re.VERBOSE,
)
"""What Markdown gives a meaning to inside a line."""

_LEADING = re.compile(r"(?P<number>\d+)(?=[.)])|[#+=:>-]")
"""What Markdown gives a meaning to at the start of a block, as far as `_ACTIVE` does not hold it already."""

_QUOTED_PATH = re.compile(
    r"""(?P<quote>['"`])(?:file://)?(?:~|[A-Za-z]:)?[/\\][^'"`]*?(?P<name>[^/\\'"`]+)(?P=quote)"""
)
_PATH = re.compile(
    r"""(?<![\w:/.~\\-])                       # not inside a word, an address or a relative path
        (?:file://)?(?:~|[A-Za-z]:)?           # a home directory or a drive
        (?:[/\\][^\s/\\'"`:;,()]+)+[/\\]       # at least one folder
        (?P<name>[^\s/\\'"`:;,()]+)[/\\]?""",
    re.VERBOSE,
)


def visible(value: object) -> str:
    """One line of printable characters; white space becomes a space, anything hidden becomes ``‹U+202E›``."""
    spaced = re.sub(r"[ \t\r\n\f\v]+", " ", str(value)).strip()
    return "".join(f"‹U+{ord(c):04X}›" if unicodedata.category(c) in _HIDDEN else c for c in spaced)


def text(value: object) -> str:
    """`value` as literal text inside a Markdown line or table cell."""
    escaped = _ACTIVE.sub(lambda match: ("" if match["plain"] else "\\") + match.group(), visible(value))
    return escaped.replace("://", "\\://").replace("www.", "www\\.")  # GitHub links bare addresses


def block(value: object) -> str:
    """`value` as literal text that opens a Markdown paragraph, quote or list item."""
    escaped = text(value)
    marker = _LEADING.match(escaped)
    if not marker:
        return escaped
    if number := marker["number"]:  # "1." opens a list; only its dot can be escaped
        return number + "\\" + escaped[len(number) :]
    return "\\" + escaped


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading: lower case, punctuation dropped, spaces as hyphens."""
    kept = "".join(c for c in visible(heading).lower() if c.isalnum() or c in "-_ ")
    return kept.replace(" ", "-")


def without_paths(message: str) -> str:
    """Absolute paths in `message` cut to the names they end in: a report does not tell where it was made."""
    quoted = _QUOTED_PATH.sub(lambda match: match["quote"] + match["name"] + match["quote"], message)
    return _PATH.sub(lambda match: match["name"], quoted)
