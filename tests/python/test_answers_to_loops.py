"""Model.asubmit: many tasks of one loop or of several get each their own answer, and what is done for that: a
loop is woken once for all answers that are there, and its pipe goes with it.
"""

import asyncio
import contextvars
import gc
import os
import sys
import weakref

import numpy as np
import pytest
from conftest import build_affine, build_mlp, run_threads
from exit_scripts import run
from test_batch_queue_asyncio import turn
from test_batch_queue_life import wait_until
from test_coalescing import build_lookup

import heddle
from heddle import submitting
from heddle.batching import answers

TASKS = 512


def row(value):
    return np.arange(value, value + 8, dtype=np.float32)[None]


def right(answers, first=0):
    """How many of these are those to row(first), row(first + 1) and so on."""
    return sum(np.array_equal(y, row(first + i) * 2 + 1) for i, y in enumerate(answers))


def descriptors():
    gc.collect()
    return len(os.listdir("/dev/fd"))


@pytest.fixture
def sizes(monkeypatch):
    """How many answers each wake-up of a loop brought."""
    seen = []

    def deliver(letters):
        seen.append(len(letters))
        real(letters)

    real = submitting.deliver
    monkeypatch.setattr(submitting, "deliver", deliver)
    return seen


class WithoutReaders(asyncio.SelectorEventLoop):
    """Watches no descriptors, as Windows' event loop."""

    def add_reader(self, fd, callback, *args):
        raise NotImplementedError


async def all_of(model, count, first=0):
    return await asyncio.gather(*(model.asubmit(row(first + i)) for i in range(count)))


def begin(loop, model, count):
    """Tasks of the loop that wait for an answer. The caller holds the device, so none has come."""
    before = model.coalescing_stats()["waiting"]
    tasks = [loop.create_task(model.asubmit(row(i))) for i in range(count)]
    loop.run_until_complete(asyncio.wait(tasks, timeout=0))
    assert model.coalescing_stats()["waiting"] == before + count
    return tasks


def test_512_tasks_of_one_loop_get_each_their_own_answer_again_and_again():
    model = build_mlp()
    random = np.random.default_rng(2)
    inputs = [random.standard_normal((1, 512)).astype(np.float32) for _ in range(16)]
    expected = [model(x) for x in inputs]

    async def one(i):
        picks = [(i + 5 * shift) % 16 for shift in range(4)]
        return sum([np.allclose(await model.asubmit(inputs[k]), expected[k], atol=1e-4) for k in picks])

    async def main():
        return await asyncio.gather(*(one(i) for i in range(TASKS)))

    assert asyncio.run(main()) == [4] * TASKS
    assert model.coalescing_stats()["calls"] == 16 + 4 * TASKS
    assert model.coalescing_stats()["waiting"] == 0


def test_tasks_of_four_loops_at_once_get_each_their_own_answer():
    model = build_affine()

    def body(loop):
        return sum(right(asyncio.run(all_of(model, 128, 1000 * loop)), 1000 * loop) for _ in range(4))

    assert run_threads(4, body) == [4 * 128] * 4
    assert model.coalescing_stats()["calls"] == 4 * 4 * 128


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, WithoutReaders])
def test_every_kind_of_loop_gets_every_answer(make_loop):
    model = build_affine()
    loop = make_loop()
    assert right(loop.run_until_complete(all_of(model, 100))) == 100
    assert right(loop.run_until_complete(all_of(model, 100, 300)), 300) == 100
    loop.close()


def test_answers_that_are_there_together_wake_their_loop_once(sizes):
    model = build_affine()
    loop = asyncio.new_event_loop()
    for times in range(1, 6):
        with heddle.exclusive(model.device):
            tasks = begin(loop, model, TASKS)
        wait_until(lambda: model.coalescing_stats()["waiting"] == 0)
        model.submit(row(0)).result(60)  # a leader that gives it has given those of batches before it
        assert right(loop.run_until_complete(asyncio.gather(*tasks))) == TASKS
        assert sum(sizes) == times * TASKS
        for _ in range(40):  # more wake-ups, if there are any
            loop.run_until_complete(turn())
    loop.close()
    # Once each time, and some for what a leader was about to give when the loop went on.
    assert len(sizes) <= 20


