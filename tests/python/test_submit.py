"""Model.submit and Model.asubmit: every answer comes once: the values of a call alone, or its own error."""

import asyncio
import gc
import itertools
import threading
from concurrent.futures import CancelledError, Future, wait

import numpy as np
import pytest
from conftest import build_affine, build_mlp, run_threads
from exit_scripts import run
from test_coalescing import build_lookup

import heddle

WAIT_S = 60


def rows(count, first):
    return np.arange(first, first + count * 8, dtype=np.float32).reshape(count, 8)


def test_submissions_of_eight_threads_get_the_values_of_calls_alone():
    model = build_mlp()
    random = np.random.default_rng(3)
    inputs = [random.standard_normal((1 + i % 3, 512)).astype(np.float32) for i in range(20)]
    expected = [model(x) for x in inputs]

    def body(thread):
        picks = [(thread * 7 + i) % 20 for i in range(40)]
        futures = [model.submit(inputs[k]) for k in picks]
        called = model(inputs[thread])
        right = np.allclose(called, expected[thread], rtol=1e-5, atol=1e-4)
        for k, future in zip(picks, futures, strict=True):
            right += np.allclose(future.result(WAIT_S), expected[k], rtol=1e-5, atol=1e-4)
        return right

    assert run_threads(8, body) == [41] * 8
    assert model.coalescing_stats()["calls"] == 20 + 8 * 41
    assert model.coalescing_stats()["waiting"] == 0


@pytest.mark.parametrize("through_a_queue", [False, True])
def test_64_tasks_of_four_loops_with_eight_outstanding_each_get_every_answer_right(through_a_queue):
    loops, tasks, outstanding, each = 4, 16, 8, 24
    model = build_mlp()
    random = np.random.default_rng(5)
    inputs = [random.standard_normal((1, 512)).astype(np.float32) for _ in range(20)]
    expected = [model(x) for x in inputs]

    def body(loop):
        async def caller(ask, task):
            room = asyncio.Semaphore(outstanding)

            async def one(i):
                async with room:
                    k = (loop + 7 * task + i) % 20
                    return np.allclose(await ask(inputs[k]), expected[k], rtol=1e-5, atol=1e-4)

            return sum(await asyncio.gather(*(one(i) for i in range(each))))

        async def main(ask):
            return await asyncio.gather(*(caller(ask, task) for task in range(tasks)))

        return asyncio.run(main(queue.asubmit if through_a_queue else model.asubmit))

    with heddle.BatchQueue(model) as queue:
        assert run_threads(loops, body) == [[each] * tasks] * loops


def test_asubmit_awaits_results_and_errors_of_many_tasks():
    model = build_lookup()
    alone = [model(np.full((1, 4), n)) for n in range(10)]

    async def one(i):
        if i % 7 != 3:
            return np.array_equal(await model.asubmit(np.full((1, 4), i % 10)), alone[i % 10])
        with pytest.raises(heddle.InvalidError, match="is outside"):
            await model.asubmit(np.full((1, 4), 10 + i))
        return True

    async def main():
        return await asyncio.gather(*(one(i) for i in range(150)))

    assert asyncio.run(main()) == [True] * 150


def test_a_bad_row_fails_its_own_request_of_a_queue_over_the_model():
    model = build_lookup()
    alone = [model(np.full((1, 4), n)) for n in range(10)]
    with heddle.BatchQueue(model, workers=1) as queue:
        with heddle.exclusive(model.device):  # the first waits for the device, the others for a worker
            futures = [queue.submit(np.full((1, 4), 10 + i if i % 7 == 3 else i % 10)) for i in range(60)]
        for i, future in enumerate(futures):
            if i % 7 != 3:
                np.testing.assert_array_equal(future.result(WAIT_S), alone[i % 10])
                continue
            with pytest.raises(heddle.InvalidError, match="is outside"):
                future.result(WAIT_S)
        queue.drain()
        assert queue.metrics().batches < 60
        assert queue.metrics().failed_batches == 0


def test_a_queue_over_a_model_refuses_what_the_model_does_not_take_where_it_is_submitted():
    with heddle.BatchQueue(build_affine()) as queue:
        with pytest.raises(heddle.InvalidError, match="'x'"):
            queue.submit(np.ones((1, 3), np.float32))
        with pytest.raises(heddle.InvalidError, match="f64"):
            queue.submit(np.ones((1, 8)))
        np.testing.assert_array_equal(queue.submit(rows(100, 0)).result(WAIT_S), rows(100, 0) * 2 + 1)
    with heddle.BatchQueue(build_affine(), item=True) as queue:
        np.testing.assert_array_equal(queue.submit(rows(1, 5)[0]).result(WAIT_S), rows(1, 5)[0] * 2 + 1)


def test_ragged_rows_share_the_batches_of_a_queue_over_a_model():
    graph = heddle.GraphBuilder("masked")
    x = graph.input("x", "f32", ["batch", "length"])
    graph.output(graph.add("Add", x, x), "y")
    model = graph.build(ragged={"x": (1, 0)})
    lengths = [5, 7, 6, 8, 5, 6, 7, 8, 3, 4]
    inputs = [np.arange(n, dtype=np.float32)[None] + 10 * n for n in lengths]
    with heddle.BatchQueue(model) as queue:
        with heddle.exclusive(model.device):
            futures = [queue.submit(x) for x in inputs]
        for x, future in zip(inputs, futures, strict=True):
            np.testing.assert_array_equal(future.result(WAIT_S), 2 * x)
        queue.drain()
        assert queue.metrics().batches < len(lengths)


