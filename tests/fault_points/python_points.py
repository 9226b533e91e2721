"""Each way through a BatchQueue of Python's, and Model.asubmit, meets every fault of the simulated device at
every call of the driver where it can come; and tasks and futures are cancelled at every call of the driver.

Run: `python tools/python_simulated.py python -m pytest tests/fault_points/python_points.py`; pytest does not
take it by itself. Threads are real, so that the n-th call is not the same one each time: n grows until the
fault comes no more.
"""

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import itertools
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

import heddle
from heddle.batching import queue as queue_module
from heddle.batching.answers import BatchFuture, Call

LIMIT_S = 60.0  # of a trial, and of each of its waits: then it hangs, and the process ends with all stacks
MOST = 4  # rows in a batch
SOON_S = 5.0
HANG_S = 0.1  # hang_after= and timeout=, where a fault hangs

# The words of src/drivers/sim/fault_plan.h, and what users get.
EXHAUSTED, GONE, LOST = heddle.ExhaustedError, heddle.UnavailableError, heddle.DeviceLostError
FAULTS: dict[str, type[heddle.Error] | None] = {
    "allocation": EXHAUSTED, "device_memory": EXHAUSTED, "staging_memory": EXHAUSTED, "make_queue": EXHAUSTED,
    "load": GONE, "compile": GONE, "slow_compile": None, "submit": GONE, "queue": LOST, "device": LOST,
    "device_in_call": LOST, "hang": heddle.DeadlineError, "lost": heddle.DeadlineError, "late": None,
    "twice": None,
}  # fmt: skip
HANGS = ("hang", "lost")
ASKED_AGAIN = ("allocation", "device_memory", "staging_memory")  # refused once: nobody notices
MAY_LAST = (*ASKED_AGAIN, "make_queue", "compile", "submit", "late")

library = ctypes.CDLL("libheddle.so.0")  # the one that heddle has loaded
_ask = library._ZN6heddle9sim_hooks3askEPKc
_ask.restype, _ask.argtypes = ctypes.c_int64, [ctypes.c_char_p]
_at_each_call = library._ZN6heddle9sim_hooks12at_each_callEPFvvE
Called = ctypes.CFUNCTYPE(None)


def ask(words: str) -> int:
    answer: int = _ask(words.encode())
    assert answer >= 0, f"the simulated device does not know {words!r}"
    return answer


@contextlib.contextmanager
def at_each_call(function: Callable[[], None]):
    """Calls it on the thread that calls the driver, at each of these calls."""
    kept = Called(function)
    _at_each_call(kept)
    try:
        yield
    finally:
        _at_each_call(None)


