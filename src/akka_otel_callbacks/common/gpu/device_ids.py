"""What the process, its engine and its environment say of the GPUs that it holds."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DeviceIds = Sequence[int | str]
"""What an engine knows of the devices that its process holds: CUDA ordinals (the 1 of `cuda:1`) and UUIDs."""


def torch_device_ids(device_type: str, ordinal: int | None, count: int) -> list[int]:
    """The CUDA ordinals that a trainer's process holds. Empty without CUDA.

    Args:
        device_type: of the trainer's device, such as `cuda` or `cpu`.
        ordinal: its index, None for the first; the process's own one under torchrun.
        count: how many devices the process trains on. More than one are the first `count`, as data parallelism in
            one process takes them.
    """
    if device_type != "cuda":
        return []
    return list(range(count)) if count > 1 else [ordinal or 0]


def cuda_uuids() -> list[str] | None:
    """The UUIDs of CUDA's devices, without prefix, in CUDA's order. None until the program itself uses CUDA.

    Asking torch for a device's properties initialises CUDA where nothing has yet: that takes memory on the GPU and
    breaks every later fork. So it is asked only afterwards, when the answer is one that torch already has.
    """
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        return [str(torch.cuda.get_device_properties(ordinal).uuid) for ordinal in range(torch.cuda.device_count())]
    except Exception:  # noqa: BLE001 - a torch that is being imported, has no UUIDs, or whose GPU is lost: not known
        return None


def visible_devices(environ: Mapping[str, str]) -> list[int] | list[str] | None:
    """The entries of CUDA_VISIBLE_DEVICES that CUDA takes: indices, or UUIDs (they may be abbreviated). None where
    it is not set.

    As CUDA does: the list ends before its first invalid entry, and an entry that is repeated empties it.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    prefix = next((prefix for prefix in ("GPU-", "MIG-") if value.startswith(prefix)), None)
    taken: list[Any] = []
    for entry in value.split(","):
        device = _index(entry.strip()) if prefix is None else entry if entry.startswith(prefix) else None
        if device is None:
            break
        if device in taken:
            return []
        taken.append(device)
    return taken


def _index(entry: str) -> int | None:
    """The number that the entry starts with, as C's strtoul reads it. None where it is none or negative. `-0` is 0."""
    digits = entry[1:] if entry[:1] in ("+", "-") else entry
    length = next((i for i, letter in enumerate(digits) if letter not in "0123456789"), len(digits))
    number = int(digits[:length]) if length else None
    return None if number and entry[0] == "-" else number


def ray_device_ids(accelerator_ids: Iterable[str], environ: Mapping[str, str]) -> list[int | str]:
    """The devices of a Ray worker, from `get_runtime_context().get_accelerator_ids()["GPU"]`.

    Ray names them as CUDA_VISIBLE_DEVICES does. Where it has set that variable, an ID's place in it is the CUDA
    ordinal; where it was told not to, the index itself is.
    """
    visible = [str(entry) for entry in visible_devices(environ) or ()]
    ids: list[int | str] = []
    for accelerator_id in map(str, accelerator_ids):
        if accelerator_id in visible:
            ids.append(visible.index(accelerator_id))
        else:
            ids.append(int(accelerator_id) if accelerator_id.isdecimal() else accelerator_id)
    return ids
