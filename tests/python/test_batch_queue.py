"""BatchQueue: values, structures, sizes, order, deadlines, cancellation, room, splitting, isolation."""

import concurrent.futures
import queue as queues
import threading

import numpy as np
import pytest
from conftest import run_threads

import heddle


class Gate:
    """A callable that notes its batches and, while shut, holds its worker inside."""

    def __init__(self, then=lambda x: x * 2):
        self.then = then
        self.batches = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()

    def __call__(self, *args):
        self.batches.append(args[0])
        self.entered.release()
        assert self.open.wait(30)
        return self.then(*args)

    def sizes(self):
        return [len(batch) for batch in self.batches]


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open.set()


def row(value, width=3):
    return np.full((1, width), value, np.float32)


def hold(gate, batch_queue):
    """Keeps the worker inside a first request, so that what follows waits."""
    gate.open.clear()
    first = batch_queue.submit(row(-1))
    assert gate.entered.acquire(timeout=30)
    return first


def test_every_caller_of_many_gets_its_own_row():
    with heddle.BatchQueue(lambda x: x * 2 + 1, max_batch=16) as q:

        def body(thread):
            for i in range(50):
                value = thread * 1000 + i
                assert np.array_equal(q.submit(row(value)).result(30), row(value * 2 + 1))

        run_threads(16, body)
        metrics = q.metrics()
        assert metrics.rows == metrics.submitted == 16 * 50
        assert metrics.batches < 16 * 50


def test_a_lone_request_runs_at_once_whatever_max_wait_is():
    with heddle.BatchQueue(lambda x: x, max_wait=30) as q:
        for i in range(3):
            assert q.submit(row(i)).result(5)[0, 0] == i


def test_a_batch_never_has_more_rows_than_max_batch(gate):
    with heddle.BatchQueue(gate, max_batch=4) as q:
        hold(gate, q)
        futures = [q.submit(np.full((2, 3), i)) for i in range(5)]
        gate.open.set()
        for i, future in enumerate(futures):
            assert np.array_equal(future.result(30), np.full((2, 3), i) * 2)
        assert gate.sizes()[1:] == [4, 4, 2]


@pytest.mark.parametrize(
    ("cost", "max_cost", "requests", "sizes"),
    [
        ("bytes", 64, [np.zeros((1, 4), np.float32)] * 6, [4, 2]),
        (lambda x: int(x[0, 0]), 10, [np.full((1, 2), v) for v in (4, 6, 1, 9, 8)], [2, 2, 1]),
        ("padded", 12, [np.ones((1, n)) for n in (2, 4, 3, 3, 6)], [3, 2]),
    ],
)
def test_a_batch_never_costs_more_than_max_cost(gate, cost, max_cost, requests, sizes):
    pad = 0 if cost == "padded" else None
    with heddle.BatchQueue(gate, cost=cost, max_cost=max_cost, pad=pad) as q:
        hold(gate, q)
        futures = [q.submit(x) for x in requests]
        gate.open.set()
        concurrent.futures.wait(futures, timeout=30)
        assert all(future.exception() is None for future in futures)
        assert gate.sizes()[1:] == sizes


def test_preferred_sizes_cut_a_batch_back(gate):
    with heddle.BatchQueue(gate, max_batch=16, preferred=[4, 8]) as q:
        hold(gate, q)
        futures = [q.submit(row(i)) for i in range(13)]
        gate.open.set()
        concurrent.futures.wait(futures, timeout=30)
        assert gate.sizes()[1:] == [8, 4, 1]


STRUCTURES = {
    "tuple": (lambda v: (row(v), row(v + 1)), lambda x: (x[0] + x[1], x[1])),
    "list": (lambda v: [row(v), row(v + 1)], lambda x: (x[0] + x[1], x[1])),
    "dict": (lambda v: {"a": row(v), "b": row(v + 1)}, lambda x: {"s": x["a"] + x["b"], "b": x["b"]}),
    "nested": (
        lambda v: {"a": (row(v), {"b": row(v + 1)})},
        lambda x: {"s": x["a"][0] + x["a"][1]["b"], "n": {"b": x["a"][1]["b"]}},
    ),
}


