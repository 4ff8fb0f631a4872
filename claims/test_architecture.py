"""Sections 4.6, 4.7 and 5.5 of the paper: layer 0, size, and GPT-2 against GPT-NeoX (Pythia).

Claims about several models take `sweeps`, all models of the run on one corpus. A difference of single costs is paired
by document; extremes and medians are bounded in each model apart. The embedded pair has the same size, data,
tokenizer and steps, and differs in its block (sequential or parallel) and in how positions enter.
"""

import itertools

from harness.plugin import claim

from .test_near_linearity import CATASTROPHIC


@claim("layer0-not-in-gpt2", layers="first")
def test_layer_0_of_gpt2_is_not_catastrophic(sweep, judge):
    sweep.require(family="gpt2")
    judge(sweep.cost_at(0)).below(CATASTROPHIC)


@claim("layer0-sharp-threshold", layers="first")
def test_layer_0_is_catastrophic_in_the_largest_neox_only(sweeps, judge):
    *smaller, largest = sweeps.of_family("gpt_neox", at_least=2)
    judge(largest.cost_at(0), f"layer 0 of {largest.model}").at_least(CATASTROPHIC)
    for sweep in smaller:
        judge(sweep.cost_at(0), f"layer 0 of {sweep.model}").below(CATASTROPHIC)


@claim("layer0-160m-vs-gpt2l", layers="first")
def test_layer_0_costs_less_in_gpt2_than_in_neox(sweeps, judge):
    gpt2 = sweeps.of_family("gpt2")[-1]
    neox = sweeps.of_family("gpt_neox")[0]
    judge(neox.cost_at(0) - gpt2.cost_at(0), f"{neox.model} less {gpt2.model}").above(0)


@claim("alllin-gpt2l-worst-barely-above-p2.8b-best")
def test_the_worst_layer_of_gpt2_is_near_the_best_of_neox(sweeps, judge):
    gpt2 = sweeps.of_family("gpt2")[-1]
    neox = sweeps.of_family("gpt_neox")[-1]
    ratio = gpt2.cost.maximum() / neox.cost.minimum()
    judge(ratio, f"worst of {gpt2.model} / best of {neox.model}").equivalent_to(1, margin=0.25)


@claim("scaling-gpt2-cheaper")
def test_gpt2_is_cheaper_than_neox_of_like_size(sweeps, judge):
    for gpt2, neox in sweeps.like_sized("gpt2", "gpt_neox"):
        difference = neox.cost.only(neox.other_than(0)).median() - gpt2.cost.only(gpt2.other_than(0)).median()
        judge(difference, f"median of {neox.model} less {gpt2.model}").above(0)


@claim("scaling-median-monotone-pythia")
def test_the_median_cost_falls_with_size(sweeps, judge):
    pythia = sweeps.of_family("gpt_neox", at_least=2)
    for small, large in itertools.pairwise(pythia):
        drop = small.cost.only(small.other_than(0)).median() - large.cost.only(large.other_than(0)).median()
        judge(drop, f"median of {small.model} less {large.model}").above(0)
