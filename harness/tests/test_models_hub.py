"""Hub models without a hub: a cache laid out as the hub's client does it, and every failure of a network."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, errors

from harness.errors import ModelError
from harness.models.fingerprint import model_info
from harness.models.hub import snapshot
from harness.models.loading import load
from harness.models.sources import ModelSource, resolve_model
from harness.tests.models_on_disk import edit_weights, into_pickle, save_tiny

OLD, NEW = "1" * 40, "2" * 40


@dataclass
class Hub:
    """A local cache and a listing that the network would give; None: there is no network."""

    cache: Path
    whole: Path
    """A complete model, to be copied into snapshots."""
    answer: list[str] | Exception | None = None
    downloads: int = 0

    def keep(self, commit: str, *, branch: str | None = "main") -> Path:
        """Put the model into the cache as a snapshot."""
        repository = self.cache / "models--owner--tiny"
        folder = Path(shutil.copytree(self.whole, repository / "snapshots" / commit))
        if branch is not None:
            (repository / "refs").mkdir(exist_ok=True)
            (repository / "refs" / branch).write_text(commit)
        return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny(folder)
    return folder


@pytest.fixture
def hub(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path / "hub", whole)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub.cache))

    def listing(self: Any, model: str, *, revision: str | None) -> SimpleNamespace:
        if hub.answer is None:
            raise errors.OfflineModeIsEnabled("offline")
        if isinstance(hub.answer, Exception):
            raise hub.answer
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in hub.answer])

    def download(model: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        hub.downloads += 1
        folder = hub.cache / "models--owner--tiny" / "snapshots" / NEW
        folder.mkdir(parents=True, exist_ok=True)
        for name in allow_patterns:
            shutil.copy(hub.whole / name, folder / name)
        return str(folder)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", listing)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return hub


def refusal(source: ModelSource) -> str:
    with pytest.raises(ModelError) as caught:
        snapshot(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_cached_model_needs_no_network_and_reports_its_commit(hub: Hub, tmp_path: Path) -> None:
    hub.keep(OLD)
    source = resolve_model("owner/tiny")
    info = model_info(source, tmp_path / "cache")
    assert (info.name, info.location_name, info.kind, info.revision) == (
        "owner/tiny",
        "owner/tiny",
        "hub",
        OLD,
    )
    assert load(source, info).info.layers == 3


def test_a_pinned_commit_and_a_branch_are_told_apart(hub: Hub) -> None:
    hub.keep(OLD, branch="v1")
    hub.keep(NEW)
    assert snapshot(resolve_model("owner/tiny"))[1] == NEW
    assert snapshot(resolve_model("owner/tiny@v1"))[1] == OLD
    assert snapshot(resolve_model(f"owner/tiny@{OLD}"))[1] == OLD


def test_loading_keeps_to_the_commit_that_was_fingerprinted(hub: Hub, tmp_path: Path) -> None:
    hub.keep(OLD)
    source = resolve_model("owner/tiny")
    info = model_info(source, tmp_path / "cache")
    edit_weights(hub.keep(NEW), add={"transformer.ln_f.bias": torch.ones(16)})
    assert snapshot(source)[1] == NEW
    assert not load(source, info).model.transformer.ln_f.bias.any()


def test_only_what_is_needed_is_downloaded(hub: Hub) -> None:
    needed = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {file.name for file in hub.whole.iterdir()} >= needed
    hub.answer = [*needed, "README.md", "pytorch_model.bin", "flax_model.msgpack", "onnx/config.json"]
    folder, commit = snapshot(resolve_model("owner/tiny"))
    assert {file.name for file in folder.iterdir()} == needed
    assert (commit, hub.downloads) == (NEW, 1)


def test_shards_are_downloaded_with_their_index(hub: Hub, tmp_path: Path) -> None:
    hub.whole = tmp_path / "sharded"
    save_tiny(hub.whole).save_pretrained(hub.whole, max_shard_size="8KB")
    (hub.whole / "model.safetensors").unlink()
    hub.answer = [file.name for file in hub.whole.iterdir()] + ["pytorch_model-00001-of-00002.bin"]
    info = model_info(resolve_model("owner/tiny"), tmp_path / "cache")
    assert info.layers == 3
    assert info.parameters


def test_a_cache_that_lacks_a_part_is_completed(hub: Hub) -> None:
    (hub.keep(OLD) / "tokenizer.json").unlink()
    hub.answer = [file.name for file in hub.whole.iterdir()]
    assert snapshot(resolve_model("owner/tiny"))[1] == NEW
    hub.answer = None
    message = refusal(resolve_model("owner/tiny@main"))
    assert "whose cached copy will not do (owner/tiny has no tokenizer" in message


def test_a_model_with_only_pickles_is_refused_before_it_is_downloaded(hub: Hub, tmp_path: Path) -> None:
    hub.answer = ["config.json", "pytorch_model.bin", "tokenizer.json", "tokenizer_config.json"]
    assert "add --allow-pickle" in refusal(resolve_model("owner/tiny"))
    assert hub.downloads == 0
    hub.whole = Path(shutil.copytree(hub.whole, tmp_path / "pickled"))
    into_pickle(hub.whole)
    folder, _ = snapshot(resolve_model("owner/tiny", allow_pickle=True))
    assert (folder / "pytorch_model.bin").exists()


def test_a_repository_without_config_is_no_model(hub: Hub) -> None:
    hub.answer = ["README.md", "data.parquet"]
    assert "has no config.json on the hub" in refusal(resolve_model("owner/tiny"))


def failed(kind: Callable[..., Exception]) -> Exception:
    request = SimpleNamespace(headers={}, method="GET", url="https://hub", content=b"")
    response = SimpleNamespace(headers={}, request=request, status_code=404, text="", history=[])
    return kind("went\nwrong", response=response)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "not in the local cache, and could not be downloaded (offline): connect to the network, or"),
        (failed(errors.HfHubHTTPError), "could not be downloaded (went)"),
        (errors.HTTPError("no route"), "could not be downloaded (no route)"),
        (OSError("disk full"), "could not be downloaded (disk full)"),
        (
            failed(errors.RepositoryNotFoundError),
            "neither a folder here nor a public model on the Hugging Face hub",
        ),
        (failed(errors.GatedRepoError), "is gated: accept its terms at https://huggingface.co/owner/tiny"),
        (failed(errors.RevisionNotFoundError), "has no revision v9 on the Hugging Face hub"),
    ],
)
def test_every_failure_of_the_hub_has_its_remedy(answer: Exception | None, message: str, hub: Hub) -> None:
    hub.answer = answer
    assert message in refusal(resolve_model("owner/tiny@v9"))


def test_an_impossible_id_is_refused(hub: Hub) -> None:
    assert "nor a possible hub id" in refusal(resolve_model("owner/a--b"))