def flat(tree):
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (tuple, list)) else None
    return [tree] if values is None else [leaf for value in values for leaf in flat(value)]


@pytest.mark.parametrize("kind", STRUCTURES)
def test_structures_are_stacked_and_split_leaf_by_leaf(kind):
    make, compute = STRUCTURES[kind]
    gate = Gate(compute)
    with heddle.BatchQueue(gate) as q:
        gate.open.clear()
        futures = [q.submit(make(float(v))) for v in range(6)]
        gate.open.set()
        for v, future in enumerate(futures):
            got = future.result(30)
            assert type(got) is type(compute(make(0.0)))
            assert all(map(np.array_equal, flat(got), flat(compute(make(float(v))))))
        assert q.metrics().batches < 6


def test_requests_of_other_dtype_shape_or_structure_never_share_a_batch(gate):
    gate.then = lambda x, *more: x
    with heddle.BatchQueue(gate) as q:
        hold(gate, q)
        requests = [(row(1),), (row(1).astype(np.int64),), (row(1, 5),), (row(1), row(2))]
        futures = [q.submit(*request) for request in requests * 3]
        gate.open.set()
        for request, future in zip(requests * 3, futures, strict=True):
            got = future.result(30)
            assert got.dtype == request[0].dtype
            assert np.array_equal(got, request[0])
        assert sorted(gate.sizes()[1:]) == [3, 3, 3, 3]


def test_torch_tensors_come_back_as_torch_tensors():
    torch = pytest.importorskip("torch")
    gate = Gate(lambda x: (x * 2, x.sum(1)))
    with heddle.BatchQueue(gate) as q:
        gate.open.clear()
        futures = [q.submit(torch.full((2, 3), float(i))) for i in range(5)]
        gate.open.set()
        for i, future in enumerate(futures):
            doubled, total = future.result(30)
            assert torch.equal(doubled, torch.full((2, 3), 2.0 * i))
            assert torch.equal(total, torch.full((2,), 3.0 * i))
    assert all(isinstance(batch, torch.Tensor) for batch in gate.batches)


def test_items_have_no_row_axis():
    with heddle.BatchQueue(lambda x: x.sum(axis=1), item=True) as q:
        futures = [q.submit(np.arange(4) + i) for i in range(5)]
        assert [future.result(30) for future in futures] == [6 + 4 * i for i in range(5)]


def test_a_list_gives_one_object_per_row_and_collate_takes_anything():
    with heddle.BatchQueue(lambda words: [word.upper() for word in words], collate=list) as q:
        futures = [q.submit(word) for word in ("one", "two", "three")]
        assert [future.result(30) for future in futures] == ["ONE", "TWO", "THREE"]


def test_ragged_rows_are_padded_and_cut_back(gate):
    gate.then = lambda x: x + 1
    with heddle.BatchQueue(gate, pad=-7, cut=True) as q:
        hold(gate, q)
        futures = [q.submit(np.full((2, n), n)) for n in (3, 5, 4)]
        gate.open.set()
        for n, future in zip((3, 5, 4), futures, strict=True):
            assert np.array_equal(future.result(30), np.full((2, n), n + 1))
    batch = gate.batches[1]
    assert batch.shape == (6, 5)
    assert (batch[0] == [3, 3, 3, -7, -7]).all()
    assert (batch[5] == [4, 4, 4, 4, -7]).all()


def test_buckets_keep_lengths_apart_and_hold_nobody_back(gate):
    with heddle.BatchQueue(gate, pad=0, buckets=(4, 8), max_wait=30) as q:
        hold(gate, q)
        futures = [q.submit(np.ones((1, n))) for n in (2, 7, 4, 5)]
        gate.open.set()
        assert [future.result(30).shape for future in futures] == [(1, 4), (1, 8), (1, 4), (1, 8)]
        assert sorted(batch.shape for batch in gate.batches[1:]) == [(2, 4), (2, 8)]
        assert q.submit(np.ones((1, 3))).result(5).shape == (1, 4)  # nothing fills its bucket up
        with pytest.raises(heddle.InvalidError, match="longest bucket is 8"):
            q.submit(np.ones((1, 9)))


