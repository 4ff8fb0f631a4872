"""The engine: one base pass, then every variant of a layer from that layer's residual on.

In a residual model the next block's input under a substituted MLP is exactly

    h + branch(substitute(x)) − branch(mlp(x))

with h the block's own output. This holds for sequential and parallel blocks alike, since in both the MLP's
output is the last thing to join and nothing else in the block depends on it. So nothing before the next
block is run again, only the blocks after it, the final norm and the head, with the variants of a layer side
by side on the batch axis.

A model that is spread over several devices, or partly kept on disk, brings hooks that put what a block or a norm is
called with where its weights are; here only indices and labels have to follow.

Shapes: B windows of T tokens, V variants, d the width. Windows are padded on the right: attention is causal,
so padding changes nothing before it and no attention mask is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.errors import MeasurementError

if TYPE_CHECKING:
    from harness.models.anatomy import Anatomy
    from harness.models.loading import Subject

MEMORY_TOKENS = 4096
"""How many positions ride through the blocks at once, unless the caller says otherwise."""

LOGITS = 2**24
"""How many logits are held at once: 64 MiB in float32."""


@dataclass(frozen=True)
class Layer:
    """What the base pass saw at one layer."""

    x: Tensor
    """The MLP's input (B, T, d)."""
    y: Tensor
    """The MLP's output (B, T, d)."""
    h: Tensor
    """The block's output (B, T, d)."""


@dataclass(frozen=True)
class BasePass:
    """One pass of the unchanged model over B windows."""

    ids: Tensor
    """Token ids (B, T)."""
    target: Tensor
    """Whether a position has a next token inside its window (B, T−1)."""
    nll: Tensor
    """−log p of the next token (B, T−1), nats, float32; nan where there is none."""
    layers: dict[int, Layer]
    """By layer, those that were asked for."""
    calls: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]
    """What each block was called with, beside the residual stream: positional and keyword arguments."""


