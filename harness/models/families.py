"""Where each family of causal language models keeps its parts: a table, and nothing that needs torch.

A family is a few lines: dotted paths from the model to its blocks, embedding, final norm and head; names
inside a block for its MLP and the norm in front; what the config calls depth and width.
`harness.models.anatomy` resolves the names on a loaded model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import ModelError

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """The names of one `model_type`; the defaults are those of Llama and of the many that copied it."""

    blocks: str = "model.layers"
    """Path from the model to the list of blocks."""
    embedding: str = "model.embed_tokens"
    """Path to the token embedding."""
    position: str | None = None
    """Path to the position embedding where one is added to the residual stream; None for rotary positions."""
    final_norm: str = "model.norm"
    """Path to the norm between the last block and the head."""
    head: str = "lm_head"
    """Path to the map from the normed residual stream to logits."""
    mlp: str = "mlp"
    """Name of the MLP inside a block."""
    norm: str = "post_attention_layernorm"
    """Name of the norm inside a block whose output is the MLP's input."""
    depth_key: str = "num_hidden_layers"
    """What the config calls the number of layers."""
    width_key: str = "hidden_size"
    """What the config calls d, the width of the residual stream."""
    parallel: Callable[[Config], bool] = lambda config: False
    """config -> whether a block's attention and MLP read the same residual stream."""
    fold: tuple[str, str] | None = None
    """Names of W_fc and W_proj where the MLP is `W_proj act(W_fc x)`; None where it is gated."""
    branch: Callable[[Any], Callable[[Any], Any]] | None = None
    """block -> (MLP output -> what joins the residual stream), where that is not the MLP's output itself."""

    def layers(self, config: Config) -> int:
        """Number of blocks. `config` is config.json as a dict."""
        return _positive(config, self.depth_key)

    def width(self, config: Config) -> int:
        """Width d of the residual stream."""
        return _positive(config, self.width_key)


def _positive(config: Config, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        kind = config.get("model_type", "unknown")
        raise ModelError(f"config.json of a {kind} model: {key!r} is {value!r}, not a positive number; repair it")
    return value


FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        blocks="transformer.h",
        embedding="transformer.wte",
        position="transformer.wpe",
        final_norm="transformer.ln_f",
        norm="ln_2",
        depth_key="n_layer",
        width_key="n_embd",
        fold=("c_fc", "c_proj"),
    ),
    "gpt_neox": Family(
        blocks="gpt_neox.layers",
        embedding="gpt_neox.embed_in",
        final_norm="gpt_neox.final_layer_norm",
        parallel=lambda config: bool(config.get("use_parallel_residual", True)),
        fold=("dense_h_to_4h", "dense_4h_to_h"),
    ),
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
}
"""model_type, as config.json has it -> Family."""


def family_of(config: Config) -> Family:
    """The family of a config; ModelError where its `model_type` is not in the table."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ModelError(f"model type {kind!r} is not one that can be measured; known: {', '.join(FAMILIES)}")
    return FAMILIES[kind]
