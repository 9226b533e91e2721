"""The end of a process that uses the device is quiet: nothing on standard error, and the script's exit code.

As tests/python/test_exit.py, which tells of the report of leaks.
"""

import textwrap

import pytest
from exit_scripts import START, run

BEGIN = """
import sys, threading
import heddle, torch, heddle.torch

def build():
    return torch.nn.Linear(4, 3).eval().to("heddle")

module, x = build(), torch.ones(2, 4, device="heddle")
assert module(x).shape == (2, 3)
"""

SHAPES = {
    "a module in a closure and in a cycle": """
        def make():
            module = build()
            def call(again):
                return call(again - 1) if again else module(x)
            module.call = call
            return call
        make()(2)
    """,
    "a compiled module in a closure": """
        def make():
            compiled = torch.compile(lambda v: module(v).relu(), backend="heddle")
            return lambda: compiled(x)
        with torch.inference_mode():
            call = make()
            call()
    """,
    "gradients, and a generator that never ends": """
        module(x).sum().backward()
        def forever():
            while True:
                yield module(x)
        results = forever()
        next(results)
    """,
    "daemon threads in eager calls": "start(lambda: module(x).sum().item())",
    "daemon threads in synchronize": "start(torch.heddle.synchronize)",
    "daemon threads in batches": """
        def call():
            with torch.inference_mode(), heddle.torch.batch_inference():
                module(x)
        start(call)
    """,
    # Most of the time they are where CPython would end them in the middle of PyTorch's frames.
    "daemon threads in batches, and in PyTorch's own operators": """
        square = torch.ones(200, 200)
        def call():
            with torch.inference_mode():
                with heddle.torch.batch_inference():
                    module(x)
                for _ in range(4):
                    square @ square
        start(call)
    """,
    # They come back for the GIL while the interpreter finalises, and call the device no more.
    "daemon threads in long operators of the CPU": """
        torch.set_num_threads(1)
        def long(square=torch.ones(1000, 1000)):
            return square @ square
        class AtTheEnd(type(sys)):  # a module's own frames do not keep this one
            def __del__(self, long=long):
                for _ in range(20):
                    long()
        sys.modules["at_the_end"] = AtTheEnd("at_the_end")
        here = threading.local()
        def call():
            module(x)
            here.calls = getattr(here, "calls", 0) + 1
            while here.calls > 4:
                long()
        start(call)
    """,
    "daemon threads that wait for the device": """
        held = threading.Event()
        def hold():
            with heddle.exclusive():
                held.set()
                threading.Event().wait()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        before = heddle.Device().stats()["waits_for_lane"]
        for _ in range(8):
            threading.Thread(target=module, args=(x,), daemon=True).start()
        while heddle.Device().stats()["waits_for_lane"] == before:
            pass
    """,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_script_ends_quietly(shape):
    leaks = "" if "daemon" in shape else "heddle._heddle.report_leaks()\n"
    program = BEGIN + START + leaks + textwrap.dedent(SHAPES[shape]) + "\nsys.exit(42)"
    assert run(program, timeout=120) == ""


def test_the_thread_that_runs_batches_ends_before_the_device_is_closed():
    look = """
import atexit, threading
@atexit.register  # the first to register is the last to run
def look():
    left = [thread.name for thread in threading.enumerate() if "owner" in thread.name]
    assert not left, left
"""
    shape = textwrap.dedent(SHAPES["daemon threads in batches"])
    seen = "\nassert any('owner' in thread.name for thread in threading.enumerate())"
    assert run(look + BEGIN + START + shape + seen + "\nsys.exit(42)", timeout=120) == ""