def batches(windows: Sequence[np.ndarray], tokens: int) -> Iterator[tuple[np.ndarray, Tensor, Tensor]]:
    """Group windows of like length into padded batches of at most `tokens` positions (one window at least).

    Yields (index of each window (B,), ids (B, T), lengths (B,)), longest windows first; 0 pads.
    """
    order = np.argsort([-len(window) for window in windows], kind="stable")
    start = 0
    while start < len(order):
        T = len(windows[order[start]])
        index = order[start : start + max(1, tokens // T)]
        ids = torch.zeros(len(index), T, dtype=torch.long)
        for row, i in enumerate(index):
            ids[row, : len(windows[i])] = torch.from_numpy(np.asarray(windows[i], dtype=np.int64))
        yield index, ids, torch.tensor([len(windows[i]) for i in index])
        start += len(index)


@torch.no_grad()
def stream_mlps(
    subject: Subject,
    ids: Tensor,
    visit: Callable[[int, Tensor, Tensor], None],
    layers: Sequence[int] | None = None,
) -> None:
    """Run the model on ids (B, T) and call `visit(layer, x, y)` as each MLP runs, keeping nothing: for fits.

    x and y are (B, T, d), padding included, and only good until `visit` returns.
    Raises MeasurementError where the windows are longer than the model has positions.
    """
    anatomy = subject.anatomy
    with ExitStack() as hooks:
        for layer in range(anatomy.layers) if layers is None else layers:
            hooks.enter_context(_watch_mlp(anatomy, layer, ids.shape, visit))
        _run_blocks(subject, ids)


@torch.no_grad()
def base_pass(subject: Subject, ids: Tensor, lengths: Tensor, layers: Sequence[int] | None = None) -> BasePass:
    """Run the unchanged model on ids (B, T), windows of `lengths` (B,) padded on the right.

    Keeps what `variant_nll` needs for `layers` (default: all), 3·B·T·d floats each.
    Raises MeasurementError where a loss is not finite or the windows are longer than the model has positions.
    """
    anatomy = subject.anatomy
    ids, lengths = ids.to(subject.device), lengths.to(subject.device)
    wanted = set(range(anatomy.layers) if layers is None else layers)
    x: dict[int, Tensor] = {}
    y: dict[int, Tensor] = {}
    h: dict[int, Tensor] = {}
    calls: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def keep(layer: int, x_: Tensor, y_: Tensor) -> None:
        # Copies: a block may add to its MLP's output in place (Falcon's parallel block does).
        x[layer], y[layer] = x_.clone(), y_.clone()

    with ExitStack() as hooks:
        for layer, block in enumerate(anatomy.blocks):

            def call(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], layer: int = layer) -> None:
                calls[layer] = args[1:], kwargs

            def output(_: nn.Module, args: tuple[Any, ...], out: Any, layer: int = layer) -> None:
                h[layer] = _residual(out).clone()

            hooks.enter_context(block.register_forward_pre_hook(call, with_kwargs=True))
            if layer in wanted:
                hooks.enter_context(_watch_mlp(anatomy, layer, ids.shape, keep))
            if layer in wanted or layer == anatomy.layers - 1:
                hooks.enter_context(block.register_forward_hook(output))
        _run_blocks(subject, ids)

    target = torch.arange(1, ids.shape[1], device=ids.device) < lengths[:, None]
    nll = _nll(subject, h[anatomy.layers - 1], ids, target)
    if not torch.isfinite(nll[target]).all():
        raise MeasurementError("the unchanged model's loss is not finite; try --dtype float32")
    kept = {layer: Layer(x[layer], y[layer], h[layer]) for layer in sorted(wanted)}
    return BasePass(ids, target, nll, kept, tuple(calls[layer] for layer in range(anatomy.layers)))


@torch.no_grad()
def variant_nll(
    subject: Subject,
    base: BasePass,
    layer: int,
    outputs: Tensor,
    *,
    names: Sequence[str] | None = None,
    memory_tokens: int = MEMORY_TOKENS,
) -> Tensor:
    """−log p of the next token (V, B, T−1), nats, float32, with the MLP outputs of `layer` replaced.

    `outputs` (V, B, T, d) are what each variant puts in their place, before `branch`. The result is nan
    where a position has no next token. `names` (V,) are for the error message; `memory_tokens` bounds the
    positions run through the blocks at once (at least one window is).
    Raises MeasurementError, naming layer and variant, where a loss is not finite.
    """
    anatomy, family, seen = subject.anatomy, subject.anatomy.family, base.layers[layer]
    V, B, T, d = outputs.shape
    branch = anatomy.branch(layer)
    y = branch(seen.y)
    nll = torch.empty(V * B, T - 1, dtype=torch.float32, device=base.ids.device)
    for rows in torch.arange(V * B, device=seen.h.device).split(max(1, memory_tokens // T)):
        window = rows % B
        out = branch(outputs.reshape(V * B, T, d)[rows].to(seen.h))
        # In this order a variant that gives the MLP's own output leaves h as it was, to the last bit.
        hidden = seen.h[window] + (out - y[window])
        for block, (args, kwargs) in zip(anatomy.blocks[layer + 1 :], base.calls[layer + 1 :], strict=True):
            args, kwargs = _for_rows((args, kwargs), window, B, family.stacked, family.shared)
            hidden = _residual(block(hidden, *args, **kwargs))
        rows, window = rows.to(nll.device), window.to(nll.device)
        nll[rows] = _nll(subject, hidden, base.ids[window], base.target[window])
    nll = nll.view(V, B, T - 1)
    for v in range(V):
        if not torch.isfinite(nll[v][base.target]).all():
            name = f"variant {v}" if names is None else f"variant {names[v]!r}"
            raise MeasurementError(f"layer {layer}, {name}: the loss is not finite; try --dtype float32")
    return nll


@contextmanager
def _watch_mlp(
    anatomy: Anatomy, layer: int, shape: torch.Size, visit: Callable[[int, Tensor, Tensor], None]
) -> Iterator[None]:
    """Call `visit(layer, x, y)`, both (B, T, d), whenever the MLP of a layer runs on windows of `shape` (B, T)."""
    x: Tensor

    def enters(_: nn.Module, args: tuple[Any, ...]) -> None:
        nonlocal x
        x = args[0].view(*shape, -1)  # OPT's blocks flatten windows and positions

    def leaves(_: nn.Module, args: tuple[Any, ...], y: Tensor) -> None:
        visit(layer, x, y.view(*shape, -1))

    with (
        anatomy.entry(layer).register_forward_pre_hook(enters),
        anatomy.exit(layer).register_forward_hook(leaves),
    ):
        yield


def _run_blocks(subject: Subject, ids: Tensor) -> None:
    """Embedding, blocks and final norm, without the head."""
    positions = subject.anatomy.positions
    if positions is not None and ids.shape[1] > positions:
        raise MeasurementError(
            f"windows of {ids.shape[1]} tokens, but the model has {positions} positions; use a shorter context"
        )
    subject.model.base_model(ids.to(subject.device), use_cache=False)


def _residual(out: Any) -> Tensor:
    """The residual stream out of what a block returns: itself, or the first of a tuple."""
    return out[0] if isinstance(out, tuple) else out


def _for_rows(value: Any, window: Tensor, B: int, stacked: Collection[str] = (), shared: Collection[str] = ()) -> Any:
    """The arguments of a call on B windows, made to fit a call on `window` (R,) of them.

    Most are shared by all windows (position embeddings, a causal mask), those under a keyword of `shared` whatever
    their shape; a tensor with an entry for each is indexed, and one with several, (B · n, ...), under a keyword of
    `stacked`.
    """
    if isinstance(value, Tensor):
        if value.ndim < 2 or value.shape[0] != B:
            return value
        # Of one window no copies are needed, but some blocks want a mask to have as many entries as there are rows.
        return value.expand(len(window), *value.shape[1:]) if B == 1 else value[window.to(value.device)]
    if isinstance(value, tuple | list):
        return type(value)(_for_rows(item, window, B, stacked, shared) for item in value)
    if isinstance(value, dict):
        made = {}
        for key, item in value.items():
            if key in stacked and isinstance(item, Tensor):
                made[key] = item.unflatten(0, (B, -1))[window.to(item.device)].flatten(0, 1)
            else:
                made[key] = item if key in shared else _for_rows(item, window, B, stacked, shared)
        return made
    return value


def _nll(subject: Subject, hidden: Tensor, ids: Tensor, target: Tensor) -> Tensor:
    """−log p of the next token (R, T−1) from the last block's output (R, T, d)."""
    nll = torch.full(target.shape, torch.nan, dtype=torch.float32, device=ids.device)
    wanted, labels = hidden[:, :-1][target.to(hidden.device)], ids[:, 1:][target]  # (P, d), (P,)
    chunk = max(1, LOGITS // subject.model.config.vocab_size)
    losses = []
    for part, label in zip(wanted.split(chunk), labels.split(chunk), strict=True):
        logits = subject.anatomy.logits(part)
        losses.append(nn.functional.cross_entropy(logits, label.to(logits.device), reduction="none"))
    nll[target] = torch.cat(losses).to(nll.device)
    return nll
