"""report.md from report.json: a pure function of the dict, readable without the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.reporting import claims, measurements, provenance
from harness.reporting.escape import text
from harness.reporting.numbers import number, plural
from harness.reporting.summary import ERROR_RATE, by_subject, false_verdicts, subject, tally
from harness.reporting.tables import table

FILE_NAME = "report.md"
PAPER = "*Half the Nonlinearity Is Wasted* (arXiv 2603.03459)"

WORDS = """\
- **Cost** of a replacement is the relative change of perplexity that it causes: exp(mean ΔNLL) − 1, in percent, where
  ΔNLL is the loss with the replacement minus the loss of the intact model, in nats, on the same tokens. A cost of
  +3 % means that perplexity is 3 % higher. One layer is replaced at a time unless a claim says otherwise.
- **Measured** is the estimate from the test documents, which took no part in any fit or choice.
- **Interval**: the values that the documents leave open, at 95 % unless another level is given (90 % where a claim says
  that two things are the same). The unit that varies is the document: intervals are studentised bootstrap intervals over
  test documents. Where a claim is about many layers, its interval holds for all of them at once; counts, shares,
  maxima and rankings of layers are bounded from those simultaneous intervals.
- **Must be** is the predicate of the claim, fixed before anything was measured.
- **SUPPORTED**: the whole interval satisfies the predicate. **REFUTED**: the whole interval violates it.
  **INCONCLUSIVE**: the interval holds values that satisfy it and values that violate it, or there are fewer than 20
  documents. **not applicable**: the claim has no meaning for this model. **error**: the measurement broke; that is no
  verdict.
- A claim with several parts is SUPPORTED if all parts are, and REFUTED if one part is.
- **Could have shown**: the smallest distance from the predicate's bound that a sample of this size shows with a
  chance of 80 %. An effect smaller than this was out of reach.
- **Settled by**: how many documents it would take for the interval to leave the bound, if the estimate stays where it is.
- **Towards the paper's number**: *reproduced*: equal within a margin fixed beforehand; *excluded*: the interval
  does not hold it; *too wide to say*: neither; *not comparable*: another model or protocol.
- A dash (—) stands for a number that does not exist."""


def render(report: Mapping[str, Any]) -> str:
    """The whole report as Markdown (GitHub's dialect), ending in a line break. `report` must be valid."""
    parts = [
        f"# Replication report: {PAPER}",
        _headline(report),
        "## How to read this",
        WORDS,
        "## Verdicts",
        claims.verdict_table(report["claims"]),
        "## Claims",
        claims.sections(report["claims"]),
        "## Measurements",
        measurements.section(report["measurements"]),
        "## What an interval does not cover",
        _conditions(report),
        "## What was not tested",
        _untested(report),
        *(["## What broke", _errors(report)] if report["errors"] else []),
        "## Provenance",
        provenance.section(report),
    ]
    return "\n\n".join(parts) + "\n"


def _headline(report: Mapping[str, Any]) -> str:
    judged = report["claims"]
    if not judged:
        return f"Run {text(report['run']['name'])} judged no claim."
    groups = by_subject(judged)
    found = [f"**{subject(models)}**: {tally(rows)}" for models, rows in groups.items()]
    n, expected = false_verdicts(judged)
    chance = (
        f"Each of the {plural(n, 'part')} that an interval judged has a chance of at most {ERROR_RATE:.0%} of a false "
        f"verdict, so no more than {number(expected, 1)} false verdicts are to be expected among them."
        if n
        else ""
    )
    opening = f"Run {text(report['run']['name'])}, {plural(len(judged), 'judgement')} of claims."
    if len(found) <= 3:
        return f"{opening} {'; '.join(found)}. {chance}".rstrip()
    return "\n".join([opening, "", *(f"- {line}" for line in found), "", chance]).rstrip()


def _conditions(report: Mapping[str, Any]) -> str:
    return (
        "Every interval is conditional on one fit of the maps: it says what other *documents* would change, not what "
        "other fitting text or rows would. The variance over refits is told once, below each layer table, from two fits "
        "on halves of the fitting documents that share none. It is conditional, too, on the corpus (documents "
        "are taken as a sample of that corpus and of no other text), on the tokenizer's habit at position 0, and on the "
        "numerical precision named under provenance. Verdicts on one model share its documents, so they err together: "
        "the number of false verdicts to expect holds on average, not for every run."
    )


def _untested(report: Mapping[str, Any]) -> str:
    if not report["untested"]:
        return "Every claim of the paper that this version knows was put to the test."
    rows = [[text(c["id"]), text(c["section"]), text(c["statement"]), text(c["why"])] for c in report["untested"]]
    return table(["claim", "paper", "statement", "why not"], rows, left=4)


def _errors(report: Mapping[str, Any]) -> str:
    rows = [[text(error["item"]), text(error["message"])] for error in report["errors"]]
    return table(["item", "message"], rows, left=2)
