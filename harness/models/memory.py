"""Whether a model fits where it is to be loaded, asked before a weight is read.

What it needs follows from its config: the model is built on the meta device, where a tensor has a shape and takes no
memory, so weights that are tied count once. What is free is what the device says, and on the CPU no more than the
process's control group allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from harness.errors import ModelError
from harness.models.fingerprint import ModelInfo

GIB = 2**30
WORKING_BYTES = GIB // 2
"""What is asked for on top of the weights: activations, logits and the loader's own buffers."""
_UNLIMITED = 2**60  # a control group (version 1) without a limit has one of nearly 2**63
_MOUNT, _GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def require_room(info: ModelInfo, parameters: int, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a model that is too large for `device`.

    Raises:
        ModelError: its weights in `dtype` and `WORKING_BYTES` are more than is free; the message says both sizes.
    """
    needs = parameters * dtype.itemsize + WORKING_BYTES
    if info.kind == "gguf" and device.type == "cpu":
        needs = parameters * max(4, dtype.itemsize) + WORKING_BYTES  # dequantized whole, in float32
    free = free_bytes(device)
    if free is None or needs <= free:
        return
    name = str(dtype).removeprefix("torch.")
    ways = ["--device-map auto"]
    half = parameters * 2 + WORKING_BYTES
    if dtype.itemsize > 2 and half <= free and not (info.kind == "gguf" and device.type == "cpu"):
        ways.insert(0, "--dtype bfloat16")
    if device.type != "cpu" and (free_bytes(torch.device("cpu")) or 0) >= needs:
        ways.append("--device cpu")
    raise ModelError(
        f"{info.name} needs {_gib(needs)} GiB in {name} on {device}, of which {_gib(free)} GiB are free; "
        f"add {' or '.join(ways)}, or take a larger device"
    )


def room_by_device() -> dict[int | str, int]:
    """Bytes that weights may take on each device and in the host's memory, as accelerate's `max_memory` wants them.

    accelerate asks the host for its memory; that a control group allows less, it does not see.
    """
    from accelerate.utils import get_max_memory

    room: dict[int | str, int] = get_max_memory()
    host = free_bytes(torch.device("cpu")) or 0
    return {**room, "cpu": max(0, min(room["cpu"], host - WORKING_BYTES))}


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can still be allocated on `device`; None where it does not say."""
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        unused = torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
        return torch.cuda.mem_get_info(index)[0] + unused
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    if device.type == "cpu":
        return min([int(psutil.virtual_memory().available), *_left_in_groups(_GROUPS, _MOUNT)])
    return None


def _left_in_groups(groups: Path, mount: Path) -> Iterator[int]:
    """Bytes left below the limit of each memory control group that this process is in, versions 1 and 2.

    A container often sees only its own group, mounted as the root, so the root counts wherever the path leads.
    """
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = mount, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        inner = root / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if not folder.is_relative_to(root):
                break
            limit, used, cache = (_read(folder, name) for name in names)
            if limit is not None and used is not None and limit < _UNLIMITED:
                yield max(0, limit - used + (cache or 0))  # files that were read are let go when memory is short


def _read(folder: Path, name: str) -> int | None:
    """A number of a control group: the content of a file, or a line of memory.stat."""
    try:
        if name.startswith("memory."):
            return int((folder / name).read_text(encoding="utf-8"))
        lines = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
        return next((int(line.split()[1]) for line in lines if line.split()[0] == name), None)
    except (OSError, ValueError, LookupError):  # no such group, or "max"
        return None


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
