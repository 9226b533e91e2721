"""Model.acall, a call for event loops: each task gets its own values; a cancelled one leaves its batch."""

import asyncio

import numpy as np
import pytest
from conftest import build_affine, build_mlp
from test_batch_queue_life import wait_until

import heddle


def test_two_hundred_tasks_get_the_values_of_calls_one_after_the_other():
    model = build_mlp()
    random = np.random.default_rng(11)
    inputs = [random.standard_normal((1 + i % 3, 512)).astype(np.float32) for i in range(200)]
    expected = [model(x) for x in inputs]

    async def main():
        return await asyncio.gather(*(model.acall(x, timeout=60) for x in inputs))

    for y, right in zip(asyncio.run(main()), expected, strict=True):
        np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-4)
    assert model.coalescing_stats()["calls"] == 400
    assert model.coalescing_stats()["waiting"] == 0


def test_cancelled_tasks_leave_their_batches_and_the_others_get_their_rows():
    model = build_affine()
    x = np.arange(200 * 8, dtype=np.float32).reshape(200, 8)

    with heddle.exclusive(model.device):
        running = [model.submit(x[:1]) for _ in range(model.device.in_flight)]
        before = model.coalescing_stats()["waiting"]
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(model.acall(x[i : i + 1])) for i in range(200)]
        loop.run_until_complete(asyncio.wait(tasks, timeout=0))
        assert model.coalescing_stats()["waiting"] == before + 200
        for task in tasks[::3]:
            assert task.cancel()
        loop.run_until_complete(asyncio.wait(tasks[::3]))
        stay = before + 200 - len(tasks[::3])
        wait_until(
            lambda: model.coalescing_stats()["waiting"] == stay
        )  # a thread of the model's takes them out
    answers = loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
    for i, answer in enumerate(answers):
        if i % 3 == 0:
            assert isinstance(answer, asyncio.CancelledError)
        else:
            np.testing.assert_array_equal(answer, x[i : i + 1] * 2 + 1)
    for future in running:
        np.testing.assert_array_equal(future.result(60), x[:1] * 2 + 1)


def test_what_is_wrong_with_a_call_and_a_timeout_raise_in_the_task():
    model = build_affine()
    with pytest.raises(heddle.InvalidError):
        asyncio.run(model.acall(np.zeros((1, 8), np.int64)))
    with heddle.exclusive(model.device), pytest.raises(heddle.DeadlineError):
        asyncio.run(model.acall(np.zeros((1, 8), np.float32), timeout=0.01))
