"""Heddle: any number of threads call a model on one accelerator, safely.

>>> model = heddle.load("model.onnx")
>>> y = model(x)                 # from any thread; numpy in, numpy out; torch in, torch out

Every call that can wait or compute frees the GIL. Errors are raised by code (``heddle.errors``).
"""

import os
from collections.abc import Sequence

from . import _heddle, errors, guard, profiler
from . import submitting as _submitting
from ._heddle import (
    Device,
    Event,
    GraphBuilder,
    Model,
    Port,
    Rates,
    Stream,
    StreamPool,
    Tensor,
    count_locks,
    lock_stats,
    reset_lock_stats,
    set_log,
    to_device,
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

Model.submit = _submitting.submit  # type: ignore[method-assign]
Model.asubmit = _submitting.asubmit  # type: ignore[method-assign]
Model.acall = _submitting.asubmit  # type: ignore[method-assign]

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
    "Rates",
    "Stream",
    "StreamPool",
    "Tensor",
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
    "guard",
    "load",
    "lock_stats",
    "measure_rates",
    "profiler",
    "recommended_max_memory",
    "release_current_thread_slot",
    "reset_lock_stats",
    "set_log",
    "set_per_process_memory_fraction",
    "stream",
    "synchronize",
    "to_device",
]


def _device(device: str | Device) -> Device:
    return device if isinstance(device, Device) else Device(device)


def load(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview,
    device: str | Device = "",
    precision: str = "f32",
    *,
    devices: str | Sequence[str | Device] | None = None,
    coalesce: bool = True,
    exact: bool = False,
    ragged: dict[str, int | tuple[int, float]] | None = None,
    max_batch: int = 64,
    max_waiting: int = 4096,
    latency_bound: float | None = None,
    keep_source: bool = False,
) -> Model:
    """Reads an ONNX model (a path, or the file's bytes) and compiles its first stage.

    Blocks with the GIL free. Raises InvalidError or UnsupportedError naming the node. The model may be called
    from any number of threads; each input shape is compiled on its first call, once.

    Calls that find the device busy are joined into one batch when the model's rows (axis 0) are proven
    independent: ``model.explain_coalescing()`` tells. ``coalesce=False`` switches that off.

    - ``ragged={"input_ids": (1, 0)}``: along axis 1 rows of different lengths may share a batch, padded
      with 0; outputs of that length are cut back. Padding must not change a row: the model has a mask, say.
      ``None`` knows the common exports of text encoders; with ``{}`` only rows of equal shapes share one.
    - ``devices="cuda"`` instead of ``device``: the model is on each device of that kind, or on those of a
      list; a call goes to the one with the fewest rows under way, and to none that is lost or closed; calls
      that a lost one had raise DeviceLostError. Tensors in a device's memory and streams decide themselves
      where it goes.
      ``[Device("cuda"), Device.open("cuda")]`` is two devices on one card.
    - ``precision``: what factors of f32 products may be rounded to where that is faster; sums stay f32.
      ``"bf16"`` on processors that multiply it; ``"tf32"``, ``"bf16"`` or ``"f16"`` on device cuda with
      cuBLASLt. UnsupportedError elsewhere.
    - ``exact=True``: a row's bits do not depend on what it is batched with; with ``"f32"`` only.
    - ``max_batch`` rows; ``max_waiting`` callers, one more raises ExhaustedError; ``latency_bound`` seconds:
      no batch is formed that is known to run longer.
    - ``keep_source`` keeps the graph as the file has it, for ``Model.source_graph()`` and
      ``Model.replacements()``.
    """
    options: _heddle._ModelOptions = {
        "precision": precision,
        "coalesce": coalesce,
        "exact": exact,
        "ragged": ragged,
        "max_batch": max_batch,
        "max_waiting": max_waiting,
        "latency_bound": latency_bound,
        "keep_source": keep_source,
    }
    if devices is not None:
        options["devices"] = devices
    if devices is None or device:
        options["device"] = device
    if isinstance(path, (bytes, bytearray, memoryview)):
        return _heddle.load_bytes(bytes(path), **options)
    return _heddle.load(os.fspath(path), **options)


def measure_rates(device: str | Device = "", precision: str = "f32") -> Rates:
    """How fast the device multiplies, moves bytes and starts steps at its best: for ``Model.plan()``.

    Measured now, by running models on it, for about a second.
    """
    return _heddle.measure_rates(_device(device), precision)


def stream(stream: Stream) -> _heddle.StreamContext:
    """Context manager: calls of this thread go to ``stream``. Nests."""
    return _heddle.StreamContext(stream)


def current_stream(device: str | Device = "") -> Stream:
    """The calling thread's stream: the innermost ``with stream(...)``, else its lease.

    The main thread's lease is the default stream.
    """
    return _heddle.current_stream(_device(device))


def default_stream(device: str | Device = "") -> Stream:
    """Stream 0."""
    return _heddle.default_stream(_device(device))


def release_current_thread_slot(device: str | Device = "") -> None:
    """Returns the calling thread's lease before the thread ends."""
    _heddle.release_current_thread_slot(_device(device))


def synchronize(device: str | Device = "", timeout: float | None = None) -> None:
    """Blocks, with the GIL free, until all work given to the device so far is over.

    Raises the first failure of that work.
    """
    _device(device).synchronize(timeout)


def empty_cache(device: str | Device = "") -> None:
    """Gives cached device memory back."""
    _device(device).empty_cache()


def current_allocated_memory(device: str | Device = "") -> int:
    """Bytes in live tensors."""
    return _device(device).stats()["allocated"]


def driver_allocated_memory(device: str | Device = "") -> int:
    """Bytes held from the driver, cached ones included."""
    return _device(device).stats()["reserved"]


def recommended_max_memory(device: str | Device = "") -> int:
    """Bytes that the device says may reasonably be used."""
    return _device(device).stats()["recommended_max_memory"]


def set_per_process_memory_fraction(fraction: float, device: str | Device = "") -> None:
    """Limits this process to a part, in (0, 1], of the device's memory."""
    _device(device).set_memory_fraction(fraction)


def exclusive(device: str | Device = "", timeout: float | None = None) -> _heddle.ExclusiveContext:
    """Context manager: the device to oneself.

    Waits until nothing runs on it, and keeps Heddle off it meanwhile.
    """
    return _heddle.ExclusiveContext(_device(device), timeout)


def environment() -> list[tuple[str, str, str]]:
    """Environment variables Heddle knows: (name, meaning, value) tuples."""
    return list(_heddle.environment())
