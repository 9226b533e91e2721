"""BatchQueue: requests from any thread or event loop, joined into batches for a model or any callable."""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

from .._heddle import BatchMetrics, Health, Model, Requests
from ..errors import ExhaustedError, InvalidError, UnavailableError, UnsupportedError, on_daemon_at_exit
from .answers import BatchFuture, Call, set_done
from .rows import Cost, Rows
from .workers import Seats, Workers

_numbers = itertools.count(1)


class BatchQueue:
    """Joins requests into batches for ``fn``: a Heddle model, or any callable.

    A callable gets the stacked batch and gives one result per row. A model runs it in its own seats: what
    only the data shows (an index out of range) fails its own request, ragged rows share batches as in its
    calls, and submit() refuses what the model does not take; with ``pad=``, ``collate=`` or ``setup=`` it is
    a callable like others. With ``workers=1`` (the default) one thread owns it: a library that must be called
    from one thread becomes safe, and batched.

    >>> queue = heddle.BatchQueue(lambda x: session.run(None, {"x": x})[0], max_batch=64)
    >>> y = queue.submit(x).result()          # from any thread; axis 0 of x counts rows
    >>> y = await queue.asubmit(x)            # from any event loop

    An idle queue runs a request at once. ``max_wait`` (seconds, from the oldest request on) bounds how long a
    batch may wait for company while others run, or for callers that were just answered.
    """

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        max_batch: int = 64,
        max_wait: float = 0.005,
        workers: int = 1,
        capacity: int = 16384,
        when_full: Literal["fail", "block"] = "block",
        full_wait: float = 30.0,
        max_cost: int = 0,
        cost: Cost = None,
        preferred: Sequence[int] = (),
        aging: float = 0.1,
        item: bool = False,
        pad: float | None = None,
        buckets: Sequence[int] | None = None,
        cut: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
        retry: bool = False,
        setup: Callable[[], Any] | None = None,
        replace_hung: bool = False,
        hang_after: float | None = None,
        warm_up: Any = None,
        name: str | None = None,
    ) -> None:
        if fn is None and setup is None:
            raise InvalidError("a BatchQueue needs a model or callable, or setup= that makes one")
        if isinstance(fn, Model) and not fn.batchable:
            raise UnsupportedError(f"the model cannot be batched: {fn.why_not_batchable}")
        if when_full not in ("fail", "block"):
            raise InvalidError(f"when_full must be 'fail' or 'block', not {when_full!r}")
        if cost is not None and cost not in ("bytes", "padded") and not callable(cost):
            raise InvalidError(f"cost must be 'bytes', 'padded' or a callable, not {cost!r}")
        if cost is not None and not max_cost:
            raise InvalidError("cost= needs max_cost=, the most that a batch may cost")
        self.name = name or f"queue{next(_numbers)}"
        seats = fn if isinstance(fn, Seats) else None
        if isinstance(fn, Model) and pad is None and collate is None and setup is None:
            seats = Seats(lambda: fn, item)
        limits = max_batch, max_cost, cost == "padded", max_wait, aging, list(preferred), capacity
        padding = pad is not None, list(buckets or ()), cut
        self._requests = Requests(*limits, workers, hang_after, replace_hung, *padding)
        self._rows = Rows(self._requests, item, pad, cut, collate, seats and seats.group, cost)
        self._room = full_wait if when_full == "block" else 0.0
        self._condition = threading.Condition()
        samples = self._rows.samples(warm_up, {1, max_batch, *preferred}, buckets)
        self._workers = Workers(
            self._requests, self._rows, fn, setup, seats, retry, samples, name=f"heddle-{self.name}"
        )
        self._workers.start(workers, watched=hang_after is not None)
        weakref.finalize(self, Workers.shut, self._workers, 0.0).atexit = False

    # ---- requests

    def submit(self, x: Any, *more: Any, timeout: float | None = None, priority: int = 0) -> BatchFuture:
        """Queues one request; any thread. A bad request, or one too many, raises here.

        ``timeout``: seconds until it must have begun to run, else its future gets DeadlineError. Full: blocks
        up to ``full_wait`` seconds, or raises ExhaustedError at once (``when_full="fail"``, and always on
        the queue's own worker threads, which make the room).
        """
        payload, (rows, length, group) = self._rows.describe((x, *more))
        future = BatchFuture(self, payload, rows, length)
        if timeout is not None:
            self._workers.keep()
        room = 0.0 if threading.get_ident() in self._workers.idents else self._room
        future.ids = self._requests.submit(future, self._rows, group, rows, priority, timeout, room)
        return future

    async def asubmit(self, x: Any, *more: Any, timeout: float | None = None, priority: int = 0) -> Any:
        """Like submit(), from any event loop: awaits the result, and room when the queue is full."""
        payload, (rows, length, group) = self._rows.describe((x, *more))
        loop = asyncio.get_running_loop()
        if on_daemon_at_exit():
            await loop.create_future()  # never done: the loop goes on without an answer
        call = Call(loop, payload, rows, length)
        if timeout is not None:
            self._workers.keep()
        enter = functools.partial(self._requests.try_submit, call, self._rows, group, rows, priority, timeout)
        ids = enter() or await self._await_room(loop, rows, enter)
        try:
            return await call.future
        except asyncio.CancelledError:
            self._requests.withdraw(ids)
            raise
        except UnavailableError:
            if on_daemon_at_exit():
                await loop.create_future()
            raise

    async def _await_room(
        self, loop: asyncio.AbstractEventLoop, rows: int, enter: Callable[..., tuple[int, ...] | None]
    ) -> tuple[int, ...]:
        end = loop.time() + self._room
        while True:
            ids, told = await self._seek_room(loop, rows, enter, max(0.0, end - loop.time()))
            if ids is not None:
                return ids
            # Told, and no room: the last worker hung, which ends all waits for room, and is back.
            if not told:
                raise ExhaustedError("the queue is full, and stayed so: try later, or raise capacity")

    async def _seek_room(
        self,
        loop: asyncio.AbstractEventLoop,
        rows: int,
        enter: Callable[..., tuple[int, ...] | None],
        timeout: float,
    ) -> tuple[tuple[int, ...] | None, bool]:
        """The ids, where there was room, and whether there was an answer at all."""
        room = loop.create_future()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(set_done, room)
            except RuntimeError:  # the loop is closed: nobody there comes for it
                self._requests.leave_room(seeker)

        seeker = self._requests.seek_room(rows, wake)
        try:
            await asyncio.wait([room], timeout=timeout)
            return enter(seeker), room.done()
        finally:
            self._requests.leave_room(seeker)

    # ---- the queue itself

    def metrics(self) -> BatchMetrics:
        """Figures so far; ``.prometheus()`` gives them as Prometheus' text."""
        return self._requests.metrics(self.name)

    def health(self) -> Health:
        """``status``: ok, degraded (some workers are gone or hang), unavailable (all), draining or closed."""
        return self._requests.health()

    def set_limits(
        self,
        *,
        max_batch: int | None = None,
        max_wait: float | None = None,
        max_cost: int | None = None,
        preferred: Sequence[int] | None = None,
        capacity: int | None = None,
    ) -> None:
        """Changes what is given, while requests wait and run."""
        self._requests.set_limits(
            max_batch, max_wait, max_cost, None if preferred is None else list(preferred), capacity
        )

    def drain(self, timeout: float | None = None) -> None:
        """Takes no more requests, runs all that wait, and returns when all are answered. Then close()."""
        self._requests.drain(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Answers what waits with UnavailableError, waits for running batches, ends the workers. Idempotent.

        Batches that still run after ``timeout`` seconds get UnavailableError, too.
        """
        self._workers.shut(timeout)

    def __enter__(self) -> BatchQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.drain()
        self.close()
