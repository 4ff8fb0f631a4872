"""What is to be measured, and the key under which it will be found again.

Nothing here needs torch: a run whose records are all in the store asks only this module and reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.corpora.documents import DocumentSet
from harness.evidence import Record, Store, key
from harness.models.fingerprint import ModelInfo
from harness.protocol import FOLDED, Budget, Protocol, knobs

NEAR_LINEARITY = "near-linearity"
ENGINE = 1
"""Raised whenever the engine's numbers change, so that records of another engine are not taken for its own."""

_CHUNK_FLOPS = 5e12
"""Work of one chunk, in floating-point operations: about a minute of two CPU cores, so a kill costs no more."""


@dataclass(frozen=True)
class Request:
    """One model on one corpus, under one protocol and budget."""

    model: ModelInfo
    """The model's fingerprint."""
    corpus: DocumentSet
    """The corpus's documents."""
    protocol: Protocol
    """How to measure."""
    budget: Budget
    """With how many tokens and documents."""
    dtype: str = "float32"
    """Precision of the forward passes."""

    def __repr__(self) -> str:
        how = f"{self.protocol.name} protocol, {self.budget.name} budget, {self.dtype}"
        return f"<Request {self.model.name} on {self.corpus.source.name}: {how}>"

    @property
    def variants(self) -> tuple[str, ...]:
        """Those of the budget's variants that the protocol can make; `folded` only where the MLP has such a map."""
        made = (v for v in self.budget.variants if v in self.protocol.variants)
        return tuple(v for v in made if v != FOLDED or self.model.parts.fold)

    def settings(self) -> dict[str, Any]:
        """Everything that determines the numbers of every layer."""
        return {
            "engine": ENGINE,
            "weights": self.model.weights_sha256,
            "config": self.model.config_sha256,
            "tokenizer": self.model.tokenizer_sha256,
            "corpus": self.corpus.fingerprint,
            "dtype": self.dtype,
            **knobs(self.protocol, self.budget),
            "variants": self.variants,
        }

    def layer_settings(self, layer: int) -> dict[str, Any]:
        """`settings` of one layer: a record holds one layer, so that a selection of layers can be measured alone."""
        return {**self.settings(), "layer": layer}

    @property
    def windows_per_chunk(self) -> int:
        """How many windows one chunk of the sweep takes: set by the amount of work, so the same on every machine."""
        d, L, V = self.model.width, self.model.layers, self.model.vocabulary
        flops_per_token = 2 * (12 * d * d * L / 2 + d * V) * L * len(self.variants)
        return max(1, min(16, round(_CHUNK_FLOPS / (flops_per_token * self.budget.context))))


def stored(store: Store, request: Request, layers: Sequence[int]) -> dict[int, Record]:
    """The records of those of `layers` that the store has, verified."""
    found = {layer: store.get(key(NEAR_LINEARITY, request.layer_settings(layer))) for layer in layers}
    return {layer: record for layer, record in found.items() if record is not None}
