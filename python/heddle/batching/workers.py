"""The threads of one BatchQueue: workers that take batches and answer them, and a keeper that watches both.

A worker that ends by a BaseException fails its requests with `unavailable` and is replaced; one that hangs
is noticed by the keeper, which answers its batch. Who serves, hangs and is replaced, ``_heddle.Requests``
knows. All are daemon threads, ended by shut(), which an atexit handler calls.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import errors
from .._heddle import Model, Owed, Requests
from ..errors import DeadlineError, DeviceLostError, UnavailableError
from .answers import Mail
from .rows import Rows

_log = logging.getLogger("heddle")
_EXIT_S = 5.0  # at exit, for batches that still run


@dataclass
class Outcome:
    """What became of some requests that ran together: a way to give them their results, or one error."""

    jobs: list[Any]
    give: Callable[[Mail], None] | None = None
    error: BaseException | None = None

    def tell(self, mail: Mail) -> bool:
        """True: they failed together."""
        if self.give is not None:
            try:
                self.give(mail)
                return False
            except Exception as wrong:
                self.error = wrong
        assert self.error is not None
        for job in self.jobs:
            job.fail(self.error, mail)
        return True


@dataclass(frozen=True)
class Seats:
    """A model's own way to run requests together: rows are staged in C++, each keeps its own error."""

    model: Callable[[], Model | None]
    item: bool = False

    def _found(self) -> Model:
        model = self.model()
        assert model is not None  # its callers wait for this
        return model

    def __call__(self, *arrays: Any) -> Any:
        return self._found()(*arrays)

    def group(self, *arrays: Any) -> tuple[int, ...]:
        return self._found()._group(*arrays)

    def run(self, jobs: list[Any], formed: Callable[[], None]) -> list[Any]:
        return self._found()._run_together([job.payload for job in jobs], formed)

    def give(self, outcomes: list[Any], jobs: list[Any], mail: Mail) -> None:
        for job, (result, error) in zip(jobs, outcomes, strict=True):
            if error is not None:
                job.fail(error, mail)
            elif self.item:
                job.give(tuple(y[0] for y in result) if isinstance(result, tuple) else result[0], mail)
            else:
                job.give(result, mail)


