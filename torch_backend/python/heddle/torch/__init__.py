"""PyTorch's device "heddle": any module, from any number of threads.

>>> import torch                              # registers the device by itself, once heddle-torch is installed
>>> module = torch.nn.Linear(4, 3).to("heddle")
>>> y = module(torch.ones(2, 4, device="heddle"))

This package is also torch.heddle, with the names PyTorch's accelerators have. Importing it registers the
device, once per process; TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps `import torch` from doing so. An index is one
of Heddle's devices: device_names() tells which.
"""


def _autoload() -> None:
    """The entry point that `import torch` calls. Importing this package, which came before, did the work."""


# ruff: noqa: E402  (where this package comes first, `import torch` below asks for _autoload)
import atexit
import sys
from typing import TYPE_CHECKING

import heddle as _heddle  # noqa: F401  (loads libheddle, which _C is linked to)
import torch
from heddle import BatchQueue
from heddle import profiler as profiler
from heddle.batching import workers as _workers

from ._built_with import PYTORCH as _BUILT_WITH

if torch.__version__.split(".")[:2] != _BUILT_WITH.split(".")[:2]:
    raise ImportError(
        f"heddle-torch was built with PyTorch {_BUILT_WITH} and this is PyTorch {torch.__version__}: "
        "build heddle-torch again (pip install --no-build-isolation ./torch_backend), or install the former"
    )

from . import _C as _C
from . import default_compiler, dlpack, files, printing, processes
from .amp import get_amp_supported_dtype, get_autocast_dtype, is_autocast_enabled, is_bf16_supported
from .batching import batch_inference
from .devices import (
    _exchange_device as _exchange_device,
)
from .devices import (
    _is_in_bad_fork as _is_in_bad_fork,
)
from .devices import (
    _lazy_init as _lazy_init,
)
from .devices import (
    _maybe_exchange_device as _maybe_exchange_device,
)
from .devices import (
    current_device,
    device,
    device_count,
    device_names,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
)
from .dlpack import from_dlpack
from .fallback import (
    allow_cpu_fallback,
    cpu_operators,
    fallbacks,
    is_cpu_fallback_allowed,
    unknown_operators,
)
from .memory import (
    current_allocated_memory,
    driver_allocated_memory,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    recommended_max_memory,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .mps import GuardedModule, MpsGuard, guard_mps
from .private_names import register_device_module
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    release_current_thread_slot,
    set_stream,
    stream,
    synchronize,
)

if TYPE_CHECKING:
    from .compiled import CompiledModule, compile

__all__ = [
    "BatchQueue",
    "CompiledModule",
    "Event",
    "GuardedModule",
    "MpsGuard",
    "Stream",
    "StreamContext",
    "allow_cpu_fallback",
    "batch_inference",
    "compile",
    "cpu_operators",
    "current_allocated_memory",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_names",
    "device_of",
    "driver_allocated_memory",
    "empty_cache",
    "fallbacks",
    "from_dlpack",
    "get_amp_supported_dtype",
    "get_autocast_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "guard_mps",
    "init",
    "initial_seed",
    "is_autocast_enabled",
    "is_available",
    "is_bf16_supported",
    "is_cpu_fallback_allowed",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "profiler",
    "recommended_max_memory",
    "release_current_thread_slot",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "unknown_operators",
]


def __getattr__(name: str):
    if name == "default_generators":  # asking for them opens the devices, so not on import
        return tuple(_C.default_generator(i) for i in range(device_count()))
    if name in ("CompiledModule", "compile"):  # they need PyTorch's tracers, which take seconds to import
        from . import compiled

        return getattr(compiled, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _end() -> None:
    _workers.shut_all()  # first: from before_exit() on, the threads that run batches could not finish them
    _C.before_exit()


def _register() -> None:
    if getattr(torch, "heddle", None) is not None:
        return
    torch.utils.rename_privateuse1_backend("heddle")
    atexit.register(_end)
    register_device_module("heddle", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    dlpack.register()
    files.register()
    printing.install()
    processes.register()
    default_compiler.install()


_register()
