"""Rows of a hub dataset at one commit, streamed through `datasets`, which only a cold run imports.

`datasets` reads data files (Parquet, JSON, CSV, text …) and runs no code of a dataset. Where there is no network it
reads the copy that it keeps of what was loaded through it before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.corpora import files
from harness.corpora.hub_errors import explained
from harness.corpora.records import listed, text_of, usual_column
from harness.corpora.sources import CorpusSource
from harness.errors import CorpusError

#: Of a training part only the first rows are streamed: 18,000 rows of WikiText-103 are some 280 articles
#: and a million tokens, several times what `--budget full` fits on, and spare a download of 300 MB.
TRAINING_ROWS = 18_000

#: Seconds that the hub may take to answer at all.
PATIENCE = 10

COMMIT = re.compile(r"[0-9a-f]{40}")


def is_settled(source: CorpusSource) -> bool:
    """Whether commit, parts and column are known, so that the source is the same text whenever it is read."""
    return bool(COMMIT.fullmatch(source.revision or "") and source.parts and source.column)


def settled(source: CorpusSource, revision: str | None, parts: Sequence[str], column: str) -> CorpusSource:
    """The source with what it left open."""
    return replace(source, revision=revision, parts=tuple(parts), column=column)


def settle(source: CorpusSource) -> CorpusSource:
    """Ask the hub for the commit of a branch (`main` where none is given), the part to read and the column of the text.

    Raises CorpusError, on one line and with the remedy, where the dataset cannot be had or lacks what was asked for.
    """
    with _reading(source):
        splits, revision = _open(replace(source, revision=_commit(source)))
        parts = source.parts or (_usual_part(splits),)
        column = _column(source, _split(source, splits, parts[0]))
    return settled(source, revision, parts, column)


def read_rows(source: CorpusSource) -> dict[str, list[str]]:
    """The text of each row, by part, from the hub or from the copy that `datasets` keeps of it.

    Raises CorpusError, on one line and with the remedy, when a part cannot be had.
    """
    with _reading(source):
        splits, _ = _open(source)
        return {part: _texts(source, part, _split(source, splits, part)) for part in source.parts}


def stops_at(source: CorpusSource, part: str) -> int | None:
    """After how many rows the reading of a part stops; None where all are read."""
    return source.rows or (TRAINING_ROWS if part.startswith("train") else None)


def _commit(source: CorpusSource) -> str | None:
    """The commit that a branch names; None where nothing but a copy that `datasets` keeps can say."""
    if Path(source.location).is_dir() or COMMIT.fullmatch(source.revision or ""):
        return source.revision
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE and source.revision is None:
        return None
    return HfApi().dataset_info(source.location, revision=source.revision, timeout=PATIENCE).sha


def _open(source: CorpusSource) -> tuple[dict[str, Any], str | None]:
    """The parts of a dataset, nothing of them read yet, and the commit that they are from."""
    import datasets

    builder = datasets.load_dataset_builder(source.location, source.config or None, revision=source.revision)
    kept = COMMIT.fullmatch(str(builder.hash)) and str(builder.hash)  # of a folder it is no commit
    if kept and source.revision and kept != source.revision:
        raise CorpusError(
            f"corpus {source.name}: without a network there is a copy of {source.location} at commit {kept[:12]} only, "
            f"not at {source.revision[:12]}: connect to the hub, or name that revision"
        )
    return builder.as_streaming_dataset(), source.revision or kept or None


def _usual_part(splits: dict[str, Any]) -> str:
    """The part to measure on: held-out text where there is any."""
    return next((part for part in ("test", "validation") if part in splits), next(iter(splits)))


def _split(source: CorpusSource, splits: dict[str, Any], part: str) -> Any:
    if part not in splits:
        raise CorpusError(
            f"corpus {source.name}: {source.location} has no split {part!r}; it has {listed(splits)}: "
            f"name one with ?split={next(iter(splits))}"
        )
    return splits[part]


def _column(source: CorpusSource, rows: Any) -> str:
    names = rows.column_names or list(next(iter(rows), {}))
    column = source.column or usual_column(names)
    if column in names:
        return str(column)
    raise CorpusError(
        f"corpus {source.name}: {source.location} has no column {column or 'text'!r}; it has {listed(names)}: "
        f"name the one that is the text with ?column=NAME"
    )


def _texts(source: CorpusSource, part: str, rows: Any) -> list[str]:
    """The texts of a part's rows. Other columns, pictures perhaps, are not decoded."""
    column = _column(source, rows)
    texts: list[str] = []
    size = 0
    stop = stops_at(source, part)
    for row in rows.select_columns([column]).take(stop) if stop else rows.select_columns([column]):
        text = text_of(row[column])
        if text is None:
            raise CorpusError(
                f"corpus {source.name}: {source.location} ({part}): column {column!r} is no text, nor a list of turns, "
                f"in row {len(texts):,}; the columns are {listed(rows.column_names or row)}: name another one"
            )
        size += len(text)
        if size > files.LARGEST:
            raise CorpusError(
                f"corpus {source.name}: {source.location} ({part}): {files.too_much()}: read its first rows only, "
                "with ?rows=N"
            )
        texts.append(text)
    return texts


@contextmanager
def _reading(source: CorpusSource) -> Iterator[None]:
    """Whatever goes wrong is a CorpusError; `datasets`, `huggingface_hub` and the HTTP client each have their own."""
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        raise CorpusError(f"corpus {source.name}: the package datasets is missing; pip install datasets") from error
    with _quiet_and_prompt() as answers:
        try:
            yield
        except CorpusError:
            raise
        except Exception as error:
            raise explained(source, error, answers=answers) from error


@contextmanager
def _quiet_and_prompt() -> Iterator[bool]:
    """No progress bars in the run's own progress line, and no minute of retries where there is no network.

    Gives whether the hub may be asked. `HF_HUB_OFFLINE` can be set in the environment only before these packages are
    imported, so it is set where they keep it, and put back.
    """
    import datasets
    from huggingface_hub import constants

    bars, verbosity = datasets.is_progress_bar_enabled(), datasets.logging.get_verbosity()
    offline = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    answers = not any(offline) and _hub_answers()
    if not any(offline) and not answers:
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield answers
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = offline
        datasets.logging.set_verbosity(verbosity)
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
