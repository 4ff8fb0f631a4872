"""Rows of a hub dataset at a pinned commit, through `datasets`, which only a cold run imports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.corpora.sources import CorpusSource
from harness.errors import CorpusError

#: Of a training part only the first rows are streamed: 18,000 rows of WikiText-103 are some 280 articles
#: and a million tokens, several times what `--budget full` fits on, and spare a download of 300 MB.
TRAINING_ROWS = 18_000

#: Seconds that the hub may take to answer at all.
PATIENCE = 10


def read_rows(source: CorpusSource) -> dict[str, list[str]]:
    """The `text` of each row, by part, from the hub or from the copy that `datasets` keeps of it.

    Raises CorpusError, on one line and with the remedy, when a part cannot be had.
    """
    try:
        import datasets
    except ImportError as error:
        raise CorpusError(f"corpus {source.name}: the package datasets is missing; pip install datasets") from error
    rows: dict[str, list[str]] = {}
    with _quiet_and_prompt():
        for part in source.parts:
            streaming = part == "train"
            try:
                loaded = datasets.load_dataset(
                    source.location,
                    source.config or None,
                    split=part,
                    revision=source.revision,
                    streaming=streaming,
                )
                rows[part] = [row["text"] for row in (loaded.take(TRAINING_ROWS) if streaming else loaded)]
            except Exception as error:
                # Offline, gated, renamed, no such configuration: `datasets`, `huggingface_hub` and the HTTP
                # client below them each have exceptions of their own.
                raise CorpusError(
                    f"corpus {source.name}: the hub dataset {source.location} ({part}) cannot be read "
                    f"({_first_line(error)}): connect to the hub, or give --corpus {source.name}=FILE"
                ) from error
    return rows


def _first_line(error: Exception) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text[:120].rstrip('. ')}" if text else type(error).__name__


@contextmanager
def _quiet_and_prompt() -> Iterator[None]:
    """No progress bars in the run's own progress line, and no minute of retries where there is no network.

    `HF_HUB_OFFLINE` can be set in the environment only before these packages are imported, so it is set
    where they keep it, and put back.
    """
    import datasets
    from huggingface_hub import constants

    bars = datasets.is_progress_bar_enabled()
    offline = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    datasets.disable_progress_bars()
    if not any(offline) and not _hub_answers():
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = offline
        if bars:
            datasets.enable_progress_bars()


def _hub_answers() -> bool:
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # of whichever HTTP client huggingface_hub uses
        return False
    return True
