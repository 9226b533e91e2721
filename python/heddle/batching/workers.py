"""The threads of one BatchQueue: workers that take batches and answer them, and a keeper that watches both.

A worker that ends by a BaseException fails its requests with `unavailable` and is replaced; one that hangs
is noticed by the keeper, which answers its batch, and is replaced unless it is the only owner of something
(``workers=1`` without ``replace_hung``). All are daemon threads, ended by shut(), which an atexit handler
calls.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import errors
from .._heddle import Model, Requests
from ..errors import DeadlineError, DeviceLostError, Error, UnavailableError
from .answers import Mail
from .rows import Rows

_log = logging.getLogger("heddle")
_EXIT_S = 5.0  # at exit, for batches that still run


@dataclass(frozen=True)
class Health:
    """``status`` is ok, degraded (some workers are gone or hang), unavailable (all), draining or closed."""

    status: str
    reason: str
    workers: int
    hung: int
    restarts: int


class Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.thread: threading.Thread | None = None
        self.hung = False
        self.replaced = False


class Outcome:
    """What became of some requests that ran together: a way to give them their results, or one error."""

    def __init__(
        self, jobs: list[Any], give: Callable[[Mail], None] | None = None, error: BaseException | None = None
    ) -> None:
        self.jobs = jobs
        self.give = give
        self.error = error

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


class Seats:
    """A model's own way to run requests together: rows are staged in C++, each keeps its own error."""

    def __init__(self, model: Callable[[], Model | None], item: bool = False) -> None:
        self.model = model
        self.item = item

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