def test_what_is_wrong_with_a_submission_raises_at_once():
    model = build_affine()
    with pytest.raises(heddle.InvalidError, match=r"'x'.* has shape \[1, 3\]"):
        model.submit(np.ones((1, 3), np.float32))
    with pytest.raises(heddle.InvalidError, match="no input 'z'"):
        model.submit(z=rows(1, 0))
    with pytest.raises(heddle.InvalidError, match="stream"):
        model.submit(rows(1, 0), stream=heddle.Stream())
    model.close()
    with pytest.raises(heddle.UnavailableError):
        model.submit(rows(1, 0))


def test_a_submission_times_out_or_is_cancelled_while_the_device_is_held_and_the_others_go_on():
    model = build_affine()
    with heddle.exclusive(model.device):
        running = [model.submit(rows(1, i)) for i in range(model.device.in_flight)]
        waiting = [model.submit(rows(1, 100 + i)) for i in range(6)]
        late = model.submit(rows(1, 50), timeout=0.001)
        with pytest.raises(heddle.DeadlineError):
            late.result(WAIT_S)
        assert waiting[2].cancel()
        assert waiting[2].cancelled()
        assert wait([waiting[2]], WAIT_S).done
    for i, future in enumerate(running):
        np.testing.assert_array_equal(future.result(WAIT_S), rows(1, i) * 2 + 1)
    for i, future in enumerate(waiting):
        if i != 2:
            np.testing.assert_array_equal(future.result(WAIT_S), rows(1, 100 + i) * 2 + 1)
    with pytest.raises(CancelledError):
        waiting[2].result(WAIT_S)
    assert not running[0].cancel()


def test_a_cancelled_task_takes_its_call_out_and_a_closed_loop_loses_only_its_own_answers():
    model = build_affine()

    async def main():
        tasks = [asyncio.ensure_future(model.asubmit(rows(1, i))) for i in range(5)]
        await asyncio.wait(tasks, timeout=0)
        tasks[3].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[3], asyncio.CancelledError)
        return [np.array_equal(y, rows(1, i) * 2 + 1) for i, y in enumerate(done) if i != 3]

    assert asyncio.run(main()) == [True] * 4
    loop = asyncio.new_event_loop()
    with heddle.exclusive(model.device):
        task = loop.create_task(model.asubmit(rows(1, 0)))
        loop.run_until_complete(asyncio.wait([task], timeout=0))
        task._log_destroy_pending = False
        loop.close()
    np.testing.assert_array_equal(model.submit(rows(1, 7)).result(WAIT_S), rows(1, 7) * 2 + 1)


def test_a_callback_may_submit_again():
    model = build_affine()
    left = itertools.count()
    results: list = []
    over: Future = Future()

    def again(future):
        results.append(future.result())
        if next(left) < 100:
            model.submit(rows(1, len(results))).add_done_callback(again)
        else:
            over.set_result(None)

    model.submit(rows(1, 0)).add_done_callback(again)
    over.result(WAIT_S)
    for i, y in enumerate(results):
        np.testing.assert_array_equal(y, rows(1, i) * 2 + 1)
    assert len(results) == 101


def test_a_model_that_nothing_else_holds_lives_until_its_answers_are_there():
    for i in range(30):
        future = build_affine().submit(rows(1, i))
        gc.collect()
        np.testing.assert_array_equal(future.result(WAIT_S), rows(1, i) * 2 + 1)


def test_closing_answers_every_submission_once():
    model = build_affine()
    answers: list = []
    futures = []

    def body(thread):
        taken = 0
        for i in range(50):
            try:
                future = model.submit(rows(1, i))
            except heddle.UnavailableError:
                continue
            future.add_done_callback(answers.append)
            futures.append((i, future))
            taken += 1
        return taken

    closer = threading.Thread(target=model.close)
    closer.start()
    taken = sum(run_threads(4, body))
    closer.join()
    assert taken == len(futures) == len(answers)
    for i, future in futures:
        if future.exception(WAIT_S) is None:
            np.testing.assert_array_equal(future.result(), rows(1, i) * 2 + 1)
        else:
            assert isinstance(future.exception(), heddle.UnavailableError)


def test_torch_tensors_come_back_as_torch_tensors():
    torch = pytest.importorskip("torch")
    model = build_affine()
    y = model.submit(torch.ones(2, 8)).result(WAIT_S)
    assert torch.equal(y, torch.full((2, 8), 3.0))
    with heddle.BatchQueue(model) as queue:
        assert torch.equal(queue.submit(torch.ones(2, 8)).result(WAIT_S), torch.full((2, 8), 3.0))


EXIT = """
import sys, threading
import numpy as np
import heddle
graph = heddle.GraphBuilder("double")
value = graph.input("x", "f32", ["batch", 8])
graph.output(graph.add("Add", value, value), "y")
model = graph.build()
x = np.ones((2, 8), np.float32)
answered = threading.Semaphore(0)
def again(future):
    answered.release()
    try:
        model.submit(x).add_done_callback(again)
    except heddle.UnavailableError:
        pass
"""


@pytest.mark.parametrize(
    "body",
    [
        "for _ in range(9): model.submit(x).add_done_callback(again)\nfor _ in range(64): answered.acquire()",
        "futures = [model.submit(x) for _ in range(200)]",
        "held = heddle.exclusive(); held.__enter__()\nfutures = [model.submit(x) for _ in range(20)]\n"
        "held.__exit__(None, None, None)",
    ],
    ids=["answers that submit again", "answers under way", "answers that waited"],
)
def test_a_process_that_exits_while_answers_are_under_way_ends_quietly(body):
    for _ in range(3):
        assert run(EXIT + body + "\nsys.exit(42)\n") == ""
