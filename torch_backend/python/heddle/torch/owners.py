"""Owners: one thread per device that runs modules for all others, in batches.

A device's owner is made once per process; batch_inference and guard_mps share it, so a library that must be
called from one thread is. An owner runs a call with its caller's settings (settings.py), joins calls of equal
Work (calls.py) and proves, the first time it joins rows of a Work, that they do not depend on each other:
a first and a last row alone must come out as they did in the batch.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import heddle
import torch
from heddle.errors import InvalidError, UnsupportedError

from . import _C
from .calls import Callee, Form, Work, take_apart
from .private_names import BatchNorm
from .settings import Settings

_FULL = 1 << 40  # the cost of a full batch: batch sizes are limited per Work, through the cost of its rows
_MOST_ROWS = 1 << 16
_PROOFS_KEPT = 4096
_NO_ROWS = torch.zeros(1, 1)  # what an errand submits: a request has an array
_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-3, torch.float64: 1e-6}


def device_of(module: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> torch.device:
    """Where the module computes: its first parameter's or buffer's device, else its first tensor's."""
    for state in (module.parameters(), module.buffers(), tensors):
        for tensor in state:
            return tensor.device
    raise UnsupportedError(
        f"{type(module).__name__} has neither parameters nor tensor arguments: no device to run it on"
    )


