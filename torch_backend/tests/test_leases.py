"""Leases of streams: given back on demand, and what Device.configure(exhaustion=) says when all are taken."""

import os
import subprocess
import sys
from pathlib import Path

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


# Who finds no lease is refused. On the device "sim" work goes on beside its caller.
MADE = """import sys, threading
import heddle
heddle.Device.configure(exhaustion="fail")
import torch
sys.path.insert(0, sys.argv[1])
from threads import comes_true, count_right, run_threads
THREADS = 8
LEASES = heddle.Device().streams - 1
x = torch.randn(THREADS, 6, 16, 16, generator=torch.Generator().manual_seed(3))
there = x.to("heddle")
kept = [torch.Stream("heddle") for _ in range(20)]

def none_is_leased():  # a thread's lease ends just after a join
    torch.heddle.synchronize()
    return comes_true(lambda: heddle.Device().stats()["streams_leased"] == 0, within_s=10)

def on_streams(t, i):
    stream = torch.Stream("heddle") if i % 2 else kept[(t * 6 + i) % len(kept)]
    with stream:
        y = there[t, i].relu()
    with stream:
        y = y @ there[t, i]
    stream.synchronize()
    return y

def own_streams(of):
    all_hold, all_told = threading.Barrier(of), threading.Barrier(of)
    def body(t):
        y = there[t % THREADS, t % 6] * t
        mine = torch.heddle.current_stream().stream_id
        all_hold.wait(60)
        told = heddle.Device().stats()["streams_leased"]
        all_told.wait(60)
        assert torch.equal(y.cpu(), x[t % THREADS, t % 6] * t)
        return mine, told
    numbers, told = zip(*run_threads(of, body))
    assert none_is_leased()
    return len(set(numbers)), set(told)

print(count_right(THREADS, 6, on_streams, lambda t, i: x[t, i].relu() @ x[t, i]), none_is_leased())
for _ in range(2):
    held, told = own_streams(LEASES)
    print(held == LEASES, told == {LEASES})
    print(count_right(THREADS, 6, on_streams, lambda t, i: x[t, i].relu() @ x[t, i]), none_is_leased())
print(heddle.Device().stats()["streams_shared"], len({stream.stream_id for stream in kept}))
"""


@pytest.mark.parametrize("kind", ["the device", "sim"])
def test_streams_that_torch_made_hold_no_lease_once_their_work_is_over(kind):
    """Eight threads use such streams, kept and dropped; then threads hold all leases there are at once."""
    environment = {"HEDDLE_DEVICE": "sim", "HEDDLE_SIM_SEED": "5"} if kind == "sim" else {}
    done = subprocess.run(
        [sys.executable, "-c", MADE, str(Path(__file__).parent)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == ["48", "True", "True", "True"] * 2 + ["48", "True", "0", "16"], done.stderr


TAKEN = """import heddle, torch
x = torch.ones(4, device="heddle")
counts = []

def note():
    torch.heddle.synchronize()
    counts.append(heddle.Device().stats()["streams_leased"])

note()
stream = torch.Stream("heddle")
with stream:
    assert torch.heddle.current_stream() == stream
    note()
    y = x + 1
    note()
    with stream:
        y = y * 2
    note()
assert stream.query()
note()
print(*counts, *y.tolist())
"""


def test_a_stream_has_a_lease_from_its_first_work_on_while_it_is_current():
    done = subprocess.run(
        [sys.executable, "-c", TAKEN], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.split() == ["0", "0", "1", "1", "0", *["4.0"] * 4], done.stderr
