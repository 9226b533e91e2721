"""Operators that PyTorch's CPU computes: some by name, always; those that the device lacks, if allowed.

Factorisations, Fourier transforms, special functions and the like run PyTorch's own CPU kernels: on the
device's memory, without a copy, where the host can address it, and elsewhere (a GPU of NVIDIA's) on copies,
with one wait a call. cpu_operators() counts them.

An operator that the device does not have raises NotImplementedError, unless the CPU may do it. That way
copies the arguments to the CPU and the results back, once per call. It is for finding out what a model
lacks, so it counts: fallbacks() names each operator that took it and how often. The environment variable
HEDDLE_TORCH_CPU_FALLBACK=1, read once, when the package is imported, allows it from the start.
"""

from __future__ import annotations

import os

from . import _C

VARIABLE = "HEDDLE_TORCH_CPU_FALLBACK"
_allowed = False


def allow_cpu_fallback(allowed: bool = True) -> None:
    """For the whole process, from the next operator on."""
    global _allowed
    _C.fallback(bool(allowed))
    _allowed = bool(allowed)


def is_cpu_fallback_allowed() -> bool:
    return _allowed


def fallbacks() -> dict[str, int]:
    """How often each operator ran on copies on the CPU instead, since the process began."""
    return dict(_C.fallbacks())


def cpu_operators() -> dict[str, int]:
    """How often each operator that has the CPU's kernel by its name ran, since the process began."""
    return dict(_C.cpu_operators())


def unknown_operators() -> list[str]:
    """Heddle's operators that this version of PyTorch does not have, by name: they are not registered.

    PyTorch adds and removes operators between versions.
    """
    return list(_C.operators_unknown())


def _read_environment() -> None:
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(
            f"{VARIABLE}={value}; it has to be 1 (operators that are not there run on the CPU) or 0"
        )
    allow_cpu_fallback(value == "1")


_read_environment()
