"""BatchQueue: workers that die, hang or cannot start; drain and close; fork; the end of the process."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_batch_queue import Gate, hold, row
from test_processes import run

import heddle


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.002)


@pytest.mark.parametrize("death", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_worker_that_dies_fails_its_requests_and_is_set_up_again_on_a_new_thread(death):
    made_on = []

    def setup():
        made_on.append(threading.get_ident())
        owner = threading.get_ident()

        def call(x):
            assert threading.get_ident() == owner  # what setup made belongs to its thread
            if (x == 13).any():
                raise death
            return x

        return call

    with heddle.BatchQueue(setup=setup) as q:
        assert q.submit(row(1)).result(30)[0, 0] == 1
        with pytest.raises(heddle.UnavailableError, match=type(death).__name__) as raised:
            q.submit(row(13)).result(30)
        assert raised.value.__cause__ is death
        assert q.submit(row(2)).result(30)[0, 0] == 2
        assert len(made_on) == 2
        health = q.health()
        assert (health.status, health.restarts) == ("ok", 1)
        assert type(death).__name__ in health.reason


def test_requests_that_wait_while_a_worker_dies_are_served_by_the_next():
    gate = Gate(lambda x: sys.exit(1) if (x == 13).any() else x)
    with heddle.BatchQueue(gate, max_batch=1) as q:
        hold(gate, q)
        futures = [q.submit(row(v)) for v in (13, 1, 2)]
        gate.open.set()
        assert isinstance(futures[0].exception(30), heddle.UnavailableError)
        assert [future.result(30)[0, 0] for future in futures[1:]] == [1, 2]


def test_a_worker_that_cannot_be_set_up_fails_requests_with_the_reason():
    def setup():
        raise OSError("no such GPU")

    q = heddle.BatchQueue(setup=setup)
    wait_until(lambda: q.health().status == "unavailable")
    with pytest.raises(heddle.UnavailableError, match="OSError: no such GPU"):
        q.submit(row(1)).result(30)
    assert "no such GPU" in q.health().reason
    q.close()


def test_a_strict_owner_that_hangs_is_noticed_and_not_replaced():
    gate = Gate(lambda x: x)
    with heddle.BatchQueue(gate, hang_after=0.1) as q:
        hung = hold(gate, q)
        waiting = q.submit(row(1))
        for future in (hung, waiting):
            with pytest.raises(heddle.UnavailableError, match="hang_after"):
                future.result(30)
        wait_until(lambda: q.health().status == "unavailable")
        with pytest.raises(heddle.UnavailableError, match="comes back"):
            q.submit(row(2))
        gate.open.set()
        wait_until(lambda: q.health().status == "ok")
        assert q.submit(row(3)).result(30)[0, 0] == 3
        assert isinstance(hung.exception(), heddle.UnavailableError)  # answered once
        assert q.health().restarts == 0


def test_a_hung_owner_is_replaced_when_asked():
    first = threading.Event()
    release = threading.Event()

    def call(x):
        if not first.is_set():
            first.set()
            release.wait(30)
        return x

    with heddle.BatchQueue(call, hang_after=0.1, replace_hung=True) as q:
        with pytest.raises(heddle.UnavailableError):
            q.submit(row(1)).result(30)
        assert q.submit(row(2)).result(30)[0, 0] == 2
        assert q.health().status == "ok"
        assert q.health().restarts == 1
        release.set()


def test_one_owner_thread_makes_every_call():
    threads = set()

    def call(x):
        threads.add(threading.get_ident())
        return x

    with heddle.BatchQueue(call) as q:
        from conftest import run_threads

        run_threads(8, lambda t: [q.submit(row(t)).result(30) for _ in range(20)])
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_every_bucket_and_size_is_warmed_up_before_the_first_request():
    shapes = []

    def call(x):
        shapes.append(x.shape)
        return x

    with heddle.BatchQueue(
        call, max_batch=8, preferred=[2], pad=0, buckets=(4, 16), warm_up=np.ones((1, 3), np.float32)
    ) as q:
        q.submit(np.ones((1, 9), np.float32)).result(30)
    assert sorted(shapes[:6]) == sorted((size, length) for size in (1, 2, 8) for length in (4, 16))
    assert shapes[6:] == [(1, 16)]


@pytest.mark.parametrize(
    ("cancels", "under_way"),
    [
        (False, "0 requests wait, 0 batches run and 1 answers are being given"),
        (True, "1 requests wait, 1 batches run and 0 answers are being given"),
    ],
)
def test_a_drain_waits_for_an_answer_that_another_thread_gives_and_for_none_of_its_own(cancels, under_way):
    gate = Gate()
    seen = []
    q = heddle.BatchQueue(gate, max_batch=1)
    hold(gate, q)
    future = q.submit(row(1))

    def answered(_):
        try:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(q.drain, 0).result()
        except heddle.DeadlineError as waits:
            seen.append(str(waits))
        gate.open.set()
        q.drain()
        seen.append("drained")

    future.add_done_callback(answered)
    if cancels:
        assert future.cancel()
    gate.open.set()
    q.drain()
    assert seen == [f"the queue was not empty at the deadline: {under_way}", "drained"]
    q.close()


def test_drain_runs_what_waits_and_close_fails_it():
    gate = Gate()
    q = heddle.BatchQueue(gate, max_batch=2)
    hold(gate, q)
    futures = [q.submit(row(i)) for i in range(6)]
    with pytest.raises(heddle.DeadlineError, match="6 requests wait"):
        q.drain(timeout=0.01)
    assert q.health().status == "draining"
    with pytest.raises(heddle.UnavailableError, match="draining"):
        q.submit(row(1))
    gate.open.set()
    q.drain()
    assert [future.result(0)[0, 0] for future in futures] == [0, 2, 4, 6, 8, 10]

    q.close()
    assert q.health().status == "closed"
    gate = Gate()
    q = heddle.BatchQueue(gate, max_batch=2)
    first = hold(gate, q)
    futures = [q.submit(row(i)) for i in range(6)]
    threading.Timer(0.05, gate.open.set).start()
    q.close()
    q.close()
    assert first.result(0)[0, 0] == -2  # it ran
    for future in futures:
        with pytest.raises(heddle.UnavailableError, match="closed"):
            future.result(0)
    with pytest.raises(heddle.UnavailableError):
        q.submit(row(1))


def test_close_with_a_timeout_leaves_no_future_behind():
    gate = Gate()
    q = heddle.BatchQueue(gate)
    running = hold(gate, q)
    q.close(timeout=0.01)
    with pytest.raises(heddle.UnavailableError, match="while the request ran"):
        running.result(0)
    gate.open.set()


def test_a_dropped_queue_ends_its_threads():
    before = set(threading.enumerate())
    q = heddle.BatchQueue(lambda x: x)
    assert q.submit(row(1)).result(30)[0, 0] == 1
    mine = set(threading.enumerate()) - before
    assert len(mine) == 1
    del q
    wait_until(lambda: not any(thread.is_alive() for thread in mine))


@pytest.mark.parametrize("options", ["", "hang_after=60", "workers=3"])
def test_the_process_exits_with_work_in_flight(options):
    done = run(f"""
        q = heddle.BatchQueue(lambda x: x, max_batch=4, {options})
        def caller():
            try:
                while True:
                    q.submit(x, timeout=10).result()
            except heddle.UnavailableError:
                pass
        for _ in range(8):
            threading.Thread(target=caller, daemon=True).start()
        while q.metrics().batches < 50:
            os.sched_yield()
        sys.exit(42)
    """)
    assert done.returncode == 42, done.stderr
    assert "Traceback" not in done.stderr


def test_the_process_exits_while_a_callable_hangs():
    done = run("""
        entered = threading.Event()
        def hangs(x):
            entered.set()
            threading.Event().wait()
        heddle.batching.workers._EXIT_S = 0.2
        q = heddle.BatchQueue(hangs)
        future = q.submit(x)
        entered.wait()
        sys.exit(42)
    """)
    assert done.returncode == 42, done.stderr


def test_a_forked_child_gets_unavailable_and_ends_and_the_parent_goes_on():
    done = run("""
        q = heddle.BatchQueue(lambda x: x * 2)
        assert (q.submit(x).result() == x * 2).all()
        child = os.fork()
        if child == 0:
            try:
                q.submit(x)
            except heddle.UnavailableError as error:
                assert "forked" in str(error)
                q.close()
                sys.exit(17)  # through atexit, like any end
            sys.exit(5)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 17, status
        assert (q.submit(x).result() == x * 2).all()
        print("parent goes on")
    """)
    assert "parent goes on" in done.stdout, done.stderr


def test_ctrl_c_ends_the_wait_for_an_answer_and_the_queue_goes_on():
    done = run("""
        gate = threading.Event()
        q = heddle.BatchQueue(lambda x: x if gate.wait(30) else None)
        future = q.submit(x)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            future.result()
            os._exit(7)
        except KeyboardInterrupt:
            gate.set()
        assert (future.result() == x).all()
        assert (q.submit(x).result() == x).all()
        sys.exit(42)
    """)
    assert done.returncode == 42, done.stderr