@dataclass(eq=False)
class Workers:
    requests: Requests
    rows: Rows
    call: Callable[..., Any] | None
    setup: Callable[[], Any] | None
    seats: Seats | None
    retry: bool
    samples: Sequence[tuple[Any, ...]]
    name: str

    def __post_init__(self) -> None:
        self.idents: set[int] = set()
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # the threads; held for a few assignments
        self._threads: set[threading.Thread] = set()
        self._hung: set[threading.Thread] = set()
        self._replaced: set[threading.Thread] = set()  # of the hung; each ends when it comes back
        self._running: dict[int, tuple[threading.Thread, list[Any]]] = {}
        self._keeper: threading.Thread | None = None
        with _living_lock:
            _living.add(self)
        if errors.exit_has_begun():
            self.requests.close()  # shut_all may have looked before this queue was there

    # ---- threads

    def start(self, count: int, watched: bool) -> None:
        for _ in range(count):
            self._start_worker()
        if watched:
            self.keep()

    def _start_worker(self) -> None:
        thread = threading.Thread(target=self._main, name=f"{self.name}-{next(self._numbers)}", daemon=True)
        with self._lock:
            if self.requests.closed:
                return
            self._threads.add(thread)
        thread.start()

    def keep(self) -> None:
        """Starts the keeper, which is needed once a request has a deadline or hanging is watched."""
        if self._keeper is not None:
            return
        with self._lock:
            if self._keeper is not None or self.requests.closed:
                return
            keeper = threading.Thread(target=self._keep, name=f"{self.name}-keeper", daemon=True)
            self._keeper = keeper
        keeper.start()

    def _main(self) -> None:
        thread = threading.current_thread()
        self.idents.add(threading.get_ident())
        call, died = None, None
        try:
            call = self._prepare()
            self._serve(thread, call)
        except BaseException as error:
            died = error
        self.idents.discard(threading.get_ident())
        with self._lock:
            self._threads.discard(thread)
        if died is None or errors.exit_ends_this_thread():
            return
        why = f"a worker {'died of' if call else 'could not start:'} {type(died).__name__}: {died}"
        if call is None:
            _log.warning("%s: %s", self.name, why)
            gone = UnavailableError(why)
            gone.__cause__ = died
            self.fail_all(self.requests.lost_worker(why), gone)
        elif thread not in self._replaced and self.requests.worker_died(why):
            _log.warning("%s: %s; it is replaced", self.name, why)
            self._start_worker()

    def _prepare(self) -> Callable[..., Any]:
        made = self.setup() if self.setup is not None else None
        call = made if callable(made) else self.call
        if call is None:
            raise UnavailableError("setup= returned nothing to call, and the queue was given no callable")
        for sample in self.samples:
            call(*sample)
        return call

    def fail_all(self, owed: Owed | None, error: BaseException, batch: Sequence[Any] = ()) -> None:
        if owed is None:
            return
        mail = Mail()
        with owed as waited:
            for job in [*batch, *waited]:
                if job.begin():
                    job.fail(error, mail)
            mail.send()

    # ---- a worker's work

    def _serve(self, thread: threading.Thread, call: Callable[..., Any]) -> None:
        while thread not in self._replaced:
            work = self.requests.take()
            if work is None:
                return
            ticket, jobs, expired = work
            self._expire(expired)
            if ticket:
                self._running[ticket] = thread, jobs
                self._run(thread, ticket, jobs, call)
            del work, jobs, expired  # an idle worker keeps no answer alive

    def _expire(self, owed: Owed | None) -> None:
        if owed is not None:
            self.fail_all(owed, DeadlineError("the request was not run before its timeout"))

    def _run(self, thread: threading.Thread, ticket: int, jobs: list[Any], call: Callable[..., Any]) -> None:
        requests = self.requests
        mail = Mail()
        failed = True
        owed = None
        try:
            live = [job for job in jobs if job.begin()]
            outcomes = self._outcomes(call, live, ticket) if live else []
            owed = requests.ran(ticket)
            if owed is None:
                return  # it hung, and the keeper answered
            failed = False
            for outcome in outcomes:
                failed |= outcome.tell(mail)
        except BaseException as error:
            owed = owed or requests.ran(ticket)
            if owed is not None:
                gone = UnavailableError(f"the worker died of {type(error).__name__}: {error}")
                gone.__cause__ = error
                for job in jobs:
                    if job.begin():
                        job.fail(gone, mail)
            raise
        finally:
            lingers = len(mail.sleepers) > 1  # the next batch waits until its callers have been woken
            if not requests.finish(ticket, failed, lingers):
                self._replaced.add(thread)
            self._running.pop(ticket, None)
            self._hung.discard(thread)
            with owed or contextlib.nullcontext():
                mail.send(functools.partial(requests.told, ticket) if lingers else None)

    def _outcomes(self, call: Callable[..., Any], jobs: list[Any], ticket: int) -> list[Outcome]:
        """One, or more to find a bad request."""
        formed = functools.partial(self.requests.formed, ticket)
        try:
            if self.seats is not None:
                return [Outcome(jobs, functools.partial(self.seats.give, self.seats.run(jobs, formed), jobs))]
            args = self.rows.stack(jobs)
            formed()
            return [Outcome(jobs, functools.partial(self._give, call(*args), jobs, args))]
        except Exception as error:
            if not self.retry or isinstance(error, DeviceLostError) or len(jobs) == 1:
                return [Outcome(jobs, error=error)]
        half = len(jobs) // 2
        first = self._outcomes(call, jobs[:half], ticket)
        for outcome in first:
            if isinstance(outcome.error, DeviceLostError):  # nothing is run on it again
                return [*first, Outcome(jobs[half:], error=outcome.error)]
        return first + self._outcomes(call, jobs[half:], ticket)

    def _give(self, result: Any, jobs: list[Any], args: tuple[Any, ...], mail: Mail) -> None:
        for job, part in zip(jobs, self.rows.split(result, jobs, args), strict=True):
            job.give(part, mail)

    # ---- the keeper's

    def _keep(self) -> None:
        while True:
            expired, hung, closed = self.requests.care()
            self._expire(expired)
            for ticket in hung:
                self._hangs(ticket)
            if closed:
                return

    def _hangs(self, ticket: int) -> None:
        found = self._running.get(ticket)
        if found is None:
            return
        thread, jobs = found
        self._hung.add(thread)  # first: it may come back at any time
        hang = self.requests.hang(ticket)
        if hang is None:  # it did
            self._hung.discard(thread)
            return
        replace, owed = hang
        reason = self.requests.health().reason
        _log.warning("%s: %s", self.name, reason)
        self.fail_all(owed, UnavailableError(reason), jobs)
        if replace:
            self._start_worker()

    # ---- the owner's

    def shut(self, timeout: float | None = None) -> None:
        """Fails what waits with `unavailable` and waits for running batches, whose requests get it, too, when
        the timeout passes first; and for answers that others give."""
        if os.getpid() != self._pid:
            return
        closed = UnavailableError("the queue was closed before the request ran")
        self.fail_all(self.requests.close(), closed)
        with self._lock:
            threads = [*(self._threads - self._hung), *([self._keeper] if self._keeper else [])]
        end = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(None if end is None else max(0.0, end - time.monotonic()))
        if timeout is not None:
            for ticket, (_, jobs) in list(self._running.items()):
                late = UnavailableError("the queue was closed while the request ran")
                self.fail_all(self.requests.abandon(ticket), late, jobs)
        with contextlib.suppress(DeadlineError):
            self.requests.drain(None if end is None else max(0.0, end - time.monotonic()))


_living: weakref.WeakSet[Workers] = weakref.WeakSet()
_living_lock = threading.Lock()


def shut_all() -> None:
    """Shuts every queue of the process, and waits a while for the batches that run."""
    errors.begin_exit()
    with _living_lock:
        living = list(_living)
    for workers in living:
        workers.shut(_EXIT_S)


# Later than the extension's own handler, so it runs before that one waits for threads inside Heddle.
atexit.register(shut_all)
