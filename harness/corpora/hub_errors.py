"""What became of an attempt to read a hub dataset, on one line, and what to do about it."""

from __future__ import annotations

import re

from harness.corpora.sources import CorpusSource
from harness.errors import CorpusError


def explained(source: CorpusSource, error: Exception, *, answers: bool) -> CorpusError:
    """The error as a user can act on it; `answers` says whether the hub could be asked at all.

    `datasets` raises few classes of its own and puts what it knows into their words, so that those are looked at where
    the class does not tell. Addresses and paths in them are left out.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    dataset, words = source.location, str(error)
    head = f"corpus {source.name}: {dataset}"
    if isinstance(error, GatedRepoError) or "gated" in words:
        return CorpusError(
            f"{head} is gated: accept its terms on its page of the Hugging Face hub, then log in (`hf auth login`) "
            "or set HF_TOKEN"
        )
    if isinstance(error, RevisionNotFoundError) or words.startswith("Revision "):
        return CorpusError(f"{head} has no revision {source.revision} on the Hugging Face hub: name another one")
    if isinstance(error, RepositoryNotFoundError) or "doesn't exist on the Hub" in words:
        return CorpusError(
            f"{head} is neither a file or folder here nor a public dataset on the Hugging Face hub "
            "(if it is a private one, log in with `hf auth login` or set HF_TOKEN)"
        )
    if "scripts are no longer supported" in words:
        return CorpusError(
            f"{head} is made by a script, and code from a hub is never run: its data files, where the hub has "
            "converted them, are at revision=refs/convert/parquet; else download it and give --corpus "
            f"{source.name}=FILE"
        )
    if isinstance(error, ValueError) and re.search("config", words, re.IGNORECASE):
        return CorpusError(f"{head} {_configuration(source, words)}: name one with ?config=NAME")
    parts = f" ({', '.join(source.parts)})" if source.parts else ""
    reason, remedy = _short(error), "try again later" if answers else "connect to the hub"
    if isinstance(error, OfflineModeIsEnabled) or "OfflineModeIsEnabled" in words:
        reason = "there is no network, nor a copy that was kept"
    elif isinstance(error, HfHubHTTPError) and getattr(error, "response", None) is not None:
        reason = f"the hub answered with status {error.response.status_code}"
    elif type(error).__name__ in ("DataFilesNotFoundError", "EmptyDatasetError"):
        reason, remedy = "it has no data files of a kind that `datasets` reads", "name another revision or config"
    return CorpusError(
        f"corpus {source.name}: the hub dataset {dataset}{parts} cannot be read ({reason}): "
        f"{remedy}, or give --corpus {source.name}=FILE"
    )


def _configuration(source: CorpusSource, words: str) -> str:
    """What is wrong with the configuration; the last list in the words is of those that there are."""
    lists = re.findall(r"\[([^\[\]]*)\]", words)
    names = re.findall(r"'([^']+)'", lists[-1]) if lists else []
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12:,} more" if len(names) > 12 else "")
    which = f"has no config {source.config!r}" if source.config else "is read by config, and none is named"
    return which + (f"; it has {shown}" if shown else "")


def _short(error: Exception) -> str:
    """The class and the first line of an error, without addresses and paths."""
    line = next(iter(str(error).strip().splitlines()), "")
    line = re.sub(r"\w+://\S+|(?<![\w'])[/~][^\s'\"]*", "…", line)
    return f"{type(error).__name__}: {line[:120].rstrip('. ')}" if line else type(error).__name__
