"""batch_inference for modules: inside it, calls are split and joined into batches of one size.

How calls are collected. A context cannot see module calls but through the one place they all pass:
torch.nn.Module.__call__. It is replaced once per process, by the first context entered, and never put back:
it looks for a context variable and, without one, calls what was there before. So

- nothing is patched while other threads run but once, and no order of exits can undo another's patch;
- what is inside is a matter of contextvars (tasks inherit it, other threads do not), never of time;
- only outermost calls are taken: a taken call runs in its device's owner thread, and a call from there is
  left alone, so what a module calls inside itself is part of it by construction;
- a forward hook could not do this: hooks see a call before or after forward runs, in the caller's thread.

torch.compile, torch.jit and torch.export look through the replacement: while they trace, and under a
TorchDispatchMode, calls are left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any

import heddle
import torch
from heddle.errors import UnsupportedError

from .owners import work_of
from .private_names import get_tracing_state, len_torch_dispatch_stack


class _Active:
    """The context that calls are inside of."""

    def __init__(self, batch_size: int, outer: _Active | None) -> None:
        self.batch_size = batch_size
        self.outer = outer


_active: ContextVar[_Active | None] = ContextVar("heddle.torch.batch_inference", default=None)
_lock = threading.Lock()
_installed = False


def _is_traced() -> bool:
    return bool(get_tracing_state() or torch.compiler.is_compiling() or len_torch_dispatch_stack())


def _in_batch(module: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any], size: int) -> Any:
    work, tensors, owner = work_of(module, args, named, size, device=None)
    if owner.device.type == "cuda" and torch.cuda.current_stream() != torch.cuda.default_stream():
        raise UnsupportedError(
            "batch_inference runs modules on cuda on the default stream: leave torch.cuda.stream()"
        )
    return owner.call(work, tensors) if not owner.owns_this_thread() else _plainly(module, args, named)


def _plainly(module: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    token = _active.set(None)
    try:
        return module(*args, **named)
    finally:
        _active.reset(token)


def _replaced(before: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: torch.nn.Module, *args: Any, **named: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # a constant there: what follows is not traced
            return before(self, *args, **named)
        active = _active.get()
        if active is None or _is_traced():
            return before(self, *args, **named)
        return _in_batch(self, args, named, active.batch_size)

    return __call__


def _install() -> None:
    global _installed
    if _installed:
        return
    with _lock:
        if not _installed:
            torch.nn.Module.__call__ = _replaced(torch.nn.Module.__call__)  # type: ignore
            _installed = True


class batch_inference(heddle.batch_inference):
    """Context manager and decorator: inside, a module's calls run in batches of at most ``batch_size`` rows.

    A call with more rows is split and its results joined; concurrent callers inside such contexts that call
    the same module share batches. It works for modules on any device: each device has one owner thread that
    runs them, with the caller's grad mode, inference mode, autocast and default device; callers that differ
    in these, or in arguments that are no tensors, share no batch. Heddle's own models are batched, too, as by
    ``heddle.batch_inference``.

    Axis 0 of every tensor argument and result counts rows. UnsupportedError names what cannot be batched: a
    module whose rows are seen to depend on each other (its first calls are checked), an argument that is
    neither a tensor nor a plain value. An error in one caller's rows is that caller's alone.

    With gradients on, results that shared a batch share its graph, which can be walked once: use
    ``torch.no_grad()`` or ``torch.inference_mode()``.

    >>> with torch.heddle.batch_inference(batch_size=8):
    ...     results = model(inputs)
    """

    def __enter__(self) -> batch_inference:
        _install()
        super().__enter__()
        _active.set(_Active(self.batch_size, _active.get()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        active = _active.get()
        assert active is not None
        _active.set(active.outer)
        super().__exit__(kind, error, trace)

    def _recreate_cm(self) -> batch_inference:
        return batch_inference(self.batch_size)
