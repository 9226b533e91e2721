"""Streams that the Metal double makes fail: who is told, and what their names mean from then on.

conftest.py leaves this file out where the process runs on another device. test_on_the_double.py has calls of
all kinds meet such failures.
"""

from pathlib import Path

import pytest
from test_on_the_double import HELD_PASSES, assert_told, told_by

LOST = """import sys
import heddle.torch
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, sys.argv[1])
from threads import run_threads
COMMAND_BUFFER_ERROR = 6  # of Fault; it takes the next commit
THREADS, CALLS = 8, 100
x = torch.randn(4, 6)
there = x.to("heddle")
net = torch.nn.Linear(6, 5).eval().requires_grad_(False)
wanted = net(x)
compiled = heddle.torch.compile(net, torch.zeros(4, 6), coalesce=False)
compiled(there)
there + 1  # compiled from here on
torch.heddle.synchronize()  # what a lost stream was to write is lost

def is_told(call):
    try:
        call()
    except RuntimeError as error:
        assert "Internal Error" in str(error), error
        return True
    return False

def lose(stream):
    \"\"\"Its work has failed, and nobody was told.\"\"\"
    set_fault(COMMAND_BUFFER_ERROR, True)
    with stream:
        there + 1
    while not stream.query():
        os.sched_yield()

def until_right(call):
    \"\"\"Calls in a thread that does nothing else, whose results another one reads, until one is right.\"\"\"
    made, is_told_there, is_told_here = [], False, False
    set_fault(COMMAND_BUFFER_ERROR, True)
    for _ in range(CALLS):
        if is_told(lambda: made.append(call())):
            is_told_there = True
        elif is_told(lambda: made[-1].cpu()):
            is_told_here = True
        else:
            break
    else:
        return "never"
    return is_told_there, is_told_here, torch.allclose(made[-1].cpu(), wanted, atol=1e-4)

def only_compiled_calls(_):
    with one_at_a_time, ThreadPoolExecutor(1) as thread:
        return until_right(lambda: thread.submit(compiled, there).result())

one_at_a_time = threading.Lock()
print("compiled calls of one thread", only_compiled_calls(0), sep=": ", flush=True)
print("compiled calls of eight threads", run_threads(THREADS, only_compiled_calls), sep=": ", flush=True)
default = torch.heddle.default_stream()
lose(default)
print("default stream", (is_told(default.synchronize), is_told(default.synchronize)), sep=": ", flush=True)

def of_another_thread(_):
    \"\"\"A thread has lost its stream, and another one is leased a stream of the same number.\"\"\"
    lost = torch.heddle.current_stream()
    lose(lost)
    told = is_told(lost.synchronize)
    torch.heddle.release_current_thread_slot()  # so that the other thread is leased its number
    has_one, ends = threading.Event(), threading.Event()
    def other():
        names.append(torch.heddle.current_stream())
        set_fault(KERNEL_NEVER_ENDS, True)
        there + 1
        has_one.set()
        ends.wait()
    names, thread = [], threading.Thread(target=other)
    thread.start()
    has_one.wait()
    with names[0]:
        current = torch.heddle.current_stream()
    while is_on(KERNEL_NEVER_ENDS):
        os.sched_yield()
    under_way = not names[0].query()
    failed = failure_of(names[0].synchronize)
    ends.set()
    thread.join()
    own = torch.heddle.current_stream()
    return told, names[0] == lost, current == lost, own != lost, under_way, failed

print("number of another thread's", run_threads(1, of_another_thread)[0], sep=": ", flush=True)
"""


@pytest.fixture(scope="module")
def lost():
    return told_by(HELD_PASSES + LOST, str(Path(__file__).parent))


# A call raises the failure, and who reads what an earlier one gave is told of it; then they are right.
TOLD_AND_RIGHT = (True, True, True)


@pytest.mark.parametrize(
    ("threads", "expected"), [("one thread", TOLD_AND_RIGHT), ("eight threads", [TOLD_AND_RIGHT] * 8)]
)
def test_a_thread_of_compiled_calls_gets_another_stream_for_one_that_is_lost(threads, expected, lost):
    """Another thread reads the results: PyTorch's operators and waits would get it another stream, too."""
    assert_told(lost, f"compiled calls of {threads}", expected)


def test_a_wait_for_a_default_stream_that_is_lost_raises_its_failure_once(lost):
    assert_told(lost, "default stream", (True, False))


def test_a_lost_streams_number_means_another_threads_stream_that_has_it_now(lost):
    assert_told(lost, "number of another thread's", (True,) * 6)
