"""Hub models without a hub: a cache laid out as the hub's client does it, and every failure of a network."""

from __future__ import annotations

import errno
import importlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, errors
from huggingface_hub.utils import hf_raise_for_status

from harness.errors import ModelError
from harness.models.fingerprint import model_info
from harness.models.hub import snapshot
from harness.models.loading import load
from harness.models.sources import ModelSource, resolve_model
from harness.tests.models_on_disk import edit_config, edit_weights, into_pickle, save_tiny

OLD, NEW = "1" * 40, "2" * 40
NEEDED = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@dataclass
class Hub:
    """A local cache and a listing that the network would give; None: there is no network."""

    cache: Path
    whole: Path
    """A complete model, to be copied into snapshots."""
    answer: list[str] | Exception | None = None
    downloads: int = 0
    fetched: set[str] = field(default_factory=set)
    broken: Exception | None = None
    """What a download ends with."""
    data_sets: set[str] = field(default_factory=set)

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
        if hub.broken:
            raise hub.broken
        hub.downloads += 1
        hub.fetched |= set(allow_patterns)
        folder = hub.cache / "models--owner--tiny" / "snapshots" / NEW
        folder.mkdir(parents=True, exist_ok=True)
        for name in allow_patterns:
            shutil.copy(hub.whole / name, folder / name)
        return str(folder)

    def exists(self: Any, repository: str, *, repo_type: str) -> bool:
        return repo_type == "dataset" and repository in hub.data_sets

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", listing)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_exists", exists)
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
    needed = set(NEEDED)
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


def answered(status: int, *, kind: str = "models", url: str | None = None, **headers: str) -> Exception:
    """What the installed client makes of an answer of the hub: `RepoNotFound` for `X_Error_Code="RepoNotFound"`."""
    http = importlib.import_module(errors.Response.__module__.partition(".")[0])
    request = http.Request("GET", url or f"https://huggingface.co/api/{kind}/owner/tiny")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with pytest.raises(errors.HfHubHTTPError) as caught:
        hf_raise_for_status(http.Response(status, headers=named, request=request))
    return caught.value


def no_connection() -> Exception:
    http = importlib.import_module(errors.Response.__module__.partition(".")[0])
    return http.ConnectError("[Errno -2] Name or service not known")


GATED = "owner/tiny is gated: accept its terms on its page of the Hugging Face hub, then log in (`hf auth login`) *"
FAILURES: dict[str, tuple[Callable[[], Exception], str]] = {
    "offline": (
        lambda: errors.OfflineModeIsEnabled("Cannot reach the hub: offline mode is enabled."),
        "owner/tiny is no folder here, not in the local cache, and could not be downloaded (HF_HUB_OFFLINE is set): "
        "unset it, or give a folder or .gguf file",
    ),
    "no network": (
        no_connection,
        "*could not be downloaded ([[]Errno -2] Name or service *): connect to the network, *",
    ),
    "no room": (
        lambda: OSError(errno.ENOSPC, "No space left on device"),
        "*could not be downloaded ([[]Errno 28] No space left on device): make room, or put the cache elsewhere *",
    ),
    "busy": (
        lambda: answered(429),
        "*could not be downloaded (it answered with status 429): try again later, or *",
    ),
    "down": (
        lambda: answered(503),
        "*could not be downloaded (it answered with status 503): try again later, or *",
    ),
    "cut off": (
        lambda: RuntimeError("Data processing error: request failed"),  # what Xet raises
        "*could not be downloaded (Data processing error: request failed): connect to the network, *",
    ),
    "gated": (lambda: answered(403, X_Error_Code="GatedRepo"), GATED),
    "gated, not logged in": (lambda: answered(401, X_Error_Code="GatedRepo"), GATED),
    "missing": (
        lambda: answered(404, X_Error_Code="RepoNotFound"),
        "owner/tiny is neither a folder here nor a public model on the Hugging Face hub (if it is a private one, *",
    ),
    "missing or private": (
        lambda: answered(401),
        "owner/tiny is neither a folder here nor a public model on the Hugging Face hub (if it is a private one, *",
    ),
    "no such revision": (
        lambda: answered(404, X_Error_Code="RevisionNotFound"),
        "owner/tiny has no revision v9 on the Hugging Face hub",
    ),
    "disabled": (
        lambda: answered(403, X_Error_Message="Access to this resource is disabled."),
        "owner/tiny has been disabled on the Hugging Face hub; give a folder or .gguf file",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("during", ["listing", "download"])
def test_every_failure_of_the_hub_has_its_remedy(failure: str, during: str, hub: Hub) -> None:
    make, message = FAILURES[failure]
    if during == "listing":
        hub.answer = make()
    else:
        hub.answer, hub.broken = NEEDED, make()
    found = refusal(resolve_model("owner/tiny@v9"))
    assert fnmatch(found, message), found
    assert "://" not in found


def test_a_data_set_is_not_taken_for_a_model(hub: Hub) -> None:
    hub.answer, hub.data_sets = answered(404, X_Error_Code="RepoNotFound"), {"owner/tiny"}
    message = "owner/tiny is a data set on the Hugging Face hub, not a model; give it as --corpus"
    assert refusal(resolve_model("owner/tiny")) == message


def test_a_download_that_breaks_off_goes_on_with_what_is_there(hub: Hub) -> None:
    hub.answer, hub.broken = NEEDED, no_connection()
    assert "could not be downloaded" in refusal(resolve_model("owner/tiny"))
    hub.broken = None
    assert snapshot(resolve_model("owner/tiny"))[1] == NEW


def test_a_config_that_will_not_do_is_known_before_the_weights_are_downloaded(hub: Hub, tmp_path: Path) -> None:
    hub.whole = Path(shutil.copytree(hub.whole, tmp_path / "remote"))
    places = {"AutoModelForCausalLM": "own.Own", "AutoConfig": "own.OwnConfig"}
    edit_config(hub.whole, model_type="own", architectures=["OwnForCausalLM"], auto_map=places)
    hub.answer = NEEDED
    with pytest.raises(ModelError, match=r"^owner/tiny \(OwnForCausalLM\) needs code from its repository"):
        model_info(resolve_model("owner/tiny"), tmp_path / "cache")
    assert hub.fetched == {"config.json"}


def test_a_repository_of_gguf_files_says_so(hub: Hub) -> None:
    hub.answer = ["README.md", "tiny.Q8_0.gguf"]
    assert refusal(resolve_model("owner/tiny")).startswith("owner/tiny holds GGUF files: download one and give its")


def test_an_impossible_id_is_refused(hub: Hub) -> None:
    assert "nor a possible hub id" in refusal(resolve_model("owner/a--b"))
