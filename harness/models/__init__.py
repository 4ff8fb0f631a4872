"""Models: where they come from, what they are, and where their parts lie.

Names are imported when they are first used: `load` and `Anatomy` need torch, and a warm run must not load it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.models.anatomy import Anatomy
    from harness.models.families import FAMILIES, Family, family_of
    from harness.models.fingerprint import ModelInfo, model_info
    from harness.models.loading import Subject, choose_device, load
    from harness.models.sources import PAPER_MODELS, SHORT_NAMES, ModelSource, resolve_model
    from harness.models.tokenizer import load_tokenizer

_PLACES = {
    "Anatomy": "anatomy",
    "FAMILIES": "families",
    "Family": "families",
    "family_of": "families",
    "ModelInfo": "fingerprint",
    "model_info": "fingerprint",
    "Subject": "loading",
    "choose_device": "loading",
    "load": "loading",
    "PAPER_MODELS": "sources",
    "SHORT_NAMES": "sources",
    "ModelSource": "sources",
    "resolve_model": "sources",
    "load_tokenizer": "tokenizer",
}

__all__ = [
    "FAMILIES",
    "PAPER_MODELS",
    "SHORT_NAMES",
    "Anatomy",
    "Family",
    "ModelInfo",
    "ModelSource",
    "Subject",
    "choose_device",
    "family_of",
    "load",
    "load_tokenizer",
    "model_info",
    "resolve_model",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
