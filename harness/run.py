"""A run: which models, on which corpora, measured how; every measurement made at most once and only when asked for.

    run = Run(Settings(models=("embedded-gpt2",)))
    sweep = run.sweep("embedded-gpt2", "scipy")      # measured now, or read from the evidence store
    sweep.cost.maximum().interval()

torch is imported only where something has to be measured. One model is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness.corpora import (
    DocumentSet,
    load_documents,
    load_lines,
    resolve_corpus,
    split_documents,
    split_lines,
    with_training,
)
from harness.corpora.sources import HUB_CORPORA, CorpusSource
from harness.errors import MeasurementError, WanamakerError
from harness.evidence import Record, Store
from harness.experiments.measurement import from_records
from harness.experiments.request import Request, stored
from harness.models.fingerprint import ModelInfo, model_info
from harness.models.sources import PAPER_MODELS, ModelSource, resolve_model
from harness.protocol import BUDGETS, PUBLISHED, SOUND, Budget, LineRanges, Protocol
from harness.statistics.sweep import NotApplicable, Sweep

if TYPE_CHECKING:
    from harness.models.loading import Subject

EMBEDDED_MODELS = ("embedded-gpt2", "embedded-gpt-neox")
EMBEDDED_CORPORA = ("scipy", "sklearn")
DEFAULT_CORPORA = ("wikitext",)

Progress = Callable[[str, float, float], None]
"""(what is going on, done, of how much)."""


def _silent(what: str, done: float, of: float) -> None:
    pass


@dataclass(frozen=True)
class Settings:
    """What a run was asked for. Everything has a default."""

    models: tuple[str, ...] = EMBEDDED_MODELS
    """Names as `resolve_model` takes them."""
    corpora: tuple[str, ...] = ()
    """Corpora as `resolve_corpus` takes them; the first is the one that claims are judged on. Empty: by model."""
    layers: tuple[int, ...] | None = None
    """Only these layers; None for all."""
    protocol: Protocol = SOUND
    budget: Budget | None = None
    """None: `smoke` for embedded models, `full` for the paper's on a GPU (`paper` under a protocol that has lines for
    documents, of which there is no more), `quick` for others."""
    device: str = "auto"
    """`auto` is CUDA where there is one."""
    device_map: str | None = None
    """How accelerate is to spread a model over devices, memory and disk; None for one device."""
    dtype: str = "float32"
    memory: float = 4.0
    """GiB that the activations of variants riding together may take."""
    evidence: Path = Path(".evidence")
    """Folder of the evidence store and of caches."""
    seed: int = 0
    """Seed of the bootstrap's resampling weights; measurements use no random numbers."""
    allow_pickle: bool = False
    """Whether weights may be read from pickle files, which can run code."""


