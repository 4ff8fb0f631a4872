"""Proof, on a loaded model, that the engine's rule holds in it: what a family's names promise, checked by number.

The engine computes a block's output under a substituted MLP as `h + branch(y') − branch(y)` and runs the blocks after
it by themselves. One pass over a short line shows whether it may: every layer has a row of the batch in which its MLP's
output is replaced inside the model, and row 0 is left alone. By induction over the blocks, what holds of each holds of
the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from harness.errors import ModelError
from harness.models.anatomy import Anatomy

_HELP = "see 'Add a model family' in CONTRIBUTING.md"


@torch.no_grad()
def prove(anatomy: Anatomy, name: str, device: torch.device) -> None:
    """Run L + 1 rows of four tokens, put on `device`, and hold every block against the engine's rule.

    Takes one forward pass and the memory of a few blocks' outputs.
    Raises ModelError, naming the layer, where the rule does not hold. A model whose numbers are not finite passes: the
    measurement will say so.
    """
    rows = anatomy.layers + 1
    T = 4 if rows != 4 else 5  # a tensor of T entries must not look like one of an entry a row
    generator = torch.Generator().manual_seed(0)
    vocabulary: int = anatomy.model.config.vocab_size  # type: ignore[union-attr, assignment]
    line = torch.randint(0, vocabulary, (1, T), generator=generator).to(device)
    watch = _Watch(anatomy, name, rows, T)
    with ExitStack() as hooks:
        for layer in range(anatomy.layers):
            for hook in watch.hooks(layer):
                hooks.enter_context(hook)
        out = anatomy.model(line.expand(rows, T), use_cache=False)
    watch.finish(out.logits)


class _Watch:
    """What one pass shows, block by block; only the block that is running is kept."""

    def __init__(self, anatomy: Anatomy, name: str, rows: int, T: int) -> None:
        self.anatomy, self.name, self.rows, self.T = anatomy, name, rows, T
        self.next = 0
        self.paused = False
        self.normed_input = 0
        """How many blocks norm their own input for their MLP."""
        self.h: Tensor | None = None
        self.seen: dict[str, list[Tensor]] = {}

    def hooks(self, layer: int) -> Iterator[Any]:
        it = self.anatomy
        norm = it.norm(layer)
        yield it.blocks[layer].register_forward_pre_hook(self._starts(layer), with_kwargs=True)
        if norm is not None:
            yield norm.register_forward_hook(self._normed)
        yield it.entry(layer).register_forward_pre_hook(self._enters(layer), with_kwargs=True)
        yield it.exit(layer).register_forward_hook(self._leaves(layer))
        yield it.blocks[layer].register_forward_hook(self._ends(layer))

    def _refuse(self, layer: int, what: str) -> ModelError:
        kind = self.anatomy.model.config.model_type  # type: ignore[union-attr]
        return ModelError(f"{self.name}: layer {layer} of this {kind} {what}, so it cannot be measured; {_HELP}")

    def _starts(self, layer: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if layer != self.next:
                raise self._refuse(layer, f"runs where layer {self.next} should")
            if not args or not isinstance(args[0], Tensor) or args[0].shape != (self.rows, self.T, self.anatomy.width):
                raise self._refuse(layer, "is not handed the residual stream as its first argument")
            if self.h is not None and not _same(args[0].to(self.h), self.h):
                raise self._refuse(layer, "is handed something other than the output of the layer before")
            self._arguments(layer, "", (args[1:], kwargs))
            self.seen = {"in": [args[0]], "x": [], "y": [], "new": [], "norm in": [], "norm out": []}

        return hook

    def _arguments(self, layer: int, key: str, value: Any) -> None:
        """Every tensor beside the stream is the same for all rows, or has an entry for each that is the same."""
        if isinstance(value, dict):
            for name, item in value.items():
                self._arguments(layer, name, item)
        elif isinstance(value, tuple | list):
            for item in value:
                self._arguments(layer, key, item)
        elif isinstance(value, Tensor) and value.ndim >= 2 and value.shape[0] != 1:
            if key in self.anatomy.family.shared:
                return
            stacked = key in self.anatomy.family.stacked and value.shape[0] % self.rows == 0
            if value.shape[0] != self.rows and not stacked:
                raise self._refuse(layer, f"takes {key or 'an argument'!r} of shape {tuple(value.shape)}")
            by_row = value.unflatten(0, (self.rows, -1))
            if not _same(by_row, by_row[:1].expand_as(by_row)):
                raise self._refuse(layer, f"takes {key or 'an argument'!r} that depends on earlier layers")

    def _normed(self, _: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        self.seen["norm in"].append(args[0])
        self.seen["norm out"].append(out)

    def _enters(self, layer: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.paused:
                return
            if len(args) != 1 or kwargs or not isinstance(args[0], Tensor):
                raise self._refuse(layer, "does not call its MLP with one tensor and nothing else")
            self.seen["x"].append(args[0])

        return hook

    def _leaves(self, layer: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], y: Any) -> Any:
            if self.paused:
                return y
            if not isinstance(y, Tensor) or y.numel() != self.seen["in"][0].numel():
                shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise self._refuse(layer, f"has an MLP that returns {shape} for {tuple(self.seen['in'][0].shape)}")
            new = y.clone()
            by_row = new.view(self.rows, self.T, -1)
            by_row[layer + 1] = by_row[layer + 1].roll(1, -1)
            self.seen["y"].append(y.clone().view_as(by_row))
            self.seen["new"].append(by_row.clone())  # the block may add to what it gets in place
            return new

        return hook

    def _ends(self, layer: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            self.h = out[0] if isinstance(out, tuple) else out
            self._mlp(layer)
            self._rule(layer, self.h)
            self.next += 1

        return hook

    def _mlp(self, layer: int) -> None:
        x, y = self.seen["x"], self.seen["y"]
        if len(x) != 1 or len(y) != 1:
            raise self._refuse(layer, f"runs its MLP {len(x)} times")
        if self.anatomy.norm_name is not None:
            if not any(_same(x[0], out) for out in self.seen["norm out"]):
                raise self._refuse(layer, f"does not feed the output of {self.anatomy.norm_name!r} to its MLP")
            normed = self.seen["norm in"][0].view_as(y[0])
            self.normed_input += _same(normed, self.seen["in"][0].to(normed.device))
        self.paused = True
        again = self.anatomy.mlp(layer)(x[0].view_as(y[0])[:1])[0].float()
        self.paused = False
        y0 = y[0][0].float()
        tolerance = (0.01 + 8 * torch.finfo(y[0].dtype).eps) * y0.abs().amax(-1)
        if torch.isfinite(y0).all() and ((again - y0).abs().amax(-1) > tolerance).any():
            raise self._refuse(layer, f"has an MLP that is not {' then '.join(self.anatomy.family.steps)}")

    def _rule(self, layer: int, h: Tensor) -> None:
        """h' = h + branch(y') − branch(y), up to 1 % of the change and a few roundings."""
        row, branch = layer + 1, self.anatomy.branch(layer)
        y, new = branch(self.seen["y"][0])[row].float(), branch(self.seen["new"][0])[row].float()
        h, changed = h[0].float(), h[row].float()
        if not all(torch.isfinite(part).all() for part in (y, new, h)):
            return
        error = (changed - (h + new - y)).abs().amax(-1)
        scale = torch.stack([h, changed, y, new]).abs().amax((0, -1))
        rounding = 8 * torch.finfo(self.seen["y"][0].dtype).eps * scale
        if (error > 0.01 * (new - y).abs().amax(-1) + rounding).any():
            raise self._refuse(layer, "does not add its MLP's output to the residual stream as its family would")

    def finish(self, logits: Tensor) -> None:
        if self.next != self.anatomy.layers or self.h is None:
            raise self._refuse(self.next, "does not run")
        if self.anatomy.norm_name is not None and self.anatomy.parallel != (self.normed_input == self.next):
            said = "parallel" if self.anatomy.parallel else "sequential"
            raise self._refuse(0, f"has attention and MLP that are not {said}, as its config says")
        ours, theirs = self.anatomy.logits(self.h[:1]), logits[:1].float().to(self.h.device)
        rounding = 64 * torch.finfo(self.h.dtype).eps * theirs.abs().max()
        if torch.isfinite(theirs).all() and (ours.to(theirs) - theirs).abs().max() > rounding:
            raise ModelError(
                f"{self.name}: its logits are not those of {self.anatomy.family.head!r} after "
                f"{self.anatomy.family.final_norm!r}, so it cannot be measured; {_HELP}"
            )


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal to the last bit, nan like nan."""
    return torch.equal(a, b) or bool(torch.isclose(a, b, rtol=0, atol=0, equal_nan=True).all())
