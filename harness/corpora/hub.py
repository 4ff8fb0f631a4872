"""Rows of a hub dataset at a pinned commit, through `datasets`. Imported, and the network used, only when cold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.corpora.sources import CorpusSource
from harness.errors import CorpusError

#: Of a training part only the first rows are streamed: 18,000 rows of WikiText-103 are some 280 articles and a million tokens,
#: several times what `--budget full` fits on, instead of 540 MB.
TRAINING_ROWS = 18_000


def read_rows(source: CorpusSource) -> dict[str, list[str]]:
    """The `text` of each row, by part. Raises CorpusError with the remedy, on one line, when a part cannot be had."""
    try:
        import datasets
    except ImportError as error:
        raise CorpusError(f"corpus {source.name}: the package datasets is missing; pip install datasets") from error
    rows: dict[str, list[str]] = {}
    with _quiet(datasets):
        for part in source.parts:
            try:
                loaded = datasets.load_dataset(
                    source.location, source.config or None, split=part, revision=source.revision,
                    streaming=part == "train",
                )
                rows[part] = [row["text"] for row in (loaded.take(TRAINING_ROWS) if part == "train" else loaded)]
            except Exception as error:
                # Offline, gated, renamed, no such configuration: `datasets`, `huggingface_hub` and the HTTP client
                # below them each have exceptions of their own.
                raise CorpusError(
                    f"corpus {source.name}: the hub dataset {source.location} ({part}) cannot be read "
                    f"({_first_line(error)}): connect to the hub, or give a file with --corpus {source.name}=FILE"
                ) from error
    return rows


def _first_line(error: Exception) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text[:120].rstrip('. ')}" if text else type(error).__name__


@contextmanager
def _quiet(datasets) -> Iterator[None]:  # type: ignore[no-untyped-def]
    """No progress bars of `datasets` in the middle of the run's own progress line."""
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()
