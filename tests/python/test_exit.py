"""The end of a Python process is quiet: nothing on standard error, and the script's exit code.

Each shape of script is a process of its own. Those without daemon threads run with nanobind's report of leaks
switched on: an object of ours that the interpreter did not destroy would be printed. The interpreter never
destroys what the frame of a daemon thread refers to.
"""

import ast
import textwrap

import pytest
from exit_scripts import START, run

BEGIN = """
import os, sys, threading
import numpy as np
import heddle

x = np.ones((2, 8), np.float32)

def build(device=None):
    graph = heddle.GraphBuilder("double")
    value = graph.input("x", "f32", ["batch", 8])
    graph.output(graph.add("Add", value, value), "y")
    model = graph.build(device)
    assert (model(x) == 2).all()
    return model
"""

# Scripts that end with exit code 42; `model` stays referred to in the way that the name says.
WITHOUT_DAEMON_THREADS = {
    "global": "model = build(); sys.exit(42)",
    "closure": """
        def make():
            model = build()
            return lambda: model(x)
        call = make()
        call()
        sys.exit(42)
    """,
    "recursive closure": """
        def make():
            model = build()
            def call(again):
                return call(again - 1) if again else model(x)
            return call
        call = make()
        call(2)
        sys.exit(42)
    """,
    "reference cycle": """
        class Owner:
            def __init__(self):
                self.model, self.call, self.me = build(), lambda: self.model(x), self
        Owner().call()
        sys.exit(42)
    """,
    "default argument": """
        def call(model=build()):
            return model(x)
        call()
        sys.exit(42)
    """,
    "thread's local": """
        local = threading.local()
        def work():
            local.model = build()
        local.model = build()
        threading.Thread(target=work).start()
        sys.exit(42)
    """,
    "generator that never ends": """
        def forever():
            model = build()
            while True:
                yield model(x)
        results = forever()
        next(results)
        sys.exit(42)
    """,
    "function of atexit": """
        import atexit
        def make():
            model = build()
            atexit.register(lambda: model(x))
        make()
        sys.exit(42)
    """,
    "log callback": """
        def make():
            model = build()
            heddle.set_log(lambda level, message: model)
        make()
        sys.exit(42)
    """,
    "memory pressure callback": """
        def make():
            model = build()
            model.device.on_memory_pressure(lambda needed: model)
        make()
        sys.exit(42)
    """,
    "memory pressure callback of a device of its own": """
        def make():
            model = build(heddle.Device.open())
            model.device.on_memory_pressure(lambda needed: model)
        make()
        sys.exit(42)
    """,
    "batch queue open": """
        def make():
            model = build()
            queue = heddle.BatchQueue(lambda rows: model(rows))
            return lambda: queue.submit(x).result()
        call = make()
        assert (call() == 2).all()
        sys.exit(42)
    """,
    "batch queue with requests that wait": """
        begun = threading.Event()
        def slow(rows, stop=threading.Event()):
            begun.set()
            stop.wait(0.2)
            return rows
        queue = heddle.BatchQueue(slow, max_batch=2)
        futures = [queue.submit(x) for _ in range(4)]
        begun.wait()
        sys.exit(42)
    """,
    "batch_inference entered": """
        model = build()
        context = heddle.batch_inference(batch_size=2)
        context.__enter__()
        model(np.ones((5, 8), np.float32))
        sys.exit(42)
    """,
    "stream, event and pool": """
        context = heddle.stream(heddle.Stream())
        context.__enter__()
        model, pool = build(), heddle.StreamPool()
        event, stream = heddle.current_stream().record_event(), pool.acquire()
        sys.exit(42)
    """,
    "exclusive entered": """
        model, hold = build(), heddle.exclusive()
        hold.__enter__()
        sys.exit(42)
    """,
    "exception kept": """
        def fail():
            model = build()
            model(np.ones((2, 9), np.float32))
        try:
            fail()
        except heddle.InvalidError as error:
            kept = error
        sys.exit(42)
    """,
    "exception in flight": """
        def fail():
            model = build()
            try:
                model(np.ones((2, 9), np.float32))
            finally:
                sys.exit(42)
        fail()
    """,
    "loop of asyncio left open": """
        import asyncio
        queue = heddle.BatchQueue(build())
        loop = asyncio.new_event_loop()
        assert (loop.run_until_complete(queue.asubmit(x)) == 2).all()
        sys.exit(42)
    """,
    "pool of threads at work": """
        from concurrent.futures import ThreadPoolExecutor
        model, pool = build(), ThreadPoolExecutor(4)
        futures = [pool.submit(model, x) for _ in range(200)]
        sys.exit(42)
    """,
}

