"""Section 4.1 and Table 3 of the paper: what it costs to replace one MLP by a linear map, layer by layer.

`sweep.cost` holds the relative rise of perplexity for every layer; `sweep.like(a, b, of=L)` are the layers that stand
where layers a to b stand in a model of L. A test named after a model of the paper is a check of what the paper says
of it; the test before it puts the pattern to any other model. Where the paper names a layer and its cost, the verdict
is on the layer: the cost depends on the protocol, and how the measurement stands to it is told beside the verdict.
Bounds that the paper does not give are ours: critical and catastrophic below, and parts of the depth such as the
first quarter.
"""

from harness.plugin import claim

CRITICAL = 0.10
CATASTROPHIC = 1.00  # replacing the MLP at least doubles the perplexity
ROUNDING = 0.0001  # a hundredth of a point: an MLP that is exactly linear comes out at 0 up to float32's rounding


@claim("alllin-gpt2m-70pct-under-3")
def test_most_layers_cost_under_three_percent(sweep, judge):
    judge(sweep.cost.share_below(0.03)).at_least(0.70)


@claim("alllin-gpt2m-l2-l15-range")
def test_early_to_late_middle_layers_cost_at_most_two_and_a_half_percent(sweep, judge):
    judge(sweep.cost.only(sweep.like(2, 15, of=24)).maximum()).at_most(0.0255)


@claim("alllin-gpt2m-l2-l15-range", model="gpt2-medium")
def test_gpt2_medium_layers_2_to_15_cost_1_6_to_2_5_percent(sweep, judge):
    costs = sweep.cost.only(range(2, 16))
    judge(costs.maximum(), "dearest of the layers").at_most(0.0255)
    judge(costs.minimum(), "cheapest of the layers").at_least(0.0155)


@claim("alllin-gpt2m-middle-under-3.5")
def test_most_middle_layers_cost_under_three_and_a_half_percent(sweep, judge):
    judge(sweep.cost.only(sweep.middle_half).share_below(0.035)).above(0.5)


@claim("alllin-gpt2m-only-first-last-exceptions")
def test_only_the_first_and_last_layers_exceed_three_and_a_half_percent(sweep, judge):
    edges = {0, sweep.depth - 1}
    judge(sweep.cost.only(edges).minimum(), "first and last").above(0.035)
    judge(sweep.cost.only(sweep.other_than(*edges)).maximum(), "all others").below(0.035)


@claim("alllin-pattern-replicates-exactly")
def test_the_first_layer_is_catastrophic(sweep, judge):
    judge(sweep.cost.at(0), "cost of layer 0").at_least(CATASTROPHIC)
    judge(sweep.cost.dearest(), "the dearest layer").is_exactly(0)


@claim("alllin-gpt2m-cheapest-l8")
def test_the_cheapest_layer_lies_in_the_middle_half(sweep, judge):
    judge(sweep.cost.cheapest()).lies_in(sweep.middle_half)


@claim("alllin-gpt2m-cheapest-l8", model="gpt2-medium")
def test_gpt2_medium_layer_8_is_the_cheapest(sweep, judge):
    judge(sweep.cost.cheapest(), "the cheapest layer").is_exactly(8)


@claim("alllin-gpt2m-worst-l23")
def test_the_last_layer_is_the_dearest_after_the_first(sweep, judge):
    judge(sweep.cost.only(sweep.other_than(0)).dearest()).is_exactly(sweep.depth - 1)


@claim("alllin-gpt2m-worst-l23", model="gpt2-medium")
def test_gpt2_medium_layer_23_is_the_dearest_after_the_first(sweep, judge):
    judge(sweep.cost.only(sweep.other_than(0)).dearest(), "the dearest layer").is_exactly(23)


@claim("alllin-gpt2l-max-3.7")
def test_no_layer_costs_more_than_3_7_percent(sweep, judge):
    judge(sweep.cost.maximum()).at_most(0.037)


@claim("alllin-gpt2l-min-l5")
def test_the_cheapest_layer_lies_in_the_first_quarter(sweep, judge):
    judge(sweep.cost.cheapest()).lies_in(sweep.depths(0, 1 / 4))


@claim("alllin-gpt2l-min-l5", model="gpt2-large")
def test_gpt2_large_layer_5_is_the_cheapest(sweep, judge):
    judge(sweep.cost.cheapest(), "the cheapest layer").is_exactly(5)


@claim("alllin-p160m-range")
def test_the_cheapest_layer_is_in_the_middle_and_the_dearest_early(sweep, judge):
    judge(sweep.cost.cheapest(), "the cheapest layer").lies_in(sweep.middle_half)
    judge(sweep.cost.dearest(), "the dearest layer").lies_in(sweep.depths(0, 1 / 4))


