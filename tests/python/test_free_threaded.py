"""In a free-threaded Python: the import leaves the GIL off, and threads that run at the same time lose and
mix up nothing. Elsewhere skipped; tools/free_threaded.py runs this there."""

import sys
import threading

import numpy as np
import pytest
from conftest import build_affine, run_threads

import heddle

pytestmark = pytest.mark.skipif(
    getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this Python has a GIL"
)

THREADS = 16


def test_the_module_leaves_the_gil_off():
    assert not sys._is_gil_enabled()


def test_calls_of_all_threads_give_the_sequential_values():
    model = build_affine()
    x = [np.full((1 + who % 5, 8), who, np.float32) for who in range(THREADS)]
    expected = [model(each) for each in x]

    def call(who):
        return sum(bool((model(x[who]) == expected[who]).all()) for _ in range(300))

    assert run_threads(THREADS, call) == [300] * THREADS


def test_arrays_of_all_sizes_and_dtypes_come_back_right_when_numpy_is_found_by_all_at_once():
    """Few bytes are copied into an array that numpy.empty makes, more are held."""

    def call(who):
        graph = heddle.GraphBuilder("negated")
        graph.output(graph.add("Neg", graph.input("x", "f32", ["batch", 8])), "y")
        model = graph.build()
        right = 0
        for rows in (1, 2, 200, 500):
            x = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8) + who
            right += bool((model(x) == -x).all())
        return right

    assert run_threads(THREADS, call) == [4] * THREADS


def test_one_graph_builder_takes_nodes_from_all_threads():
    graph = heddle.GraphBuilder("shared")
    x = graph.input("x", "f32", ["batch", 4])

    def add(who):
        value = x
        for _ in range(2001):
            value = graph.add("Neg", value)
        graph.output(value, f"y{who}")

    run_threads(8, add)
    outputs = graph.build()(np.ones((2, 4), np.float32))
    assert len(outputs) == 8
    assert all((y == -1).all() for y in outputs)


def test_one_event_is_recorded_waited_for_and_asked_by_all_threads():
    event = heddle.Event()
    streams = [heddle.Stream() for _ in range(4)]
    event.record(streams[0])

    def use(who):
        for i in range(60_000):
            if who < 4:
                event.record(streams[who])
            else:
                assert event.query()
            if i % 100 == 0:
                event.wait(timeout=10)
                streams[who % 4].wait_event(event)
        return 60_000

    assert run_threads(8, use) == [60_000] * 8


def test_callbacks_are_set_called_and_dropped_by_all_threads():
    seen = []

    def use(who):
        for i in range(3000):
            heddle.set_log(lambda level, message: seen.append((level, message)))
            if who < 2 and i % 100 == 0:  # logs
                device = heddle.Device.open("host", threads=1)
                device.on_memory_pressure(lambda needed: None)
                device.close()
        return 3000

    try:
        assert run_threads(8, use) == [3000] * 8
    finally:
        heddle.set_log(None)
    assert seen
    assert all("opened device 'host'" in message for _, message in seen)


def test_submissions_of_all_threads_are_answered_once():
    model = build_affine()
    answers = [0] * THREADS

    def submit(who):
        x = np.full((1, 8), who, np.float32)
        futures = [model.submit(x) for _ in range(100)]
        for future in futures:
            answers[who] += bool((future.result(timeout=60) == 2 * who + 1).all())

    run_threads(THREADS, submit)
    assert answers == [100] * THREADS


@pytest.mark.parametrize("workers", [1, 4])
def test_a_queue_of_python_answers_every_request_once_while_its_limits_change(workers):
    calls = threading.Lock()
    rows = [0]

    def doubled(x):
        with calls:
            rows[0] += len(x)
        return x * 2

    with heddle.BatchQueue(doubled, max_batch=8, workers=workers) as queue:

        def submit(who):
            right = 0
            for i in range(100):
                count = 1 + (who + i) % 20  # more than a batch: in parts
                dtype = (np.float32, np.float64, np.int64)[i % 3]  # kinds that are described
                x = np.full((count, 2), who * 1000 + i, dtype)
                y = queue.submit(x).result(timeout=60)
                right += bool(y.dtype == dtype and y.shape == x.shape and (y == 2 * x).all())
                if who == 0:
                    queue.set_limits(max_batch=4 + i % 8)
            return right

        assert run_threads(THREADS, submit) == [100] * THREADS
        metrics = queue.metrics()
    assert metrics.depth == 0
    assert rows[0] == metrics.rows == sum(1 + (who + i) % 20 for who in range(THREADS) for i in range(100))


def test_requests_of_one_kind_are_of_one_group_whoever_describes_the_kind_first():
    kinds = 3000
    with heddle.BatchQueue(lambda x: x) as queue:

        def describe(who):
            return [queue._requests.describe(("kind", i), ((1, 2),))[2] for i in range(kinds)]

        groups = run_threads(8, describe)
    assert all(of_one == groups[0] for of_one in groups)
    assert len(set(groups[0])) == kinds


def test_many_threads_that_wait_for_one_answer_all_wake():
    gate = threading.Event()

    def held(x):
        gate.wait(60)
        return x

    with heddle.BatchQueue(held) as queue:
        for i in range(50):
            gate.clear()
            future = queue.submit(np.full((1, 1), i))

            def wait(who, future=future):
                if who == 0:
                    gate.set()
                return int(future.result(timeout=60)[0, 0])

            assert run_threads(8, wait) == [i] * 8
