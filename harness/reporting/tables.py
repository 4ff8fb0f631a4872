"""Markdown tables of cells that are already text."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A pipe table whose first `left` columns hold words (left-aligned), the others numbers."""
    if not rows:
        return "*None.*"
    align = ["left" if column < left else "right" for column in range(len(heads))]
    # disable_numparse: cells are finished text, "1,234" and "0.50" must stay as they are
    return tabulate(rows, headers=heads, tablefmt="pipe", colalign=align, disable_numparse=True)


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """A list of facts; facts that are not known are left out."""
    return "\n".join(f"- {name}: {value}" for name, value in pairs if value)


def listed(items: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f" {last} ".join(filter(None, [", ".join(items[:-1]), items[-1]])) if items else ""