# Eight daemon threads each, inside what the name says when the main thread exits.
WITH_DAEMON_THREADS = {
    "calls": "start(lambda: model(x))",
    "calls of a closure": """
        def make(model):
            return lambda: model(x)
        start(make(build()))
    """,
    "calls on streams": """
        def call():
            model(x, stream=heddle.Stream())
        start(call)
    """,
    "calls in batch_inference": """
        def call():
            with heddle.batch_inference(batch_size=4):
                model(x)
        start(call)
    """,
    "compilations": """
        def call(rows=[1]):
            rows[0] += 1
            model.compile([(rows[0], 8)])
        start(call)
    """,
    "waits for a device that one of them holds for ever": """
        held, hold = threading.Event(), heddle.exclusive()
        def hold_for_ever():
            with heddle.exclusive():
                held.set()
                threading.Event().wait()
        threading.Thread(target=hold_for_ever, daemon=True).start()
        held.wait()
        for _ in range(8):
            threading.Thread(target=model, args=(x,), daemon=True).start()
        while heddle.Device().stats()["waits_for_lane"] < 1:
            os.sched_yield()
    """,
    "synchronize": "start(heddle.synchronize)",
    "submit and result": """
        queue = heddle.BatchQueue(model)
        start(lambda: queue.submit(x).result())
    """,
    "submit to a full queue": """
        queue = heddle.BatchQueue(model, capacity=1)
        start(lambda: queue.submit(x).result())
    """,
    "results that never come": """
        heddle.batching.workers._EXIT_S = 0.1
        begun = threading.Event()
        def hang(rows):
            begun.set()
            threading.Event().wait()
        queue = heddle.BatchQueue(hang, max_batch=2)
        for _ in range(8):
            threading.Thread(target=lambda: queue.submit(x).result(), daemon=True).start()
        begun.wait()
    """,
    "a queue that feeds another": """
        second = heddle.BatchQueue(model, workers=2)
        first = heddle.BatchQueue(lambda rows: second.submit(rows).result(), workers=2)
        start(lambda: first.submit(x).result())
    """,
    "loops of asyncio": """
        import asyncio
        queue = heddle.BatchQueue(model)
        async def ask():
            await asyncio.gather(*(queue.asubmit(x) for _ in range(3)))
        start(lambda: asyncio.run(ask()))
    """,
}


@pytest.mark.parametrize("shape", WITHOUT_DAEMON_THREADS)
def test_a_script_leaks_nothing_and_ends_quietly(shape):
    text = textwrap.dedent(WITHOUT_DAEMON_THREADS[shape])
    assert run(BEGIN + "heddle._heddle.report_leaks()\n" + text) == ""


@pytest.mark.parametrize("shape", WITH_DAEMON_THREADS)
def test_daemon_threads_end_quietly(shape):
    text = textwrap.dedent(WITH_DAEMON_THREADS[shape])
    assert run(BEGIN + "model = build()\n" + START + text + "\nsys.exit(42)") == ""


def test_an_exception_of_the_script_itself_is_printed():
    text = "model = build()\nmodel(np.ones((2, 9), np.float32))"
    assert "InvalidError" in run(BEGIN + text, code=1).splitlines()[-1]


def test_the_report_of_leaks_sees_one():
    text = "import ctypes\nmodel = build()\nctypes.pythonapi.Py_IncRef(ctypes.py_object(model))\nsys.exit(42)"
    assert "Model" in run(BEGIN + "heddle._heddle.report_leaks()\n" + text)
    assert run(BEGIN + text) == ""


def test_what_somebody_waits_for_is_refused_aloud():
    program = """
model = build()
queue = heddle.BatchQueue(model)

def refused(call):
    try:
        call()
    except heddle.UnavailableError as error:
        return str(error)

def last():  # runs after Heddle's handlers
    import asyncio
    reasons = []
    thread = threading.Thread(target=lambda: reasons.append(refused(lambda: model(x))))
    thread.start()
    thread.join()
    reasons.append(refused(lambda: queue.submit(x)))
    reasons.append(refused(lambda: asyncio.run(queue.asubmit(x))))
    reasons.append(refused(lambda: heddle.BatchQueue(model).submit(x)))
    print(reasons, file=sys.stderr)
"""
    first, *others = ast.literal_eval(
        run("import atexit; atexit.register(lambda: last())" + BEGIN + program, 0)
    )
    assert "only the main thread may still call" in first
    assert len(others) == 3
    assert all("closed" in reason for reason in others)
