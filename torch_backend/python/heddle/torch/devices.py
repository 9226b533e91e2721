"""Which devices there are, and which is current.

An index is the place of a Heddle device in device_names(). The current device is per thread; 0 at first.
"""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import heddle
import torch

from . import _C

DeviceLike: TypeAlias = torch.device | str | int | None

_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


def index_of(device: DeviceLike = None) -> int:
    """The index a device argument means; the current one where it names none."""
    index = device if isinstance(device, int) else None
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "heddle":
            raise ValueError(f"expected a heddle device, not {device}")
        index = device.index
    if index is None:
        return current_device()
    if not 0 <= index < device_count():
        raise ValueError(f"there is no device heddle:{index}: this build has {device_count()} devices")
    return index


def device_names() -> list[str]:
    """Heddle's names of the devices, by index: ["host"], say."""
    return list(_C.device_names())


def device_count() -> int:
    return _C.device_count()


def is_available() -> bool:
    return device_count() > 0


def current_device() -> int:
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    _C.set_device(index_of(device))


def _exchange_device(device: int) -> int:
    """Makes it current and gives the one before; a negative index changes nothing and gives -1."""
    return _C.exchange_device(device) if device >= 0 else -1


def _maybe_exchange_device(device: int) -> int:
    return _exchange_device(device)


class device:
    """Context manager: `device` is current inside; None and negative indices change nothing."""

    def __init__(self, device: DeviceLike) -> None:
        negative = isinstance(device, int) and device < 0
        self.idx = -1 if device is None or negative else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _exchange_device(self.prev_idx)


class device_of(device):
    """Context manager: the tensor's device is current inside; other devices' tensors change nothing."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "heddle" else None)


def init() -> None:
    _lazy_init()


def _lazy_init() -> None:
    """Nothing to do: a device is opened by its first use."""


def is_initialized() -> bool:
    return not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """In a forked child, which Heddle refuses: PyTorch leaves the device out of seeding there."""
    return _forked


@dataclass(frozen=True)
class DeviceProperties:
    name: str
    description: str
    total_memory: int
    multi_processor_count: int  # threads that compute
    facts: tuple[tuple[str, str], ...]


@functools.cache
def _heddle_device(index: int) -> heddle.Device:
    return heddle.Device(device_names()[index])


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    found = _heddle_device(index_of(device))
    return DeviceProperties(
        name=found.name,
        description=found.description,
        total_memory=found.stats()["recommended_max_memory"],
        multi_processor_count=found.threads,
        facts=tuple(dict(found.facts).items()),
    )


def get_device_name(device: DeviceLike = None) -> str:
    """As torch.cuda's: the hardware in words. device_names() has the names to open devices by."""
    return get_device_properties(device).description


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    return {"name": device_names()[index_of(device)], "machine": platform.machine()}
