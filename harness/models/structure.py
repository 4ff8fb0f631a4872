"""Where a model of no known family keeps its parts, found on its own modules without its weights.

The model is built from its config on the meta device, where tensors have shapes and no numbers, and run once: which
module feeds the MLP, and which takes its output, shows in the very tensors that are passed on. Whatever is found is
held against the numbers when the weights are loaded (`harness.models.proof`), so a wrong guess is an error and never
a measurement. Importing this needs no torch; `find_parts` does, and its answer survives JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.errors import ModelError
from harness.models.families import FAMILIES, Config, Family, capped, divided, multiplied, output_norm, scaled_residual

if TYPE_CHECKING:
    from torch import nn

Parts = dict[str, Any]
"""What was found, in plain values: most under the names of `Family`'s fields."""

MLP_NAMES = ("mlp", "ffn", "feed_forward")
"""What the MLP of a block may be called."""

_LOGITS = {"final_logit_softcapping": capped, "logits_scaling": divided, "logit_scale": multiplied}
_SAME = ("blocks", "embedding", "position", "final_norm", "head", "mlp", "norm", "depth_key", "width_key", "attention")


def family_of_parts(parts: Mapping[str, Any]) -> Family:
    """The family that `find_parts` found."""
    branch = None
    if parts["output_norm"] is not None:
        branch = output_norm(parts["output_norm"])
    elif parts["residual_multiplier"]:
        branch = scaled_residual
    parallel = bool(parts["parallel"])
    return Family(
        **{name: parts[name] for name in _SAME},
        parallel=lambda config: parallel,
        fold=None if parts["fold"] is None else (parts["fold"][0], parts["fold"][1]),
        branch=branch,
        logits=None if parts["logits"] is None else _LOGITS[parts["logits"]],
    )


def find_parts(config: Config, name: str) -> Parts:
    """Look for blocks, embedding, final norm, head and, inside a block, MLP and norm. Takes seconds.

    Raises:
        ModelError: transformers has no causal text model of this `model_type` whose code is its own, or a part was not
            found or is ambiguous; the message says what was looked for.
    """
    kind = config.get("model_type")
    refuse = _Refusal(kind, name)
    model = _build(dict(config), refuse)
    own = model.config
    depth: int = own.num_hidden_layers
    lists = {path: module for path, module in model.named_modules() if type(module).__name__ == "ModuleList"}
    found = [
        path
        for path, module in lists.items()
        if len(module) == depth and not any(path.startswith(f"{outer}.") for outer in lists)
    ]
    if len(found) != 1:
        raise refuse(f"of lists of {depth} blocks it has {len(found)}, not one")
    blocks = found[0]
    layers = list(lists[blocks].children())
    mlp = _mlp(layers, refuse)
    parent = model.get_submodule(blocks.rpartition(".")[0])
    later = [child for child, _ in parent.named_children()]
    later = later[later.index(blocks.rpartition(".")[2]) + 1 :]
    norms = [child for child in later if _is_norm(parent.get_submodule(child))]
    if len(norms) != 1:
        raise refuse(f"of norms after its blocks it has {len(norms)}, not one")
    embedding = _path(model, model.get_input_embeddings())
    head = _path(model, model.get_output_embeddings())
    if embedding is None or head is None:
        raise refuse("it names no embedding or no head")
    first = layers[0]
    names = {"num_hidden_layers": "num_hidden_layers", "hidden_size": "hidden_size"} | own.attribute_map
    return {
        "blocks": blocks,
        "embedding": embedding,
        "position": _position(model, blocks, embedding, own),
        "final_norm": f"{blocks.rpartition('.')[0]}.{norms[0]}",
        "head": head,
        "mlp": mlp,
        "depth_key": names["num_hidden_layers"],
        "width_key": names["hidden_size"],
        "fold": _fold(first, mlp),
        "residual_multiplier": hasattr(first, "residual_multiplier"),
        "logits": next((key for key in _LOGITS if getattr(own, key, None) is not None), None),
        "attention": "sdpa" if model._supports_sdpa else "eager",
        **_trace(model, layers, mlp, refuse),
    }


class _Refusal:
    """Makes the one line that says why a model of an unknown family cannot be measured."""

    def __init__(self, kind: object, name: str) -> None:
        self.kind, self.name = kind, name

    def __call__(self, what: str) -> ModelError:
        return ModelError(
            f"{self.name}: {what}, and family {self.kind!r} is not known; see 'Add a model family' in CONTRIBUTING.md; "
            f"known are {', '.join(FAMILIES)}"
        )


