"""From what the items found out to report.json and report.md."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.corpora import documentation
from harness.errors import WanamakerError
from harness.models.sources import PAPER_MODELS
from harness.paper import Reported
from harness.plugin import items as claims
from harness.plugin import options
from harness.plugin.claims import claim_of
from harness.plugin.evaluation import Change, Judged
from harness.protocol import SOUND
from harness.reporting import markdown, schema, terminal
from harness.run import EMBEDDED_MODELS, Run
from harness.verdicts import standing

_INTERNAL = ("item", "asked", "paper", "place")
"""Keys of a row that are not for the report."""
_PACKAGES = ("torch", "transformers", "numpy", "scipy", "wanamaker")


def row_of(
    item: pytest.Item,
    judged: list[Judged],
    layers: dict[str, list[int]],
    change: Change | None,
    worse: bool,
    run: Run,
    broken: pytest.TestReport | None = None,
) -> dict[str, Any]:
    """A claim's row for the report; `broken` is the report of an item that was not judged."""
    assert isinstance(item, pytest.Function)
    test = claim_of(item.obj)
    assert test is not None
    paper = claims.paper_claims(claims.paper_file(item.path))[test.id]
    models = claims.models_of(item)
    first = judged[0] if judged else None
    # A comparison reproduces the paper's with all of the paper's models, any other claim with one of them.
    compares = isinstance(claims.subject_of(item), claims.Group)
    reproduction = set(paper.models) <= set(models) if compares else set(models) <= set(paper.models)
    return {
        "id": test.id,
        "title": paper.title,
        "statement": paper.statement,
        "general": paper.general,
        "section": paper.section,
        "ledger": list(paper.ledger),
        "models": [run.source(model).name for model in models],
        "corpus": first.corpus if first else None,
        "role": "reproduction" if reproduction else "generalization",
        "reported": {**asdict(paper.reported), "unit": None},
        "verdict": first.word if first else ("not applicable" if broken is not None and broken.skipped else "error"),
        "reason": first.reason if first else _why(broken),
        "standing": _standing(run, models, first, paper.reported, reproduction),
        "parts": [{"name": p.name, **p.verdict.as_dict()} for p in first.parts] if first else [],
        "elsewhere": [
            {
                "corpus": other.corpus,
                "verdict": other.word,
                "reason": other.reason,
                "parts": [{"name": p.name, **p.verdict.as_dict()} for p in other.parts],
            }
            for other in judged[1:]
        ],
        "comparison": change.as_dict(worse) if change else None,
        "outcome": "passed",
        "item": item.name,
        "paper": str(claims.paper_file(item.path)),
        "asked": {model: layers.get(model, []) for model in models},
    }


def _standing(
    run: Run, models: Sequence[str], judged: Judged | None, reported: Reported, reproduction: bool
) -> str | None:
    """How the measurement stands to the printed number: of the first part, or of the layer that the paper names.

    A number is comparable where model, text, protocol and sizes are those that it was printed for.
    """
    if reported.value is None or judged is None or not judged.parts:
        return None
    comparable = reproduction and run.as_published(models, judged.corpus)
    estimate = judged.parts[0].verdict.estimate
    if comparable and reported.layer is not None:
        estimate = run.sweep(models[0], run.corpora(models[0])[0]).cost_at(reported.layer)
    return standing(estimate, reported.value, reported.margin, comparable=comparable)  # type: ignore[arg-type]


