"""Small corpora and a small tokenizer for the tests of harness.corpora."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.corpora import TokenizedCorpus

SHARED = Path(__file__).resolve().parents[3] / "shared" / "corpora"

#: A WikiText of 12 articles in which the third has two formulas of the shape of a title.
TITLES = tuple(f"Article number {n}" for n in range(12))
_FORMULAS = (
    " The prototype has a cut @-@ off frequency of ωc ",
    " = 1 rad / s and a nominal impedance k = ",
    " 1 Ω . This is produced by a filter half @-@ section with inductance L ",
    " = 1 henry and capacitance C = ",
    " 1 farad . ",
)


def wikitext_lines() -> list[str]:
    """The lines of the example, without blank ones."""
    lines = []
    for n, title in enumerate(TITLES):
        lines += [f" = {title} = ", f" The {title} is about {n} and its friends . ", " = = History = = "]
        lines += _FORMULAS if n == 2 else ()
        lines += [" = = = Early years = = = ", f" It began in {1900 + n} with a list ending in Nero "]
    return lines


def set_off(lines: list[str]) -> str:
    """As published: LF, a blank line before and after every heading, none around formulas."""
    return "".join(
        f" \n{line}\n \n" if line.startswith(" = ") and line not in _FORMULAS else f"{line}\n" for line in lines
    )


class WordTokenizer:
    """A Hugging Face tokenizer as far as `tokenize` knows one: words, BOS 1, EOS 2."""

    def __init__(self, bos: bool = False, eos: bool = False) -> None:
        self.bos, self.eos, self.calls = [1] * bos, [2] * eos, 0

    def __call__(self, text, add_special_tokens=True, return_attention_mask=True, verbose=True):
        self.calls += 1
        if not isinstance(text, str):
            return {"input_ids": [self(one, add_special_tokens=add_special_tokens)["input_ids"] for one in text]}
        ids = [3 + sum(map(ord, word)) % 1_000 for word in text.split()]
        return {"input_ids": [*self.bos, *ids, *self.eos] if add_special_tokens else ids}


def numbered(lengths: list[int], bos: tuple[int, ...] | None = None) -> TokenizedCorpus:
    """Documents of the given lengths whose tokens are all different: 1,000, 1,001, …"""
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    ids = np.arange(1_000, 1_000 + offsets[-1], dtype=np.int32)
    return TokenizedCorpus("numbers", tuple(map(str, range(len(lengths)))), ids, offsets, bos, "0" * 64)
