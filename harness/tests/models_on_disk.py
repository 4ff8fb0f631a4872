"""Tiny random models saved the way real ones are: config.json, safetensors, a tokenizer of bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 3, "n_embd": 16, "n_head": 2, "n_positions": 64},
    "gpt_neox": {
        "num_hidden_layers": 3,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    },
    "llama": {
        "num_hidden_layers": 3,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 24,
    },
}


def save_tiny(
    folder: Path, family: str = "gpt2", *, dtype: torch.dtype = torch.float32, **config: Any
) -> PreTrainedModel:
    """Save a random model (3 layers, d = 16, 257 tokens) with its tokenizer into `folder`, and return it."""
    torch.manual_seed(0)
    settings = {"vocab_size": 257, **SHAPES[family], **config}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **settings)).to(dtype)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return model


def byte_vocabulary() -> list[str]:
    """256 bytes in GPT-2's spelling and an end-of-text token."""
    return [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>"]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE without a single merge; adds nothing of its own to a text."""
    table = {token: number for number, token in enumerate(byte_vocabulary())}
    tokenizer = Tokenizer(models.BPE(vocab=table, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def edit_config(folder: Path, **changes: Any) -> None:
    """Rewrite keys of config.json; None deletes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | changes
    kept = {key: value for key, value in config.items() if key not in changes or value is not None}
    file.write_text(json.dumps(kept), encoding="utf-8")


def edit_weights(folder: Path, *, drop: str | None = None, add: dict[str, torch.Tensor] | None = None) -> None:
    """Rewrite model.safetensors without one tensor, or with others added or replaced."""
    file = folder / "model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(file).items() if name != drop}
    save_file(tensors | (add or {}), file, metadata={"format": "pt"})


def into_pickle(folder: Path) -> None:
    """Turn the folder's safetensors into what an old checkpoint has: pytorch_model.bin and nothing else."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
