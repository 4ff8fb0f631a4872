"""A model in memory, ready to be measured: evaluation mode, no gradients, no weight made up by the loader."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.errors import ModelError
from harness.models.anatomy import Anatomy
from harness.models.fingerprint import ModelInfo
from harness.models.headers import BUFFER
from harness.models.hub import snapshot
from harness.models.memory import require_room, room_by_device
from harness.models.proof import prove
from harness.models.quiet import first_line, quiet_transformers
from harness.models.sources import ModelSource
from harness.models.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""How accelerate may spread a model over devices."""


@dataclass(frozen=True)
class Subject:
    """A causal language model under measurement."""

    info: ModelInfo
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    anatomy: Anatomy
    device: torch.device
    """Where token ids go in; of a model that is spread over several devices, the one that its parts run on first."""
    dtype: torch.dtype
    device_map: Mapping[str, str] | None = None
    """Part -> device (parts on `cpu` and `disk` run where the others are), where there was such a map; else None."""
    offload: tempfile.TemporaryDirectory[str] | None = None
    """Where parts may lie on disk; it goes with the subject."""

    def __repr__(self) -> str:
        info, dtype = self.info, str(self.dtype).removeprefix("torch.")
        return f"<Subject {info.name}: {info.family}, {info.layers} layers, {dtype} on {self.device}>"


def load(
    source: ModelSource,
    info: ModelInfo,
    *,
    device: str = "cpu",
    device_map: str | Mapping[str, str] | None = None,
    dtype: str = "float32",
    allow_pickle: bool = False,
    offload: Path | None = None,
) -> Subject:
    """Load the weights that `info` describes; a pickle is opened only with `allow_pickle`.

    With a `device_map` (one of `DEVICE_MAPS`, or part -> device) accelerate spreads the model over devices, memory and,
    in a folder below `offload`, disk, and `device` has no say. Matrix products are set to full float32 (no TF32) for
    the whole process.

    Raises:
        ModelError: no such device, too little room on it, or the files do not hold exactly the weights that the config
            asks for, all finite.
    """
    place = choose_device(device)
    if dtype not in DTYPES:
        raise ModelError(f"--dtype {dtype} is not one of {', '.join(DTYPES)}")
    if isinstance(device_map, str) and device_map not in DEVICE_MAPS:
        raise ModelError(f"--device-map {device_map} is not one of {', '.join(DEVICE_MAPS)}")
    if info.stored is None and not allow_pickle:
        raise ModelError(f"{info.name} has its weights only as a pickle; add --allow-pickle if you trust it")
    if source.kind == "hub":
        source = replace(source, revision=info.revision)  # a branch may have moved since
    full_float32()
    if device_map is None:
        require_room(info, _parameters(source, info), DTYPES[dtype], place)
    tokenizer = load_tokenizer(source)
    options: dict[str, Any] = {}
    folder = None
    if device_map is not None:
        if offload is not None:
            offload.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=offload, prefix="offload-")
        options = {"device_map": device_map, "offload_folder": folder.name}
        if isinstance(device_map, str):
            options["max_memory"] = room_by_device()
    elif place.type == "cuda":
        options = {"device_map": {"": str(place)}}  # straight there, with no copy in the host's memory
    try:
        model = _load_weights(source, info, DTYPES[dtype], options)
        _check_shape(model, tokenizer, info)
        if device_map is None:
            model.to(place)  # type: ignore[arg-type]
    except torch.OutOfMemoryError as error:
        raise ModelError(f"{info.name} does not fit into the memory of {place}; add --device-map auto") from error
    model.config.use_cache = False  # every pass is over whole windows
    model.eval().requires_grad_(False)
    _check_finite(model, info)
    spread = None
    if device_map is not None:
        spread = _spread(model)
        place = _first_device(spread)
    anatomy = Anatomy.of(model, info.parts)
    prove(anatomy, info.name, place)
    return Subject(info, model, tokenizer, anatomy, place, DTYPES[dtype], spread, folder)