def _why(broken: pytest.TestReport | None) -> str:
    if broken is None:
        return ""
    if broken.skipped and isinstance(broken.longrepr, tuple):
        return str(broken.longrepr[2]).removeprefix("Skipped: ").removeprefix("not applicable: ")
    lines = [line for line in broken.longreprtext.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("E").strip() if lines else "the measurement broke"


def _version(package: str) -> str:
    """Version of the package whose documentation was read."""
    return documentation.package_version(package)


class ReportFile:
    """The report of a run: rows come in as items finish, and it is written when the session ends."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self.config, self.run = config, run
        self.rows: list[dict[str, Any]] = []
        self.parent: str | None = None
        """The baseline's model, where it goes by another name than the run's."""
        self.started = datetime.now(UTC)
        self._clock = time.monotonic()
        self._report: dict[str, Any] | None = None
        self._said: list[str] = []

    def add(self, row: dict[str, Any]) -> None:
        """Note a claim's row. A claim skipped for want of a GPU is no finding, and is told on the terminal alone."""
        if row["reason"] == claims.NO_CUDA:
            self._said = [f"not judged: {claims.NO_CUDA}"]
        else:
            self.rows.append(row)

    def write(self, baseline: tuple[Path, str] | None, finished: bool) -> bool:
        """Write report.json and report.md, and the baseline where that was asked for and the run got to its end.

        False where they could not be written; the reason is told with the summary.
        """
        if not self.rows:
            return True
        self.rows.sort(key=lambda row: row["place"])  # workers finish in any order
        try:
            self._report = self._build(baseline)
            folder = self._folder()
            self._write_to(folder)
            self._said.append(f"report: {self._shown(folder / 'report.md')}")
            if baseline and self.config.getoption("update_baseline"):
                self._update(baseline[0], finished)
        except (WanamakerError, OSError) as error:
            self._said.append(f"ERROR: report not written: {error}")
            return False
        return True

    def summarize(self, reporter: pytest.TerminalReporter) -> None:
        """The short table, and where the report is."""
        if not self._said:
            return
        reporter.section("claims", "=")
        for line in [*terminal.render(self._report), ""] if self._report else []:
            reporter.line(line)
        for line in self._said:
            reporter.line(line)

    def _write_to(self, folder: Path) -> None:
        assert self._report is not None
        schema.write(self._report, folder / "report.json")
        schema.write_text(markdown.render(schema.load(folder / "report.json")), folder / "report.md")

    def _update(self, path: Path, finished: bool) -> None:
        if not finished or any(row["outcome"] == "error" for row in self.rows):
            self._said.append("baseline not updated: that takes a whole run without errors")
            return
        if path.is_file():
            lost = {(c["id"], *c["models"]) for c in schema.load(path)["claims"]}
            lost -= {(row["id"], *row["models"]) for row in self.rows}
            if lost:
                self._said.append(
                    f"baseline not updated: this run lacks {len(lost)} of its claims; delete it to begin anew"
                )
                return
        if path.name != "report.json":
            assert self._report is not None
            schema.write(self._report, path)
        else:
            self._write_to(path.parent)
        self._said.append(f"baseline: {self._shown(path)} updated")

    def _folder(self) -> Path:
        given = self.config.getoption("report")
        return Path(given) if given else self.config.rootpath / "reports" / self._name()

    def _name(self) -> str:
        models = self._models()
        named = {"embedded": EMBEDDED_MODELS, "paper": PAPER_MODELS}
        listed = "+".join(self.run.source(model).name for model in models)
        names = next((name for name, known in named.items() if set(models) == set(known)), listed)
        protocol = self.run.settings.protocol
        rules = self.run.budget(models[0]).name + ("" if protocol == SOUND else f"-{protocol.name}")
        name = re.sub(r"[^a-z0-9.]+", "-", f"{names}-{rules}".lower()).strip("-")
        return f"{name[:75]}-part" if self._selected() else name[:80]

    def _selected(self) -> list[str]:
        """Which of the claims or layers were asked for, as on the command line; nothing where all were.

        The report of a part goes by a name of its own, lest it take the place of the whole one.
        """
        get = self.config.getoption
        named = [arg for arg in self.config.args if "::" in arg or arg.endswith(".py")]
        given = [("-k", get("keyword")), ("--layers", get("layers"))]
        return [*(Path(arg).name for arg in named), *(f"{option} {value}" for option, value in given if value)]

    def _models(self) -> list[str]:
        return list(dict.fromkeys(model for row in self.rows for model in row["asked"]))

    def _build(self, baseline: tuple[Path, str] | None) -> dict[str, Any]:
        run, settings = self.run, self.run.settings
        measurements, measured, sources = self._measured()
        infos = [run.info(model).as_dict() for model in measured]
        budget = run.budget(self._models()[0])
        compared = any(row["comparison"] for row in self.rows)
        device = {m.pop("device") for m in measurements}
        versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
        for m in measurements:
            versions |= m.pop("versions")
        untested = {
            entry.id: {
                "id": entry.id,
                "statement": entry.statement,
                "section": entry.section,
                "why": entry.untestable,
            }
            for file in dict.fromkeys(row["paper"] for row in self.rows)
            for entry in claims.paper_claims(Path(file)).values()
            if entry.untestable
        }
        return {
            "schema": schema.SCHEMA,
            "tool": {"name": "wanamaker", "version": versions["wanamaker"]},
            "run": {
                "name": self._name(),
                "started": self.started.isoformat(timespec="seconds"),
                "duration_s": round(time.monotonic() - self._clock, 1),
                "protocol": asdict(settings.protocol),
                "budget": asdict(budget),
                "seed": settings.seed,
                "device": ", ".join(sorted(device)) or settings.device,
                "dtype": settings.dtype,
                "inconclusive": self.config.getoption("inconclusive"),
                "strict": options.is_strict(self.config),
                "versions": {"python": platform.python_version(), **versions},
                "baseline": (
                    {"file": baseline[0].name, "origin": baseline[1], "model": self.parent}
                    if compared and baseline
                    else None
                ),
                "selection": ", ".join(self._selected()) or None,
            },
            "models": infos,
            "corpora": [self._corpus(source) for source in sources],
            "measurements": measurements,
            "claims": [{k: v for k, v in row.items() if k not in _INTERNAL} for row in self.rows],
            "untested": list(untested.values()),
            "errors": [
                {"item": row["item"], "message": row["reason"]} for row in self.rows if row["verdict"] == "error"
            ],
        }

    def _measured(self) -> tuple[list[dict[str, Any]], list[str], list[Any]]:
        """Measurements that the judged claims rest on (read from the store), their models and corpora."""
        judged = [row for row in self.rows if row["parts"] or row["elsewhere"] or any(row["asked"].values())]
        models = list(dict.fromkeys(model for row in judged for model in row["asked"]))
        measurements, sources = [], {}
        for model in models:
            layers = {layer for row in judged for layer in row["asked"].get(model, [])}
            self.run.wanted[model] = layers
            for source in self.run.corpora(model):
                measurements.append(dict(self.run.sweep(model, source).measurement))
                sources[source.name] = source
        return measurements, models, list(sources.values())

    def _corpus(self, source: Any) -> dict[str, Any]:
        documents = self.run.documents(source)
        read = documents.source  # with the commit, part and column that `source` may leave open
        return {
            "name": source.name,
            "kind": source.kind,
            "origin": f"{read.label} {_version(read.location)}" if read.kind == "documentation" else read.address,
            "fingerprint": documents.fingerprint,
            "documents": len(documents),
            "splits": {name: len(members) for name, members in self.run.splits(documents).items()},
            "note": documents.note,
        }

    def _shown(self, path: Path) -> str:
        root = self.config.rootpath
        return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