def _cost(request: dict[Work, tuple[torch.Tensor, ...]]) -> int:
    ((work, tensors),) = request.items()
    if not isinstance(work, Work):
        return _FULL
    return len(tensors[0]) * (_FULL // work.batch_size)


class _Errand:
    """A callable to run by itself. Equal to no other, so it shares no batch."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run: Callable[[], Any] | None = run

    def take(self) -> Callable[[], Any]:
        """Once; afterwards it holds nothing: queues remember the kinds of requests they saw."""
        run, self._run = self._run, None
        assert run is not None
        return run


class Owner:
    """The one thread that calls modules on `device`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.exclusive: str | None = None  # a Heddle device that rests while the owner works
        self._proven: dict[Any, int] = {}  # 1: by a doubled row, 2: by rows of their own
        self._refused: dict[Any, str] = {}
        self._thread = 0
        self.queue = heddle.BatchQueue(
            self._run,
            max_batch=_MOST_ROWS,
            max_cost=_FULL,
            cost=_cost,
            workers=1,
            retry=True,  # a bad request fails alone
            name=f"owner of {device}",
        )
        self.run(lambda: setattr(self, "_thread", threading.get_ident()))

    # ---- callers' side

    def owns_this_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def run(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls it in the owner's thread, alone; the result or the exception is the caller's."""
        if self.owns_this_thread():
            return function(*args, **named)
        _C.count_caller()
        errand = _Errand(lambda: function(*args, **named))
        return self.queue.submit({errand: (_NO_ROWS,)}).result()[0]

    def call(self, work: Work, tensors: tuple[torch.Tensor, ...]) -> Any:
        """Runs `work` on these rows, split and joined as its batch size says."""
        _C.count_caller()
        rows = _rows(work, tensors)
        size = work.batch_size
        if rows == 0:
            return _put_together([self.run(self._apply, work, tensors)])
        if rows <= size:
            return _put_together([self.queue.submit({work: tensors}).result()])
        futures = []
        try:
            for begin in range(0, rows, size):
                part = tuple(tensor[begin : begin + size] for tensor in tensors)
                futures.append(self.queue.submit({work: part}))
            return _put_together([future.result() for future in futures])
        finally:
            for future in futures:
                future.cancel()  # where one failed, the others are not waited for

    # ---- the owner's thread

    def _run(self, batch: dict[Any, tuple[torch.Tensor, ...]]) -> Any:
        ((work, tensors),) = batch.items()
        resting = heddle.exclusive(self.exclusive) if self.exclusive else contextlib.nullcontext()
        with resting:
            if isinstance(work, _Errand):
                return [work.take()()]
            key = work, tuple((tensor.dtype, tensor.shape[1:]) for tensor in tensors)
            why_not = self._refused.get(key)
            if why_not:
                raise UnsupportedError(why_not)
            result = self._apply(work, tensors)
            if self._proven.get(key, 0) < min(len(tensors[0]), 2):
                self._prove(key, work, tensors, result)
            return result

    def _apply(self, work: Work, tensors: tuple[torch.Tensor, ...]) -> dict[Form, tuple[torch.Tensor, ...]]:
        with work.settings.in_force():
            if work.at_home:
                tensors = tuple(tensor.to(self.device) for tensor in tensors)
            args, named = work.form.fill(tensors)
            results, form = take_apart(work.callee()(*args, **named), f"the result of {work.callee.name}")
            if not results:
                raise UnsupportedError(
                    f"{work.callee.name} returned no tensor, so there are no rows to give back"
                )
            if work.at_home:
                results = tuple(tensor.cpu() for tensor in results)
        return {form: results}

    def _prove(self, key: Any, work: Work, tensors: tuple[torch.Tensor, ...], result: Any) -> None:
        """Of several rows the first and the last are compared with what they are alone; a single row with
        what it is twice in one batch, which the first real batch does not replace."""
        rows = len(tensors[0])
        several, alone = result, {0: result}
        with torch.no_grad():
            if rows == 1:
                several = self._apply(work, tuple(torch.cat((tensor, tensor)) for tensor in tensors))
                alone[1] = result
            else:
                for row in (0, rows - 1):
                    alone[row] = self._apply(work, tuple(tensor[row : row + 1] for tensor in tensors))
        ((_, joined),) = several.items()
        for row, single in alone.items():
            ((_, parts),) = single.items()
            if not all(_is_row(*pair, row, max(rows, 2)) for pair in zip(joined, parts, strict=True)):
                self._refused[key] = (
                    f"{work.callee.name} cannot be batched: row {row} of {max(rows, 2)} has another result "
                    "alone, so its rows depend on each other, or on chance, or axis 0 does not count them "
                    "(batch_first=False)"
                )
                raise UnsupportedError(self._refused[key])
        if len(self._proven) >= _PROOFS_KEPT:
            self._proven.clear()
        self._proven[key] = min(rows, 2)


def _rows(work: Work, tensors: tuple[torch.Tensor, ...]) -> int:
    counts = [tensor.shape[0] if tensor.ndim else None for tensor in tensors]
    if not counts or None in counts or len(set(counts)) > 1:
        raise InvalidError(
            f"the tensors given to {work.callee.name} must have equally many rows (axis 0) to be batched; "
            f"these have {counts}"
        )
    return int(counts[0] or 0)


def _put_together(parts: list[dict[Form, tuple[torch.Tensor, ...]]]) -> Any:
    ((form, tensors),) = parts[0].items()
    if len(parts) > 1:
        columns = zip(*(part[form] for part in parts), strict=True)
        tensors = tuple(torch.cat(column) for column in columns)
    return form.fill(tensors)


def _is_row(joined: torch.Tensor, alone: torch.Tensor, row: int, rows: int) -> bool:
    return joined.ndim > 0 and len(joined) == rows and _alike(joined[row : row + 1], alone)


def _alike(joined: torch.Tensor, alone: torch.Tensor) -> bool:
    if joined.shape != alone.shape or joined.dtype != alone.dtype:
        return False
    a, b = joined.detach().cpu(), alone.detach().cpu()
    if not a.dtype.is_floating_point or not a.numel():
        return torch.equal(a, b)
    a, b = a.double(), b.double()
    relative = _TOLERANCE.get(joined.dtype, 1e-1)
    scale = float(b[b.isfinite()].abs().amax()) if bool(b.isfinite().any()) else 0.0
    return torch.allclose(a, b, rtol=relative, atol=relative * scale, equal_nan=True)


_lock = threading.Lock()
_owners: dict[str, Owner] = {}


def owner_of(device: torch.device) -> Owner:
    """The device's, made on first use. Any thread."""
    name = str(device)
    owner = _owners.get(name)
    if owner is None:
        with _lock:
            owner = _owners.get(name)
            if owner is None:
                owner = _owners[name] = Owner(device)
    return owner


def _forget() -> None:
    """In a forked child: the threads are the parent's, and so may be the lock."""
    global _lock
    _lock = threading.Lock()
    _owners.clear()


os.register_at_fork(after_in_child=_forget)


def work_of(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    named: dict[str, Any],
    batch_size: int,
    device: torch.device | None,
) -> tuple[Work, tuple[torch.Tensor, ...], Owner]:
    """A module's call as data, and the owner it goes to. `device`: of the owner that moves its tensors there
    and its results back; without it they stay where they are."""
    what = type(module).__name__
    tensors, form = take_apart((args, named), f"the call of {what}")
    if module.training and any(isinstance(part, BatchNorm) for part in module.modules()):
        raise UnsupportedError(
            f"{what} cannot be batched: in training its batch normalisation makes rows depend on each other; "
            "call eval() first"
        )
    at_home = device is not None
    where = device if device is not None else device_of(module, tensors)
    settings = Settings.of_this_thread(where.type)
    return (
        Work(Callee(module), module.training, form, settings, batch_size, at_home),
        tensors,
        owner_of(where),
    )
