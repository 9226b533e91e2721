"""Heddle: any number of threads call a model on one accelerator, safely.

>>> model = heddle.load("model.onnx")
>>> y = model(x)                 # from any thread; numpy in, numpy out; torch in, torch out

Every call that can wait or compute frees the GIL. Errors are raised by code (``heddle.errors``).
"""

import os

from . import _heddle, errors, profiler
from ._heddle import (
    Device,
    Event,
    GraphBuilder,
    Model,
    Port,
    Stream,
    StreamPool,
    count_locks,
    lock_stats,
    reset_lock_stats,
    set_log,
)
from .batching import BatchFuture, BatchQueue, batch_inference
from .errors import (
    CancelledError,
    DeadlineError,
    DeviceLostError,
    Error,
    ExhaustedError,
    InternalError,
    InvalidError,
    UnavailableError,
    UnsupportedError,
)

__version__ = _heddle.version()
__all__ = [
    "BatchFuture",
    "BatchQueue",
    "CancelledError",
    "DeadlineError",
    "Device",
    "DeviceLostError",
    "Error",
    "Event",
    "ExhaustedError",
    "GraphBuilder",
    "InternalError",
    "InvalidError",
    "Model",
    "Port",
    "Stream",
    "StreamPool",
    "UnavailableError",
    "UnsupportedError",
    "batch_inference",
    "count_locks",
    "current_allocated_memory",
    "current_stream",
    "default_stream",
    "driver_allocated_memory",
    "empty_cache",
    "environment",
    "errors",
    "exclusive",
    "load",
    "lock_stats",
    "profiler",
    "recommended_max_memory",
    "release_current_thread_slot",
    "reset_lock_stats",
    "set_log",
    "set_per_process_memory_fraction",
    "stream",
    "synchronize",
]


def _device(device: str | Device) -> Device:
    return device if isinstance(device, Device) else Device(device)


def load(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview,
    device: str | Device = "host",
    precision: str = "f32",
) -> Model:
    """Reads an ONNX model (a path, or the file's bytes) and compiles its first stage.

    Blocks with the GIL free. Raises InvalidError or UnsupportedError naming the node. The model may be called
    from any number of threads; each input shape is compiled on its first call, once.
    """
    if isinstance(path, (bytes, bytearray, memoryview)):
        return _heddle.load_bytes(bytes(path), _device(device), precision)
    return _heddle.load(os.fspath(path), _device(device), precision)


def stream(stream: Stream) -> _heddle.StreamContext:
    """Context manager: calls of this thread go to ``stream``. Nests."""
    return _heddle.StreamContext(stream)


def current_stream(device: str | Device = "host") -> Stream:
    """The calling thread's stream: the innermost ``with stream(...)``, else its lease.

    The main thread's lease is the default stream.
    """
    return _heddle.current_stream(_device(device))


def default_stream(device: str | Device = "host") -> Stream:
    """Stream 0."""
    return _heddle.default_stream(_device(device))


def release_current_thread_slot(device: str | Device = "host") -> None:
    """Returns the calling thread's lease before the thread ends."""
    _heddle.release_current_thread_slot(_device(device))


def synchronize(device: str | Device = "host", timeout: float | None = None) -> None:
    """Blocks, with the GIL free, until all work given to the device so far is over.

    Raises the first failure of that work.
    """
    _device(device).synchronize(timeout)


def empty_cache(device: str | Device = "host") -> None:
    """Gives cached device memory back."""
    _device(device).empty_cache()


def current_allocated_memory(device: str | Device = "host") -> int:
    """Bytes in live tensors."""
    return _device(device).stats()["allocated"]


def driver_allocated_memory(device: str | Device = "host") -> int:
    """Bytes held from the driver, cached ones included."""
    return _device(device).stats()["reserved"]


def recommended_max_memory(device: str | Device = "host") -> int:
    """Bytes that the device says may reasonably be used."""
    return _device(device).stats()["recommended_max_memory"]


def set_per_process_memory_fraction(fraction: float, device: str | Device = "host") -> None:
    """Limits this process to a part, in (0, 1], of the device's memory."""
    _device(device).set_memory_fraction(fraction)


def exclusive(device: str | Device = "host", timeout: float | None = None) -> _heddle.ExclusiveContext:
    """Context manager: the device to oneself.

    Waits until nothing runs on it, and keeps Heddle off it meanwhile.
    """
    return _heddle.ExclusiveContext(_device(device), timeout)


def environment() -> list[tuple[str, str, str]]:
    """Environment variables Heddle knows: (name, meaning, value) tuples."""
    return list(_heddle.environment())
