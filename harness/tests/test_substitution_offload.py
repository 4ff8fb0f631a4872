"""The engine on models whose weights lie in memory or on disk until a module runs: the same numbers to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from torch import Tensor, nn

from harness.models.anatomy import Anatomy
from harness.models.proof import prove
from harness.substitution import base_pass, stream_mlps, variant_nll
from harness.tests.tiny_models import LAYERS, ragged_windows, subject, tiny_model

CPU = torch.device("cpu")
NAMES = ("gpt2", "gpt_neox parallel", "bloom", "falcon 40b", "gemma2", "granite", "olmo2", "opt")


def half_on_disk(model: nn.Module, folder: Path) -> nn.Module:
    """Every other block and the head on disk, the rest in memory."""
    it = Anatomy.of(model)
    places = {name: "cpu" for name, module in model.named_modules() if not [*module.children()]}
    blocks = it.family.blocks
    places = {name: place for name, place in places.items() if not name.startswith(f"{blocks}.")}
    places |= {f"{blocks}.{layer}": "disk" if layer % 2 else "cpu" for layer in range(LAYERS)}
    return dispatch_model(model, places | {it.family.head: "disk"}, main_device="cpu", offload_dir=folder)


WAYS: dict[str, Callable[[nn.Module, Path], nn.Module]] = {
    "memory": lambda model, folder: cpu_offload(model, execution_device=CPU),
    "disk": lambda model, folder: disk_offload(model, folder, execution_device=CPU),
    "half on disk": half_on_disk,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_an_offloaded_model_gives_the_same_numbers(name: str, way: str, tmp_path: Path) -> None:
    model = tiny_model(name, tie_word_embeddings=False)
    offloaded = WAYS[way](copy.deepcopy(model), tmp_path)
    assert any(parameter.is_meta for parameter in offloaded.parameters())
    here, there = subject(model), subject(offloaded)
    ids, lengths = nn.utils.rnn.pad_sequence(ragged_windows(12, 7), batch_first=True), torch.tensor([12, 7])

    prove(there.anatomy, name, CPU)
    bases = [base_pass(it, ids, lengths) for it in (here, there)]
    torch.testing.assert_close(bases[1].nll, bases[0].nll, rtol=0, atol=0, equal_nan=True)
    for layer in (0, 1, LAYERS - 1):
        x, y = bases[0].layers[layer].x, bases[0].layers[layer].y
        outputs = torch.stack([torch.zeros_like(y), y.flip(-1), x])
        nll = [variant_nll(it, base, layer, outputs) for it, base in zip((here, there), bases, strict=True)]
        torch.testing.assert_close(nll[1], nll[0], rtol=0, atol=0, equal_nan=True)
        folds = [it.anatomy.folded(layer) for it in (here, there)]
        assert (folds[0] is None) == (folds[1] is None)
        for mine, other in zip(folds[0] or (), folds[1] or (), strict=True):
            assert torch.equal(mine, other)

    seen: list[list[Tensor]] = [[], []]
    for it, rows in zip((here, there), seen, strict=True):
        stream_mlps(it, ids, lambda layer, x, y, rows=rows: rows.extend([x.clone(), y.clone()]))
    assert len(seen[0]) == 2 * LAYERS
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    assert any(parameter.is_meta for parameter in offloaded.parameters())  # nothing was left where it was used
