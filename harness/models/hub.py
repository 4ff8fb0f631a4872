"""A hub model as a local folder: from the local cache where it is complete, else downloaded."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.errors import ModelError
from harness.models.files import TOKENIZER_FILES, read_config, read_folder, weight_entry
from harness.models.quiet import first_line
from harness.models.sources import ModelSource

Check = Callable[[dict[str, Any], str], None]
"""(config.json, name of the model): raises ModelError where it cannot be measured."""


def snapshot(source: ModelSource, check: Check | None = None) -> tuple[Path, str]:
    """Folder and commit of a hub model; the network is used only where the cache lacks something.

    Without a revision the commit is what the cache has for `main`; only where it has none, the hub is asked. `check` is
    called with config.json before the weights are downloaded.

    Raises:
        ModelError: the hub cannot be reached, or has no such model, revision or safe weights, or it is gated, or
            `check` refuses it.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    incomplete: ModelError | None = None
    try:
        config = try_to_load_from_cache(source.location, "config.json", revision=source.revision)
    except HFValidationError as error:
        raise ModelError(f"{source.location} is neither a folder here nor a possible hub id") from error
    if isinstance(config, str):  # else None, or a mark that the hub has no such file
        folder = Path(config).parent  # not resolved: the file is a link into the store of blobs
        try:
            read_folder(folder, source.name, allow_pickle=source.allow_pickle)
            return folder, folder.name
        except ModelError as error:
            incomplete = error
    try:
        folder = _download(source, check)
    except ModelError:
        raise
    except Exception as error:  # a connection breaks in ways of the HTTP client, the hub's, Xet's and the system's
        raise _failed(source, incomplete, error) from error
    return folder, folder.name


def _download(source: ModelSource, check: Check | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    model, revision = source.location, source.revision
    listing = HfApi().model_info(model, revision=revision)
    wanted = _wanted({file.rfilename for file in listing.siblings or ()}, source)
    if check is not None:
        folder = snapshot_download(model, revision=revision, allow_patterns=["config.json"])
        check(read_config(Path(folder), source.name), source.name)
    return Path(snapshot_download(model, revision=revision, allow_patterns=wanted))


def _failed(source: ModelSource, incomplete: ModelError | None, error: Exception) -> ModelError:
    """What became of a download, and what to do about it."""
    from huggingface_hub.errors import (
        DisabledRepoError,
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    model, reason = source.location, first_line(error)
    if isinstance(error, GatedRepoError):
        return ModelError(
            f"{model} is gated: accept its terms on its page of the Hugging Face hub, then log in (`hf auth login`) "
            "or set HF_TOKEN"
        )
    if isinstance(error, RevisionNotFoundError):
        return ModelError(f"{model} has no revision {source.revision} on the Hugging Face hub")
    if isinstance(error, RepositoryNotFoundError):
        if _is_dataset(model):
            return ModelError(f"{model} is a data set on the Hugging Face hub, not a model; give it as --corpus")
        return ModelError(
            f"{model} is neither a folder here nor a public model on the Hugging Face hub "
            "(if it is a private one, log in with `hf auth login` or set HF_TOKEN)"
        )
    if isinstance(error, DisabledRepoError):
        return ModelError(f"{model} has been disabled on the Hugging Face hub; give a folder or .gguf file")
    cached = f"whose cached copy will not do ({incomplete})" if incomplete else "not in the local cache"
    remedy = "connect to the network, or give a folder or .gguf file"
    if isinstance(error, OfflineModeIsEnabled):
        reason, remedy = "HF_HUB_OFFLINE is set", "unset it, or give a folder or .gguf file"
    elif isinstance(error, HfHubHTTPError):
        reason = f"it answered with status {error.response.status_code}"
        remedy = "try again later, or give a folder or .gguf file"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "make room, or put the cache elsewhere with HF_HOME"
    return ModelError(f"{model} is no folder here, {cached}, and could not be downloaded ({reason}): {remedy}")


def _is_dataset(model: str) -> bool:
    """Whether the hub has a data set of that name; False where it does not say."""
    from huggingface_hub import HfApi

    try:
        return HfApi().repo_exists(model, repo_type="dataset")
    except Exception:  # the model's own failure is what is told
        return False


def _wanted(present: set[str], source: ModelSource) -> list[str]:
    """The files to download: a repository often holds the same weights in five formats."""
    top = {file for file in present if "/" not in file}
    if "config.json" not in top:
        if any(file.endswith(".gguf") for file in present):
            raise ModelError(f"{source.location} holds GGUF files: download one and give its path as the model")
        raise ModelError(f"{source.location} has no config.json on the hub, so it is not a transformers model")
    entry = weight_entry(top, source.name, allow_pickle=source.allow_pickle)
    wanted = top.intersection(TOKENIZER_FILES) | {"config.json", entry}
    if entry.endswith(".index.json"):
        stem, suffix = entry.removesuffix(".index.json").rsplit(".", 1)
        wanted |= {file for file in top if file.startswith(f"{stem}-") and file.endswith(f".{suffix}")}
    return sorted(wanted)
