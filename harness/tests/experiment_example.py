"""The whole near-linearity experiment at toy size: a tiny model on text that it wrote itself.

On text sampled from the model itself the expected rise of the loss under any change is a KL divergence, so it is
positive in every layer, and controls such as the share captured have something to be measured on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from harness.corpora import DocumentSet
from harness.corpora.documents import Document, document_set
from harness.corpora.sources import CorpusSource
from harness.evidence import Record, Store
from harness.experiments.near_linearity import measure
from harness.experiments.request import Request
from harness.models.fingerprint import model_info
from harness.models.loading import Subject, load
from harness.models.sources import resolve_model
from harness.protocol import CONTROLS, SOUND, Budget
from harness.tests.tiny_models import VOCABULARY, tiny_model

BUDGET = Budget("toy", fit=480, gate=1, select=120, test=500, documents=40, context=16, variants=CONTROLS)
LAYERS = {"gpt2": {"n_layer": 3}, "gpt_neox parallel": {"num_hidden_layers": 3}, "llama": {"num_hidden_layers": 3}}
BLOCKS: dict[str, Callable[[Any], Any]] = {
    "gpt2": lambda model: model.transformer.h,
    "gpt_neox": lambda model: model.gpt_neox.layers,
    "llama": lambda model: model.model.layers,
}
"""model_type -> the blocks, each of which has an `mlp`."""


def blocks(model: Any) -> Any:
    """The blocks of a model, found without the harness."""
    return BLOCKS[model.config.model_type](model)


def toy_model(name: str, **settings: Any) -> nn.Module:
    """A random model of three layers whose MLPs matter, and whose first positions stand out in GPT-2."""
    model: Any = tiny_model(name, **{**LAYERS[name], **settings})
    for block in blocks(model):
        for parameter in block.mlp.parameters():
            parameter *= 1.5 if parameter.ndim == 2 else 1.0
    if name == "gpt2":
        model.transformer.wpe.weight[0] *= 10
    return model


def tokenizer(bos: bool = False) -> PreTrainedTokenizerFast:
    """Words t0, t1, … with their own numbers for ids; with `bos`, t0 goes in front by habit."""
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t1"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        words.post_processor = processors.TemplateProcessing(single="t0 $A", special_tokens=[("t0", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t0")


@torch.no_grad()
def written_by(model: Any, lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Token ids of texts of these lengths sampled from the model, each from a random first token on."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCABULARY, (len(lengths), 1), generator=generator)
    for _ in range(max(lengths) - 1):
        p = model(ids, use_cache=False).logits[:, -1].float().softmax(-1)
        ids = torch.cat([ids, torch.multinomial(p, 1, generator=generator)], dim=1)
    return [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]


def corpus_of(texts: Sequence[Sequence[int]], name: str = "toy") -> DocumentSet:
    """A corpus in which each text is a document of words."""
    documents = [Document.of(f"document {i}", " ".join(f"t{token}" for token in text)) for i, text in enumerate(texts)]
    return document_set(CorpusSource(name, "file", f"{name}.txt"), documents, "file")


@dataclass
class Toy:
    """A model on disk, a corpus, a store and what is asked for."""

    request: Request
    subject: Subject
    folder: Path
    """Where evidence goes."""

    @property
    def store(self) -> Store:
        """A freshly opened store, as a new process has it."""
        return Store(self.folder, report=self.said.append)

    def __post_init__(self) -> None:
        self.said: list[str] = []
        self.loads = 0

    def elsewhere(self, folder: Path, **budget: Any) -> Toy:
        """The same with an empty store, and other sizes where given."""
        request = replace(self.request, budget=replace(self.request.budget, **budget))
        return Toy(request, self.subject, folder)

    def measure(self, layers: Sequence[int] | None = None, memory: float = 4.0) -> dict[int, Record]:
        """The records of `layers` (default: all), measured where the store lacks them."""

        def subject() -> Subject:
            self.loads += 1
            return self.subject

        return measure(
            self.request,
            list(range(self.request.model.layers)) if layers is None else layers,
            subject=subject,
            store=self.store,
            cache=self.folder / "cache",
            memory=memory,
            progress=lambda what, done, of: None,
            log=self.said.append,
        )


def toy(
    folder: Path,
    name: str = "gpt2",
    *,
    model: nn.Module | None = None,
    lengths: Sequence[int] | None = None,
    bos: bool = False,
    budget: Budget = BUDGET,
) -> Toy:
    """A toy whose 100 documents have between 9 and 40 tokens, so that some give one window and some several."""
    it: Any = toy_model(name) if model is None else model
    it.save_pretrained(folder / "model")
    tokenizer(bos).save_pretrained(folder / "model")
    texts = written_by(it, [9 + (7 * i) % 32 for i in range(100)] if lengths is None else lengths)
    source = resolve_model(str(folder / "model"))
    info = model_info(source, folder / "cache")
    request = Request(info, corpus_of(texts), SOUND, budget)
    return Toy(request, load(source, info), folder / "evidence")


def same(a: dict[int, Record], b: dict[int, Record]) -> bool:
    """Whether two sets of records hold the same numbers, to the last bit."""
    return a.keys() == b.keys() and all(
        a[layer].key == b[layer].key
        and a[layer].coordinates == b[layer].coordinates
        and a[layer].arrays.keys() == b[layer].arrays.keys()
        and all(np.array_equal(array, b[layer].arrays[name]) for name, array in a[layer].arrays.items())
        for layer in a
    )


def next_token_nll(model: Any, ids: np.ndarray) -> np.ndarray:
    """−log p of each next token (T−1,) of one window, from the model's own forward."""
    window = torch.from_numpy(ids.astype(np.int64))
    with torch.no_grad():
        logits: Tensor = model(window[None], use_cache=False).logits[0, :-1].double()
    return -logits.log_softmax(-1).gather(-1, window[1:, None])[:, 0].numpy()
