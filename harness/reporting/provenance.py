"""Where a report's numbers come from: run, models, corpora, software. File names, never paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.numbers import count, duration
from harness.reporting.escape import block, text
from harness.reporting.tables import facts

_KNOBS = {"bos": "what the tokenizer puts in front of a text"}
"""Knobs whose own name would say too little."""


def section(report: Mapping[str, Any]) -> str:
    """Lists of facts: the run, each model, each corpus."""
    parts = ["### Run", _run(report)]
    for model in report["models"]:
        parts += [f"### Model {text(model['name'])}", _model(model)]
    for corpus in report["corpora"]:
        parts += [f"### Corpus {text(corpus['name'])}", _corpus(corpus)]
    if measured := [m for m in report["measurements"] if m["records"]]:
        lines = [
            f"- {block(m['model'])} on {text(m['corpus'])}, a record a layer, named by the start of its key: "
            + ", ".join(_hash(key[:12]) for key in m["records"])
            for m in measured
        ]
        parts += ["### Records in the evidence store", "\n".join(lines)]
    return "\n\n".join(parts)


def _run(report: Mapping[str, Any]) -> str:
    run, tool = report["run"], report["tool"]
    baseline = run.get("baseline")
    origin = {"default": "the committed default", "given": "given on the command line"}
    versions = ", ".join(f"{text(name)} {text(version)}" for name, version in run["versions"].items())
    return facts(
        [
            ("run", text(run["name"])),
            ("tool", f"{text(tool['name'])} {text(tool['version'])}"),
            ("started", text(run["started"])),
            ("duration", duration(run.get("duration_s"))),
            ("protocol", _knobs({k: v for k, v in run["protocol"].items() if k != "variants"})),
            ("budget", _knobs(_evaluated(run["budget"], run["protocol"]))),
            ("seed", _known(run.get("seed"))),
            ("device, precision", f"{text(run['device'])}, {text(run['dtype'])}"),
            ("selection", text(run.get("selection") or "every claim")),
            (
                "baseline",
                f"{text(baseline['file'])} ({text(origin.get(baseline['origin'], baseline['origin']))})"
                + (f", its model {text(baseline['model'])} in the place of this run's" if baseline.get("model") else "")
                if baseline
                else "none",
            ),
            ("strict", "yes: verdicts decide the outcome, no baseline" if run["strict"] else ""),
            ("versions", versions),
        ]
    )


def _model(model: Mapping[str, Any]) -> str:
    parallel = model.get("parallel")
    blocks = {True: "parallel attention and MLP", False: "attention, then MLP", None: ""}[parallel]
    told = model.get("stored") and not model.get("quantization")  # which names all types
    size = f"{count(model['layers'])} layers, width {count(model['width'])}"
    if model.get("vocabulary") is not None:
        size += f", vocabulary {count(model['vocabulary'])}"
    if model.get("parameters") is not None:
        size += f", {count(model['parameters'])} parameters"
    return facts(
        [
            ("source", f"{text(model['kind'])}: {text(model['location_name'])}"),
            ("revision", _known(model.get("revision"))),
            ("family", text(model["family"]) + (f" ({blocks})" if blocks else "")),
            ("layout", _found(model.get("structure"))),
            ("size", size),
            ("weights, SHA-256", _hash(model["weights_sha256"])),
            ("tokenizer, SHA-256", _hash(model.get("tokenizer_sha256"))),
            ("stored as", f"{text(model['stored'])}, most of them" if told else ""),
            ("quantization", text(model.get("quantization") or "none")),
            ("note", text(model.get("note") or "")),
        ]
    )


def _found(structure: Mapping[str, Any] | None) -> str:
    """Where the MLPs are, for a model whose family the harness does not know by name."""
    if not structure:
        return ""
    where = f"{text(structure.get('blocks'))}.N.{text(structure.get('mlp'))}"
    return f"not a family known by name; the MLPs were found at {where}, and the engine's rule held there on loading"


def _corpus(corpus: Mapping[str, Any]) -> str:
    splits = ", ".join(f"{text(name)} {count(n)}" for name, n in corpus["splits"].items())
    return facts(
        [
            ("source", f"{text(corpus['kind'])}: {text(corpus['origin'])}"),
            ("fingerprint", _hash(corpus["fingerprint"])),
            (
                "documents",
                f"{count(corpus['documents'])} ({splits})" if splits else count(corpus["documents"]),
            ),
            ("note", text(corpus.get("note") or "")),
        ]
    )


def _knobs(knobs: Mapping[str, Any]) -> str:
    """``quick: fit 20,000, test 3,400, variants linear, mean``; the name first, where there is one."""
    rest = {_KNOBS.get(knob, knob).replace("_", " "): value for knob, value in knobs.items() if knob != "name"}
    shown = [f"{text(knob)} {_knob(value)}" for knob, value in rest.items()]
    name = text(knobs["name"]) if "name" in knobs else ""
    return ": ".join(filter(None, [name, "; ".join(shown)]))


def _evaluated(budget: Mapping[str, Any], protocol: Mapping[str, Any]) -> Mapping[str, Any]:
    """The budget with those of its variants that the protocol can make, which are the ones that were evaluated."""
    if "variants" not in budget or "variants" not in protocol:
        return budget
    return {**budget, "variants": [variant for variant in budget["variants"] if variant in protocol["variants"]]}


def _knob(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{text(knob.replace('_', ' '))} {_knob(inner)}" for knob, inner in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_knob(item) for item in value)
    if isinstance(value, int):
        return count(value)
    return text(value)


def _known(value: Any) -> str:
    return "" if value is None else text(value)


def _hash(value: str | None) -> str:
    """In a code span where it is what it should be, else as text that can do no harm in a table."""
    if not value:
        return ""
    return f"`{value}`" if value.isascii() and value.isalnum() else text(value)
