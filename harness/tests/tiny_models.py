"""Small random models of every family, and blocks rewritten around a substitute to check the engine against.

At the usual initial scale the MLPs of a random model hardly matter, so weights are scaled up until taking out
any one of them moves the mean loss by at least 0.1 nat: an error of the engine then has something to show in.
"""

from __future__ import annotations

import copy
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.models.auto import CONFIG_MAPPING

from harness.models.anatomy import Anatomy
from harness.models.families import FAMILIES, Family

VOCABULARY, WIDTH, LAYERS, POSITIONS = 67, 24, 5, 48

_COMMON = {
    "vocab_size": VOCABULARY,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
    "initializer_range": 0.2,  # ten times the usual
}
_LLAMA = {
    "hidden_size": WIDTH,
    "intermediate_size": 40,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": POSITIONS,
}
_NEOX = {
    "hidden_size": WIDTH,
    "intermediate_size": 40,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    "rotary_pct": 0.5,
}
_BLOOM = {"hidden_size": WIDTH, "n_layer": LAYERS, "n_head": 4}
_FALCON = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
_GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 5}
_OPT = {
    "hidden_size": WIDTH,
    "word_embed_proj_dim": WIDTH,
    "ffn_dim": 40,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
}
_SLIDING = ["sliding_attention", "full_attention"] * 2 + ["full_attention"]

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4, "n_positions": POSITIONS}),
    "gpt_neox parallel": ("gpt_neox", {**_NEOX, "use_parallel_residual": True}),
    "gpt_neox sequential": ("gpt_neox", {**_NEOX, "use_parallel_residual": False}),
    "llama": ("llama", {**_LLAMA, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {**_LLAMA, "sliding_window": None}),
    "mistral sliding": ("mistral", {**_LLAMA, "sliding_window": 5}),
    "qwen2": ("qwen2", _LLAMA),
    "qwen2 sliding": (
        "qwen2",
        {**_LLAMA, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
    ),
    "qwen3": ("qwen3", {**_LLAMA, "head_dim": 8}),
    "bloom": ("bloom", _BLOOM),
    "bloom residual normed": ("bloom", {**_BLOOM, "apply_residual_connection_post_layernorm": True}),
    "falcon 7b": ("falcon", {**_FALCON, "parallel_attn": True}),
    "falcon 40b": ("falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon 11b": (
        "falcon",
        {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "falcon rw": ("falcon", {**_FALCON, "parallel_attn": False, "alibi": True, "bias": True}),
    "gemma": ("gemma", {**_LLAMA, "head_dim": 8}),
    "gemma2": ("gemma2", {**_LLAMA, **_GEMMA, "final_logit_softcapping": 8.0}),
    "gemma3": ("gemma3_text", {**_LLAMA, **_GEMMA}),
    "gpt_neo": (
        "gpt_neo",
        {
            "hidden_size": WIDTH,
            "num_layers": LAYERS,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 2], [["global"], 1]],
            "window_size": 5,
            "max_position_embeddings": POSITIONS,
        },
    ),
    "gptj": ("gptj", {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": 3, "n_positions": POSITIONS, "rotary_dim": 4}),
    "granite": (
        "granite",
        {**_LLAMA, "residual_multiplier": 0.6, "logits_scaling": 0.7, "embedding_multiplier": 3.0},
    ),
    "olmo2": ("olmo2", _LLAMA),
    "opt": ("opt", _OPT),
    "phi": ("phi", {**_LLAMA, "partial_rotary_factor": 2 / 3}),
    "phi3": ("phi3", {**_LLAMA, "pad_token_id": 0}),
    "stablelm parallel": ("stablelm", {**_LLAMA, "use_parallel_residual": True}),
    "stablelm sequential": ("stablelm", {**_LLAMA, "use_parallel_residual": False, "qk_layernorm": True}),
    "starcoder2": ("starcoder2", {**_LLAMA, "sliding_window": 5}),
    "apertus": ("apertus", _LLAMA),
    "arcee": ("arcee", _LLAMA),
    "biogpt": ("biogpt", {**_LLAMA, "pad_token_id": 0}),
    "bitnet": ("bitnet", _LLAMA),
    "codegen": (
        "codegen",
        {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4, "rotary_dim": 4, "n_positions": POSITIONS},
    ),
    "cohere": ("cohere", {**_LLAMA, "logit_scale": 0.5, "use_qk_norm": True, "pad_token_id": 0}),
    "cohere2": ("cohere2", {**_LLAMA, "logit_scale": 0.5, "sliding_window": 5, "pad_token_id": 0}),
    "ernie4_5": ("ernie4_5", {**_LLAMA, "head_dim": 8, "use_bias": True}),
    "exaone4": ("exaone4", {**_LLAMA, "sliding_window": 5, "sliding_window_pattern": 2}),
    "glm": ("glm", {**_LLAMA, "head_dim": 8, "pad_token_id": 0}),
    "glm4": ("glm4", {**_LLAMA, "head_dim": 8, "pad_token_id": 0}),
    "gpt_bigcode": (
        "gpt_bigcode",
        {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4, "n_positions": POSITIONS, "multi_query": True},
    ),
    "helium": ("helium", {**_LLAMA, "head_dim": 6, "pad_token_id": 0}),
    "hunyuan": ("hunyuan_v1_dense", {**_LLAMA, "head_dim": 8, "pad_token_id": 0}),
    "jais2": ("jais2", {**_LLAMA}),
    "ministral": ("ministral", {**_LLAMA, "head_dim": 8, "layer_types": _SLIDING, "sliding_window": 5}),
    "ministral3": ("ministral3", {**_LLAMA, "head_dim": 8}),
    "mpt": ("mpt", {"d_model": WIDTH, "n_layers": LAYERS, "n_heads": 4, "max_seq_len": POSITIONS}),
    "nanochat": ("nanochat", {**_LLAMA, "final_logit_softcapping": 8.0}),
    "nemotron": ("nemotron", {**_LLAMA, "head_dim": 8, "mlp_bias": True}),
    "olmo": ("olmo", {**_LLAMA, "clip_qkv": 3.0, "pad_token_id": 0}),
    "olmo3": ("olmo3", {**_LLAMA, "layer_types": _SLIDING, "sliding_window": 5}),
    "persimmon": ("persimmon", {**_NEOX, "partial_rotary_factor": 2 / 3}),
    "seed_oss": ("seed_oss", {**_LLAMA, "head_dim": 8, "mlp_bias": True}),
    "smollm3": ("smollm3", {**_LLAMA, "no_rope_layer_interval": 2, "pad_token_id": 0}),
    "vaultgemma": ("vaultgemma", {**_LLAMA, **_GEMMA, "final_logit_softcapping": 8.0, "pad_token_id": 0}),
    "xglm": (
        "xglm",
        {
            "d_model": WIDTH,
            "ffn_dim": 40,
            "num_layers": LAYERS,
            "attention_heads": 4,
            "max_position_embeddings": POSITIONS,
        },
    ),
}
"""Name -> (model_type, settings of its config)."""


def tiny_model(name: str, **settings: Any) -> nn.Module:
    """A random model of `MODELS`, in evaluation mode, none of whose biases or norm weights are trivial."""
    model_type, config = MODELS[name]
    return random_model(model_type, **{**config, **settings})


def random_model(model_type: str, **settings: Any) -> nn.Module:
    """A random model of any type that transformers knows."""
    torch.manual_seed(sum(map(ord, model_type)))
    config = CONFIG_MAPPING[model_type](**{**_COMMON, **settings})
    attention = FAMILIES.get(model_type, Family()).attention
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim < 2:
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def subject(model: nn.Module, family: Family | None = None) -> Any:
    """What the engine needs of a Subject."""
    return SimpleNamespace(model=model, anatomy=Anatomy.of(model, family), device=torch.device("cpu"))


def ragged_windows(*lengths: int) -> list[Tensor]:
    """Random token ids, one window a length."""
    generator = torch.Generator().manual_seed(len(lengths))
    return [torch.randint(0, VOCABULARY, (n,), generator=generator) for n in lengths]


def window_nll(model: nn.Module, window: Tensor) -> Tensor:
    """−log p of the next token (T−1,) of one window (T,), by itself and from the model's own forward."""
    logits = model(window[None], use_cache=False).logits[0, :-1]
    return -logits.float().log_softmax(-1).gather(-1, window[1:, None])[:, 0]


Substitute = Callable[[Tensor], Tensor]


def _gpt2_block(block: Any, substitute: Substitute) -> Callable[..., Tensor]:
    def forward(h: Tensor, cache: None, mask: Tensor | None, encoder: None, **kwargs: Any) -> Tensor:
        attention, _ = block.attn(block.ln_1(h), attention_mask=mask)
        r = h + attention
        return r + substitute(block.ln_2(r))

    return forward


def _gpt_neox_block(block: Any, substitute: Substitute) -> Callable[..., Tensor]:
    def forward(h: Tensor, attention_mask: Tensor | None, position_embeddings: Any, **kwargs: Any) -> Tensor:
        attention, _ = block.attention(
            block.input_layernorm(h), attention_mask=attention_mask, position_embeddings=position_embeddings
        )
        r = h + attention
        return r + substitute(block.post_attention_layernorm(h if block.use_parallel_residual else r))

    return forward


def _llama_block(block: Any, substitute: Substitute) -> Callable[..., Tensor]:
    def forward(h: Tensor, attention_mask: Tensor | None, position_embeddings: Any, **kwargs: Any) -> Tensor:
        attention, _ = block.self_attn(
            hidden_states=block.input_layernorm(h),
            attention_mask=attention_mask,
            position_embeddings=position_embeddings,
        )
        r = h + attention
        return r + substitute(block.post_attention_layernorm(r))

    return forward


REWRITTEN: dict[str, Callable[[Any, Substitute], Callable[..., Tensor]]] = {
    "gpt2": _gpt2_block,
    "gpt_neox": _gpt_neox_block,
    "llama": _llama_block,
    "mistral": _llama_block,
    "qwen2": _llama_block,
    "qwen3": _llama_block,
}
"""model_type -> the forward of a block, written out around a substitute for its MLP."""

EDITS: dict[str, tuple[str, str, int]] = {
    "biogpt": (
        """self.fc1(hidden_states)
    hidden_states = self.activation_fn(hidden_states)
    hidden_states = nn.functional.dropout(hidden_states, p=self.activation_dropout, training=self.training)
    hidden_states = self.fc2(hidden_states)
""",
        "substitute(hidden_states)\n",
        1,
    ),
    "bloom": ("self.mlp(layernorm_output, residual)", "residual + substitute(layernorm_output)", 1),
    "lfm2": ("self.feed_forward(", "substitute(", 1),
    "mpt": ("self.ffn(layernorm_output, residual)", "residual + substitute(layernorm_output)", 1),
    "opt": (
        """self.fc1(hidden_states)
    hidden_states = self.activation_fn(hidden_states)

    hidden_states = self.fc2(hidden_states)
""",
        "substitute(hidden_states.view(hidden_states_shape)).view(residual.shape)\n",
        1,
    ),
    "stablelm": ("self.mlp(", "substitute(", 2),  # one for each kind of block
    "xglm": (
        """self.activation_fn(self.fc1(hidden_states))
    hidden_states = nn.functional.dropout(hidden_states, p=self.activation_dropout, training=self.training)
    hidden_states = self.fc2(hidden_states)
""",
        "substitute(hidden_states)\n",
        1,
    ),
}
"""model_type -> what is replaced by what, how often, in the source of a block's forward."""


def _edited_block(block: Any, substitute: Substitute) -> Callable[..., Tensor]:
    """The block's own forward, in whose source text the substitute stands where the MLP was called."""
    forward = type(block).forward
    module = sys.modules[forward.__module__]
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(forward)))
    source = source[source.index("def forward(") :]
    old, new, times = EDITS.get(_model_type(module), ("self.mlp(", "substitute(", 1))
    assert source.count(old) == times, f"{module.__name__}: {source.count(old)} calls of the MLP"
    # A copy: what the substitute returns may be changed in place by the block.
    scope = {**vars(module), "substitute": lambda x: substitute(x).clone()}
    exec("from __future__ import annotations\n" + source.replace(old, new), scope)
    return partial(scope["forward"], block)


def _model_type(module: ModuleType) -> str:
    return module.__name__.split(".")[-2]


@contextmanager
def rewritten(model: Any, layer: int, substitute: Substitute) -> Iterator[nn.Module]:
    """The model with one block replaced by a copy that computes `substitute(x)` where the MLP was."""
    blocks = next(module for module in model.modules() if isinstance(module, nn.ModuleList))
    original = blocks[layer]
    block = copy.deepcopy(original)
    block.forward = REWRITTEN.get(model.config.model_type, _edited_block)(block, substitute)
    blocks[layer] = block
    try:
        yield model
    finally:
        blocks[layer] = original


def effects(model: nn.Module, windows: list[Tensor]) -> dict[int, float]:
    """How far taking out one MLP moves the mean loss, in nats, by layer."""

    def mean_nll() -> float:
        return torch.cat([window_nll(model, window) for window in windows]).mean().item()

    base, by_layer = mean_nll(), {}
    for layer in (0, LAYERS // 2, LAYERS - 1):
        with rewritten(model, layer, torch.zeros_like):
            by_layer[layer] = abs(mean_nll() - base)
    return by_layer


def scale_up(model: nn.Module, windows: list[Tensor], least: float = 0.1) -> dict[int, float]:
    """Scale the matrices of `model` until the least effect is `least` nats; returns the effects."""
    for _ in range(30):
        found = effects(model, windows)
        if min(found.values()) >= least:
            return found
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter *= 1.2
    raise AssertionError(f"no scale makes every MLP matter: {found}")
