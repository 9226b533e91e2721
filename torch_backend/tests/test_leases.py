"""Leases of streams: given back on demand, and what Device.configure(exhaustion=) says when all are taken."""

import subprocess
import sys

import pytest
import torch
from threads import run_threads

PROGRAM = """import sys, threading
import heddle
heddle.Device.configure(exhaustion=sys.argv[1], stream_wait=60)
import torch
THREADS = 36
x = torch.ones(3, device="heddle")
counts = {"right": 0, "refused": 0}
lock = threading.Lock()
begin, end = threading.Barrier(THREADS), threading.Barrier(THREADS)
def work():
    begin.wait()
    try:
        what = "right" if torch.equal(torch.relu(x * 2).cpu(), torch.full((3,), 2.0)) else "wrong"
    except RuntimeError as error:
        assert "stream" in str(error), error
        what = "refused"
    with lock:
        counts[what] += 1
    if sys.argv[1] != "wait":  # where a thread waits for a lease, none is kept
        end.wait()
threads = [threading.Thread(target=work) for _ in range(THREADS)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(counts["right"], counts["refused"])
"""


@pytest.mark.parametrize(("exhaustion", "counts"), [("share", "36 0"), ("wait", "36 0"), ("fail", "31 5")])
def test_thirty_six_threads_want_thirty_one_leases(exhaustion, counts):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, exhaustion], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == counts, done.stderr


def stream_used(device):
    assert torch.ones(3, device=device).sum().item() == 3
    return torch.heddle.current_stream().stream_id


@pytest.mark.parametrize("released", [True, False])
def test_a_stream_that_a_living_thread_has_released_is_the_next_thread_s(released, device):
    def first(_):
        mine = stream_used(device)
        if released:
            torch.heddle.release_current_thread_slot()
        return mine, *run_threads(1, lambda _: stream_used(device))

    ((mine, next_one),) = run_threads(1, first)
    assert (mine == next_one) == released
