"""Python threads: right values, none lost, and the GIL free while Heddle computes or waits."""

import os
import threading
import time

import numpy as np
import pytest
from conftest import build_affine, build_mlp, build_slow_to_compile, run_threads

import heddle


@pytest.mark.parametrize(("threads", "calls"), [(2, 5), (4, 5), (8, 50), (31, 100)])
def test_threads_get_the_values_of_one_thread_and_none_is_lost(threads, calls):
    models = (
        [build_affine(), build_affine(64), build_mlp()]
        if threads <= 8
        else [build_affine(), build_affine(64)]
    )
    widths = {0: 8, 1: 64, 2: 512}
    random = np.random.default_rng(3)
    inputs = [
        [random.standard_normal((rows, widths[m])).astype(np.float32) for rows in (1, 2, 5)]
        for m in range(len(models))
    ]
    expected = [[models[m](x) for x in inputs[m]] for m in range(len(models))]

    def body(thread):
        right = 0
        for i in range(calls):
            m, k = (thread + i) % len(models), i % 3
            right += np.allclose(models[m](inputs[m][k]), expected[m][k], rtol=1e-5, atol=1e-5)
        return right

    assert sum(run_threads(threads, body)) == threads * calls


def test_other_python_threads_run_while_a_model_computes():
    model = build_mlp()
    x = np.zeros((2048, 512), np.float32)
    model(x)
    ticks = 0
    stop = threading.Event()

    def tick():
        nonlocal ticks
        while not stop.wait(1e-6):  # gives the GIL up at every tick: none comes of a switch interval
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = ticks
    for _ in range(5):
        model(x)
    during = ticks - before
    stop.set()
    ticker.join()
    assert during > 50


def test_a_timeout_ends_a_wait_for_a_turn_and_leaves_the_model_usable():
    device = heddle.Device()
    model = build_affine(device=device)
    x = np.ones((1, 8), np.float32)
    model(x)
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with heddle.exclusive(device):
            entered.set()
            leave.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait()
    with pytest.raises(heddle.DeadlineError):
        model(x, timeout=0.05)
    leave.set()
    holder.join()
    np.testing.assert_array_equal(model(x), np.full((1, 8), 3, np.float32))


def test_a_timeout_ends_the_wait_for_another_threads_compilation_which_is_kept():
    model = build_slow_to_compile()
    for rows in range(
        1, 9
    ):  # a thread that comes late finds the shape compiled: then the next shape shows it
        x = np.full((rows, 16), rows, np.float32)
        before = model.device.stats()["compiles"]

        def call(_, x=x):
            try:
                return model(x, timeout=0.05)
            except heddle.DeadlineError as error:
                return str(error)

        results = run_threads(4, call)
        assert model.device.stats()["compiles"] - before == 1
        late = [y for y in results if isinstance(y, str)]
        assert all(f"[{rows}, 16]" in message for message in late)
        values = [y for y in results if not isinstance(y, str)]
        assert values, "the thread that compiles has no deadline while it does"
        for y in [*values, model(x)]:
            np.testing.assert_allclose(y, np.full_like(y, rows), rtol=1e-3)
        assert model.device.stats()["compiles"] - before == 1
        if late:
            break
    assert late


def test_closing_a_model_with_calls_in_flight_lets_them_finish_and_refuses_the_rest():
    model = build_mlp()
    x = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    expected = model(x)
    began = threading.Semaphore(0)

    def body(thread):
        if thread == 0:
            for _ in range(8):
                began.acquire()
            model.close()
            return 0
        right = 0
        while True:
            try:
                y = model(x)
            except heddle.UnavailableError:
                return right
            began.release()
            right += 1 if np.allclose(y, expected, atol=1e-4) else -(10**6)

    assert sum(run_threads(9, body)) >= 8


