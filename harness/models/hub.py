"""A hub model as a local folder: from the local cache where it is complete, else downloaded."""

from __future__ import annotations

from pathlib import Path

from harness.errors import ModelError
from harness.models.files import TOKENIZER_FILES, read_folder, weight_entry
from harness.models.quiet import first_line
from harness.models.sources import ModelSource


def snapshot(source: ModelSource) -> tuple[Path, str]:
    """Folder and commit of a hub model; the network is used only where the cache lacks something.

    Without a revision the commit is what the cache has for `main`; only where it has none, the hub is asked.

    Raises:
        ModelError: the hub cannot be reached, or has no such model, revision or safe weights, or it is gated.
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
    folder = _download(source, incomplete)
    return folder, folder.name


def _download(source: ModelSource, incomplete: ModelError | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HTTPError,  # of httpx or its successor, whichever this version of the hub's client uses
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    model = source.location
    try:
        listing = HfApi().model_info(model, revision=source.revision)
        wanted = _wanted({file.rfilename for file in listing.siblings or ()}, source)
        return Path(snapshot_download(model, revision=source.revision, allow_patterns=wanted))
    except GatedRepoError as error:
        url = f"https://huggingface.co/{model}"
        raise ModelError(f"{model} is gated: accept its terms at {url}, then run `hf auth login`") from error
    except RevisionNotFoundError as error:
        raise ModelError(f"{model} has no revision {source.revision} on the Hugging Face hub") from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"{model} is neither a folder here nor a public model on the Hugging Face hub "
            "(if it is a private one, run `hf auth login`)"
        ) from error
    except (OfflineModeIsEnabled, LocalEntryNotFoundError, HfHubHTTPError, HTTPError, OSError) as error:
        cached = f"whose cached copy will not do ({incomplete})" if incomplete else "not in the local cache"
        raise ModelError(
            f"{model} is no folder here, {cached}, and could not be downloaded ({first_line(error)}): "
            "connect to the network, or give a folder or .gguf file"
        ) from error


def _wanted(present: set[str], source: ModelSource) -> list[str]:
    """The files to download: a repository often holds the same weights in five formats."""
    top = {file for file in present if "/" not in file}
    if "config.json" not in top:
        raise ModelError(f"{source.location} has no config.json on the hub, so it is not a transformers model")
    entry = weight_entry(top, source.name, allow_pickle=source.allow_pickle)
    wanted = top.intersection(TOKENIZER_FILES) | {"config.json", entry}
    if entry.endswith(".index.json"):
        stem, suffix = entry.removesuffix(".index.json").rsplit(".", 1)
        wanted |= {file for file in top if file.startswith(f"{stem}-") and file.endswith(f".{suffix}")}
    return sorted(wanted)