@claim("alllin-p160m-range", model="pythia-160m")
def test_pythia_160m_layers_5_and_2_are_the_extremes(sweep, judge):
    judge(sweep.cost.cheapest(), "the cheapest layer").is_exactly(5)
    judge(sweep.cost.dearest(), "the dearest layer").is_exactly(2)


@claim("alllin-p410m-worst-l6")
def test_the_dearest_layer_lies_in_the_first_third(sweep, judge):
    judge(sweep.cost.dearest()).lies_in(sweep.depths(0, 1 / 3))


@claim("alllin-p410m-worst-l6", model="pythia-410m")
def test_pythia_410m_layer_6_is_the_dearest(sweep, judge):
    judge(sweep.cost.dearest(), "the dearest layer").is_exactly(6)


@claim("alllin-p410m-cheapest-l12")
def test_the_cheapest_layer_lies_in_the_middle_third(sweep, judge):
    judge(sweep.cost.cheapest()).lies_in(sweep.depths(1 / 3, 2 / 3))


@claim("alllin-p410m-cheapest-l12", model="pythia-410m")
def test_pythia_410m_layer_12_is_the_cheapest(sweep, judge):
    judge(sweep.cost.cheapest(), "the cheapest layer").is_exactly(12)


@claim("alllin-p1b-worst-l2")
def test_the_dearest_layer_lies_in_the_first_quarter(sweep, judge):
    judge(sweep.cost.dearest()).lies_in(sweep.depths(0, 1 / 4))


@claim("alllin-p1b-worst-l2", model="pythia-1b")
def test_pythia_1b_layer_2_is_the_dearest(sweep, judge):
    judge(sweep.cost.dearest(), "the dearest layer").is_exactly(2)


@claim("alllin-p2.8b-range")
def test_the_cheapest_layer_is_in_the_middle_and_the_dearest_is_the_first(sweep, judge):
    judge(sweep.cost.cheapest(), "the cheapest layer").lies_in(sweep.middle_half)
    judge(sweep.cost.dearest(), "the dearest layer").is_exactly(0)


@claim("alllin-p2.8b-range", model="pythia-2.8b")
def test_pythia_2_8b_layers_10_and_0_are_the_extremes(sweep, judge):
    judge(sweep.cost.cheapest(), "the cheapest layer").is_exactly(10)
    judge(sweep.cost.dearest(), "the dearest layer").is_exactly(0)


@claim("alllin-p2.8b-l7-l15-under-4")
def test_middle_layers_each_cost_under_four_percent(sweep, judge):
    judge(sweep.cost.only(sweep.like(7, 15, of=32)).maximum()).below(0.04)


@claim("alllin-every-model-sweet-spot-4")
def test_some_middle_layer_costs_under_four_percent(sweep, judge):
    judge(sweep.cost.only(sweep.middle_half).minimum()).below(0.04)


@claim("alllin-one-or-two-critical")
def test_at_most_two_layers_are_critical(sweep, judge):
    judge(sweep.cost.count_above(CRITICAL)).at_most(2)


@claim("alllin-any-single-layer-cheap")
def test_any_single_layer_is_cheap(sweep, judge):
    judge(sweep.cost.maximum()).at_most(CRITICAL)


@claim("alllin-gpt2m-l4-l18-under-3")
def test_layers_from_a_sixth_to_four_fifths_each_cost_under_three_percent(sweep, judge):
    judge(sweep.cost.only(sweep.like(4, 18, of=24)).maximum()).below(0.03)


@claim("alllin-96pct-of-effect")
def test_the_linear_map_captures_96_percent_of_the_effect_at_middle_layers(sweep, judge):
    judge(sweep.captured.only(sweep.middle_half).minimum()).at_least(0.96)


@claim("alllin-p2.8b-u-shape")
def test_boundary_layers_cost_more_than_middle_layers(sweep, judge):
    edges = [*sweep.like(0, 2, of=32), *sweep.like(28, 31, of=32)]
    middle = sweep.like(7, 15, of=32)
    judge(sweep.cost.only(edges).mean() - sweep.cost.only(middle).mean()).above(0)


@claim("seed-half-the-stations")
def test_half_of_the_layers_are_free_and_some_improve(sweep, judge):
    judge(sweep.cost.share_below(0.025), "layers that cost under 2.5 %").at_least(0.5)
    judge(sweep.cost.minimum(), "the cheapest layer's cost").below(-ROUNDING)
