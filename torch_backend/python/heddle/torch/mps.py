"""For programs that stay on PyTorch's own mps device: one thread calls it for all others.

PyTorch's mps device shares one command buffer between threads and aborts the process when two of them meet in
it (docs/pytorch-mps.md tells which version does what). What goes through an MpsGuard cannot meet: its tensors
come from the CPU and go back there, and all in between happens in the device's owner thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import heddle
import torch
from heddle.errors import InvalidError, UnavailableError, UnsupportedError

from .owners import Owner, owner_of, work_of


class GuardedModule:
    """Calls `module` in the guard's thread, in batches; CPU tensors in, CPU tensors out. Any thread."""

    def __init__(self, guard: MpsGuard, module: torch.nn.Module) -> None:
        self.guard = guard
        self.module = module

    def __call__(self, *args: Any, **named: Any) -> Any:
        guard = self.guard
        work, tensors, owner = work_of(self.module, args, named, guard.max_batch, device=guard.device)
        for tensor in tensors:
            if tensor.device.type != "cpu":
                raise UnsupportedError(
                    f"{work.callee.name} is guarded and takes tensors of the CPU, not of {tensor.device}: a "
                    "tensor that another thread made there could meet the guard's work"
                )
        return owner.call(work, tensors)


class MpsGuard:
    """What guard_mps() gives."""

    def __init__(self, owner: Owner, max_batch: int, capacity: int, agx_guard: str) -> None:
        self.device = owner.device
        self.max_batch = max_batch
        self.capacity = capacity
        self.agx_guard = agx_guard  # what heddle.guard.install() said, or why it was not asked
        self._owner = owner

    def __call__(self, module: torch.nn.Module) -> GuardedModule:
        """Moves the module to the device and gives what to call in its place."""
        self.run(module.to, self.device)
        return GuardedModule(self, module)

    def run(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls anything in the guard's thread, alone: loading, torch.mps.empty_cache(), a step by hand.

        Tensors of the device must not leave it: return ``.cpu()`` or numbers.
        """
        return self._owner.run(function, *args, **named)

    def metrics(self) -> Any:
        """Requests, batches and waits of the guard's thread, as BatchQueue.metrics()."""
        return self._owner.queue.metrics()


_lock = threading.Lock()
_guards: dict[str, MpsGuard] = {}


def _switch_agx_guard(wanted: bool | None) -> str:
    if wanted is False:
        return "not asked for"
    if wanted is None and sys.platform != "darwin":
        return "not a Mac"
    try:
        return heddle.guard.install()
    except UnavailableError as error:
        if wanted:
            raise
        return str(error)


def guard_mps(
    *,
    max_batch: int = 64,
    capacity: int = 1024,
    agx_guard: bool | None = None,
    exclusive: bool = True,
    device: str | torch.device = "mps",
) -> MpsGuard:
    """One owner thread for every call of PyTorch's mps that goes through it: batched, bounded, any thread.

    - ``guard = guard_mps(); safe = guard(module); y = safe(x)`` from any threads; ``guard.run(function)``
      for all else.
    - Up to ``max_batch`` rows share a batch; ``capacity`` calls wait, then callers block, 30 s at most.
    - ``agx_guard``: loads the guard against the race in Apple's driver, for what does not go through this;
      None does so on a Mac where it was built, True insists.
    - ``exclusive``: Heddle's own Metal device, where there is one, rests while a batch runs.
    - ``device``: another device of PyTorch's that only one thread should call.

    One guard per device and process: a second call gives the same one, and must ask for the same.
    """
    where = torch.device(device)
    if where.type == "mps" and not torch.backends.mps.is_available():
        raise UnavailableError("this PyTorch has no mps device on this machine; device= names another one")
    if where.index is None and where.type != "cpu":
        where = torch.device(where.type, 0)
    if max_batch < 1 or capacity < 1:
        raise InvalidError(f"max_batch and capacity must be at least 1, not {max_batch} and {capacity}")
    with _lock:
        guard = _guards.get(str(where))
        if guard is None:
            owner = owner_of(where)
            owner.queue.set_limits(capacity=capacity)
            owner.exclusive = "metal" if exclusive and "metal" in heddle.Device.names() else None
            guard = _guards[str(where)] = MpsGuard(owner, max_batch, capacity, _switch_agx_guard(agx_guard))
        elif (guard.max_batch, guard.capacity) != (max_batch, capacity):
            raise InvalidError(
                f"{where} is guarded already, with max_batch={guard.max_batch} and capacity={guard.capacity}"
            )
        return guard
