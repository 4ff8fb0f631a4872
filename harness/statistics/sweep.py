"""The sweep over layers as a claim sees it: families of costs, and names for parts of the depth.

It is made from the measurement dict of a report, so that a fresh measurement and the baseline that it is compared
with go through the same code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from harness import numbers
from harness.protocol import LINEAR, MEAN
from harness.statistics.estimates import Estimate
from harness.statistics.families import Family, captured, cost_family

_LIKE_SIZED = 1.5
"""Two models are of like size where their parameter counts differ by at most this factor."""
_ONE_SIZE = 1.1
"""And of one size up to this factor: a longer vocabulary makes no larger model."""


class NotApplicable(Exception):
    """A claim has no meaning for this model or this selection of layers; the message says why."""


@dataclass(frozen=True)
class Sweep:
    """What replacing each layer's MLP costs on one model and one corpus."""

    measurement: Mapping[str, Any] = field(repr=False)
    """The measurement dict (per-document sums)."""
    info: Mapping[str, Any] = field(repr=False)
    """The model's entry of the report: name, family, parameters."""
    seed: int = 0
    """Seed of the resampling weights."""
    linear: str = LINEAR
    """The variant that plays the linear map; another fit of it shows how far a claim depends on the fit."""

    def __repr__(self) -> str:
        documents, measured = len(self.documents), len(self.measurement["layers"])
        return f"<Sweep {self.model} on {self.corpus}: {measured} of {self.depth} layers, {documents} documents>"

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.measurement["model"])

    @property
    def corpus(self) -> str:
        """Name of the corpus."""
        return str(self.measurement["corpus"])

    @property
    def depth(self) -> int:
        """Number of layers of the model."""
        return int(self.measurement["depth"])

    @property
    def layers(self) -> list[int]:
        """All layers of the model, from 0."""
        return list(range(self.depth))

    @property
    def documents(self) -> tuple[str, ...]:
        """Ids of the evaluated documents."""
        return tuple(document["id"] for document in self.measurement["documents"])

    @cached_property
    def targets(self) -> np.ndarray:
        """(D,) evaluated tokens of each document."""
        return np.array([document["targets"] for document in self.measurement["documents"]], dtype=float)

    def depths(self, low: float, high: float) -> list[int]:
        """Layers whose middle lies between two fractions of the depth; layer l of L has its middle at (l + ½)/L."""
        return self._some(layer for layer in self.layers if low <= (layer + 0.5) / self.depth <= high)

    def like(self, first: int, last: int, *, of: int) -> list[int]:
        """Layers that stand where layers `first` to `last` stand in a model of `of` layers."""
        return self.depths(first / of, (last + 1) / of)

    @property
    def middle_half(self) -> list[int]:
        """Layers between a quarter and three quarters of the depth."""
        return self.depths(1 / 4, 3 / 4)

    def other_than(self, *layers: int) -> list[int]:
        """All layers but these. Raises NotApplicable where the model has no others."""
        found = [layer for layer in self.layers if layer not in layers]
        if not found:
            raise NotApplicable(f"a model of {numbers.plural(self.depth, 'layer')} has no others")
        return found

    @cached_property
    def cost(self) -> Family:
        """Cost of the linear map, all layers: exp(mean ΔNLL) − 1."""
        return self.variant(self.linear)

    def variant(self, name: str) -> Family:
        """Cost of any variant, all layers. Raises NotApplicable where layers or the variant were not measured."""
        self._all_layers()
        return self._family(name, self.layers)

    def cost_at(self, layer: int) -> Estimate:
        """Cost of the linear map in one layer, whether or not the others were measured."""
        if layer not in self.measurement["layers"]:
            raise NotApplicable(f"layer {layer} was not measured (--layers)")
        return self._family(self.linear, [layer]).at(layer)

    @cached_property
    def captured(self) -> Family:
        """Share of the MLP's effect that the linear map captures, 1 − (L_lin − L_full)/(L_mean − L_full), by layer."""
        self._all_layers()
        return captured(self._family(self.linear, self.layers), self._family(MEAN, self.layers))

    def require(self, *, family: str) -> None:
        """Raise NotApplicable unless the model is of this family."""
        if self.info["family"] != family:
            raise NotApplicable(f"the claim is about {family} models; {self.model} is {self.info['family']}")

    def _family(self, variant: str, layers: Sequence[int]) -> Family:
        sums = self.measurement["delta"].get(variant)
        if sums is None:
            raise NotApplicable(f"the variant {variant!r} was not measured with this budget and protocol")
        rows = [self.measurement["layers"].index(layer) for layer in layers]
        return cost_family(layers, np.asarray(sums, dtype=float)[rows], self.targets, self.documents, seed=self.seed)

    def _all_layers(self) -> None:
        measured = self.measurement["layers"]
        if len(measured) < self.depth:
            raise NotApplicable(f"the claim needs all layers; {len(measured)} of {self.depth} were measured (--layers)")

    def _some(self, layers: Iterable[int]) -> list[int]:
        found = list(layers)
        if not found:
            raise NotApplicable(f"a model of {numbers.plural(self.depth, 'layer')} has none at that depth")
        return found


@dataclass(frozen=True)
class Sweeps:
    """The sweeps of several models on one corpus."""

    all: tuple[Sweep, ...]
    """One of each model, in the order of the run."""

    @property
    def corpus(self) -> str:
        """Name of the corpus."""
        return self.all[0].corpus

    def of_family(self, family: str, *, at_least: int = 1) -> list[Sweep]:
        """Models of a family, smallest first.

        Raises NotApplicable where there are fewer than `at_least`, and where that is more than one and the models
        are not each of another size.
        """
        found = [sweep for sweep in self.all if sweep.info["family"] == family]
        need = f"{at_least} {family} models of different sizes" if at_least > 1 else f"a {family} model"
        if len(found) < at_least:
            raise NotApplicable(f"the claim compares models and needs {need}; this run has {len(found) or 'none'}")
        found.sort(key=lambda sweep: (sweep.info["parameters"] or 0, sweep.model))
        for a, b in itertools.pairwise(found) if at_least > 1 else ():
            if not a.info["parameters"]:
                raise NotApplicable(f"the claim compares sizes, and the size of {a.model} is not known")
            if _ratio(a.info["parameters"], b.info["parameters"]) < _ONE_SIZE:
                raise NotApplicable(f"the claim needs {need}; {a.model} and {b.model} are of one size")
        return found

    def like_sized(self, one: str, other: str) -> list[tuple[Sweep, Sweep]]:
        """Pairs of a model of each family whose sizes differ by at most half; NotApplicable where there is none."""
        pairs = [
            (a, b)
            for a in self.of_family(one)
            for b in self.of_family(other)
            if _ratio(a.info["parameters"], b.info["parameters"]) <= _LIKE_SIZED
        ]
        if not pairs:
            raise NotApplicable(f"no {one} and {other} model of this run are of like size")
        return pairs


def _ratio(a: int | None, b: int | None) -> float:
    return max(a, b) / min(a, b) if a and b else float("inf")
