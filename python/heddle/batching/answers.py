"""Waiters for an answer: a BatchFuture (threads), a call in an event loop.

The queue and its workers see three methods: begin() says whether the request is still wanted, give() and
fail() answer it, once; what comes later is dropped. Parts of a request with more rows than a batch have them,
too (``_heddle.Part``). Answers to event loops are collected in a Mail and sent together.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from _thread import allocate_lock
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import CancelledError, Future
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from typing import Any, NoReturn

from ..errors import UnavailableError, exit_ends_this_thread

_CHAINS = 2  # of threads that wake one another: one wakes up while the other has the GIL
_OVER = frozenset((CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED))


def raise_answer(error: BaseException) -> NoReturn:
    if isinstance(error, UnavailableError) and exit_ends_this_thread():
        raise SystemExit
    raise error


class Sleeper:
    """A thread inside result(). Woken, it wakes the next: one by one they find the GIL free, where all at
    once would queue up for it and sleep a second time."""

    __slots__ = ("after", "last", "lock")

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.lock.acquire()
        self.after: Sleeper | None = None
        self.last: Callable[[], None] | None = None  # at a chain's end: all have been woken

    def wake_next(self) -> None:
        if self.after is not None:
            self.after.lock.release()
        elif self.last is not None:
            self.last()


class Mail:
    """The answers of a batch, sent together: one wake-up per event loop, one chain of sleeping threads.

    Callbacks run last, when all waiters have been told: they may wait for other answers of the batch.
    """

    __slots__ = ("callbacks", "letters", "sleepers")

    def __init__(self) -> None:
        self.sleepers: list[Sleeper] = []
        self.callbacks: list[BatchFuture] = []
        self.letters: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, Any]]] = (
            defaultdict(list)
        )

    def send(self, woken: Callable[[], None] | None = None) -> None:
        """`woken` is called by the last thread that wakes."""
        sleepers, self.sleepers = self.sleepers, []
        chains = min(_CHAINS, len(sleepers))
        for chain in range(chains):
            before = sleepers[chain]
            for sleeper in sleepers[chain + chains :: chains]:
                before.after = sleeper
                before = sleeper
            if before is sleepers[-1]:
                before.last = woken
        for sleeper in sleepers[:chains]:
            sleeper.lock.release()
        for loop, letters in self.letters.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing there waits any more
                loop.call_soon_threadsafe(deliver, letters)
        self.letters.clear()
        callbacks, self.callbacks = self.callbacks, []
        for future in callbacks:
            future._invoke_callbacks()  # type: ignore[attr-defined]


def set_done(future: asyncio.Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # no future takes it; the answers behind this one are to come
        future.set_exception(RuntimeError(f"a call raised {error!r}"))
    else:
        future.set_exception(error)


def deliver(letters: list[tuple[asyncio.Future[Any], Any, Any]]) -> None:
    """To futures of the loop whose callback this is."""
    owed = deque(letters)
    try:
        while owed:
            set_done(*owed[0])
            owed.popleft()
    finally:
        if owed:  # an interrupt: the loop may run on, and the others are to have their answers
            asyncio.get_running_loop().call_soon(deliver, list(owed))


class BatchFuture(Future):  # type: ignore[type-arg]
    """A ``concurrent.futures.Future`` that is cheap to make: all of a queue share one condition.

    That condition has no waiters; result() and exception() sleep on a lock of their own.
    """

    _state = PENDING
    _result = None
    _exception: BaseException | None = None

    def __init__(self, queue: Any, payload: Any, rows: int, length: int) -> None:
        self._queue = queue  # which lives as long as its answer may be waited for
        self._condition: threading.Condition = queue._condition
        self._waiters: list[Any] = []
        self._done_callbacks: list[Callable[[Any], object]] = []
        self._sleepers: list[Sleeper] = []
        self.ids: tuple[int, ...] = ()
        self.payload = payload
        self.rows = rows
        self.length = length

    # ---- the queue's side

    def begin(self) -> bool:
        with self._condition:
            if self._state == PENDING:
                self._state = RUNNING
            elif self._state == CANCELLED:
                self._state = CANCELLED_AND_NOTIFIED
                for waiter in self._waiters:
                    waiter.add_cancelled(self)
            return self._state == RUNNING

    def give(self, result: Any, mail: Mail) -> None:
        self._end(result, None, mail)

    def fail(self, error: BaseException, mail: Mail) -> None:
        self._end(None, error, mail)

    def _end(self, result: Any, error: BaseException | None, mail: Mail) -> None:
        with self._condition:
            if self._state in _OVER:
                return
            if error is None:
                self._result = result
            else:
                self._exception = error
            self._state = FINISHED
            for waiter in self._waiters:
                waiter.add_result(self) if error is None else waiter.add_exception(self)
            if self._sleepers:
                self._wake(mail)
        self.payload = None
        if self._done_callbacks:
            mail.callbacks.append(self)

    def _wake(self, mail: Mail) -> None:  # the condition is held
        sleepers, self._sleepers = self._sleepers, []
        mail.sleepers += sleepers

    # ---- the caller's side

    def _sleep(self, timeout: float | None) -> None:
        sleeper = Sleeper()
        with self._condition:  # so that the end sees the sleeper, or the sleeper the end
            if self._state in _OVER:
                return
            self._sleepers.append(sleeper)
        woken = False
        try:
            woken = sleeper.lock.acquire(True, -1 if timeout is None else max(timeout, 0))
        finally:
            if woken:
                sleeper.wake_next()
            elif not self._leave(sleeper):  # it is part of a chain already
                sleeper.lock.acquire()
                sleeper.wake_next()
                woken = True
        if not woken and self._state not in _OVER:
            raise futures.TimeoutError("the request was not answered within the timeout")

    def _leave(self, sleeper: Sleeper) -> bool:
        with self._condition:
            if sleeper not in self._sleepers:
                return False
            self._sleepers.remove(sleeper)
            return True

    def result(self, timeout: float | None = None) -> Any:
        if self._state not in _OVER:
            self._sleep(timeout)
        if self._exception is not None:
            try:
                raise_answer(self._exception)
            finally:
                self = None  # type: ignore[assignment]  # no cycle through the traceback
        if self._state != FINISHED:
            raise CancelledError
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._state not in _OVER:
            self._sleep(timeout)
        if self._state != FINISHED:
            raise CancelledError
        return self._exception

    def cancel(self) -> bool:
        """Before dispatch: free, and its room is given back. Once it runs: False, and it goes on."""
        if not super().cancel():
            return False
        with self._queue._requests.withdraw(self.ids) as withdrawn:
            if len(withdrawn) == len(self.ids):
                self.begin()  # no worker will: waits for several futures are told here
            mail = Mail()
            with self._condition:
                self._wake(mail)
            mail.send()
        return True


class Call:
    """A call of asubmit(): answered in the loop that asked."""

    __slots__ = ("future", "length", "loop", "payload", "rows")

    def __init__(self, loop: asyncio.AbstractEventLoop, payload: Any, rows: int, length: int) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.payload = payload
        self.rows = rows
        self.length = length

    def begin(self) -> bool:
        return not self.future.cancelled()

    def give(self, result: Any, mail: Mail) -> None:
        mail.letters[self.loop].append((self.future, result, None))

    def fail(self, error: BaseException, mail: Mail) -> None:
        mail.letters[self.loop].append((self.future, None, error))
