"""What a model is, told without loading it: shape, family, and hashes of all that decides its numbers.

Needs no torch, so a run whose records are all there can still say which model they belong to.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.errors import ModelError
from harness.models.agreement import check_embedding, check_tokenizer
from harness.models.families import FAMILIES, Family, family_of
from harness.models.files import read_folder
from harness.models.headers import read_gguf, read_safetensors
from harness.models.hub import snapshot
from harness.models.remembered import remembered
from harness.models.sources import ModelSource
from harness.models.structure import family_of_parts, find_parts

# Keys of config.json that change with the software that wrote it and not with the model.
_VOLATILE = {"_name_or_path", "transformers_version", "torch_dtype", "dtype"}
_EXPERTS = (
    *("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts"),
    *("moe_num_primary_experts", "n_experts", "num_experts_per_tok", "num_experts_per_token", "moe_topk"),
)


@dataclass(frozen=True)
class ModelInfo:
    """A model's identity and shape; goes into reports as it stands, so it holds names and never paths."""

    name: str
    kind: str
    """hub, directory or gguf."""
    location_name: str
    """Hub id, or the bare name of the folder or file."""
    revision: str | None
    """Commit of a hub model; None for files."""
    family: str
    """The config's `model_type`."""
    parallel: bool | None
    """Whether attention and MLP of a block read the same residual stream."""
    layers: int
    width: int
    """d, the width of the residual stream."""
    vocabulary: int
    """Rows of the token embedding."""
    parameters: int | None
    """Weights in the files, buffers left out; None where they are a pickle, which is not opened to count."""
    weights_sha256: str
    """Of the weight file itself; of several shards, of their names and hashes."""
    config_sha256: str
    """Of config.json without what only its writer's version decides; of the file itself for GGUF."""
    tokenizer_sha256: str
    """Of the tokenizer's files, by name and content; of the file itself for GGUF."""
    stored: str | None
    """Type in which most of the weights are stored: F32, F16, BF16, Q4_1, ...; None for a pickle."""
    quantization: str | None
    """For instance 'Q4_1 79 %, Q8_0 21 %, dequantized'; None where all weights are floating point."""
    note: str
    structure: Mapping[str, Any] | None = None
    """Where the parts of a model of no known family were found; None where its family is in the table."""

    def __repr__(self) -> str:
        weights = "" if self.parameters is None else f", {self.parameters:,} weights"
        return f"<ModelInfo {self.name}: {self.family}, {self.layers} layers, d = {self.width}{weights}>"

    @property
    def parts(self) -> Family:
        """Where the model keeps its parts."""
        return FAMILIES[self.family] if self.structure is None else family_of_parts(self.structure)

    @property
    def fingerprint(self) -> str:
        """64 hex digits: equal for two copies of a model whatever they are called and wherever they lie."""
        parts = (self.weights_sha256, self.config_sha256, self.tokenizer_sha256)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """All fields and the fingerprint, ready for JSON; `structure` only where there is one."""
        fields = asdict(self) | {"fingerprint": self.fingerprint}
        return {name: value for name, value in fields.items() if name != "structure" or value is not None}


def model_info(source: ModelSource, cache: Path) -> ModelInfo:
    """Read a model's metadata and hash its files; a hub model of which no whole copy is cached is downloaded.

    Hashes are remembered in `cache`, keyed by path, size and time of change of each file.

    Raises:
        ModelError: the model is missing, incomplete, damaged, or not one that can be measured.
    """
    if source.kind == "gguf":
        return _gguf_info(source, cache)
    folder, revision = Path(source.location), source.revision
    if source.kind == "hub":
        folder, revision = snapshot(source, check_config)
    files = read_folder(folder, source.name, allow_pickle=source.allow_pickle)
    check_config(files.config, source.name)
    stored = None if files.pickled else read_safetensors(list(files.weights), files.index)
    vocabulary = files.config.get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary < 1:
        raise ModelError(f"{source.name}: config.json has vocab_size {vocabulary!r}, not a positive number; repair it")
    check_tokenizer(files, vocabulary, source.name)
    structure = None if files.config["model_type"] in FAMILIES else _structure(folder, files.config, source.name, cache)
    family = family_of(files.config) if structure is None else family_of_parts(structure)
    if stored is not None:
        check_embedding(files, family, vocabulary, source.name)
    return ModelInfo(
        name=source.name,
        kind=source.kind,
        location_name=source.location if source.kind == "hub" else folder.name,
        revision=revision,
        family=files.config["model_type"],
        parallel=family.parallel(files.config),
        layers=family.layers(files.config),
        width=family.width(files.config),
        vocabulary=vocabulary,
        parameters=stored.parameters if stored else None,
        weights_sha256=_sha256_of_all(files.weights, cache),
        config_sha256=_config_sha256(files.config),
        tokenizer_sha256=_sha256_of_all(files.tokenizer, cache, named=True),
        stored=stored.dtype if stored else None,
        quantization=None,
        note=source.note,
        structure=structure,
    )