def test_priorities_go_first_and_waiting_ages(gate):
    with heddle.BatchQueue(gate, max_batch=1, aging=0.02) as q:
        hold(gate, q)
        old = q.submit(row(1), priority=0)
        assert not concurrent.futures.wait([old], timeout=0.1).done  # five steps of aging
        order = []
        futures = [old, q.submit(row(2), priority=3), q.submit(row(3), priority=9)]
        for number, future in enumerate(futures, 1):
            future.add_done_callback(lambda _, n=number: order.append(n))
        gate.open.set()
        concurrent.futures.wait(futures, timeout=30)
        assert order == [3, 1, 2]


def test_a_deadline_is_kept_while_the_worker_is_busy(gate):
    with heddle.BatchQueue(gate) as q:
        first = hold(gate, q)
        late = q.submit(row(1), timeout=0.05)
        patient = q.submit(row(2))
        with pytest.raises(heddle.DeadlineError):
            late.result(20)
        assert not first.done()
        gate.open.set()
        assert patient.result(30)[0, 0] == 4
        assert all(1 not in batch for batch in gate.batches)  # it was never run
        assert q.metrics().expired == 1


def test_cancelling_a_waiting_request_is_free_and_frees_its_room(gate):
    with heddle.BatchQueue(gate, capacity=1, when_full="fail") as q:
        first = hold(gate, q)
        waiting = q.submit(row(1))
        with pytest.raises(heddle.ExhaustedError):
            q.submit(row(2))
        assert waiting.cancel()
        assert waiting.cancelled()
        assert not first.cancel()  # it runs
        with pytest.raises(concurrent.futures.CancelledError):
            waiting.result(5)
        other = q.submit(row(3))
        done = concurrent.futures.wait([waiting, other, first], timeout=0)
        assert done.done == {waiting}
        gate.open.set()
        assert other.result(30)[0, 0] == 6
        assert first.result(30)[0, 0] == -2
        assert q.metrics().cancelled == 1


def test_a_full_queue_blocks_up_to_its_bound(gate):
    with heddle.BatchQueue(gate, capacity=1, full_wait=0.05) as q:
        hold(gate, q)
        q.submit(row(1))
        with pytest.raises(heddle.ExhaustedError, match="full"):
            q.submit(row(2))
        assert q.metrics().rejected == 1
        gate.open.set()
    with heddle.BatchQueue(gate, capacity=2, max_batch=1) as q:
        gate.open.clear()
        threading.Timer(0.05, gate.open.set).start()
        assert [q.submit(row(i)) for i in range(20)][-1].result(30)[0, 0] == 38


def test_more_rows_than_a_batch_are_split_and_joined():
    gate = Gate(lambda x: (x * 2, {"sum": x.sum(axis=1)}))
    x = np.arange(50 * 3, dtype=np.float32).reshape(50, 3)
    with heddle.BatchQueue(gate, max_batch=8) as q:
        doubled, sums = q.submit(x).result(30)
        assert np.array_equal(doubled, x * 2)
        assert np.array_equal(sums["sum"], x.sum(axis=1))
        assert max(gate.sizes()) == 8
        with pytest.raises(heddle.InvalidError, match="capacity"):
            heddle.BatchQueue(gate, max_batch=1, capacity=4).submit(x)


def picky(x):
    """Refuses a batch that holds a 13."""
    if (x == 13).any():
        raise ValueError("thirteen")
    return x * 2


@pytest.mark.parametrize("retry", [False, True])
def test_one_bad_request_fails_alone_where_it_may_be_repeated(retry):
    gate = Gate(picky)
    with heddle.BatchQueue(gate, retry=retry) as q:
        hold(gate, q)
        futures = [q.submit(row(v)) for v in range(10, 20)]
        gate.open.set()
        concurrent.futures.wait(futures, timeout=30)
        failed = [v for v, future in zip(range(10, 20), futures, strict=True) if future.exception()]
        assert failed == ([13] if retry else list(range(10, 20)))
        assert str(futures[3].exception()) == "thirteen"
        assert len(gate.batches) > 2 if retry else len(gate.batches) == 2