def choose_device(device: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one, else the CPU.

    Raises:
        ModelError: it does not exist here; the message says what to ask for instead.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = device.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise ModelError("no CUDA device; add --device cpu to run on the CPU")
        if index and not (index.isdigit() and int(index) < torch.cuda.device_count()):
            raise ModelError(f"no device {device}: there are {torch.cuda.device_count()}, counted from cuda:0")
    elif kind == "mps":
        if not torch.backends.mps.is_available():
            raise ModelError("no MPS device; add --device cpu to run on the CPU")
    elif device != "cpu":
        raise ModelError(f"--device {device} is not auto, cpu, cuda, cuda:N or mps")
    return torch.device(device)


def full_float32() -> None:
    """Switch off TF32, which would round the inputs of every float32 product to 10 bits of mantissa."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def _folder(source: ModelSource) -> Path:
    return snapshot(source)[0] if source.kind == "hub" else Path(source.location)


def _parameters(source: ModelSource, info: ModelInfo) -> int:
    """Weights of the model once it is loaded, tied ones counted once; found without reading any."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if source.kind == "gguf":
        assert info.parameters is not None, "a GGUF file says how many weights it has"
        return info.parameters
    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(_folder(source), trust_remote_code=False, local_files_only=True)
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        except Exception as error:  # transformers has no base class for what a damaged config can raise
            raise ModelError(f"{info.name} cannot be loaded: {first_line(error)}") from error
    return model.num_parameters()


def _spread(model: PreTrainedModel) -> dict[str, str]:
    """Part -> device as accelerate has put them; empty where all are in the host's memory and nothing was done."""
    return {
        part: str(place) if place == "disk" else str(torch.device(place))
        for part, place in getattr(model, "hf_device_map", {}).items()
    }


def _first_device(spread: Mapping[str, str]) -> torch.device:
    """Where the first part runs: what lies in the host's memory or on disk comes to an accelerator if there is one."""
    return torch.device(next((place for place in spread.values() if place not in ("cpu", "disk")), "cpu"))


def _load_weights(source: ModelSource, info: ModelInfo, dtype: torch.dtype, options: dict[str, Any]) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    place = _folder(source)
    options = {"dtype": dtype, "attn_implementation": info.parts.attention, "output_loading_info": True, **options}
    options["ignore_mismatched_sizes"] = True  # then they come back by name, and `_check_outcome` refuses
    if source.kind == "gguf":
        place, options["gguf_file"] = place.parent, place.name
    else:
        options["use_safetensors"] = info.stored is not None  # only a pickle has no known storage type
        options["trust_remote_code"] = False
        options["local_files_only"] = True
    with quiet_transformers():
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(place, **options)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # transformers has no base class for what a damaged file can raise
            raise ModelError(f"{info.name} cannot be loaded: {first_line(error)}") from error
    model, outcome = loaded
    _check_outcome(outcome, info)
    return model


def _check_outcome(outcome: dict[str, Any], info: ModelInfo) -> None:
    """transformers fills a missing weight with random numbers and drops a surplus one; neither may pass."""
    for problem, names in (
        ("lack", outcome["missing_keys"]),
        ("have not the shape that the config asks for in", {name for name, *_ in outcome["mismatched_keys"]}),
        ("hold, though the config has no place for it,", outcome["unexpected_keys"]),
    ):
        names = sorted(name for name in names if not BUFFER.search(name))
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ModelError(f"{info.name}: its weights {problem} {names[0]}{more}; config and weights do not match")


def _check_finite(model: PreTrainedModel, info: ModelInfo) -> None:
    for name, weight in model.named_parameters():
        if not weight.is_meta and not all(map(math.isfinite, weight.aminmax())):  # on the meta device: still on disk
            dtype = str(weight.dtype).removeprefix("torch.")
            hint = "try --dtype float32" if weight.dtype == torch.float16 else "the file is damaged"
            raise ModelError(f"{info.name}: {name} holds numbers that are not finite in {dtype}; {hint}")


def _check_shape(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, info: ModelInfo) -> None:
    embedding: Any = model.get_input_embeddings()
    config, rows = model.config, embedding.weight.shape[0]
    loaded = (config.model_type, config.num_hidden_layers, config.hidden_size, rows)
    described = (info.family, info.layers, info.width, info.vocabulary)
    if loaded != described:
        raise ModelError(
            f"{info.name} loads with (family, layers, d, vocabulary) {loaded}; its metadata says {described}"
        )
    if info.kind == "gguf" and model.num_parameters() != info.parameters:  # unknown tensors go without a word
        raise ModelError(
            f"{info.name} holds {info.parameters} weights, of which the loader took "
            f"{model.num_parameters()}; give safetensors"
        )
    if tokenizer.vocab_size > rows:
        raise ModelError(
            f"{info.name}: its tokenizer has {tokenizer.vocab_size} tokens, its embedding only {rows} rows"
        )