def test_a_loop_that_is_closed_with_calls_under_way_leaks_no_descriptor_and_hangs_nobody():
    model = build_affine()
    assert right(asyncio.run(all_of(model, 10))) == 10
    before = descriptors()
    for _ in range(10):
        loop = asyncio.new_event_loop()
        with heddle.exclusive(model.device):
            tasks = begin(loop, model, 20)
            for task in tasks:
                task._log_destroy_pending = False
            loop.close()
            mailbox = submitting._mailboxes.get(id(loop))
            assert mailbox is None
        del loop, task, tasks
    assert right(asyncio.run(all_of(model, 10))) == 10
    model.close()  # which waits until all was answered
    assert descriptors() == before


def test_the_end_of_a_model_waits_for_no_loop_that_is_closed():
    loop = asyncio.new_event_loop()
    model = build_affine()
    gone = weakref.ref(model)
    device = model.device
    with heddle.exclusive(device):
        tasks = begin(loop, model, 20)
        for task in tasks:
            task._log_destroy_pending = False
        del model, task, tasks
        loop.close()
        del loop
        gc.collect()
        assert gone() is None  # this thread has the GIL and the device: an end that waits would be for ever
    assert right(asyncio.run(all_of(build_affine(device=device), 10))) == 10


def test_loops_that_are_made_and_ended_fifty_times_leave_the_number_of_descriptors():
    model = build_affine()
    before = descriptors()
    for i in range(50):
        assert right(asyncio.run(all_of(model, 4, i)), i) == 4
    assert descriptors() == before
    assert run_threads(4, lambda i: right(asyncio.run(all_of(model, 4, i)), i)) == [4] * 4
    assert descriptors() == before
    assert len(submitting._mailboxes) == 0


def test_a_cancelled_task_is_withdrawn_and_what_is_kept_for_it_goes():
    model = build_affine()
    loop = asyncio.new_event_loop()
    with heddle.exclusive(model.device):
        running = [model.submit(row(0)) for _ in range(model.device.in_flight)]
        others = model.coalescing_stats()["waiting"]
        tasks = begin(loop, model, 60)
        for task in tasks[::2]:
            assert task.cancel()
        loop.run_until_complete(asyncio.wait(tasks[::2]))
        # A thread of the model's takes them out.
        wait_until(lambda: model.coalescing_stats()["waiting"] == others + 30)
    answers = loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
    assert sum(np.array_equal(y, row(i) * 2 + 1) for i, y in enumerate(answers) if i % 2) == 30
    assert right([future.result(60) for future in running[:1]]) == 1
    waiting = submitting._mailboxes[id(loop)].waiting
    while waiting:  # the answers to those that were cancelled, which a leader may be about to give
        loop.run_until_complete(all_of(model, 1))
    loop.close()


def test_a_bad_index_reaches_only_the_task_of_its_row():
    model = build_lookup()
    alone = [model(np.full((1, 4), n)) for n in range(10)]

    async def main():
        rows = [np.full((1, 4), 10 + i if i == 37 else i % 10) for i in range(128)]
        return await asyncio.gather(*(model.asubmit(x) for x in rows), return_exceptions=True)

    for _ in range(5):
        answers = asyncio.run(main())
        assert isinstance(answers[37], heddle.InvalidError)
        assert "is outside" in str(answers[37])
        assert sum(np.array_equal(y, alone[i % 10]) for i, y in enumerate(answers) if i != 37) == 127