@dataclass
class Run:
    """Measures on demand and remembers."""

    settings: Settings
    progress: Progress = _silent
    log: Callable[[str], None] = lambda line: None
    """Told about waiting, damage and the like, a line at a time."""
    wanted: dict[str, set[int] | None] = field(default_factory=dict)
    """Layers that somebody needs, by model; a model that is not in it needs all."""
    _subject: tuple[str, Subject] | None = field(default=None, init=False)
    _sweeps: dict[tuple[str, str, tuple[int, ...]], Sweep] = field(default_factory=dict, init=False)
    _broken: dict[tuple[str, str, tuple[int, ...]], Exception] = field(default_factory=dict, init=False)
    _lost: dict[str, WanamakerError] = field(default_factory=dict, init=False)
    _infos: dict[str, ModelInfo] = field(default_factory=dict, init=False)
    _documents: dict[CorpusSource, DocumentSet] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        measured = ", ".join(map(repr, self._sweeps.values())) or "nothing measured yet"
        return f"<Run of {', '.join(self.settings.models)}, {self.settings.protocol.name} protocol: {measured}>"

    @cached_property
    def store(self) -> Store:
        """The evidence store."""
        return Store(self.settings.evidence, report=self.log)

    @property
    def cache(self) -> Path:
        """Folder of documents and tokens that are kept between runs."""
        return Path(self.settings.evidence) / "cache"

    def source(self, model: str) -> ModelSource:
        """Where a model is. Raises ModelError for a name that leads nowhere; touches no network."""
        return resolve_model(model, allow_pickle=self.settings.allow_pickle)

    def info(self, model: str) -> ModelInfo:
        """A model's fingerprint. A hub model is downloaded here if it is not there yet; failing to is remembered."""
        if model in self._lost:
            raise self._lost[model]
        if model not in self._infos:
            try:
                self._infos[model] = model_info(self.source(model), self.cache)
            except WanamakerError as error:
                self._lost[model] = error
                raise
        return self._infos[model]

    def corpora(self, model: str) -> list[CorpusSource]:
        """The corpora a model is measured on; the first is the one that its claims are judged on."""
        names = self.settings.corpora or (EMBEDDED_CORPORA if model in EMBEDDED_MODELS else DEFAULT_CORPORA)
        sources = [self.corpus(name) for name in names]
        if self.settings.protocol.unit == "document" and self.budget(model).name.split(",")[0] == "full":
            # Where the hub has a training part, fits and choices take theirs from it and leave all the rest to `test`.
            return [with_training(source) for source in sources]
        return sources

    def corpus(self, text: str) -> CorpusSource:
        """A corpus as ``--corpus`` names it. Raises CorpusError for one that leads nowhere; touches no network."""
        return resolve_corpus(text)

    def documents(self, corpus: CorpusSource) -> DocumentSet:
        """A corpus's documents, or its lines where the protocol splits by line."""
        if corpus not in self._documents:
            self.progress(f"reading corpus {corpus.name}", 0, 1)
            splits = self.settings.protocol.splits
            self._documents[corpus] = (
                load_lines(corpus, self.cache, stop=splits.last, at_least=splits.test_lines[0] + 1)
                if isinstance(splits, LineRanges)
                else load_documents(corpus, self.cache)
            )
        return self._documents[corpus]

    def budget(self, model: str) -> Budget:
        """The budget of a model."""
        if self.settings.budget is not None:
            return self.settings.budget
        if model in EMBEDDED_MODELS:
            return BUDGETS["smoke"]
        if model in PAPER_MODELS and self.settings.device != "cpu":
            return BUDGETS["full" if self.settings.protocol.unit == "document" else "paper"]
        return BUDGETS["quick"]

    def splits(self, documents: DocumentSet) -> Mapping[str, Sequence[int]]:
        """Indices into a corpus's documents, by split."""
        splits = self.settings.protocol.splits
        if isinstance(splits, LineRanges):
            return split_lines(len(documents), splits.by_name)
        return split_documents(documents, splits.percent)

    def as_published(self, models: Sequence[str], corpus: str) -> bool:
        """Whether a corpus is the paper's, and models are measured on it by the paper's protocol, with its sizes."""
        his = BUDGETS["paper"]
        budgets = [self.budget(model) for model in models]
        return (
            self.settings.protocol == PUBLISHED
            and all((budget.fit, budget.context) == (his.fit, his.context) for budget in budgets)
            and all(HUB_CORPORA["wikitext"] in self.corpora(model) for model in models)
            and corpus == HUB_CORPORA["wikitext"].name
        )

    def request(self, model: str, corpus: CorpusSource) -> Request:
        """What is to be measured for a model on a corpus."""
        return Request(
            self.info(model),
            self.documents(corpus),
            self.settings.protocol,
            self.budget(model),
            dtype=self.settings.dtype,
        )

    def layers(self, model: str) -> tuple[int, ...]:
        """The layers to measure: those wanted, within ``--layers``. Raises MeasurementError beyond the last layer."""
        depth = self.info(model).layers
        chosen = set(range(depth)) if self.settings.layers is None else set(self.settings.layers)
        if beyond := [layer for layer in sorted(chosen) if layer >= depth]:
            raise MeasurementError(f"--layers: {self.info(model).name} has layers 0 to {depth - 1}, not {beyond[0]}")
        wanted = self.wanted.get(model)
        return tuple(sorted(chosen if wanted is None else chosen & wanted))

    def sweeps(self, model: str) -> list[Sweep]:
        """The sweeps of a model on all of its corpora, measured where the store lacks them; then it is let go."""
        try:
            return [self.sweep(model, corpus) for corpus in self.corpora(model)]
        finally:
            self.close()

    def sweep(self, model: str, corpus: CorpusSource | str) -> Sweep:
        """The near-linearity sweep of a model on a corpus, measured where the store lacks it.

        One that broke is not tried again in this run: it would break in the same way for the next claim.

        Raises
        ------
        WanamakerError
            Where model, corpus or measurement fail, in one line.
        NotApplicable
            Where ``--layers`` leaves out every layer that is wanted.
        """
        source = self.corpus(corpus) if isinstance(corpus, str) else corpus
        layers = self.layers(model)
        if not layers:
            raise NotApplicable("--layers leaves out the layers that this claim is about")
        key = (model, source.name, layers)
        if key in self._broken:
            raise self._broken[key]
        if key not in self._sweeps:
            try:
                request = self.request(model, source)
                measurement = from_records(request, self._records(model, request, layers))
            except Exception as error:
                self._broken[key] = error
                raise
            self._sweeps[key] = Sweep(measurement, request.model.as_dict(), seed=self.settings.seed)
        return self._sweeps[key]

    def require(self, model: str) -> None:
        """Load a model of which something is still to be measured. Raises WanamakerError where that cannot be."""
        layers = self.layers(model)
        for source in self.corpora(model):
            if len(stored(self.store, self.request(model, source), layers)) < len(layers):
                self.subject(model)
                return

    def _records(self, model: str, request: Request, layers: Sequence[int]) -> dict[int, Record]:
        records = stored(self.store, request, layers)
        if len(records) < len(layers):
            # The only way from here to torch.
            from harness.experiments.near_linearity import measure

            records |= measure(
                request,
                layers,
                subject=lambda: self.subject(model),
                store=self.store,
                cache=self.cache,
                memory=self.settings.memory,
                progress=self.progress,
                log=self.log,
                reference=lambda: self._load(model, "float32"),
            )
        return records

    def subject(self, model: str) -> Subject:
        """The loaded model; the one that was loaded before is let go first."""
        if self._subject is None or self._subject[0] != model:
            self.close()
            self._subject = (model, self._load(model, self.settings.dtype))
        return self._subject[1]

    def _load(self, model: str, dtype: str) -> Subject:
        from harness.models.loading import load

        self.progress(f"loading {self.info(model).name}", 0, 1)
        return load(
            self.source(model),
            self.info(model),
            device=_device(self.settings.device),
            device_map=self.settings.device_map,
            dtype=dtype,
            allow_pickle=self.settings.allow_pickle,
            offload=self.cache / "offload",
        )

    def close(self) -> None:
        """Let the loaded model go."""
        if self._subject is not None:
            import gc

            import torch

            self._subject = None
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def _device(name: str) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