def _structure(folder: Path, config: dict[str, Any], name: str, cache: Path) -> dict[str, Any]:
    """Where a model of no known family keeps its parts; torch is needed once, until config.json changes."""
    what = f"structure-{version('transformers')}"
    return remembered(folder / "config.json", what, cache, lambda _: find_parts(config, name))


def _gguf_info(source: ModelSource, cache: Path) -> ModelInfo:
    file = Path(source.location)
    if not file.is_file():
        raise ModelError(f"{source.name}: no such file")
    facts = remembered(file, "gguf-2", cache, lambda file: asdict(read_gguf(file)))
    config, stored = facts["config"], facts["stored"]
    check_config(config, source.name)
    family = family_of(config)
    digest = sha256(file, cache)
    return ModelInfo(
        name=source.name,
        kind=source.kind,
        location_name=file.name,
        revision=None,
        family=config["model_type"],
        parallel=family.parallel(config),
        layers=family.layers(config),
        width=family.width(config),
        vocabulary=config["vocab_size"],
        parameters=stored["parameters"],
        weights_sha256=digest,
        config_sha256=digest,
        tokenizer_sha256=digest,
        stored=stored["dtype"],
        quantization=f"{stored['quantized']}, dequantized" if stored["quantized"] else None,
        note=source.note,
    )


def check_config(config: dict[str, Any], name: str) -> None:
    """Refuse what cannot be measured, in the words of what it is rather than of what goes wrong later.

    A causal language model of no known family passes: whether its parts can be found is another question.

    Raises:
        ModelError: not a causal language model, a mixture of experts, quantized for a special library,
            in need of remote code, or what its family says it cannot be.
    """
    kind = config.get("model_type")
    architectures = [str(architecture) for architecture in config.get("architectures") or ()]
    called = architectures[0] if architectures else f"model_type {kind!r}"
    if config.get("is_encoder_decoder"):
        raise ModelError(f"{name} ({called}) is an encoder-decoder, not a causal language model")
    experts = next((key for key in _EXPERTS if config.get(key)), None)
    if experts is not None:
        raise ModelError(
            f"{name} ({called}) is a mixture of experts ({experts} is {config[experts]}): its layers have no single "
            "MLP to replace"
        )
    if config.get("auto_map") and kind not in FAMILIES and not _in_transformers(kind):
        raise ModelError(f"{name} ({called}) needs code from its repository, and that is never run")
    # A bare GPT2Model has no head of its own, which loading will notice unless the head is tied.
    headed = [architecture for architecture in architectures if "For" in architecture or kind not in FAMILIES]
    if headed and not any(architecture.endswith(("ForCausalLM", "LMHeadModel")) for architecture in headed):
        raise ModelError(f"{name} ({called}) is not a causal language model")
    if config.get("quantization_config"):
        raise ModelError(f"{name} is quantized for a special library: give its float weights or a .gguf file")
    if kind in FAMILIES:
        reason = FAMILIES[kind].refuse(config)
        if reason is not None:
            raise ModelError(f"{name} ({called}) cannot be measured: {reason}")


def _in_transformers(kind: object) -> bool:
    """Whether the installed transformers has code of its own for a `model_type`; asked without importing it."""
    spec = importlib.util.find_spec("transformers")
    folder = Path(spec.origin or "").parent / "models" if spec else Path()
    return (folder / str(kind).replace("-", "_") / "__init__.py").is_file()


def sha256(file: Path, cache: Path) -> str:
    """Hex digest of a file's content, remembered in `cache`."""

    def digest(file: Path) -> dict[str, str]:
        with file.open("rb") as stream:
            return {"sha256": hashlib.file_digest(stream, "sha256").hexdigest()}

    return remembered(file, "sha256", cache, digest)["sha256"]


def _sha256_of_all(files: Iterable[Path], cache: Path, *, named: bool = False) -> str:
    """A single file's own digest, as the hub shows it; of several, the digest of `name digest` lines."""
    digests = {file.name: sha256(file, cache) for file in files}
    if len(digests) == 1 and not named:
        return next(iter(digests.values()))
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def _config_sha256(config: dict[str, Any]) -> str:
    lasting = {key: value for key, value in config.items() if key not in _VOLATILE}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()