@pytest.mark.parametrize("error", [ValueError("not today"), StopIteration()])
def test_a_library_that_does_not_take_its_array_fails_its_own_task(error):
    class Picky:
        """An array of a library whose from_dlpack() refuses."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **named):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    def refuse(capsule):
        raise error

    module = type(sys)("picky")
    module.from_dlpack = refuse
    sys.modules["picky"] = module
    Picky.__module__ = "picky"
    model = build_affine()

    async def main():
        inputs = [Picky(row(i)) if i == 3 else row(i) for i in range(8)]
        return await asyncio.gather(*(model.asubmit(x) for x in inputs), return_exceptions=True)

    try:
        answers = asyncio.run(main())
    finally:
        del sys.modules["picky"]
    assert answers[3] is error or (isinstance(answers[3], RuntimeError) and repr(error) in str(answers[3]))
    assert sum(np.array_equal(y, row(i) * 2 + 1) for i, y in enumerate(answers) if i != 3) == 7


def test_the_context_of_the_task_that_calls_first_goes_with_the_task():
    class Request:
        pass

    variable = contextvars.ContextVar("request")
    model = build_affine()

    async def first():
        request = Request()
        variable.set(request)
        await model.asubmit(row(0))
        return weakref.ref(request)

    loop = asyncio.new_event_loop()
    seen = loop.run_until_complete(first())
    gc.collect()
    assert seen() is None
    loop.close()


EXIT = """
import asyncio, sys, threading
import numpy as np
import heddle
heddle._heddle.report_leaks()
def build():
    graph = heddle.GraphBuilder("double")
    value = graph.input("x", "f32", ["batch", 8])
    graph.output(graph.add("Add", value, value), "y")
    return graph.build()
model = build()
x = np.ones((2, 8), np.float32)
loop = asyncio.new_event_loop()
async def ask():
    while True:
        await model.asubmit(x)
async def some():
    tasks = [asyncio.ensure_future(ask()) for _ in range(50)]
    await asyncio.gather(*(model.asubmit(x) for _ in range(50)))
    for task in tasks:
        task._log_destroy_pending = False
"""


@pytest.mark.parametrize(
    "body",
    [
        "loop.run_until_complete(some())",
        "loop.run_until_complete(some())\nloop.close()",
        "asyncio.run(some())",
        "held = heddle.exclusive(); held.__enter__()\n"
        "tasks = [loop.create_task(ask()) for _ in range(20)]\n"
        "for task in tasks: task._log_destroy_pending = False\n"
        "loop.run_until_complete(asyncio.wait(tasks, timeout=0))\n"
        "held.__exit__(None, None, None)",
    ],
    ids=["a loop that stopped", "a closed loop", "loops over", "answers that waited"],
)
def test_a_process_that_exits_with_answers_to_loops_under_way_ends_quietly(body):
    for _ in range(3):
        assert run(EXIT + body + "\nsys.exit(42)\n") == ""


def test_daemon_threads_that_run_loops_end_quietly():
    body = """
begun = threading.Semaphore(0)
async def forever():
    await some()
    begun.release()
    await ask()
for _ in range(4):
    threading.Thread(target=lambda: asyncio.run(forever()), daemon=True).start()
for _ in range(4):
    begun.acquire()
"""
    for _ in range(3):
        assert run(EXIT.replace("heddle._heddle.report_leaks()\n", "") + body + "sys.exit(42)\n") == ""


def test_an_interrupt_between_two_answers_keeps_those_behind_it(monkeypatch):
    model = build_affine()
    loop = asyncio.new_event_loop()
    interrupts = iter([KeyboardInterrupt])

    def set_done(*letter):
        for interrupt in interrupts:
            raise interrupt
        real(*letter)

    real = answers.set_done
    monkeypatch.setattr(answers, "set_done", set_done)
    tasks = [loop.create_task(model.asubmit(row(i))) for i in range(20)]
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.gather(*tasks))
    done, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=20))
    assert not pending
    assert right(task.result() for task in tasks) == len(done) == 20
    loop.close()


def test_a_call_needs_no_descriptor_where_the_process_may_open_none():
    body = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
assert (loop.run_until_complete(model.asubmit(x)) == 2).all()
sys.exit(42)
"""
    assert run(EXIT + body) == ""
