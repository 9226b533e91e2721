"""heddle.batch_inference: models called inside a context or a decorated function."""

import asyncio
import contextvars
import gc
import threading
import weakref

import numpy as np
import pytest
from conftest import build_affine, run_threads
from held import run_held
from test_batch_queue_asyncio import turn

import heddle


def queue_of(model, size):
    return heddle.batching.inference._queues[model][size]


def test_inputs_over_the_batch_size_are_split_and_joined(affine):
    x = np.arange(20 * 8, dtype=np.float32).reshape(20, 8)
    with heddle.batch_inference(batch_size=8):
        assert np.array_equal(affine(x), 2 * x + 1)
        assert np.array_equal(affine(x=x, timeout=30), 2 * x + 1)
    metrics = queue_of(affine, 8).metrics()
    assert metrics.rows == 40
    assert max(metrics.batch_sizes) == 8
    affine(x)
    assert queue_of(affine, 8).metrics().rows == 40  # outside, the model is called directly


def test_concurrent_callers_inside_share_batches(mlp):
    x = np.random.default_rng(2).standard_normal((16, 512)).astype(np.float32)
    expected = mlp(x)

    @heddle.batch_inference(batch_size=8)
    def call(i):
        return mlp(x[i : i + 1])

    def body(thread):
        i = thread % 16
        for _ in range(10):
            np.testing.assert_allclose(call(i), expected[i : i + 1], rtol=1e-4, atol=1e-4)

    call(0)
    # All have asked: how many of them the held workers have taken is the scheduler's choice.
    asked = lambda: queue_of(mlp, 8).metrics().submitted - 1 - mlp.device.in_flight  # noqa: E731
    answers = run_held(12, lambda threads: run_threads(threads, body), asked)
    calls = 1 + 10 * len(answers)
    metrics = queue_of(mlp, 8).metrics()
    assert metrics.rows == calls
    assert metrics.batches < calls
    assert max(metrics.batch_sizes) <= 8


def test_it_follows_contextvars(affine):
    x = np.ones((2, 8), np.float32)

    async def inside():
        with heddle.batch_inference(batch_size=4):
            await turn()
            return await asyncio.create_task(called())

    async def called():
        return affine(x)

    async def main():
        return await asyncio.gather(inside(), inside(), called())

    assert all(np.array_equal(y, 2 * x + 1) for y in asyncio.run(main()))
    assert queue_of(affine, 4).metrics().rows == 4  # the two inside, and not the third
    with heddle.batch_inference(batch_size=4):
        context = contextvars.copy_context()
    plain = threading.Thread(target=affine, args=(x,))
    plain.start()
    plain.join()
    assert queue_of(affine, 4).metrics().rows == 4
    context.run(affine, x)
    assert queue_of(affine, 4).metrics().rows == 6


def test_contexts_nest_and_end_with_errors(affine):
    x = np.ones((2, 8), np.float32)
    with heddle.batch_inference(2):
        with pytest.raises(heddle.InvalidError), heddle.batch_inference(4):
            affine(x[:, 0])
        with heddle.batch_inference(4):
            affine(x)
        affine(x)
    affine(x)
    assert queue_of(affine, 4).metrics().rows == 2  # the refused call never became a request
    assert queue_of(affine, 2).metrics().rows == 2


def test_async_functions_are_decorated_and_generators_refused(affine):
    x = np.ones((2, 8), np.float32)

    @heddle.batch_inference(batch_size=2)
    async def call():
        await turn()
        return affine(x)

    assert np.array_equal(asyncio.run(call()), 2 * x + 1)
    assert queue_of(affine, 2).metrics().rows == 2

    def generates():
        yield 1

    with pytest.raises(heddle.UnsupportedError, match="generates"):
        heddle.batch_inference(batch_size=2)(generates)


def test_what_cannot_be_batched_is_refused_by_name(affine):
    graph = heddle.GraphBuilder("sum over the batch")
    rows = graph.input("x", "f32", ["batch", 4])
    graph.output(graph.add("ReduceSum", rows, graph.constant(np.array([0])), keepdims=1), "y")
    model = graph.build()
    with heddle.batch_inference(batch_size=4):
        with pytest.raises(heddle.UnsupportedError, match=r"cannot batch this model: .*Reduce"):
            model(np.ones((2, 4), np.float32))
        with pytest.raises(heddle.UnsupportedError, match="stream="):
            affine(np.ones((2, 8), np.float32), stream=heddle.Stream())
        with pytest.raises(heddle.InvalidError, match="'y'"):
            affine(y=np.ones((2, 8), np.float32))
    with pytest.raises(heddle.InvalidError, match="batch_size"):
        heddle.batch_inference(batch_size=0)


def test_a_models_queue_ends_with_the_model():
    before = set(threading.enumerate())
    model = build_affine()
    with heddle.batch_inference(batch_size=2):
        model(np.ones((2, 8), np.float32))
    mine = set(threading.enumerate()) - before
    assert mine
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    for thread in mine:
        thread.join(20)
        assert not thread.is_alive()
