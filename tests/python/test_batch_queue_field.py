"""Seen in the field: bad requests, bad callables, futures that are never read, submits at odd moments."""

import concurrent.futures
import contextlib
import gc
import threading
import weakref

import numpy as np
import pytest
from conftest import run_threads
from test_batch_queue import Gate, row

import heddle


class Unhashable:
    """An array-like that cannot be hashed and compares to nothing."""

    __hash__ = None

    def __eq__(self, other):
        raise AssertionError("a request is never compared")

    def __array__(self, dtype=None, copy=None):
        return row(5)


class RaisesInArray:
    def __array__(self, dtype=None, copy=None):
        raise OSError("no such pixels")


def test_a_request_that_is_unhashable():
    with heddle.BatchQueue(lambda x: x + 1) as q:
        assert q.submit(Unhashable()).result(30)[0, 0] == 6
    with heddle.BatchQueue(lambda many: [7 for _ in many], collate=list) as q:
        assert q.submit(Unhashable()).result(30) == 7


def test_a_request_that_raises_in_its_own_array_fails_alone_in_submit():
    gate = Gate()
    with heddle.BatchQueue(gate) as q:
        gate.open.clear()
        good = [q.submit(row(i)) for i in range(3)]
        with pytest.raises(heddle.InvalidError, match="OSError: no such pixels") as raised:
            q.submit(RaisesInArray())
        assert isinstance(raised.value.__cause__, OSError)
        with pytest.raises(heddle.InvalidError, match=r"argument 0\['b'\]"):
            q.submit({"a": row(1), "b": RaisesInArray()})
        gate.open.set()
        assert [future.result(30)[0, 0] for future in good] == [0, 2, 4]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (3.0, "has no rows"),
        (object(), "cannot be stacked"),
        (np.zeros((0, 3)), "no rows"),
        ((row(1), np.zeros((2, 3))), "equally many rows"),
        ((), "no array"),
    ],
)
def test_what_cannot_be_stacked_is_refused_by_name(request_, says):
    with heddle.BatchQueue(lambda x: x) as q, pytest.raises(heddle.InvalidError, match=says):
        q.submit(request_)


@pytest.mark.parametrize(
    ("callable_", "says"),
    [
        (lambda x: x[:-1], "ndarray of"),
        (lambda x: np.concatenate([x, x]), "ndarray of"),
        (lambda x: [1] * (len(x) + 1), "list of"),
        (lambda x: None, "NoneType"),
        (lambda x: (y for y in x), "generator"),
        (lambda x: 1.5, "float"),
        (lambda x: np.float32(1), "float32"),
        (lambda x: (x, None), "NoneType"),
        (lambda x: {}, "dict"),
    ],
    ids=["short", "long", "long list", "None", "generator", "number", "scalar", "None in a tuple", "empty"],
)
@pytest.mark.parametrize("count", [1, 4])
def test_a_callable_that_gives_no_result_per_row(callable_, says, count):
    gate = Gate(callable_)
    with heddle.BatchQueue(gate) as q:
        gate.open.clear()
        futures = [q.submit(row(i)) for i in range(count)]
        gate.open.set()
        for future in futures:
            with pytest.raises(heddle.InvalidError, match=f"callable returned {says}"):
                future.result(30)
        gate.then = lambda x: x
        assert q.submit(row(9)).result(30)[0, 0] == 9  # the queue goes on


@pytest.mark.parametrize("make", [row, lambda v: (row(v), row(v)), lambda v: {"a": row(v)}])
def test_a_callable_that_returns_its_input(make):
    gate = Gate(lambda x: x)
    with heddle.BatchQueue(gate) as q:
        x = make(1.0)
        alone = q.submit(x).result(30)
        gate.open.clear()
        futures = [q.submit(make(float(v))) for v in range(4)]
        gate.open.set()
        results = [future.result(30) for future in futures]

    def arrays(tree):
        return (
            list(tree.values())
            if isinstance(tree, dict)
            else list(tree)
            if isinstance(tree, tuple)
            else [tree]
        )

    for got in arrays(alone):
        assert not any(np.shares_memory(got, one) for one in arrays(x))
    for v, result in enumerate(results):
        for got in arrays(result):
            assert (got == v).all()
            assert got.base is None  # a kept row does not keep its batch


def test_ten_thousand_futures_at_once():
    with heddle.BatchQueue(lambda x: x * 3, max_batch=256) as q:
        futures = [q.submit(row(i, 1)) for i in range(10_000)]
        assert [future.result(60)[0, 0] for future in futures] == [3 * i for i in range(10_000)]
        assert q.metrics().rows == 10_000


def test_a_caller_that_never_looks_at_its_future():
    with heddle.BatchQueue(lambda x: x) as q:
        for i in range(100):
            q.submit(row(i))
        forgotten = weakref.ref(q.submit(row(100)))
        q.drain()
        assert q.metrics().total["count"] == 101
        for _ in range(100):
            if forgotten() is None:
                break
            gc.collect()
        assert forgotten() is None


def test_submit_from_a_callback_of_a_future_of_the_same_queue():
    with heddle.BatchQueue(lambda x: x + 1) as q:
        last = concurrent.futures.Future()

        def again(future):
            value = future.result()
            if value[0, 0] < 50:
                q.submit(value).add_done_callback(again)
            else:
                last.set_result(value[0, 0])

        q.submit(row(0)).add_done_callback(again)
        assert last.result(30) == 50


def test_submit_from_a_callback_never_waits_for_room_that_only_its_own_thread_makes():
    gate = Gate()
    with heddle.BatchQueue(gate, capacity=1, full_wait=20) as q:
        gate.open.clear()
        first = q.submit(row(0))
        assert gate.entered.acquire(timeout=30)
        outcome = concurrent.futures.Future()

        def submits_two(_):
            try:
                q.submit(row(2))
                q.submit(row(3))
                outcome.set_result(None)
            except heddle.ExhaustedError as error:
                outcome.set_result(error)

        first.add_done_callback(submits_two)
        gate.open.set()
        assert isinstance(outcome.result(10), heddle.ExhaustedError)


def test_submit_during_close_is_answered_or_refused():
    for _ in range(20):
        q = heddle.BatchQueue(lambda x: x, max_batch=4)
        begun = threading.Barrier(5)

        def body(thread, q=q, begun=begun):
            begun.wait()
            if thread == 4:
                q.close()
                return []
            futures = []
            try:
                for i in range(200):
                    futures.append((i, q.submit(row(i))))
            except heddle.UnavailableError:
                pass
            return futures

        for futures in run_threads(5, body):
            for i, future in futures:
                assert future.done() or future.exception(10) is not None or future.result(10) is not None
                error = future.exception(10)
                assert error is None or isinstance(error, heddle.UnavailableError)
                assert error is not None or future.result()[0, 0] == i


def test_results_that_come_late_for_a_callers_patience_disturb_nobody():
    gate = Gate()
    with heddle.BatchQueue(gate) as q:
        gate.open.clear()
        future = q.submit(row(1))
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(0.01)
        assert future.running() or not future.done()
        gate.open.set()
        assert future.result(30)[0, 0] == 2


def test_threads_that_stop_waiting_keep_nobody_asleep():
    with heddle.BatchQueue(lambda x: x + 1, max_batch=16) as q:

        def body(thread):
            for i in range(200):
                future = q.submit(row(i))
                if thread % 2:
                    with contextlib.suppress(concurrent.futures.TimeoutError):
                        future.result(i % 5 * 1e-4)
                assert future.result(30)[0, 0] == i + 1

        run_threads(16, body)
        assert q.metrics().rows == 16 * 200
