"""Memory figures of a device, by the names that torch.cuda and torch.mps use. All in bytes."""

from __future__ import annotations

from collections import OrderedDict

from . import _C
from .devices import DeviceLike, index_of


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, int]:
    """The allocator's figures: allocated, reserved, peak_allocated, peak_reserved, limit, recommended_max,
    hits, misses, frees."""
    return OrderedDict(sorted(_C.memory_stats(index_of(device)).items()))


def memory_allocated(device: DeviceLike = None) -> int:
    """In live tensors."""
    return memory_stats(device)["allocated"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most that memory_allocated() has been, since reset_peak_memory_stats() if that was called."""
    return memory_stats(device)["peak_allocated"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Held from the driver, cached blocks included."""
    return memory_stats(device)["reserved"]


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most that memory_reserved() has been, likewise."""
    return memory_stats(device)["peak_reserved"]


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Both maxima begin anew from what there is now. Any thread; what others allocate meanwhile may count."""
    _C.reset_peak_memory(index_of(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """What Heddle may still take from the driver, and its limit. What other libraries hold counts as free."""
    stats = memory_stats(device)
    return max(stats["limit"] - stats["reserved"], 0), stats["limit"]


_SUMMARY = (
    ("allocated", "in live tensors"),
    ("peak_allocated", "the most of that"),
    ("reserved", "held from the driver"),
    ("peak_reserved", "the most of that"),
    ("limit", "of this process"),
)


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table for people: a line each in MiB; how often the cache had a block, unless `abbreviated`."""
    stats = memory_stats(device)
    lines = [f"memory of heddle:{index_of(device)}, MiB"]
    lines += [f"  {name:<15}{stats[name] / 2**20:12.1f}  {what}" for name, what in _SUMMARY]
    if not abbreviated:
        lines += [f"  {name:<15}{stats[name]:12}  blocks" for name in ("hits", "misses", "frees")]
    return "\n".join(lines)


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
