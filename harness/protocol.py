"""What is measured, how, and with how many tokens: frozen knobs that go into every record's key.

A protocol is one set of knobs, not a fork of the code; a budget is a set of sizes. Neither knows how to measure.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from harness.errors import WanamakerError

LINEAR = "linear"
"""Ridge-fitted affine map (the map that verdicts are about); the protocol says whether on first positions too."""
LINEAR_WITH_FIRST = "linear_with_first"
"""The same map fitted on the same number of rows, first positions among them."""
LINEAR_FIRST_KEPT = "linear_first_kept"
"""`linear`, with the true MLP kept at first positions during evaluation."""
LINEAR_HALF_A = "linear_half_a"
"""`linear` fitted on half of the rows, from every other fitting document (of lines, from the first ones)."""
LINEAR_HALF_B = "linear_half_b"
"""`linear` fitted on the other half of the rows: with half a, the curve over N and the variance over refits."""
MEAN = "mean"
"""Mean ablation: the mean MLP output over the fitting rows."""
ZERO = "zero"
"""Zero ablation."""
FOLDED = "folded"
"""The MLP's own weights with the activation dropped, ``W_proj W_fc``; only where the MLP is not gated."""

CONTROLS = (LINEAR, LINEAR_WITH_FIRST, LINEAR_FIRST_KEPT, LINEAR_HALF_A, LINEAR_HALF_B, MEAN, ZERO, FOLDED)


@dataclass(frozen=True)
class Shares:
    """Splits of documents by share, in the order of their hashes. What is left is `test`."""

    fit_share: float
    """For fitting surrogates."""
    gate_share: float
    """For training gates."""
    select_share: float
    """For choices (here: of the ridge penalty)."""

    @property
    def percent(self) -> list[int]:
        """The three shares in whole percent."""
        return [round(100 * share) for share in (self.fit_share, self.gate_share, self.select_share)]


@dataclass(frozen=True)
class LineRanges:
    """Splits of a corpus's lines in reading order, as [start, stop) each. Choices are made on `test` itself."""

    fit_lines: tuple[int, int]
    """For fitting surrogates."""
    gate_lines: tuple[int, int]
    """For training gates."""
    test_lines: tuple[int, int]
    """For choices and for the numbers that are reported."""

    @property
    def by_name(self) -> dict[str, tuple[int, int]]:
        """The ranges by the names of their splits."""
        return {"fit": self.fit_lines, "gate": self.gate_lines, "test": self.test_lines}

    @property
    def last(self) -> int:
        """One past the last line that is read."""
        return max(stop for _, stop in self.by_name.values())


@dataclass(frozen=True)
class Protocol:
    """How things are measured, apart from sizes.

    `SOUND` follows rules that let a claim fail; `PUBLISHED` does what the paper's author's code did, so that numbers
    can be set beside his.
    """

    name: str
    """Name of the set of knobs, as printed in the report."""
    splits: Shares | LineRanges
    """What text is for what. With `LineRanges` a line is a context of its own, cut at the context's length."""
    bos: bool
    """Whether a window starts with what the tokenizer puts in front of a text by habit."""
    first_positions: bool
    """Whether the map `linear` is fitted on first positions too."""
    ridge_grid: tuple[float, ...]
    """Candidate penalties; where there is one, nothing is chosen."""
    ridge_scaled: bool
    """Whether penalties are multiples of the mean eigenvalue of the centred Gram matrix, or absolute."""
    variants: tuple[str, ...]
    """The ways of computing an MLP that these rules can make; a budget has some of them evaluated."""

    @property
    def unit(self) -> str:
        """What a window is cut from and what is resampled: `document` or `line`."""
        return "line" if isinstance(self.splits, LineRanges) else "document"


