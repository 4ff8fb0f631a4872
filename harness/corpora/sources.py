"""Where a corpus comes from: `--corpus NAME` or `--corpus NAME=FILE`, resolved without reading anything."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import CorpusError


@dataclass(frozen=True)
class CorpusSource:
    """A corpus by name and place. Resolving one reads nothing; `load_documents` does."""

    name: str
    """The domain as claims and reports call it: `wikitext`, `lambada`, `scipy`, or the user's own name."""
    kind: str
    """`hub`, `file`, `folder` or `documentation`."""
    location: str
    """A dataset id, a path, or the name of an installed package."""
    revision: str | None = None
    """The pinned commit of a hub dataset (40 hex digits)."""
    config: str = ""
    """The configuration of a hub dataset."""
    parts: tuple[str, ...] = ()
    """The parts of a hub dataset that are read: `test`, or `train`, `validation` and `test`."""

    @property
    def label(self) -> str:
        """The place as a report may name it: a file's name, never its path."""
        return Path(self.location).name if self.kind in ("file", "folder") else self.location

    def as_dict(self) -> dict[str, Any]:
        """For a report's provenance; holds no path."""
        described = {
            "name": self.name,
            "kind": self.kind,
            "location": self.label,
            "revision": self.revision,
            "config": self.config,
            "parts": list(self.parts),
        }
        return {key: value for key, value in described.items() if value}


#: Hub datasets at fixed commits, so that the same name is the same text next year. The test part of
#: wikitext-103-raw-v1 is that of wikitext-2-raw-v1 (60 articles). LAMBADA is the file used for GPT-2
#: (`data/lambada_test.jsonl`, SHA-256 4aa8d02c…).
HUB_CORPORA = {
    "wikitext": CorpusSource(
        "wikitext",
        "hub",
        "Salesforce/wikitext",
        revision="b08601e04326c79dfdd32d625aee71d232d685c3",
        config="wikitext-103-raw-v1",
        parts=("test",),
    ),
    "lambada": CorpusSource(
        "lambada",
        "hub",
        "EleutherAI/lambada_openai",
        revision="900124bf3b8235c6daf21033af9948b3f07346c4",
        config="default",
        parts=("test",),
    ),
}

#: Hub datasets that have a training part from which surrogates and gates may be fitted.
TRAINING_PARTS = {"Salesforce/wikitext": ("train", "validation", "test")}

#: Installed packages whose documentation is a corpus (see harness.corpora.documentation).
DOCUMENTED_PACKAGES = ("scipy", "sklearn", "numpy", "torch")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def resolve_corpus(text: str) -> CorpusSource:
    """The source that `--corpus` names.

    `NAME` is one of HUB_CORPORA or DOCUMENTED_PACKAGES; `NAME=PATH` is a text file, a JSONL file with a
    `text` key a line, or a folder of text files, under any name. Raises CorpusError for an unknown name and
    a missing path.
    """
    name, equals, place = text.partition("=")
    name, place = name.strip(), place.strip()
    if not _NAME.fullmatch(name):
        raise CorpusError(f"--corpus {text}: {name!r} is no name for a corpus; write --corpus NAME=FILE")
    if equals:
        return _local(name, place)
    if name in HUB_CORPORA:
        return HUB_CORPORA[name]
    if name in DOCUMENTED_PACKAGES:
        return CorpusSource(name, "documentation", name)
    known = ", ".join((*HUB_CORPORA, *DOCUMENTED_PACKAGES))
    raise CorpusError(
        f"--corpus {text}: unknown corpus; known by name are {known}; for another write --corpus {name}=FILE"
    )


def with_training(source: CorpusSource) -> CorpusSource:
    """The source with its training part as well, where the hub has one (`--budget full`); else as it is."""
    parts = TRAINING_PARTS.get(source.location) if source.kind == "hub" else None
    return replace(source, parts=parts) if parts else source


def _local(name: str, place: str) -> CorpusSource:
    if not place:
        raise CorpusError(f"--corpus {name}=: no file is given; write --corpus {name}=FILE")
    path = Path(place).expanduser()
    try:
        if path.is_dir():
            return CorpusSource(name, "folder", str(path))
        if path.exists():
            return CorpusSource(name, "file", str(path))
    except OSError as error:
        raise CorpusError(f"--corpus {name}={place}: cannot be looked at ({error.strerror})") from error
    raise CorpusError(f"--corpus {name}={place}: no such file or folder")