def test_streams_of_threads_differ_and_return(affine):
    device = heddle.Device.open(exhaustion="fail")
    model = build_affine(device=device)
    x = np.ones((1, 8), np.float32)
    gate = threading.Barrier(8)

    def body(_):
        stream = heddle.current_stream(device)
        gate.wait()
        assert model(x, stream=stream).sum() == 24
        return stream.id

    ids = run_threads(8, body)
    assert len(set(ids)) == 8
    assert 0 not in ids
    # A lease returns when the system's thread has ended, which is after join() of the Python one.
    end = time.monotonic() + 30
    while device.stats()["streams_leased"] != 0 and time.monotonic() < end:
        os.sched_yield()
    assert device.stats()["streams_leased"] == 0


def test_release_current_thread_slot_returns_the_stream_while_the_thread_lives():
    device = heddle.Device.open(exhaustion="fail")

    def body(_):
        for _ in range(10):
            heddle.current_stream(device)
            heddle.release_current_thread_slot(device)

    run_threads(4, body)
    assert device.stats()["streams_leased"] == 0


def test_stream_context_orders_calls_and_events_time_them():
    device = heddle.Device.open()
    model = build_mlp(device)
    x = np.ones((64, 512), np.float32)
    stream = heddle.Stream(device)
    with heddle.stream(stream) as current:
        assert current.id == stream.id == heddle.current_stream(device).id
        before = stream.record_event()
        y = model(x)
        after = stream.record_event()
    stream.synchronize()
    assert after.query()
    assert before.elapsed_time(after) > 0
    other = heddle.Stream(device)
    other.wait_event(after)
    other.wait_stream(stream)
    with heddle.stream(other):
        np.testing.assert_allclose(model(x), y, rtol=1e-5, atol=1e-5)


def test_lock_statistics_and_log_reach_python():
    messages = []
    heddle.set_log(lambda level, message: messages.append((level, message)))
    heddle.count_locks(True)
    build_affine()(np.ones((1, 8), np.float32))
    heddle.count_locks(False)
    heddle.set_log(None)
    assert any("affine" in message for _, message in messages)
    assert sum(lock["acquisitions"] for lock in heddle.lock_stats()) > 0
    heddle.reset_lock_stats()
    assert sum(lock["acquisitions"] for lock in heddle.lock_stats()) == 0


def test_the_profiler_writes_spans_of_every_thread(tmp_path):
    import json

    model = build_affine()
    x = np.ones((1, 8), np.float32)
    with heddle.profiler.profile(str(tmp_path / "trace.json")):
        run_threads(4, lambda _: model(x))
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    calls = [event for event in events if event.get("name") == "call"]
    assert len(calls) == 4
    assert len({event["tid"] for event in calls}) == 4


def test_memory_figures_follow_tensors():
    device = heddle.Device.open()
    model = build_affine(1024, device)
    model(np.ones((1024, 1024), np.float32))  # packs its weights
    before = heddle.current_allocated_memory(device)
    y = model(np.ones((1024, 1024), np.float32))
    assert heddle.current_allocated_memory(device) - before >= y.nbytes
    assert heddle.driver_allocated_memory(device) >= heddle.current_allocated_memory(device)
    assert heddle.recommended_max_memory(device) > 0
    del y
    heddle.empty_cache(device)
    assert heddle.current_allocated_memory(device) == before
    heddle.set_per_process_memory_fraction(1e-6, device)
    with pytest.raises(heddle.ExhaustedError):
        model(np.ones((1 << 15, 1024), np.float32))


def test_torch_keeps_its_threads_and_values_beside_heddle():
    torch = pytest.importorskip("torch")
    model = build_mlp()
    x = np.ones((64, 512), np.float32)
    threads = torch.get_num_threads()
    a = torch.randn(256, 256)
    expected = a @ a
    model(x)
    assert torch.get_num_threads() == threads
    assert torch.allclose(a @ a, expected, atol=1e-3)

    def body(thread):
        for _ in range(10):
            if thread % 2:
                assert torch.allclose(a @ a, expected, atol=1e-3)
            else:
                model(x)
        return torch.get_num_threads()

    assert set(run_threads(4, body)) == {threads}
