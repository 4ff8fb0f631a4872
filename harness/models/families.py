"""Where each family of causal language models keeps its parts: a table, and nothing that needs torch.

A family is a few lines: dotted paths from the model to its blocks, embedding, final norm and head; names
inside a block for its MLP and the norm in front; what the config calls depth and width.
`harness.models.anatomy` resolves the names on a loaded model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import ModelError

Config = Mapping[str, Any]
"""config.json as a dict."""
Map = Callable[[Any], Any]
"""A function from tensor to tensor."""


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
    mlp: str | tuple[str, ...] = "mlp"
    """Name of the MLP inside a block; its modules in their order where none holds just the MLP."""
    norm: str | Callable[[Config], str] | None = "post_attention_layernorm"
    """Name of the norm inside a block whose output is the MLP's input, or config -> name; None where there is none."""
    depth_key: str = "num_hidden_layers"
    """What the config calls the number of layers."""
    width_key: str = "hidden_size"
    """What the config calls d, the width of the residual stream."""
    parallel: Callable[[Config], bool] = lambda config: False
    """config -> whether a block's attention and MLP read the same residual stream."""
    fold: tuple[str, str] | None = None
    """Names inside a block of W_fc and W_proj where the MLP is `W_proj act(W_fc x)`; None where it is gated."""
    branch: Callable[[Any], Map] | None = None
    """block -> (MLP output -> what joins the residual stream), where that is not the MLP's output itself."""
    logits: Callable[[Config], Map] | None = None
    """config -> (what the head gives -> logits), where the model scales or caps them."""
    stacked: tuple[str, ...] = ()
    """Keywords under which a block is given a tensor (windows · heads, ...): not one entry a window, but several."""
    shared: tuple[str, ...] = ()
    """Keywords under which a block is given a tensor for all windows whose first dimension is not 1 all the same."""
    attention: str = "sdpa"
    """The attention implementation to ask transformers for; `eager` where it has no other."""
    refuse: Callable[[Config], str | None] = lambda config: None
    """config -> why a model of this family cannot be measured all the same."""

    def layers(self, config: Config) -> int:
        """Number of blocks. `config` is config.json as a dict."""
        return _positive(config, self.depth_key, "n_layer", "num_hidden_layers")

    def width(self, config: Config) -> int:
        """Width d of the residual stream."""
        return _positive(config, self.width_key, "n_embd", "hidden_size")

    def norm_name(self, config: Config) -> str | None:
        """Name of the norm in front of the MLP under this config."""
        return self.norm(config) if callable(self.norm) else self.norm

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the modules that make up the MLP, in their order: what enters the first is x, what leaves the
        last is y.
        """
        return (self.mlp,) if isinstance(self.mlp, str) else self.mlp


def _positive(config: Config, key: str, *others: str) -> int:
    """The config's value of `key`, or of the first other name that it goes by."""
    value = next((config[name] for name in (key, *others) if name in config), None)
    if not isinstance(value, int) or value < 1:
        kind = config.get("model_type", "unknown")
        raise ModelError(f"config.json of a {kind} model: {key!r} is {value!r}, not a positive number; repair it")
    return value


def _always(config: Config) -> bool:
    return True


def output_norm(name: str) -> Callable[[Any], Map]:
    """The MLP's output passes a norm of the block."""
    return lambda block: block.get_submodule(name)


def scaled_residual(block: Any) -> Map:
    """The MLP's output is multiplied by a constant of the block."""
    return lambda y: y * block.residual_multiplier


def capped(config: Config) -> Map:
    """Logits held between −cap and cap by a tanh."""
    cap = config.get("final_logit_softcapping")
    return lambda logits: logits if cap is None else (logits / cap).tanh() * cap


def divided(config: Config) -> Map:
    """Logits over a constant."""
    return lambda logits: logits / config["logits_scaling"]


def multiplied(config: Config) -> Map:
    """Logits times a constant."""
    return lambda logits: logits * config["logit_scale"]


def _falcon_is_parallel(config: Config) -> bool:
    return bool(config.get("new_decoder_architecture", False) or config.get("parallel_attn", True))


def _falcon_norm(config: Config) -> str:
    """Falcon-40B has a norm for each half of its blocks, Falcon-7B and -11B one for both, Falcon-RW one after the
    other.
    """
    if config.get("new_decoder_architecture", False) and config.get("num_ln_in_parallel_attn") in (None, 2):
        return "ln_mlp"
    return "input_layernorm" if _falcon_is_parallel(config) else "post_attention_layernorm"


def _stablelm_is_parallel(config: Config) -> bool:
    return bool(config.get("use_parallel_residual", False))


def _opt_refuses(config: Config) -> str | None:
    if not config.get("do_layer_norm_before", True):
        return "its blocks norm after the MLP has joined the residual stream (do_layer_norm_before is false)"
    width, embedded = config.get("hidden_size"), config.get("word_embed_proj_dim")
    if embedded not in (None, width):
        return f"it projects embeddings of width {embedded} to {width} and back (word_embed_proj_dim)"
    return None


def _bloom_refuses(config: Config) -> str | None:
    if config.get("slow_but_exact", False) and config.get("pretraining_tp", 1) > 1:
        return "it splits its MLP's second matrix (slow_but_exact); set that to false in config.json"
    return None


