"""Collection: one item for a claim and a model, none for a claim that has no meaning in this run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from harness.errors import WanamakerError
from harness.models.sources import PAPER_MODELS, resolve_model
from harness.paper import PaperClaim, load_paper
from harness.plugin.claims import ClaimTest, claim_of
from harness.run import EMBEDDED_MODELS

NO_CUDA = "no CUDA device; add --device cpu to run on the CPU"


@dataclass(frozen=True)
class Group:
    """The models that a comparison is about."""

    name: str
    models: tuple[str, ...]


def paper_file(test_file: Path) -> Path:
    """The paper.toml beside a test file."""
    return test_file.parent / "paper.toml"


def paper_claims(path: Path) -> dict[str, PaperClaim]:
    """The entries of a paper.toml, by claim id. Raises CollectError, in one line, where it is missing or wrong."""
    if not path.is_file():
        raise pytest.Collector.CollectError("there are claims here, but no paper.toml beside them")
    try:
        return _read(path, path.stat().st_mtime_ns)
    except WanamakerError as error:
        raise pytest.Collector.CollectError(str(error)) from None


@cache
def _read(path: Path, changed: int) -> dict[str, PaperClaim]:
    return load_paper(path)


def parametrize(metafunc: pytest.Metafunc, models: Sequence[str], explicit: bool) -> None:
    """One item for each model, or for each group of models where the claim compares some."""
    test = claim_of(metafunc.function)
    if test is None:
        return
    if test.id not in paper_claims(paper_file(Path(metafunc.module.__file__ or ""))):
        raise pytest.Collector.CollectError(f"{metafunc.function.__name__}: paper.toml has no claim {test.id!r}")
    if "sweeps" in metafunc.fixturenames:
        groups = _groups(models, explicit)
        params = [pytest.param(g, id=g.name, marks=_marks(g.models)) for g in groups]
        metafunc.parametrize("sweeps", params, indirect=True)
        return
    params = [pytest.param(m, id=_id(m), marks=_marks([m])) for m in _models_for(test, metafunc.module, models)]
    metafunc.parametrize("sweep", params, indirect=True)


def is_moot(function: object, module: object, models: Sequence[str]) -> bool:
    """Whether a claim's test has no model in this run: it checks what was printed for another one."""
    test = claim_of(function)
    return test is not None and not _models_for(test, module, models)


def _models_for(test: ClaimTest, module: object, models: Sequence[str]) -> list[str]:
    """The one model that a test names, or all but those that another test of the same claim names."""
    others = {o.model for f in vars(module).values() if (o := claim_of(f)) and o.id == test.id and o.model}
    return [m for m in models if (m == test.model if test.model else m not in others)]


def _groups(models: Sequence[str], explicit: bool) -> list[Group]:
    if explicit:
        return [Group("+".join(_id(model) for model in models), tuple(models))]
    parts = (Group("embedded", EMBEDDED_MODELS), Group("paper", PAPER_MODELS))
    return [part for part in parts if set(part.models) <= set(models)]


def _id(model: str) -> str:
    """A short id for a test: never a path."""
    return resolve_model(model).name.replace("/", "--")


def _marks(models: Iterable[str]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.gpu] if any(model in PAPER_MODELS for model in models) else []


def subject_of(item: pytest.Item) -> str | Group:
    """The model, or the group of models, that a claim's item is about."""
    params = item.callspec.params  # type: ignore[attr-defined]
    return params["sweep"] if "sweep" in params else params["sweeps"]


def models_of(item: pytest.Item) -> tuple[str, ...]:
    """The models that a claim's item needs."""
    subject = subject_of(item)
    return subject.models if isinstance(subject, Group) else (subject,)


def claim_items(items: Iterable[pytest.Item]) -> list[tuple[pytest.Function, ClaimTest]]:
    """Those items that are claims about a model."""
    return [
        (item, test)
        for item in items
        if isinstance(item, pytest.Function) and (test := claim_of(item.obj)) is not None and hasattr(item, "callspec")
    ]


def arrange(items: list[pytest.Item], models: Sequence[str]) -> None:
    """Put the claims about one model together, comparisons of models after the last of them; other tests stay."""
    claims = [item for item, _ in claim_items(items)]
    place = {model: i for i, model in enumerate(models)}

    def order(item: pytest.Function) -> tuple[int, int]:
        needed = models_of(item)
        return max(place.get(model, len(place)) for model in needed), len(needed)

    arranged = iter(sorted(claims, key=order))
    is_claim = set(claims)
    items[:] = [next(arranged) if item in is_claim else item for item in items]


def wanted_layers(items: Iterable[pytest.Item]) -> dict[str, set[int] | None]:
    """Layers that the selected claims need, by model; None for all."""
    wanted: dict[str, set[int] | None] = {}
    for item, test in claim_items(items):
        for model in models_of(item):
            before = wanted.get(model, set())
            wanted[model] = None if test.layers == "all" or before is None else before | {0}
    return wanted
