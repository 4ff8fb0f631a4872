"""The parts of a loaded model, by the roles that the paper speaks of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from harness.errors import ModelError
from harness.models.families import Family, family_of


@dataclass(frozen=True)
class Anatomy:
    """Where a causal language model keeps its blocks, MLPs, norms, embeddings and head.

    A block computes `h_out = r + branch(mlp(x))`. Its MLP's input is `x = norm(h_in + attention)` and
    `r = h_in + attention` where attention and MLP are sequential, `x = norm(h_in)` where they are parallel.
    """

    model: nn.Module
    """The causal language model."""
    family: Family
    """The names that were resolved on it."""
    blocks: tuple[nn.Module, ...]
    """The blocks, layer 0 first."""
    parallel: bool
    """Whether attention and MLP read the same residual stream."""
    width: int
    """d, the width of the residual stream."""
    embedding: nn.Module
    """Token ids (B, T) -> (B, T, d)."""
    position: nn.Module | None
    """The position embedding that is added to the residual stream, if there is one."""
    final_norm: nn.Module
    """Between the last block and the head."""
    head: nn.Module
    """Normed residual stream (*, d) -> logits (*, vocabulary), but for what `outlet` does."""
    outlet: Callable[[Tensor], Tensor]
    """What the model makes of the head's output: most nothing, some scale or cap it."""
    norm_name: str | None
    """Name inside a block of the norm whose output is the MLP's input; None where the stream goes in as it is."""

    @classmethod
    def of(cls, model: nn.Module, family: Family | None = None) -> Anatomy:
        """Resolve `family` (by default that of the model's config) on `model`.

        Raises ModelError where the family is unknown or the model lacks one of the parts.
        """
        config: dict[str, Any] = model.config.to_dict()  # type: ignore[operator, union-attr]
        family = family_of(config) if family is None else family
        norm_name = family.norm_name(config)

        def part(path: str) -> nn.Module:
            try:
                return model.get_submodule(path)
            except AttributeError:
                kind = config["model_type"]
                raise ModelError(
                    f"{type(model).__name__}: no part named {path!r}, which every causal {kind} has; "
                    "load it as AutoModelForCausalLM"
                ) from None

        blocks = tuple(part(family.blocks).children())
        if not blocks:
            raise ModelError(f"{type(model).__name__}: {family.blocks!r} is empty; there is no MLP to replace")
        for layer in range(len(blocks)):
            for name in (*family.steps, norm_name):
                if name is not None:
                    part(f"{family.blocks}.{layer}.{name}")
        return cls(
            model=model,
            family=family,
            blocks=blocks,
            parallel=family.parallel(config),
            width=family.width(config),
            embedding=part(family.embedding),
            position=None if family.position is None else part(family.position),
            final_norm=part(family.final_norm),
            head=part(family.head),
            outlet=_identity if family.logits is None else family.logits(config),
            norm_name=norm_name,
        )

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def positions(self) -> int | None:
        """How many positions the model has an embedding for; None where positions are not embedded in a table."""
        if not isinstance(self.position, nn.Embedding):
            return None
        return self.position.num_embeddings - getattr(self.position, "offset", 0)  # OPT's table starts two rows late

    def entry(self, layer: int) -> nn.Module:
        """The module whose input is the MLP's input x."""
        return self.blocks[layer].get_submodule(self.family.steps[0])

    def exit(self, layer: int) -> nn.Module:
        """The module whose output is the MLP's output y."""
        return self.blocks[layer].get_submodule(self.family.steps[-1])

    def mlp(self, layer: int) -> nn.Module:
        """The MLP of a layer, (*, d) -> (*, d)."""
        steps = [self.blocks[layer].get_submodule(name) for name in self.family.steps]
        return steps[0] if len(steps) == 1 else nn.Sequential(*steps)

    def norm(self, layer: int) -> nn.Module | None:
        """The norm whose output is the MLP's input; None where nothing stands between."""
        return None if self.norm_name is None else self.blocks[layer].get_submodule(self.norm_name)

    def branch(self, layer: int) -> Callable[[Tensor], Tensor]:
        """What an MLP output becomes before it joins the residual stream, (*, d) -> (*, d)."""
        return _identity if self.family.branch is None else self.family.branch(self.blocks[layer])

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits in float32 (*, vocabulary) of the last block's output (*, d)."""
        return self.outlet(self.head(self.final_norm(hidden))).float()

    def folded(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """The MLP without its activation, float64: W = W_proj W_fc (d, d) and b = W_proj b_fc + b_proj (d,).

        None where the MLP is gated: the product of two linear maps of the input has no linear part to keep.
        """
        if self.family.fold is None:
            return None
        block = self.blocks[layer]
        (W_fc, b_fc), (W_proj, b_proj) = (_affine(block.get_submodule(name)) for name in self.family.fold)
        return W_proj @ W_fc, W_proj @ b_fc + b_proj


def _identity(y: Tensor) -> Tensor:
    return y


def _affine(module: nn.Module) -> tuple[Tensor, Tensor]:
    """(W (out, in), b (out,)) of a linear layer, float64."""
    with align_module_device(module):  # weights that are kept in memory or on disk until used have no numbers before
        weight: Tensor = module.weight.detach()  # type: ignore[operator]
        W = weight.double().T if isinstance(module, Conv1D) else weight.double()  # Conv1D stores (in, out)
        bias = module.bias
        return W, bias.detach().double() if isinstance(bias, Tensor) else torch.zeros_like(W[:, 0])
