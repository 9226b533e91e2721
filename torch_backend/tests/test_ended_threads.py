"""Streams by name whose threads have ended: autograd runs a backward on the streams of its forward."""

import copy
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from threads import Tally, run_threads
from torch import nn

THREADS = 8


def in_a_thread_that_ends(body):
    return run_threads(1, lambda _: body())[0]


def in_a_pool_that_ends(body):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(body).result()


def here(body):
    return body()


class Wave(nn.Module):
    def forward(self, x):
        return x.sin()


NET = nn.Sequential(nn.Linear(6, 8), Wave(), nn.Linear(8, 4))


def gradients(x, device, forward_in=here, backward_in=here):
    """Of the loss of the net's own copy, by the weights and by the rows."""
    module = copy.deepcopy(NET).to(device)
    rows = x.to(device).requires_grad_()
    loss = forward_in(lambda: (module(rows) ** 2).sum())
    backward_in(loss.backward)
    return [each.grad.cpu() for each in (rows, *module.parameters())]


def assert_close(got, wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


WAYS = {"thread": in_a_thread_that_ends, "pool": in_a_pool_that_ends, "main thread": here}


@pytest.mark.parametrize("backward_in", WAYS)
@pytest.mark.parametrize("forward_in", WAYS)
def test_a_backward_in_another_thread_than_its_forward(forward_in, backward_in, device):
    x = torch.randn(5, 6)
    assert_close(gradients(x, device, WAYS[forward_in], WAYS[backward_in]), gradients(x, "cpu"))


def test_second_derivatives_of_a_forward_whose_thread_has_ended(device):
    x = torch.randn(5, 6)

    def second(where, ways):
        rows = x.to(where).requires_grad_()
        value = ways(lambda: (rows.sin() ** 3).sum())
        (first,) = ways(lambda: torch.autograd.grad(value, rows, create_graph=True))
        return [torch.autograd.grad((first**2).sum(), rows)[0].cpu()]

    assert_close(second(device, in_a_thread_that_ends), second("cpu", here))


def test_backwards_of_many_pools_from_eight_threads(device):
    """Forwards of pools that have ended; their backwards in later pools, and in eight threads at once."""
    rounds, tally = 6, Tally()
    x = torch.randn(rounds, THREADS, 5, 6)
    module, reference = copy.deepcopy(NET).to(device), NET

    def forward(of, where, at):
        rows = x[at].to(where).requires_grad_()
        return rows, (of(rows) ** 2).sum()

    def backward(rows, loss):
        return torch.autograd.grad(loss, rows)[0].cpu()

    for i in range(rounds):
        with ThreadPoolExecutor(THREADS) as pool:
            made = list(pool.map(lambda t: forward(module, device, (i, t)), range(THREADS)))  # noqa: B023
        if i % 2:
            got = run_threads(THREADS, lambda t: backward(*made[t]))  # noqa: B023
        else:
            with ThreadPoolExecutor(THREADS) as pool:
                got = list(pool.map(lambda pair: backward(*pair), made))
        for t in range(THREADS):
            wanted = backward(*forward(reference, "cpu", (i, t)))
            torch.testing.assert_close(got[t], wanted, rtol=1e-4, atol=1e-5)
            tally.add()
    assert tally["done"] == rounds * THREADS


def test_forwards_and_backwards_pass_one_another_between_threads_that_come_and_go(device):
    """Each of eight threads ends a thread's forward and runs another one's backward, while others do so."""
    times, tally = 5, Tally()
    x = torch.randn(THREADS, times, 5, 6)
    wanted = [[gradients(x[t, i], "cpu") for i in range(times)] for t in range(THREADS)]

    def body(t):
        for i in range(times):
            ways = in_a_pool_that_ends, in_a_thread_that_ends
            assert_close(gradients(x[t, i], device, ways[i % 2], ways[(t + i) % 2]), wanted[t][i])
            tally.add()

    run_threads(THREADS, body)
    assert tally["done"] == THREADS * times


def test_the_stream_of_an_ended_thread_is_used_as_the_default_one(device):
    kept = in_a_thread_that_ends(lambda: ((torch.ones(8, device=device) + 1), torch.heddle.current_stream()))
    values, stream = kept
    stream.synchronize()
    assert stream.query()
    event = stream.record_event()
    event.synchronize()
    torch.heddle.current_stream().wait_stream(stream)
    before = torch.heddle.current_stream()
    with stream:
        assert torch.heddle.current_stream().stream_id in (0, stream.stream_id)
        values = values * 2
    assert torch.heddle.current_stream() == before
    assert torch.equal(values.cpu(), torch.full((8,), 4.0))


def test_a_stream_that_there_never_was_is_refused(device):
    torch.ones(2, device=device)
    stream = torch.heddle.Stream._of(5000, 0)
    for use in (stream.query, stream.synchronize, stream.record_event, stream.__enter__):
        with pytest.raises(RuntimeError, match="there was no stream 5000 of device heddle:0"):
            use()


def in_a_process(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Thirty-one leases, and who finds none waits for one: a name that kept its stream would leave none.
POOLS = """import heddle
heddle.Device.configure(exhaustion="wait", stream_wait=30)
import threading, torch
THREADS = 30  # autograd's own thread has one as well
kept = []
def work(i, begin):
    begin.wait()  # all are there
    x = torch.full((3,), float(i), device="heddle", requires_grad=True)
    y = (x * x).sum()
    begin.wait()
    kept.append((i, x, y, torch.heddle.current_stream()))
for _ in range(4):
    begin = threading.Barrier(THREADS)
    threads = [threading.Thread(target=work, args=(i, begin)) for i in range(THREADS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for i, x, y, stream in kept[-THREADS:]:
        y.backward()
        assert x.grad.tolist() == [2.0 * i] * 3
        stream.synchronize()
print(len(kept), len({stream.stream_id for *_, stream in kept}) < THREADS + 2)
"""


def test_names_of_ended_threads_keep_no_stream():
    assert in_a_process(POOLS) == "120 True"


# Of the device "sim" work goes on beside its caller, and the host's memory is written when it is over.
IN_ORDER = """import threading, torch
x = torch.eye(192, device="heddle")
x @ x, x + x
torch.heddle.synchronize()
pinned = torch.zeros(192, 192).pin_memory()
right = 0
for i in range(8):
    pinned.zero_()
    streams = []
    def body():
        y = x
        for _ in range(60):
            y = y @ x
        pinned.copy_(y + i, non_blocking=True)
        streams.append(torch.heddle.current_stream())
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if i % 2:
        streams[0].synchronize()
    else:
        event = streams[0].record_event()
        event.synchronize()
    right += torch.equal(pinned, torch.eye(192) + i)
print(right)
"""


def test_who_waits_for_the_stream_of_an_ended_thread_waits_for_its_work():
    assert in_a_process(IN_ORDER, HEDDLE_DEVICE="sim", HEDDLE_SIM_SEED="7") == "8"