def _build(config: dict[str, Any], refuse: _Refusal) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, __version__
    from transformers.models.auto import CONFIG_MAPPING

    from harness.models.quiet import first_line, quiet_transformers

    kind = config.pop("model_type", None)
    if kind not in CONFIG_MAPPING:
        raise refuse(f"transformers {__version__} has no such model")
    try:
        with quiet_transformers(), torch.device("meta"):
            own = CONFIG_MAPPING[kind](**config)
            if own.get_text_config() is not own:
                raise refuse("it has parts for other things than text")
            return AutoModelForCausalLM.from_config(own, trust_remote_code=False).eval()
    except ModelError:
        raise
    except Exception as error:  # whatever a config that does not fit its model can raise
        raise refuse(f"no causal language model can be built from its config ({first_line(error)})") from error


def _mlp(layers: list[nn.Module], refuse: _Refusal) -> str:
    found = {name for layer in layers for name, _ in layer.named_children() if name in MLP_NAMES}
    if len(found) != 1 or not all(hasattr(layer, next(iter(found))) for layer in layers):
        raise refuse(f"not each of its blocks has just one of {', '.join(MLP_NAMES)}")
    mlp = found.pop()
    for layer in layers:
        if any("expert" in name or "router" in name for name, _ in layer.get_submodule(mlp).named_modules()):
            raise refuse("it is a mixture of experts: its layers have no single MLP to replace")
    return mlp


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _path(model: nn.Module, part: object) -> str | None:
    return next((path for path, module in model.named_modules() if module is part), None)


def _position(model: nn.Module, blocks: str, embedding: str, config: Any) -> str | None:
    """The one table beside the token embedding that has a row for each position."""
    rows = getattr(config, "max_position_embeddings", None)
    tables = [
        path
        for path, module in model.named_modules()
        if "Embedding" in type(module).__name__ and path != embedding and not path.startswith(f"{blocks}.")
        if getattr(module, "num_embeddings", None) is not None
        if rows is not None and module.num_embeddings - getattr(module, "offset", 0) == rows
    ]
    return tables[0] if len(tables) == 1 else None


def _fold(block: nn.Module, mlp: str) -> tuple[str, str] | None:
    """The two matrices of an MLP that has no others and is not gated: the second takes as many as the first gives."""
    matrices: list[tuple[str, tuple[int, ...]]] = []  # name, (out, in)
    for name, module in block.get_submodule(mlp).named_modules():
        kind, weight = type(module).__name__, getattr(module, "weight", None)
        if weight is not None and weight.ndim == 2:
            matrices.append((name, tuple(weight.shape[::-1] if kind == "Conv1D" else weight.shape)))
    if len(matrices) != 2:
        return None
    (fc, (inner, _)), (proj, (_, taken)) = matrices
    return (f"{mlp}.{fc}", f"{mlp}.{proj}") if inner == taken else None


def _trace(model: Any, layers: list[nn.Module], mlp: str, refuse: _Refusal) -> Parts:
    """Which norm's output is the MLP's input, whether it normed the block's own input, what norms the MLP's output."""
    import torch

    from harness.models.quiet import first_line

    passed: dict[str, tuple[Any, Any]] = {}  # of the modules of one block: what went in first, what came out
    answers: list[tuple[str | None, bool, str | None]] = []
    failure = "not each of them runs once"

    def record(name: str) -> Any:
        return lambda module, args, out: passed.__setitem__(name, (args[0] if args else None, out))

    def conclude(module: Any, args: Any, out: Any) -> None:
        x, y = passed[mlp]
        norms = {name: seen for name, seen in passed.items() if name != mlp}
        before = next((name for name, (_, normed) in norms.items() if normed is x), None)
        after = next((name for name, (taken, _) in norms.items() if taken is y), None)
        answers.append((before, before is not None and norms[before][0] is args[0], after))
        passed.clear()

    hooks = []
    for layer in layers:
        for name, child in layer.named_children():
            if name == mlp or _is_norm(child):
                hooks.append(child.register_forward_hook(record(name)))
        hooks.append(layer.register_forward_hook(conclude))
    ids = torch.zeros(2, 3, dtype=torch.long, device="meta")
    # Making a mask may look at numbers, of which there are none here, so one is given; where positions are a bias of
    # the mask it must be left to the model.
    for mask in (torch.zeros(2, 1, 3, 3, device="meta"), None):
        answers.clear()
        try:
            model(ids, attention_mask=mask, use_cache=False)
            break
        except Exception as error:  # whatever a model's code can raise without numbers
            failure = first_line(error)
    for hook in hooks:
        hook.remove()
    if len(answers) != len(layers):
        raise refuse(f"its blocks cannot be followed ({failure})")
    if len(set(answers)) != 1:
        raise refuse("its blocks are not all alike")
    norm, parallel, after = answers[0]
    return {"norm": norm, "parallel": parallel, "output_norm": after}