_GPT2 = Family(
    blocks="transformer.h",
    embedding="transformer.wte",
    position="transformer.wpe",
    final_norm="transformer.ln_f",
    norm="ln_2",
    depth_key="n_layer",
    width_key="n_embd",
    fold=("mlp.c_fc", "mlp.c_proj"),
)
_GPTJ = replace(_GPT2, position=None, norm="ln_1", parallel=_always, fold=("mlp.fc_in", "mlp.fc_out"))
_UNGATED = Family(fold=("mlp.up_proj", "mlp.down_proj"))
_GEMMA3 = Family(norm="pre_feedforward_layernorm", branch=output_norm("post_feedforward_layernorm"), logits=capped)
_OLMO2 = Family(norm=None, branch=output_norm("post_feedforward_layernorm"))
_COHERE = Family(norm="input_layernorm", parallel=_always, logits=multiplied)
_OPT = Family(
    blocks="model.decoder.layers",
    embedding="model.decoder.embed_tokens",
    position="model.decoder.embed_positions",
    final_norm="model.decoder.final_layer_norm",
    mlp=("fc1", "activation_fn", "fc2"),  # no module of the block holds just the MLP
    norm="final_layer_norm",
    fold=("fc1", "fc2"),
    refuse=_opt_refuses,
)

FAMILIES: dict[str, Family] = {
    "apertus": replace(_UNGATED, norm="feedforward_layernorm"),
    "arcee": _UNGATED,
    "biogpt": Family(
        blocks="biogpt.layers",
        embedding="biogpt.embed_tokens",
        position="biogpt.embed_positions",
        final_norm="biogpt.layer_norm",
        head="output_projection",
        mlp=_OPT.mlp,
        norm=_OPT.norm,
        fold=_OPT.fold,
    ),
    "bitnet": Family(),
    "bloom": Family(
        blocks="transformer.h",
        embedding="transformer.word_embeddings",
        final_norm="transformer.ln_f",
        # `mlp` returns the residual stream with the MLP's output already added.
        mlp=("mlp.dense_h_to_4h", "mlp.gelu_impl", "mlp.dense_4h_to_h"),
        depth_key="n_layer",
        width_key="n_embed",
        fold=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        stacked=("alibi",),
        attention="eager",
        refuse=_bloom_refuses,
    ),
    "codegen": _GPTJ,
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "ernie4_5": Family(),
    "exaone4": _OLMO2,
    "falcon": Family(
        blocks="transformer.h",
        embedding="transformer.word_embeddings",
        final_norm="transformer.ln_f",
        norm=_falcon_norm,
        parallel=_falcon_is_parallel,
        fold=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    ),
    "gemma": Family(),
    "gemma2": replace(_GEMMA3, attention="eager"),
    "gemma3_text": _GEMMA3,
    "glm": Family(),
    "glm4": Family(branch=output_norm("post_mlp_layernorm")),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neo": replace(_GPT2, depth_key="num_layers", width_key="hidden_size", attention="eager"),
    "gpt_neox": Family(
        blocks="gpt_neox.layers",
        embedding="gpt_neox.embed_in",
        final_norm="gpt_neox.final_layer_norm",
        parallel=lambda config: bool(config.get("use_parallel_residual", True)),
        fold=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    ),
    "gptj": _GPTJ,
    "granite": Family(branch=scaled_residual, logits=divided),
    "helium": Family(),
    "hunyuan_v1_dense": Family(),
    "jais2": _UNGATED,
    "llama": Family(),
    "ministral": Family(),
    "ministral3": Family(),
    "mistral": Family(),
    "mpt": Family(
        blocks="transformer.blocks",
        embedding="transformer.wte",
        final_norm="transformer.norm_f",
        mlp=("ffn.up_proj", "ffn.act", "ffn.down_proj"),  # `ffn` adds the residual stream, as Bloom's `mlp` does
        norm="norm_2",
        depth_key="n_layers",
        width_key="d_model",
        fold=("ffn.up_proj", "ffn.down_proj"),
        shared=("position_bias",),
        attention="eager",
    ),
    "nanochat": Family(fold=("mlp.fc1", "mlp.fc2"), logits=capped),
    "nemotron": _UNGATED,
    "olmo": Family(),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "opt": _OPT,
    "persimmon": Family(final_norm="model.final_layernorm", fold=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")),
    "phi": Family(
        final_norm="model.final_layernorm",
        norm="input_layernorm",
        parallel=_always,
        fold=("mlp.fc1", "mlp.fc2"),
    ),
    "phi3": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "seed_oss": Family(),
    "smollm3": Family(),
    "stablelm": Family(
        norm=lambda config: "input_layernorm" if _stablelm_is_parallel(config) else "post_attention_layernorm",
        parallel=_stablelm_is_parallel,
    ),
    "starcoder2": Family(fold=("mlp.c_fc", "mlp.c_proj")),
    "vaultgemma": Family(norm="pre_feedforward_layernorm", logits=capped, attention="eager"),
    "xglm": Family(
        final_norm="model.layer_norm",
        mlp=_OPT.mlp,
        norm=_OPT.norm,
        depth_key="num_layers",
        width_key="d_model",
        fold=_OPT.fold,
        attention="eager",
    ),
}
"""model_type, as config.json has it -> Family."""


def family_of(config: Config) -> Family:
    """The family of a config; ModelError where its `model_type` is not in the table."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ModelError(f"model type {kind!r} is not one that can be measured; known: {', '.join(FAMILIES)}")
    return FAMILIES[kind]
