"""Eager operators that nobody waits for share submissions, on the doubles of Metal and of CUDA.

conftest.py leaves this file out where the process runs on another device. The program is a process of its
own: a stream that another test has given to others shares nothing any more.
"""

import subprocess
import sys

import pytest

SHARED = """import ctypes, json, sys, threading
import torch
import heddle

OPERATORS = 64
start = torch.arange(12.0).reshape(3, 4)

def chain(x, y):
    for _ in range(OPERATORS):
        x = x + y  # whole numbers: exact
    return x

def submitted(call):  # what it gives, and how many spans of the driver's submit() there were meanwhile
    with heddle.profiler.profile(sys.argv[1]):
        result = call()
        torch.heddle.synchronize()
    with open(sys.argv[1]) as file:
        events = json.load(file)["traceEvents"]
    return result, sum(each["name"] == "submit" and each["cat"] in ("metal", "cuda") for each in events)

def committed(call):  # the same of command buffers
    count = ctypes.CDLL(None)["_ZN6heddle12metal_double5countENS0_5CountE"]
    count.restype = ctypes.c_uint64
    COMMITS = 0  # Count of tests/metal_double/control.h
    before = count(COMMITS)
    result = call()
    torch.heddle.synchronize()
    return result, count(COMMITS) - before

there = start.to("heddle")
chain(there, there).cpu()  # compiled from here on
torch.heddle.synchronize()
for counted in (submitted, committed)[: int(sys.argv[2])]:
    result, count = counted(lambda: chain(there, there))
    print(counted.__name__, count, sep=": ")
    print(counted.__name__ + " values", torch.equal(result.cpu(), (1 + OPERATORS) * start), sep=": ")

THREADS, ROUNDS = 8, 6
links = [[there] for _ in range(THREADS)]  # each thread's results, which another one goes on with
steps = [torch.full((3, 4), 1.0 + t).to("heddle") for t in range(THREADS)]
barrier = threading.Barrier(THREADS)
right = []

def work(t):
    for i in range(ROUNDS):
        links[t].append(chain(links[(t + 1) % THREADS][i], steps[t]))
        barrier.wait(60)
    added = sum(1 + (t + i) % THREADS for i in range(ROUNDS)) * OPERATORS
    right.append(torch.equal(links[t][-1].cpu(), start + added))

threads = [threading.Thread(target=work, args=(t,)) for t in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads", right == [True] * THREADS, sep=": ")
"""


@pytest.fixture(scope="module")
def shared(on_the_double, tmp_path_factory):
    trace = tmp_path_factory.mktemp("shared") / "trace.json"
    command = [sys.executable, "-c", SHARED, str(trace), "2" if on_the_double else "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return dict(line.split(": ") for line in done.stdout.splitlines()), done.stderr


def test_operators_that_nobody_waits_for_share_submissions(shared, on_the_double):
    """Eight at most. How many did depends on how soon the next one comes. On Metal a submission is a command
    buffer."""
    told, errors = shared
    for counted in ("submitted", "committed") if on_the_double else ("submitted",):
        assert 64 // 8 <= int(told.get(counted, 0)) < 64, errors
        assert told[counted + " values"] == "True"


def test_threads_that_go_on_with_each_other_s_operators_get_their_values(shared):
    told, errors = shared
    assert told.get("threads") == "True", errors
