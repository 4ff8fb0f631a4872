"""Fixtures for the tests of the plugin: tiny models, made once, and generated projects that judge claims on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tests.plugin_projects import Project, train, write_corpus


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a corpus (text.jsonl), `trained`, `worse` (on which a linear map costs more) and `llama`."""
    # Here rather than in the first run inside pytester, which takes from sys.modules what a run has added to it: torch
    # cannot be imported twice.
    import datasets  # noqa: F401
    import scipy.special  # noqa: F401

    import harness.experiments.near_linearity
    import harness.models.loading  # noqa: F401
    from harness.tests.models_on_disk import save_tiny

    folder = tmp_path_factory.mktemp("tiny")
    corpus = write_corpus(folder / "text.jsonl")
    train(folder / "trained", corpus, 100)
    train(folder / "worse", corpus, 150)
    save_tiny(folder / "llama", "llama")
    return folder


@pytest.fixture
def project(pytester: pytest.Pytester, tiny_models: Path) -> Project:
    """A generated project with six claims, to be judged on `trained`."""
    return Project(pytester, tiny_models)
