"""BatchQueue: requests from any thread or event loop, joined into batches for a model or any callable."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

from .. import _heddle
from .._heddle import BatchMetrics, Model, Requests
from ..errors import ExhaustedError, InvalidError, UnavailableError, UnsupportedError, on_daemon_at_exit
from .answers import BatchFuture, Call, Whole, withdraw
from .rows import Rows, leaves
from .warm_up import samples_of
from .workers import Health, Seats, Workers

_GROUPS_KEPT = 4096
_numbers = itertools.count(1)

Cost = Literal["bytes", "padded"] | Callable[..., int] | None


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
        self._rows = Rows(
            item=item, pad=pad, buckets=buckets, cut=cut, collate=collate, group=seats and seats.group
        )
        self._cost: Cost = cost
        self._max_batch = max_batch
        self._room = full_wait if when_full == "block" else 0.0
        self._condition = threading.Condition()
        self._groups: dict[Any, int] = {}
        self._group_numbers = itertools.count(1)
        limits = _heddle.batch_limits(
            max_batch, max_cost, cost == "padded", max_wait, aging, list(preferred), capacity
        )
        self._requests = Requests(limits, workers, hang_after)
        self._workers = Workers(
            self._requests,
            self._rows,
            fn,
            setup,
            seats,
            name=f"heddle-{self.name}",
            count=workers,
            retry=retry,
            replace_hung=replace_hung,
            hang_after=hang_after,
            samples=samples_of(self._rows, warm_up, max_batch, preferred),
        )
        weakref.finalize(self, Workers.shut, self._workers, 0.0).atexit = False

    # ---- requests

    def submit(self, x: Any, *more: Any, timeout: float | None = None, priority: int = 0) -> BatchFuture:
        """Queues one request; any thread. A bad request, or one too many, raises here.

        ``timeout``: seconds until it must have begun to run, else its future gets DeadlineError. Full: blocks
        up to ``full_wait`` seconds, or raises ExhaustedError at once (``when_full="fail"``, and always on
        the queue's own worker threads, which make the room).
        """
        payload, key, rows, length = self._rows.describe((x, *more))
        future = BatchFuture(self, self._condition, self._requests, payload, rows, length)
        room = self._room
        if room and threading.get_ident() in self._workers.idents:
            room = 0.0
        if timeout is not None:
            self._workers.keep()
        if not self._admit(future, key, priority, timeout, room):
            self._refuse_full()
        return future

    async def asubmit(self, x: Any, *more: Any, timeout: float | None = None, priority: int = 0) -> Any:
        """Like submit(), from any event loop: awaits the result, and room when the queue is full."""
        payload, key, rows, length = self._rows.describe((x, *more))
        loop = asyncio.get_running_loop()
        if on_daemon_at_exit():
            await loop.create_future()  # never done: the loop goes on without an answer
        call = Call(loop, payload, rows, length)
        if timeout is not None:
            self._workers.keep()
        if not self._admit(call, key, priority, timeout, 0.0):
            await self._await_room(loop, lambda: self._admit(call, key, priority, timeout, 0.0))
        try:
            return await call.future
        except asyncio.CancelledError:
            withdraw(self._requests, call)
            self._workers.wake_room(max(1, len(call.parts)))
            raise
        except UnavailableError:
            if on_daemon_at_exit():
                await loop.create_future()
            raise

    def _group(self, key: Any) -> int:
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= _GROUPS_KEPT:
                self._groups.clear()  # numbers are never used twice: nothing is joined that must not be
            group = self._groups.setdefault(key, next(self._group_numbers))
        return group

    def _admit(
        self, target: BatchFuture | Call, key: Any, priority: int, timeout: float | None, room: float
    ) -> bool:
        requests = self._requests
        if target.rows <= self._max_batch:
            cost = 0 if self._cost is None else self._cost_of(target.payload, target.rows, target.length)
            group = self._groups.get(key) or self._group(key)
            number = requests.submit(target, group, target.rows, cost, priority, timeout, room)
            if number is None:
                return False
            target.ids = (number,)
            return True
        payloads = self._rows.slices(target.payload, target.rows, self._max_batch)
        Whole(target, payloads, self._rows.join)
        parts = [(p, p.rows, self._cost_of(p.payload, p.rows, p.length)) for p in target.parts]
        numbers = requests.submit_parts(parts, self._group(key), priority, timeout, room)
        if numbers is None:
            return False
        target.ids = tuple(numbers)
        return True

    def _cost_of(self, payload: Any, rows: int, length: int) -> int:
        if self._cost is None:
            return 0
        if self._cost == "bytes":
            return sum(leaf.nbytes for leaf in leaves(payload))
        if self._cost == "padded":
            return length or max(leaf.nbytes // rows for leaf in leaves(payload))
        return int(self._cost(*payload) if isinstance(payload, tuple) else self._cost(payload))

    def _refuse_full(self) -> None:
        limits = self._requests.limits()
        raise ExhaustedError(
            f"the queue is full: {limits.capacity} requests wait; try later, or raise capacity"
        )

    async def _await_room(self, loop: asyncio.AbstractEventLoop, admit: Callable[[], bool]) -> None:
        end = time.monotonic() + self._room
        seekers = self._workers.room_seekers
        while True:
            room = loop.create_future()

            def give(room: asyncio.Future[None] = room) -> None:
                if not room.done():
                    room.set_result(None)

            def wake(give: Callable[[], None] = give) -> None:
                loop.call_soon_threadsafe(give)

            seekers.append(wake)
            admitted = False
            try:
                admitted = admit()  # now in line: room made before is seen, room made later wakes
                left = end - time.monotonic()
                if not admitted and left > 0:
                    await asyncio.wait([room], timeout=left)
            finally:
                if wake in seekers:
                    seekers.remove(wake)
                elif admitted or not room.done():  # woken for a place that it does not need
                    self._workers.wake_room(1)
            if admitted:
                return
            if left <= 0:
                self._refuse_full()

    # ---- the queue itself

    def metrics(self) -> BatchMetrics:
        """Figures so far; ``.prometheus()`` gives them as Prometheus' text."""
        return self._requests.metrics(self.name)

    def health(self) -> Health:
        return self._workers.health()

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
        old = self._requests.limits()
        limits = _heddle.batch_limits(
            old.max_batch if max_batch is None else max_batch,
            old.max_cost if max_cost is None else max_cost,
            old.padded_cost,
            old.max_wait if max_wait is None else max_wait,
            old.aging,
            old.preferred if preferred is None else list(preferred),
            old.capacity if capacity is None else capacity,
        )
        self._requests.set_limits(limits)
        self._max_batch = limits.max_batch
        self._workers.wake_room(limits.capacity)

    def drain(self, timeout: float | None = None) -> None:
        """Takes no more requests, runs all that wait, and returns when all are answered. Then close()."""
        self._workers.draining = True
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