class Asked(Call):
    """Counts its answers."""

    __slots__ = ("answers",)
    all: ClassVar[list["Asked | Promised"]] = []

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.answers = 0
        self.all.append(self)

    def give(self, result: Any, mail: Any) -> None:
        self.answers += 1
        super().give(result, mail)

    def fail(self, error: BaseException, mail: Any) -> None:
        self.answers += 1
        super().fail(error, mail)

    def expected(self) -> range:
        """Of a request in parts, each that fails says so."""
        parts = -(-self.rows // MOST)
        return range(0 if self.future.cancelled() else 1, parts + 1) if self.future.done() else range(1)


class Promised(BatchFuture):
    """The same for submit()."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.answers = 0
        Asked.all.append(self)

    def _end(self, *args: Any) -> None:
        self.answers += 1
        super()._end(*args)

    def expected(self) -> range:
        return range(0 if self.cancelled() else 1, 2) if self.ids else range(1)


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    gc.collect()
    gc.freeze()  # looking for what a trial leaves need not look at all else
    monkeypatch.setattr(queue_module, "Call", Asked)
    monkeypatch.setattr(queue_module, "BatchFuture", Promised)
    monkeypatch.setattr(logging.getLogger("concurrent.futures"), "disabled", True)  # of what callbacks raise
    monkeypatch.setattr(logging.getLogger("heddle"), "disabled", True)


def weight(first: float) -> Any:
    return (first + 0.01 * (np.arange(64) % 7)).astype(np.float32).reshape(8, 8)


def rows(count: int, value: float) -> Any:
    return np.full((count, 8), value, np.float32) + np.arange(8, dtype=np.float32) / 16


def is_right(x: Any, y: Any) -> bool:
    return bool(np.allclose(y, np.tanh(x @ weight(0.1)) @ weight(-0.2), rtol=1e-4, atol=1e-5))


class World:
    """A device of its own and a model on it."""

    def __init__(self) -> None:
        self.device = heddle.Device.open("sim")
        graph = heddle.GraphBuilder("products")
        inner = graph.add("Tanh", graph.add("MatMul", graph.input("x", "f32", ["batch", 8]),
                                            graph.constant(weight(0.1))))  # fmt: skip
        graph.output(graph.add("MatMul", inner, graph.constant(weight(-0.2))), "y")
        self.model = graph.build(self.device)
        assert self.works()

    def works(self) -> bool:
        x = rows(2, 0.3)
        return is_right(x, self.model(x, timeout=LIMIT_S))

    def levels(self) -> dict[str, int]:
        gc.collect()
        with contextlib.suppress(heddle.Error):
            self.device.synchronize()
        ask("idle")
        self.device.empty_cache()
        stats = self.device.stats()
        return {"device": stats["allocated"], "staging": ask("staging"), "driver": ask("bytes")}

    def is_back_at(self, before: dict[str, int]) -> bool:
        """Soon: a thread of the runtime's lets go of what a call has left in flight."""
        end = time.monotonic() + SOON_S
        while (now := self.levels()) != before and time.monotonic() < end:
            threading.Event().wait(0.002)
        return now == before


@dataclass
class Trial:
    world: World
    fault: str | None = None
    failed: int = 0
    answered: int = 0
    cancelled: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def hangs(self) -> bool:
        return self.fault in HANGS

    def queue(self, fn: Any = None, **options: Any) -> heddle.BatchQueue:
        hang_after = HANG_S if self.hangs else None
        named = {"max_batch": MOST, "max_wait": 0.0005, "hang_after": hang_after, **options}
        return heddle.BatchQueue(self.world.model if fn is None else fn, **named)

    def may_fail_with(self, error: BaseException) -> bool:
        if self.fault is None or FAULTS[self.fault] is None:
            return False
        return isinstance(error, GONE if self.hangs and isinstance(error, GONE) else FAULTS[self.fault])

    def note(self, name: str, x: Any, answer: Any, mine: type[BaseException] | None = None) -> None:
        """`mine`: what the request has to end with by itself."""
        self.answered += 1
        if not isinstance(answer, BaseException):
            assert mine is None, f"{name} ended well"
            assert is_right(x, answer), f"{name} has wrong values"
        elif mine is None or not isinstance(answer, mine):
            assert self.may_fail_with(answer), f"{name} ended with {answer!r}"
            self.failed += 1

    async def all(self, name: str, asked: list[tuple[Any, Any]]) -> None:
        tasks = [asyncio.ensure_future(awaitable) for _, awaitable in asked]
        await asyncio.wait_for(asyncio.wait(tasks), LIMIT_S)
        for (x, _), task in zip(asked, tasks, strict=True):
            self.note(name, x, task.exception() or task.result())


# ---- the ways


async def of_a_model(trial: Trial, queue: heddle.BatchQueue) -> None:
    await trial.all("asubmit", [(x, queue.asubmit(x)) for x in (rows(1, 0.1), rows(3, 0.2), rows(1, 0.3))])


async def from_a_thread(trial: Trial, queue: heddle.BatchQueue) -> None:
    """submit() beside asubmit(), with done-callbacks that raise, in the loop and on the worker."""
    loop = asyncio.get_running_loop()
    raised: list[BaseException] = []
    loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
    x, z = rows(2, 0.4), rows(1, 0.5)
    told = Counter[str]()

    def raises(done: Any) -> None:
        told[type(done).__name__] += 1
        raise ValueError("of a callback")

    future = queue.submit(x)
    future.add_done_callback(raises)
    task = asyncio.ensure_future(queue.asubmit(z))
    task.add_done_callback(raises)
    await trial.all("beside submit", [(z, task)])
    answer = await loop.run_in_executor(None, lambda: future.exception(LIMIT_S) or future.result())
    trial.note("submit", x, answer)
    await loop.run_in_executor(None, queue.drain, LIMIT_S)  # so the callbacks have been called
    assert told == {"Promised": 1, "Task": 1}
    assert [str(error) for error in raised] == ["of a callback"]


async def of_a_callable(trial: Trial, queue: heddle.BatchQueue) -> None:
    """One request makes it raise: the others are right."""
    good = [rows(1, 0.1), rows(1, 0.2)]
    tasks = [asyncio.ensure_future(queue.asubmit(x)) for x in (good[0], rows(1, 13), good[1])]
    await asyncio.wait_for(asyncio.wait(tasks), LIMIT_S)
    for task, x, mine in zip(tasks, (good[0], None, good[1]), (None, ValueError, None), strict=True):
        trial.note("a callable's request", x, task.exception() or task.result(), mine)


def calls_the_model(trial: Trial) -> heddle.BatchQueue:
    def call(x: Any) -> Any:
        # The first stream that a new device leases is a queue that the driver makes.
        with heddle.stream(heddle.Stream(trial.world.device)):
            y = trial.world.model(x)
        if (x > 12).any():
            raise ValueError("thirteen")
        return y

    return trial.queue(call, retry=True)


async def cut_and_joined(trial: Trial, queue: heddle.BatchQueue) -> None:
    x, z = rows(9, 0.6), rows(1, 0.7)
    await trial.all("asubmit in parts", [(x, queue.asubmit(x)), (z, queue.asubmit(z))])


async def room_awaited(trial: Trial, queue: heddle.BatchQueue) -> None:
    await trial.all(
        "asubmit into a full queue", [(x, queue.asubmit(x)) for x in (rows(1, i / 8) for i in range(4))]
    )


async def with_deadlines(trial: Trial, queue: heddle.BatchQueue) -> None:
    """What waits behind a batch that hangs gets its deadline's error, or that of hang_after."""
    bound = HANG_S / 2 if trial.hangs else LIMIT_S
    asked = [(x, queue.asubmit(x, timeout=bound)) for x in (rows(4, 0.1), rows(4, 0.2), rows(1, 0.3))]
    await trial.all("asubmit with a deadline", asked)


async def without_a_queue(trial: Trial, queue: heddle.BatchQueue) -> None:
    bound = HANG_S if trial.hangs else LIMIT_S
    asked = [(x, trial.world.model.asubmit(x, timeout=bound)) for x in (rows(1, 0.1), rows(3, 0.2))]
    await trial.all("a model's asubmit", asked)


async def withdrawn(trial: Trial, queue: heddle.BatchQueue) -> None:
    """A task and a future are cancelled at the first call of the driver, or while they wait."""
    loop = asyncio.get_running_loop()
    stays, goes = rows(1, 0.8), rows(1, 0.9)
    tasks = [asyncio.ensure_future(queue.asubmit(x)) for x in (stays, goes, goes)]
    begun = loop.create_future()
    loop.call_soon(begun.set_result, None)
    await begun  # all have asked
    future = queue.submit(goes)
    tasks[1].cancel()
    went = future.cancel()
    await asyncio.wait_for(asyncio.wait(tasks), LIMIT_S)
    assert tasks[1].cancelled()
    if not went:
        trial.note("a future that ran", goes, await loop.run_in_executor(
            None, lambda: future.exception(LIMIT_S) or future.result()))  # fmt: skip
    for task, x in ((tasks[0], stays), (tasks[2], goes)):
        trial.note("beside one that is cancelled", x, task.exception() or task.result())


Way = tuple[Callable[..., Any], Callable[[Trial], heddle.BatchQueue]]
WAYS: dict[str, Way] = {
    "asubmit": (of_a_model, Trial.queue),
    "asubmit beside submit, callbacks that raise": (from_a_thread, Trial.queue),
    "asubmit to a callable that raises": (of_a_callable, calls_the_model),
    "asubmit in parts": (cut_and_joined, Trial.queue),
    "asubmit into a full queue": (room_awaited, lambda trial: trial.queue(capacity=1, max_batch=1)),
    "asubmit with deadlines": (with_deadlines, Trial.queue),
    "asubmit, cancelled": (withdrawn, Trial.queue),
    "a model's asubmit": (without_a_queue, Trial.queue),
}


def answered_once() -> None:
    for each in Asked.all:
        assert each.answers in each.expected(), f"{each.answers} answers to {each}"
    Asked.all.clear()


def leaves_it_whole(world: World, before: dict[str, int]) -> None:
    assert world.is_back_at(before), f"before {before}, now {world.levels()}"
    lost = bool(ask("lost"))
    for _ in range(2):
        try:
            assert world.works()
            assert not lost
        except heddle.DeviceLostError:
            assert lost
    assert world.is_back_at(before), f"before {before}, now {world.levels()}"
    assert ask("violations") == 0


def run_trial(name: str, fault: str | None, nth: int, lasting: bool) -> tuple[bool, Counter[str]]:
    """Whether the fault came, and how often each could have."""
    run, make = WAYS[name]
    world = World()
    before = world.levels()
    trial = Trial(world, fault)
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    ask(f"fault {fault} {nth}{'+' if lasting else ''}" if fault else "count")
    queue = make(trial)
    asyncio.run(run(trial, queue))
    points = Counter({} if fault else {word: ask(f"passed {word}") for word in FAULTS})
    came = fault is not None and (lasting or not ask(f"armed {fault}"))
    ask("reset")
    queue.close()
    answered_once()
    # A slow machine may take longer than hang_after, with no hang.
    if fault is None or (not came and not trial.hangs) or (fault in ASKED_AGAIN and not lasting):
        assert trial.failed == 0, f"{trial.failed} failed without a reason"
    leaves_it_whole(world, before)
    faulthandler.cancel_dump_traceback_later()
    return came, points


trials: Counter[str] = Counter()


@pytest.mark.parametrize("name", WAYS)
def test_every_fault_at_every_call_is_answered_once_and_leaves_the_device_whole_or_named_lost(name):
    seen = Counter[str]()
    for _ in range(2):  # what a process makes once, the first has made
        points = run_trial(name, None, 0, False)[1]
    for fault in FAULTS:
        for nth in itertools.count(1):
            try:
                came = run_trial(name, fault, nth, False)[0]
                if came and fault in MAY_LAST:
                    run_trial(name, fault, nth, True)
                    seen[fault] += 1
            except BaseException as error:
                raise AssertionError(f"{name!r}, fault {fault} {nth}") from error
            seen[fault] += came
            if not came and nth > points[fault]:
                break
    assert sum(seen.values()) > 30
    trials.update(seen)
    print(f"\n{name}: {sum(seen.values())} trials", file=sys.stderr)


def cancelled_at(nth: int, by_task: bool) -> bool:
    """Whether there were so many calls."""
    world = World()
    before = world.levels()
    trial = Trial(world)
    calls = itertools.count(1)
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    queue = trial.queue()
    came = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stays, goes = rows(2, 0.1), rows(1, 0.2)
        task = asyncio.ensure_future(queue.asubmit(goes))
        future = queue.submit(goes)

        def called() -> None:
            if next(calls) == nth:
                came.append(nth)
                loop.call_soon_threadsafe(task.cancel) if by_task else future.cancel()

        with at_each_call(called):
            await trial.all("beside one that is cancelled", [(stays, queue.asubmit(stays))])
            await asyncio.wait_for(asyncio.wait([task, asyncio.wrap_future(future)]), LIMIT_S)
        for one in (task, future):
            if one.cancelled():
                trial.cancelled += 1
            else:
                trial.note("one that may be cancelled", goes, one.exception() or one.result())

    asyncio.run(main())
    queue.close()
    answered_once()
    assert trial.failed == 0
    assert trial.answered + trial.cancelled == 3
    leaves_it_whole(world, before)
    faulthandler.cancel_dump_traceback_later()
    return bool(came)


@pytest.mark.parametrize("by_task", [True, False])
def test_a_task_or_a_future_cancelled_at_every_call_leaves_the_others_right(by_task):
    count = next(nth for nth in itertools.count(1) if not cancelled_at(nth, by_task)) - 1
    assert count > 5
    trials["cancelled"] += count
    print(f"\n{'task' if by_task else 'future'} cancelled: {count} trials", file=sys.stderr)


def test_no_fault_was_left_out():
    """Last: how many trials there were, by fault."""
    world = World()
    assert ask("faults") == len(FAULTS), world
    assert {fault for fault in FAULTS if not trials[fault]} == {"load"}  # a queue loads no model
    print(f"\n{sum(trials.values())} trials: {dict(trials)}", file=sys.stderr)
