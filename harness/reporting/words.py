"""The words of a report, defined once: verdicts, controls, and what an interval leaves out."""

from __future__ import annotations

from harness.protocol import (
    FOLDED,
    LINEAR,
    LINEAR_FIRST_KEPT,
    LINEAR_HALF_A,
    LINEAR_HALF_B,
    LINEAR_WITH_FIRST,
    MEAN,
    ZERO,
)

PAPER = "*Half the Nonlinearity Is Wasted* (arXiv 2603.03459)"

READING = """\
- **Cost** of a replacement: the relative change of perplexity that it causes, exp(mean ΔNLL) − 1, in
  percent. ΔNLL is the loss with the replacement minus the loss of the intact model, in nats, token by
  token on the same text. A cost of +3 % means that perplexity is 3 % higher. One layer's MLP is
  replaced at a time.
- **Measured**: the estimate from the test documents, which took no part in any fit or choice.
- **Interval**: the values that the test documents leave open, at 95 % unless another level is given (90
  % where a claim says that two things are the same). It is a studentised bootstrap interval over
  documents: the document, not the token, is the unit that varies. The tables of layers have intervals
  that hold for all layers at once. Counts, shares, maxima and medians of layers are never resampled:
  they are bounded by closed tests over the layers, rankings by comparing each layer with the best. Such
  a bound may be narrower than the row of the layer in its table (a statement about the cheapest layer
  needs less than one about all of them) or wider. A comparison of two models is paired by document
  where it is about one layer or a mean; extremes and medians are bounded in each model apart.
- **Predicate**: what the claim wants of the measured number. Predicates stand in the source of the
  claims and were not chosen from these measurements. Where the paper gives no number the bound is ours,
  and the claim says so.
- A claim about *which* layer is the cheapest or the dearest is judged by a **lead**: how far the best
  of the layers that it names is ahead of the best of all others, as the ratio of the two perplexities
  less 1. Its predicate holds where the lead is above 0. *Not surely worse* are the layers that no other
  layer beats beyond noise.
- **SUPPORTED**: the whole interval satisfies the predicate. **REFUTED**: the whole interval violates
  it. **INCONCLUSIVE**: the interval holds values of both kinds, or there are fewer than 20 documents. A
  claim with k parts is SUPPORTED if all parts are, and REFUTED if one part is even at a kth of its error
  probability. **Not applicable**: the claim has no meaning for this model or this run. **Error**: the
  measurement broke, which is no verdict.
- **Reproduction**: judged on the model that the paper's sentence is about. **Generalization**: the
  pattern that the sentence describes, put to another model; where it fails, the pattern does not carry
  over, which says nothing of the paper's number.
- **Paper's number**: how the measurement stands to it. *Reproduced*: equal within the margin that
  stands with the claim; *excluded*: the interval does not hold it; *too wide to say*: neither; *not comparable*:
  another model, text, protocol or size of fit or window.
- **Could have shown**: how far on the right side of the predicate's bound the truth would have to lie
  for a sample of this size to support the claim with a chance of 80 %, at the noise that this estimate
  has. A smaller effect was out of reach. Counts and shares of layers have no such distance.
- **Settled by**: at about how many documents four samples in five would settle the claim, were the
  estimate the truth; a corpus may have fewer.
- Places in the paper: S is a section, T a table, *seed* the author's summary of the paper.
- A dash (—) stands for a number that does not exist."""

CONDITIONS = """\
- **One fit.** The maps were fitted once. An interval says what other test documents would change, not
  what other fitting text would. The variance over refits is told once, below each table of costs that
  has both halves: two fits, on halves of the fitting documents.
- **This corpus.** Test documents are taken as a sample of their corpus and of no other text; what a
  second corpus says stands beside each claim.
- **This set-up.** What the tokenizer puts at position 0, the length of the windows and the numerical
  precision are held fixed (see the measurements and the provenance).
- **Shared documents.** All verdicts on one corpus rest on the same documents and err together: the
  number of false verdicts to expect is right on average over such runs, and says little about any
  single one."""

COLUMNS = {
    LINEAR: "linear",
    LINEAR_WITH_FIRST: "with first",
    LINEAR_FIRST_KEPT: "first kept",
    LINEAR_HALF_A: "half a",
    LINEAR_HALF_B: "half b",
    MEAN: "mean",
    ZERO: "zero",
    FOLDED: "folded",
}
"""Variant -> head of its column, in the order of the columns."""

MEANINGS = {
    LINEAR: (
        "an affine map, fitted by ridge regression to the MLP's inputs and outputs, first positions left "
        "out of the fit (unless the protocol says otherwise). The verdicts are about this map."
    ),
    LINEAR_WITH_FIRST: (
        "the same map fitted on as many rows, first positions among them. Where it costs far more than "
        "*linear*, a few huge outputs at first positions spoil the fit; that is no sign of nonlinearity "
        "elsewhere."
    ),
    LINEAR_FIRST_KEPT: (
        "*linear*, with the true MLP kept at first positions. Where it costs far less than *linear*, the "
        "damage is done at the first positions."
    ),
    LINEAR_HALF_A: (
        "*linear* fitted on half of the rows, from half of the fitting documents. Where it costs more "
        "than *linear*, the map still wants data."
    ),
    LINEAR_HALF_B: "the same from the other half: the difference between the halves is the chance in a fit.",
    MEAN: (
        "mean ablation, the MLP's average output in place of its output. Where it costs as little as "
        "*linear*, the layer is cheap because it is unimportant, not because it is linear."
    ),
    ZERO: "zero ablation, the MLP cut out: a second measure of how much the layer matters at all.",
    FOLDED: (
        "the MLP's two weight matrices multiplied, its activation dropped, nothing fitted. Where it costs "
        "much more than *linear*, the fitted map is not the one that stands in the weights."
    ),
}
"""What each variant puts in the place of the MLP, and what its cost tells."""

UNPAIRED = (
    "*As the paper's*: the interval as the paper's author made it, a percentile interval over lines of the perplexity "
    "with the map, the perplexity without it held fixed. What the same lines do to both does not cancel in it."
)

LINES = """\
This run measures as the code of the paper's author did, so that its numbers can be set beside his. For verdicts that
are to stand, use the protocol *sound*.

- **A document is a line** wherever this report speaks of documents: a row of the corpus, a context of its own, cut at
  the length of a window, with nothing put in front. Lines are taken by their numbers, in reading order: a few
  articles, whose lines are alike, so that **every interval here is too narrow**.
- **Fits** take the first rows of their lines, first positions among them, with a penalty that does not grow with the
  number of rows, which makes them least squares in all but name.
- **Choices**, where there are any, are made on the test lines; with one penalty there are none here.
- Everything else, the costs, the paired intervals and the verdicts, is as under the protocol *sound*."""

R2 = (
    "the share of the variance of the MLP's output that the map explains, at positions after the first of "
    "the test documents. It weighs all directions alike, which the loss does not."
)
CAPTURED = (
    "1 − (loss with *linear* − loss) / (loss with *mean* − loss), the share of the MLP's effect on the "
    "loss that the map keeps: 100 % for a perfect stand-in, 0 % for one no better than the average "
    "output. Given only where the interval of the denominator excludes 0. Where mean ablation is a "
    "catastrophe, any map that avoids it captures nearly all: read the share beside the cost."
)
NORM = (
    "the mean length of the MLP's output at first positions and at all others of the fitting text. "
    "Where the first is far larger, it dominates a least-squares fit that includes it."
)
