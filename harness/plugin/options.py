"""Command-line options, and what they make of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.corpora.queries import CUTS
from harness.corpora.queries import KEYS as CORPUS_KEYS
from harness.errors import WanamakerError
from harness.models.sources import PAPER_MODELS
from harness.protocol import BUDGETS, PROTOCOLS, SOUND, parse_budget
from harness.reporting import schema
from harness.run import EMBEDDED_MODELS, Settings

GROUP = "wanamaker", "Wanamaker: judging claims about linear MLPs"
DEFAULT_BASELINE = Path("reports") / "embedded" / "report.json"


def add_options(parser: pytest.Parser) -> None:
    """Add the options, all in one group."""
    group = parser.getgroup(*GROUP)

    def option(name: str, help: str, **settings: object) -> None:
        group.addoption(name, help=help, **settings)

    option(
        "--model",
        "model to judge; may be repeated: a short name (smollm2-135m, gpt2-medium, ...), a folder with safetensors "
        "(one file or shards), a .gguf file, or a hub id owner/name[@revision]. Default: the two embedded models",
        action="append",
        default=[],
        metavar="MODEL",
    )
    option(
        "--corpus",
        "corpus; may be repeated, claims are judged on the first: a file (text or .jsonl, also .gz), a folder of them, "
        "a dataset of the hub as owner/name[@revision], wikitext, lambada, or scipy, sklearn, numpy, torch for the "
        "documentation inside an installed package. Keys say which part is read and how, as in "
        "'docs=notes/?suffix=md&cut=file' or 'owner/name?config=de&split=test': "
        f"{', '.join(CORPUS_KEYS)}. cut is {', '.join(CUTS[:-1])} or {CUTS[-1]}. "
        "Default: scipy and sklearn for embedded models, wikitext for others",
        action="append",
        default=[],
        metavar="[NAME=]SOURCE[?KEY=VALUE&...]",
    )
    option("--layers", "measure only these layers: 0,5-8; claims that need all are not judged", metavar="LAYERS")
    option(
        "--protocol",
        "rules of measurement: sound, or published, which does what the paper's author's code did (lines as contexts, "
        "fixed ranges of them, no BOS, an absolute ridge penalty) so that numbers can be compared; default: sound",
        choices=sorted(PROTOCOLS),
        default=SOUND.name,
    )
    option(
        "--budget",
        f"how many tokens to use: {', '.join(BUDGETS)}, single sizes overridden as in quick,test=8000,context=256. "
        "Default: smoke for embedded models, full for the paper's models on a GPU, quick for others",
        metavar="BUDGET",
    )
    option("--device", "auto, cpu, cuda, cuda:N or mps (default: auto, CUDA where there is one)", default="auto")
    option(
        "--device-map",
        "spread a model that is too large for one device over all of them, the host's memory and disk, as accelerate "
        "does: auto, balanced, balanced_low_0 or sequential (default: one device)",
        choices=["auto", "balanced", "balanced_low_0", "sequential"],
    )
    option(
        "--dtype",
        "precision of forward passes (default: float32)",
        default="float32",
        choices=["float32", "bfloat16", "float16", "float64"],
    )
    option(
        "--memory",
        "GiB that activations of one step may take (default: 4)",
        type=float,
        default=4.0,
        metavar="GIB",
    )
    option("--evidence", "folder of the evidence store and caches (default: .evidence)", metavar="DIR")
    option(
        "--report",
        "folder for report.json and report.md (default: reports/<run>, or reports/<run>-part with -k or --layers)",
        metavar="DIR",
    )
    option(
        "--baseline",
        "report.json to compare with: a test fails only where its estimate got worse. Default: "
        f"{DEFAULT_BASELINE.as_posix()} for the embedded models, none for others or with --strict",
        metavar="FILE",
    )
    option("--update-baseline", "write this run's report to the baseline file", action="store_true")
    option(
        "--inconclusive",
        "outcome of an INCONCLUSIVE claim (default: skip)",
        choices=["skip", "fail", "pass"],
        default="skip",
    )
    option(
        "--seed",
        "seed of the bootstrap (default: 0); measurements use no random numbers",
        type=int,
        default=0,
    )
    option(
        "--dry-run",
        "say what would be measured (tokens, time, memory, disk), and measure nothing",
        action="store_true",
    )
    option(
        "--allow-pickle",
        "accept weights that exist only as a pickle file, which can run code when it is read",
        action="store_true",
    )


def is_strict(config: pytest.Config) -> bool:
    """Whether ``--strict`` was given on the command line.

    pytest owns this flag (strict markers, configuration and parametrization); here it also turns the default baseline
    off. ``strict = true`` in a configuration file does not.
    """
    return "strict=true" in (config.getoption("override_ini", None) or [])


def settings(config: pytest.Config) -> Settings:
    """What the options ask for. Raises pytest.UsageError for one that cannot be."""
    get = config.getoption
    try:
        if get("memory") <= 0:
            raise WanamakerError("--memory must be more than 0 GiB")
        if get("device_map") and get("device") != "auto":
            raise WanamakerError("--device and --device-map are two answers to one question: leave one of them out")
        return Settings(
            models=tuple(dict.fromkeys(get("model"))) or (*EMBEDDED_MODELS, *PAPER_MODELS),
            corpora=tuple(dict.fromkeys(get("corpus"))),
            layers=parse_layers(get("layers")),
            protocol=PROTOCOLS[get("protocol")],
            budget=parse_budget(get("budget")) if get("budget") else None,
            device=get("device"),
            device_map=get("device_map"),
            dtype=get("dtype"),
            memory=get("memory"),
            evidence=config.rootpath / ".evidence" if get("evidence") is None else Path(get("evidence")),
            seed=get("seed"),
            allow_pickle=get("allow_pickle"),
        )
    except WanamakerError as error:
        raise pytest.UsageError(str(error)) from None


def parse_layers(text: str | None) -> tuple[int, ...] | None:
    """``0,5-8`` -> (0, 5, 6, 7, 8); None where no selection was made."""
    if text is None:
        return None
    layers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise WanamakerError(f"--layers {text}: {part!r} is not a layer or a range; write 0,5-8")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise WanamakerError(f"--layers {text}: the range {part.strip()} runs backwards")
        layers.update(range(first, last + 1))
    return tuple(sorted(layers))


def check_update(config: pytest.Config, baseline: tuple[Path, str] | None) -> None:
    """Raise pytest.UsageError where ``--update-baseline`` would write a part of a run, or another run's baseline."""
    get = config.getoption
    named = [argument for argument in config.args if "::" in argument or argument.endswith(".py")]
    parts = {"-k": get("keyword"), "--layers": get("layers"), "--deselect": get("deselect"), "--lf": get("lf", False)}
    if left_out := [option for option, given in parts.items() if given] + named[:1]:
        raise pytest.UsageError(f"--update-baseline takes a whole run; leave out {left_out[0]}")
    if baseline is None:
        raise pytest.UsageError(
            "--update-baseline: name the file with --baseline; the default one is the default run's"
        )


def baseline_path(config: pytest.Config) -> tuple[Path, str] | None:
    """The baseline file and where it is from ("given" or "default"); None where there is none to compare with.

    The default one is for the run that it was made by: embedded models, nothing overridden.
    """
    given = config.getoption("baseline")
    if given is not None:
        return schema.locate(Path(given)), "given"
    asked = ("model", "corpus", "layers", "budget")
    usual = {"dtype": "float32", "protocol": SOUND.name}
    plain = not any(map(config.getoption, asked)) and all(config.getoption(name) == usual[name] for name in usual)
    if not plain or is_strict(config):
        return None
    return config.rootpath / DEFAULT_BASELINE, "default"
