"""Python's threads are inside Heddle at once, shown without a clock by the Metal double.

A run, a commit or a compilation waits there until a second one is there too. A lock around calls, or a GIL
that is kept, makes them miss each other. Each case is a program of its own, on the double's library instead
of the installed one.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = ROOT / "build" / "release" / "on_the_double" / "libheddle.so.0"
TIMES = 20

BEGIN = """
import ctypes, sys
import numpy as np
import heddle
sys.path.insert(0, {here!r})
from conftest import build_affine, run_together

double = ctypes.CDLL(None)
double.metal_double_meet.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64]
for read in (double.metal_double_met, double.metal_double_missed):
    read.argtypes, read.restype = [ctypes.c_char_p], ctypes.c_uint64
x = [np.full((3, 4), n, np.float32) for n in range(2)]

def is_affine(thread, y):
    return np.array_equal(y, x[thread] * 2 + 1)

def meet(where, work, times={times}):
    double.metal_double_meet(where, 2, times)
    right, _ = run_together(2, lambda thread, _: sum(bool(work(thread, time)) for time in range(times)))
    assert right == [times, times], right
    assert (double.metal_double_met(where), double.metal_double_missed(where)) == (times, 0)
"""


def run(program: str) -> None:
    assert DOUBLE.exists(), f"{DOUBLE} is missing: make test ONLY=metal builds it"
    begin = BEGIN.format(here=str(Path(__file__).parent), times=TIMES)
    environment = os.environ | {"LD_PRELOAD": str(DOUBLE), "HEDDLE_DEVICE": "metal"}
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("where", ["run", "commit"])
@pytest.mark.parametrize("models", ["one model", "two models"])
def test_two_python_threads_call_at_once(where, models):
    run(f"""
        one = build_affine(4)
        both = [one, one if {models!r} == "one model" else build_affine(4)]
        for model in both:
            model(x[0])
        meet(b"{where}", lambda thread, time: is_affine(thread, both[thread](x[thread])))
    """)


def test_two_python_threads_call_at_once_on_streams_of_their_own():
    run("""
        model = build_affine(4)
        model(x[0])
        streams = [heddle.Stream(), heddle.Stream()]
        def call(thread, time):
            with heddle.stream(streams[thread]):
                return is_affine(thread, np.asarray(model(x[thread])))
        meet(b"commit", call)
    """)


def test_two_python_threads_compile_at_once():
    run("""
        model = build_affine(4)
        def compile(thread, time):
            model.compile([[1 + 2 * time + thread, 4]])
            return True
        meet(b"compile", compile, 5)
    """)