def test_nothing_is_repeated_after_the_device_was_lost():
    def lost(x):
        raise heddle.DeviceLostError("gone")

    gate = Gate(lost)
    with heddle.BatchQueue(gate, retry=True) as q:
        gate.open.clear()
        first = q.submit(row(0))
        assert gate.entered.acquire(timeout=30)
        futures = [q.submit(row(v)) for v in range(8)]
        gate.open.set()
        for future in [first, *futures]:
            with pytest.raises(heddle.DeviceLostError):
                future.result(30)
        assert gate.sizes() == [1, 8]


def test_limits_change_while_requests_wait(gate):
    with heddle.BatchQueue(gate, max_batch=2, capacity=4, when_full="fail") as q:
        hold(gate, q)
        futures = [q.submit(row(i)) for i in range(4)]
        q.set_limits(max_batch=8, capacity=16)
        futures += [q.submit(row(i)) for i in range(4, 7)]
        gate.open.set()
        concurrent.futures.wait(futures, timeout=30)
        assert gate.sizes()[1:] == [7]
        with pytest.raises(heddle.InvalidError, match="max_batch"):
            q.set_limits(max_batch=0)


def test_a_model_runs_in_batches_and_one_that_cannot_is_refused(mlp):
    x = np.random.default_rng(1).standard_normal((64, 512)).astype(np.float32)
    expected = mlp(x)
    with heddle.BatchQueue(mlp, max_batch=16, workers=2) as q:
        futures = [q.submit(x[i : i + 1]) for i in range(64)]
        for i, future in enumerate(futures):
            np.testing.assert_allclose(future.result(60), expected[i : i + 1], rtol=1e-4, atol=1e-4)
    graph = heddle.GraphBuilder("mean of all rows")
    rows = graph.input("x", "f32", ["batch", 4])
    graph.output(graph.add("ReduceMean", rows, graph.constant(np.array([0])), keepdims=1), "y")
    with pytest.raises(heddle.UnsupportedError, match="cannot be batched"):
        heddle.BatchQueue(graph.build())


def test_metrics_are_objects_and_prometheus_text():
    with heddle.BatchQueue(lambda x: x, max_batch=8, name='a "name"') as q:
        for i in range(5):
            q.submit(row(i)).result(30)
        q.drain()
        m = q.metrics()
        assert (m.submitted, m.batches, m.rows, m.depth, m.running) == (5, 5, 5, 0, 0)
        assert m.batch_sizes == {1: 5}
        assert m.occupancy == pytest.approx(1 / 8)
        for times in (m.wait, m.form, m.run, m.scatter, m.total):
            assert times["count"] == 5
            assert 0 < times["p50"] <= times["p95"] <= times["p99"] < 30
        text = m.prometheus()
    lines = text.splitlines()
    label = 'queue="a \\"name\\""'
    assert f"heddle_batch_submitted_total{{{label}}} 5" in lines
    assert f'heddle_batch_rows_bucket{{{label},le="1"}} 5' in lines
    assert f"heddle_batch_wait_seconds_count{{{label}}} 5" in lines
    assert all(line.startswith(("# TYPE heddle_batch_", "heddle_batch_")) for line in lines)


def test_phases_of_a_batch_are_spans_in_the_trace(tmp_path):
    with heddle.profiler.profile(str(tmp_path / "trace.json")), heddle.BatchQueue(lambda x: x) as q:
        q.submit(row(1)).result(30)
    text = (tmp_path / "trace.json").read_text()
    for phase in ("form", "run", "scatter"):
        assert f'"name":"{phase}","cat":"batch"' in text.replace(" ", "")


def test_as_completed_and_wait_know_these_futures():
    with heddle.BatchQueue(lambda x: x) as q:
        futures = {q.submit(row(i)): i for i in range(20)}
        for future in concurrent.futures.as_completed(futures, timeout=30):
            assert future.result()[0, 0] == futures[future]
        done = queues.SimpleQueue()
        q.submit(row(1)).add_done_callback(done.put)
        assert done.get(timeout=30).result()[0, 0] == 1