class Workers:
    def __init__(
        self,
        requests: Requests,
        rows: Rows,
        call: Callable[..., Any] | None,
        setup: Callable[[], Any] | None,
        seats: Seats | None,
        *,
        name: str,
        count: int,
        retry: bool,
        replace_hung: bool,
        hang_after: float | None,
        samples: Sequence[tuple[Any, ...]],
    ) -> None:
        self.requests = requests
        self.rows = rows
        self.call = call
        self.setup = setup
        self.seats = seats
        self.name = name
        self.retry = retry
        self.replace_hung = replace_hung or count > 1
        self.hang_after = hang_after
        self.samples = samples
        self.room_seekers: deque[Callable[[], None]] = deque()  # calls in event loops that wait for room
        self.idents: set[int] = set()
        self.draining = False
        self.restarts = 0
        self.reason = ""
        self._pid = os.getpid()
        self._lock = threading.Lock()  # the lists of workers; held for a few assignments
        self._workers: list[Worker] = []
        self._made = 0
        self._running: dict[int, tuple[Worker, list[Any]]] = {}
        self._keeper: threading.Thread | None = None
        _living.add(self)
        if errors.exit_has_begun():
            requests.close()  # shut_all may have looked before this queue was there
        for _ in range(count):
            self._start_worker()
        if hang_after is not None:
            self.keep()

    # ---- threads

    def _start_worker(self) -> None:
        with self._lock:
            if self.requests.closed:
                return
            self._made += 1
            worker = Worker(self._made)
            thread = threading.Thread(
                target=self._main, args=(worker,), name=f"{self.name}-{worker.number}", daemon=True
            )
            worker.thread = thread
            self._workers.append(worker)
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

    def _main(self, worker: Worker) -> None:
        self.idents.add(threading.get_ident())
        try:
            call = self._prepare()
        except BaseException as error:
            self._could_not_start(worker, error)
            return
        died: BaseException | None = None
        try:
            self._serve(worker, call)
        except BaseException as error:
            died = error
        finally:
            self.idents.discard(threading.get_ident())
            with self._lock:
                self._workers.remove(worker)
        if died is not None and not self.requests.closed and not errors.exit_ends_this_thread():
            self.reason = f"a worker died of {type(died).__name__}: {died}"
            if not worker.replaced:
                _log.warning("%s: %s; it is replaced", self.name, self.reason)
                self.restarts += 1
                self._start_worker()

    def _prepare(self) -> Callable[..., Any]:
        made = self.setup() if self.setup is not None else None
        call = made if callable(made) else self.call
        if call is None:
            raise UnavailableError("setup= returned nothing to call, and the queue was given no callable")
        for sample in self.samples:
            call(*sample)
        return call

    def _could_not_start(self, worker: Worker, error: BaseException) -> None:
        self.idents.discard(threading.get_ident())
        self.reason = f"a worker could not start: {type(error).__name__}: {error}"
        _log.warning("%s: %s", self.name, self.reason)
        with self._lock:
            self._workers.remove(worker)
            none_left = not self._workers
        if none_left and not self.requests.closed:
            self._refuse(UnavailableError(self.reason), error)

    def _refuse(self, error: Error, cause: BaseException | None = None) -> None:
        error.__cause__ = cause
        self.fail_all(self.requests.refuse(str(error)), error)

    def fail_all(self, jobs: list[Any], error: BaseException) -> None:
        mail = Mail()
        for job in jobs:
            if job.begin():
                job.fail(error, mail)
        mail.send()
        self.wake_room(len(jobs))

    def wake_room(self, places: int) -> None:
        while places > 0 and self.room_seekers:
            try:
                self.room_seekers.popleft()()
                places -= 1
            except (IndexError, RuntimeError):
                pass  # another thread was quicker, or the seeker's loop is closed

    # ---- a worker's work

    def _serve(self, worker: Worker, call: Callable[..., Any]) -> None:
        while not worker.replaced:
            work = self.requests.take()
            if work is None:
                return
            ticket, jobs, expired = work
            if expired:
                self._expire(expired)
            if ticket:
                self._running[ticket] = worker, jobs
                try:
                    self._run(ticket, jobs, call)
                finally:
                    self._running.pop(ticket, None)
                    if worker.hung:
                        self._recovered(worker)
            if self.room_seekers:
                self.wake_room(len(jobs) + len(expired))
            del work, jobs, expired  # an idle worker keeps no answer alive

    def _expire(self, jobs: list[Any]) -> None:
        self.fail_all(jobs, DeadlineError("the request was not run before its timeout"))

    def _run(self, ticket: int, jobs: list[Any], call: Callable[..., Any]) -> None:
        requests = self.requests
        mail = Mail()
        failed = True
        try:
            live = [job for job in jobs if job.begin()]
            outcomes = self._outcomes(call, live, ticket) if live else []
            if not requests.ran(ticket):
                return  # it hung, and the keeper answered
            failed = False
            for outcome in outcomes:
                failed |= outcome.tell(mail)
        except BaseException as error:
            if requests.ran(ticket):
                gone = UnavailableError(f"the worker died of {type(error).__name__}: {error}")
                gone.__cause__ = error
                for job in jobs:
                    if job.begin():
                        job.fail(gone, mail)
            raise
        finally:
            lingers = len(mail.sleepers) > 1  # the next batch waits until its callers have been woken
            requests.finish(ticket, failed, lingers)
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
            if expired:
                self._expire(expired)
            for ticket in hung:
                self._hangs(ticket)
            if closed:
                return

    def _hangs(self, ticket: int) -> None:
        found = self._running.get(ticket)
        if found is None:
            return
        worker, jobs = found
        self.reason = f"a worker has run one batch for more than hang_after={self.hang_after} s"
        _log.warning("%s: %s", self.name, self.reason)
        worker.hung = True
        worker.replaced = self.replace_hung
        if self.requests.abandon(ticket):
            self.fail_all(jobs, UnavailableError(self.reason))
        if worker.replaced:
            self.restarts += 1
            self._start_worker()
            return
        if all(other.hung for other in self._workers):
            self._refuse(UnavailableError(self.reason + "; new requests are taken when it comes back"))
        if ticket not in self._running:  # it came back meanwhile
            self._recovered(worker)

    def _recovered(self, worker: Worker) -> None:
        worker.hung = False
        self.requests.accept()

    # ---- the owner's

    def health(self) -> Health:
        with self._lock:
            hung = sum(worker.hung and not worker.replaced for worker in self._workers)
            alive = sum(not worker.hung for worker in self._workers)
        if self.requests.closed:
            status = "closed"
        elif alive == 0:
            status = "unavailable"
        elif self.draining:
            status = "draining"
        else:
            status = "degraded" if hung else "ok"
        return Health(status, self.reason, alive, hung, self.restarts)

    def shut(self, timeout: float | None = None) -> None:
        """Fails what waits with `unavailable` and waits for running batches, whose requests get it, too, when
        the timeout passes first."""
        if os.getpid() != self._pid:
            return
        closed = UnavailableError("the queue was closed before the request ran")
        self.fail_all(self.requests.close(), closed)
        self.wake_room(len(self.room_seekers))
        with self._lock:
            threads = [worker.thread for worker in self._workers if not (worker.hung or worker.replaced)]
            threads.append(self._keeper)
        end = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            if thread is not None and thread is not threading.current_thread() and thread.ident is not None:
                thread.join(None if end is None else max(0.0, end - time.monotonic()))
        if timeout is not None:
            for ticket, (_, jobs) in list(self._running.items()):
                if self.requests.abandon(ticket):
                    self.fail_all(jobs, UnavailableError("the queue was closed while the request ran"))


_living: weakref.WeakSet[Workers] = weakref.WeakSet()


def shut_all() -> None:
    """Shuts every queue of the process, and waits a while for the batches that run."""
    errors.begin_exit()
    for workers in list(_living):
        workers.shut(_EXIT_S)


# Later than the extension's own handler, so it runs before that one waits for threads inside Heddle.
atexit.register(shut_all)
