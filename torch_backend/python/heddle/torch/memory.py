"""Memory figures of a device, by the names that torch.cuda and torch.mps use. All in bytes."""

from __future__ import annotations

from collections import OrderedDict

from . import _C
from .devices import DeviceLike, index_of


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, int]:
    """The allocator's figures: allocated, reserved, peak_allocated, limit, recommended_max, hits, misses,
    frees."""
    return OrderedDict(sorted(_C.memory_stats(index_of(device)).items()))


def memory_allocated(device: DeviceLike = None) -> int:
    """In live tensors."""
    return memory_stats(device)["allocated"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most that memory_allocated() has been."""
    return memory_stats(device)["peak_allocated"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Held from the driver, cached blocks included."""
    return memory_stats(device)["reserved"]


def current_allocated_memory(device: DeviceLike = None) -> int:
    """torch.mps's name of memory_allocated()."""
    return memory_allocated(device)


def driver_allocated_memory(device: DeviceLike = None) -> int:
    """torch.mps's name of memory_reserved()."""
    return memory_reserved(device)


def recommended_max_memory(device: DeviceLike = None) -> int:
    """What the device says may reasonably be used."""
    return memory_stats(device)["recommended_max"]


def empty_cache(device: DeviceLike = None) -> None:
    """Gives cached blocks back to the driver."""
    _C.empty_cache(index_of(device))


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits this process to a part, in (0, 1], of the device's memory; what is beyond is refused."""
    _C.set_memory_fraction(fraction, index_of(device))
