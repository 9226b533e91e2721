"""The guard against the race in Apple's GPU driver, for other libraries in this process.

>>> import heddle
>>> heddle.guard.install()       # before a Metal device exists: before importing torch, say
'waiting'

Heddle's own Metal driver does not need it: its encoders cannot be shared. AGX_GUARD_LIBRARY names the
library when it does not lie in this package. What it does, and its environment: agx_guard/agx_guard.h.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

from .errors import UnavailableError

PRELOAD = "DYLD_INSERT_LIBRARIES" if sys.platform == "darwin" else "LD_PRELOAD"
RESULTS = ["installed", "already", "waiting", "off", "other_copy", "not_installed"]


def library() -> Path:
    """Where libagx_guard lies; UnavailableError when there is none."""
    name = "libagx_guard.dylib" if sys.platform == "darwin" else "libagx_guard.so"
    given = os.environ.get("AGX_GUARD_LIBRARY")
    path = Path(given) if given else Path(__file__).resolve().parent / name
    if path.is_file():
        return path.resolve()
    where = f"AGX_GUARD_LIBRARY={given}" if given else str(path)
    raise UnavailableError(
        f"libagx_guard was not found ({where}): build it from agx_guard/ and set AGX_GUARD_LIBRARY to it"
    )


def _loaded() -> ctypes.CDLL | None:
    """The guard, when this process has it already: it was inserted, or install() was called."""
    process = ctypes.CDLL(None)
    return process if hasattr(process, "agx_guard_install") else None


def _load() -> ctypes.CDLL:
    return _loaded() or ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)


def install() -> str:
    """Guards this process. Call it before anything makes a Metal device.

    Gives "installed", "already", "waiting" (no GPU driver is loaded yet: its classes are guarded as soon as
    they come), "off" (AGX_GUARD=off) or "other_copy".
    """
    before = report()
    guard = _load()  # which installs it, so that the call itself finds it installed
    result = RESULTS[guard.agx_guard_install()]
    if result != "already":
        return result
    if not _read(guard)["classes"]:
        return "waiting"
    return "already" if before.get("classes") else "installed"


def uninstall() -> bool:
    """Puts Apple's methods back; False when nothing was installed."""
    guard = _loaded()
    return guard is not None and RESULTS[guard.agx_guard_uninstall()] == "installed"


def is_active() -> bool:
    guard = _loaded()
    return guard is not None and bool(guard.agx_guard_is_active())


def replaced_by_others() -> int:
    """Guarded methods that another library has replaced since; 0 when all is well."""
    guard = _loaded()
    return int(guard.agx_guard_verify()) if guard else 0


def _read(guard: ctypes.CDLL) -> dict:
    guard.agx_guard_report.restype = ctypes.c_size_t
    guard.agx_guard_report.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    size = guard.agx_guard_report(None, 0) + 4096  # numbers may grow between the two calls
    text = ctypes.create_string_buffer(size)
    guard.agx_guard_report(text, size)
    return json.loads(text.value)


def report() -> dict:
    """Settings, guarded classes and methods, methods that are not guarded, statistics; {} without a guard."""
    guard = _loaded()
    return _read(guard) if guard else {}


def statistics() -> dict[str, int]:
    """The counters of agx_guard.h by name; {} without a guard."""
    return report().get("statistics", {})


def guarded_environment(environment: dict[str, str]) -> dict[str, str]:
    """The environment in which a program starts with the guard inserted."""
    inserted = environment.get(PRELOAD)
    both = f"{library()}:{inserted}" if inserted else str(library())
    return environment | {PRELOAD: both}
