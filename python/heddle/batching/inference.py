"""batch_inference: inside it, a model's calls are split and joined into batches of one size."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from .. import _heddle
from .._heddle import Model
from ..errors import InvalidError, UnsupportedError
from .queue import BatchQueue
from .workers import Seats

_F = TypeVar("_F", bound=Callable[..., Any])

_lock = threading.Lock()
_queues: weakref.WeakKeyDictionary[Model, dict[int, BatchQueue]] = weakref.WeakKeyDictionary()


def _queue_of(model: Model, batch_size: int) -> BatchQueue:
    """One queue per model and size, for as long as the model lives."""
    with _lock:
        of_model = _queues.setdefault(model, {})
        queue = of_model.get(batch_size)
        if queue is None:
            queue = of_model[batch_size] = BatchQueue(
                Seats(weakref.ref(model)),
                max_batch=batch_size,
                workers=model.device.threads,
                name=f"batch_inference-{batch_size}",
            )
    return queue


class _Active:
    """What a context holds inside a batch_inference: called in a model's place."""

    def __init__(self, batch_size: int, outer: Any) -> None:
        self.batch_size = batch_size
        self.outer = outer

    def __call__(self, model: Model, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        named = dict(named)
        timeout = named.pop("timeout", None)
        if named.pop("stream", None) is not None:
            raise UnsupportedError(
                "batch_inference cannot batch a call with stream=: its order is its own; call outside of it"
            )
        if not model.batchable:
            raise UnsupportedError(f"batch_inference cannot batch this model: {model.why_not_batchable}")
        queue = _queue_of(model, self.batch_size)
        return queue.submit(*model._arranged(*args, **named), timeout=timeout).result()


class batch_inference(contextlib.ContextDecorator):
    """Context manager and decorator: inside, ``model(x)`` runs in batches of at most ``batch_size`` rows.

    A call with more rows is split and its results joined; concurrent callers inside such contexts share
    batches. It follows contextvars, so tasks and ``contextvars.copy_context()`` inherit it, and plain new
    threads do not. What cannot be batched is refused by name: a model whose rows depend on each other, a call
    with ``stream=``.

    >>> with heddle.batch_inference(batch_size=8):
    ...     y = model(x)
    """

    def __init__(self, batch_size: int = 8) -> None:
        if batch_size < 1:
            raise InvalidError(f"batch_size must be at least 1, not {batch_size}")
        self.batch_size = batch_size

    def __enter__(self) -> batch_inference:
        _heddle.batching.set(_Active(self.batch_size, _heddle.batching.get()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _heddle.batching.set(_heddle.batching.get().outer)

    def _recreate_cm(self) -> batch_inference:
        return batch_inference(self.batch_size)

    def __call__(self, function: _F) -> _F:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UnsupportedError(
                f"batch_inference cannot decorate the generator {function.__qualname__}: "
                "use `with` inside of it"
            )
        if not inspect.iscoroutinefunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        async def inside(*args: Any, **named: Any) -> Any:
            with self._recreate_cm():
                return await function(*args, **named)

        return inside  # type: ignore[return-value]