SOUND = Protocol(
    name="sound",
    splits=Shares(fit_share=0.25, gate_share=0.15, select_share=0.15),
    bos=True,
    first_positions=False,
    ridge_grid=(1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    ridge_scaled=True,
    variants=CONTROLS,
)
PUBLISHED = Protocol(
    name="published",
    splits=LineRanges(fit_lines=(0, 500), gate_lines=(1000, 3000), test_lines=(2000, 2500)),
    bos=False,
    first_positions=True,
    ridge_grid=(0.01,),
    ridge_scaled=False,
    # The paper has no controls; all but the one that differs from `linear` by the first positions are made here too.
    variants=tuple(variant for variant in CONTROLS if variant != LINEAR_WITH_FIRST),
)
PROTOCOLS = {protocol.name: protocol for protocol in (SOUND, PUBLISHED)}


@dataclass(frozen=True)
class Budget:
    """How many tokens and documents a run may use."""

    name: str
    """Name as given to ``--budget``; overridden sizes are appended to it."""
    fit: int
    """Rows (positions) on which a surrogate is fitted."""
    gate: int
    """Positions on which a gate is trained."""
    select: int
    """Positions on which choices are made."""
    test: int
    """Evaluated tokens a corpus, at least (where the corpus has them)."""
    documents: int
    """Evaluated documents a corpus, at least (where the corpus has them)."""
    context: int
    """Longest window, in tokens."""
    variants: tuple[str, ...]
    """The ways of computing an MLP that are evaluated, in this order."""


_BUDGETS = (
    Budget("smoke", 20_000, 8_000, 4_000, 5_000, 40, 128, CONTROLS),
    Budget("quick", 20_000, 4_000, 2_000, 3_400, 24, 128, (LINEAR, LINEAR_WITH_FIRST, MEAN)),
    Budget("paper", 10_000, 20_000, 5_000, 50_000, 24, 512, CONTROLS),
    Budget("full", 100_000, 50_000, 25_000, 250_000, 100, 1_024, CONTROLS),
)
BUDGETS = {budget.name: budget for budget in _BUDGETS}
_SIZES = tuple(f.name for f in fields(Budget) if f.type == "int")


def parse_budget(text: str) -> Budget:
    """``quick`` or ``quick,test=8000,context=256``: a named budget, single sizes overridden.

    Raises
    ------
    WanamakerError
        For an unknown budget, an unknown size, or a size that is not a positive whole number.
    """
    name, *overrides = (part.strip() for part in text.split(","))
    if name not in BUDGETS:
        raise WanamakerError(f"--budget {name}: no such budget; choose one of {', '.join(BUDGETS)}")
    budget = BUDGETS[name]
    for override in overrides:
        size, _, number = override.partition("=")
        if size == "variants":
            chosen = tuple(number.split("+"))
            if unknown := [v for v in chosen if v not in CONTROLS]:
                raise WanamakerError(f"--budget: no variant {unknown[0]!r}; there are {', '.join(CONTROLS)}")
            if LINEAR not in chosen:
                raise WanamakerError(f"--budget: the variants must include {LINEAR!r}")
            budget = replace(budget, variants=tuple(v for v in CONTROLS if v in chosen))
            continue
        if size not in _SIZES:
            raise WanamakerError(f"--budget: no size {size!r}; a budget has {', '.join(_SIZES)} and variants (a+b+c)")
        if not number.isdecimal() or int(number) < 1:
            raise WanamakerError(f"--budget: {size}={number!r} is not a positive whole number")
        sizes: dict[str, Any] = {size: int(number)}
        budget = replace(budget, **sizes)
    if budget.context < 2:
        raise WanamakerError("--budget: context must be at least 2, a token and its target")
    return replace(budget, name=text.replace(" ", "")) if overrides else budget


def knobs(protocol: Protocol, budget: Budget) -> dict[str, object]:
    """What of a protocol and a budget goes into a record's key: all numbers, no names.

    Knobs that stand as in `SOUND` are left out, but for those that were in the key from the first: a knob that
    comes in later does not put an end to the records that are there. Variants are the request's.
    """
    first = {**asdict(protocol.splits), "ridge_grid": protocol.ridge_grid}
    others = ("bos", "first_positions", "ridge_scaled")
    later = {name: value for name in others if (value := getattr(protocol, name)) != getattr(SOUND, name)}
    described = {**first, **later, **asdict(budget)}
    del described["name"]
    return described
