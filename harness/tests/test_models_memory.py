"""Whether a model fits, asked before a weight is read; what is free, also inside a control group."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gguf
import pytest
import torch
import transformers

from harness.errors import ModelError
from harness.models import memory
from harness.models.fingerprint import model_info
from harness.models.loading import load
from harness.models.memory import GIB, WORKING_BYTES, free_bytes, require_room
from harness.models.sources import resolve_model
from harness.tests.models_on_disk import into_pickle, save_tiny
from harness.tests.test_models_gguf import write_tiny

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


def room(monkeypatch: pytest.MonkeyPatch, cpu: int, cuda: int = 0) -> None:
    """Pretend that so many bytes are free."""
    monkeypatch.setattr(memory, "free_bytes", lambda device: cuda if device.type == "cuda" else cpu)


@pytest.mark.parametrize("kind", ["untied", "tied", "pickle", "gguf"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read(
    kind: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny"
    if kind == "gguf":
        path = tmp_path / "tiny.gguf"
        write_tiny(path, kind=gguf.GGMLQuantizationType.Q8_0)
    else:
        save_tiny(path, "gpt2" if kind == "tied" else "llama")
    if kind == "pickle":
        into_pickle(path)
    source = resolve_model(str(path), allow_pickle=True)
    info = model_info(source, tmp_path / "cache")
    weights = load(source, info, dtype=dtype, allow_pickle=True).model.parameters()
    takes = sum(weight.numel() * weight.itemsize for weight in weights)  # the known answer: tied ones count once
    if (kind, dtype) == ("gguf", "bfloat16"):
        takes *= 2  # for it is dequantized in float32
    room(monkeypatch, takes + WORKING_BYTES)
    load(source, info, dtype=dtype, allow_pickle=True)
    room(monkeypatch, takes + WORKING_BYTES - 1)
    monkeypatch.delattr(transformers.AutoModelForCausalLM, "from_pretrained")
    with pytest.raises(ModelError, match=rf"^tiny needs 0\.5 GiB in {dtype} on cpu, of which 0\.5 GiB are free; add "):
        load(source, info, dtype=dtype, allow_pickle=True)


def refusal(dtype: torch.dtype, device: torch.device, kind: str = "directory") -> str:
    info = SimpleNamespace(name="large", kind=kind)
    with pytest.raises(ModelError) as caught:
        require_room(info, 7 * GIB, dtype, device)  # type: ignore[arg-type]
    return str(caught.value)


def test_the_message_says_both_sizes_and_what_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, cpu=16 * GIB, cuda=15 * GIB)
    assert refusal(torch.float32, CUDA) == (
        "large needs 28.5 GiB in float32 on cuda:0, of which 15.0 GiB are free; "
        "add --dtype bfloat16 or --device-map auto, or take a larger device"
    )
    require_room(SimpleNamespace(name="large", kind="directory"), 7 * GIB, torch.bfloat16, CUDA)  # type: ignore[arg-type]
    room(monkeypatch, cpu=64 * GIB, cuda=10 * GIB)
    assert "add --device-map auto or --device cpu, or" in refusal(torch.float32, CUDA)
    room(monkeypatch, cpu=16 * GIB)
    assert "add --dtype bfloat16 or --device-map auto, or" in refusal(torch.float32, CPU)
    assert "--dtype" not in refusal(torch.bfloat16, CPU, "gguf")
    assert "--dtype" not in refusal(torch.float32, CPU, "gguf")


def test_a_device_that_does_not_say_is_trusted() -> None:
    assert free_bytes(torch.device("meta")) is None
    require_room(SimpleNamespace(name="large", kind="hub"), 2**50, torch.float64, torch.device("meta"))  # type: ignore[arg-type]


def test_what_is_free_is_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    free = free_bytes(CPU)
    assert free is not None
    assert 0 < free <= psutil.virtual_memory().total
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (10 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 3 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: GIB)
    assert free_bytes(CUDA) == 12 * GIB  # what torch keeps for itself and does not use is free


def group(folder: Path, version: int, limit: int | str, used: int, cache: int) -> None:
    """The files of a memory control group."""
    folder.mkdir(parents=True, exist_ok=True)
    limit_file, used_file = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        2: ("memory.max", "memory.current"),
    }[version]
    (folder / limit_file).write_text(f"{limit}\n")
    (folder / used_file).write_text(f"{used}\n")
    stat = "total_inactive_file" if version == 1 else "inactive_file"
    (folder / "memory.stat").write_text(f"anon 1\n{stat} {cache}\n")


@pytest.mark.parametrize("version", [1, 2])
def test_every_control_group_above_the_process_bounds_it(version: int, tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    root = mount / "memory" if version == 1 else mount
    group(root, version, 2**63 - 4096 if version == 1 else "max", 900, 0)
    group(root / "service", version, 1000, 700, 100)
    group(root / "service" / "job", version, 800, 500, 0)
    (tmp_path / "groups").write_text(
        "9:name=systemd:/\n4:memory:/service/job\n" if version == 1 else "0::/service/job\n"
    )
    assert sorted(memory._left_in_groups(tmp_path / "groups", mount)) == [300, 400]


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_sees_its_own_group_as_the_root(version: int, tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    group(mount / "memory" if version == 1 else mount, version, 1000, 400, 0)
    path = "/docker/0123"
    (tmp_path / "groups").write_text(f"4:cpu,memory:{path}\n" if version == 1 else f"0::{path}\n")
    assert list(memory._left_in_groups(tmp_path / "groups", mount)) == [600]


def test_without_control_groups_nothing_bounds(tmp_path: Path) -> None:
    assert list(memory._left_in_groups(tmp_path / "none", tmp_path)) == []


def test_the_bound_of_a_control_group_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group(tmp_path / "cgroup", 2, 5000, 1000, 0)
    (tmp_path / "groups").write_text("0::/\n")
    monkeypatch.setattr(memory, "_MOUNT", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    assert free_bytes(CPU) == 4000
