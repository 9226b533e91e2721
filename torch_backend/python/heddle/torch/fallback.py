"""What happens to an operator that the device does not have: NotImplementedError, unless the CPU may do it.

The CPU's way copies the arguments to the CPU and the results back, once per call. It is for finding out what
a model lacks, so it counts: fallbacks() names each operator that took it and how often.
"""

from __future__ import annotations

from . import _C

_allowed = False


def allow_cpu_fallback(allowed: bool = True) -> None:
    """For the whole process, from the next operator on."""
    global _allowed
    _C.fallback(bool(allowed))
    _allowed = bool(allowed)


def is_cpu_fallback_allowed() -> bool:
    return _allowed


def fallbacks() -> dict[str, int]:
    """How often each operator ran on the CPU instead, since the process began."""
    return dict(_C.fallbacks())
