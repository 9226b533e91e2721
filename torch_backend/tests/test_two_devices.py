"""Tensors that go from one device of heddle to another one, by a copy that both devices' streams order.

conftest.py leaves this file out where the process has one device: it runs on the doubles and on `sim`, beside
which the host is the other one, and between two GPUs of the double (test_on_cuda.py).
"""

import pytest
import torch
from threads import Tally, count_right, run_threads

HERE, THERE = "heddle:0", f"heddle:{torch.heddle.device_count() - 1}"
# Two GPUs meet in pinned memory: one copy brings it there, and one away.
COPIES = 2 if "host" not in (torch.heddle.device_names()[0], torch.heddle.device_names()[-1]) else 1
WAYS = [(HERE, THERE), (THERE, HERE)]
THREADS = 8
SUPPORTED = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[1:, ::2],
    "expanded": lambda x: x[:, :1].expand(-1, 5),
    "scalar": lambda x: x[1, 2],
    "empty": lambda x: x[:0],
    "none wide": lambda x: x[:, 3:3],
    "large": lambda x: x.repeat(300, 200),
}

pytestmark = pytest.mark.parametrize(("source", "target"), WAYS, ids=["there", "back"])


def numbers(dtype=torch.float32):
    return (torch.randn(4, 6) * 4).to(dtype)


@pytest.mark.parametrize("dtype", SUPPORTED, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_values_arrive(view, dtype, source, target):
    x = numbers(dtype)
    got = VIEWS[view](x.to(source)).to(target)
    wanted = VIEWS[view](x)
    assert (got.device, got.dtype, got.shape) == (torch.device(target), dtype, wanted.shape)
    assert torch.equal(got.cpu(), wanted)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (torch.float32, torch.int64),
        (torch.int64, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float16, torch.float32),
        (torch.uint8, torch.bool),
    ],
    ids=str,
)
@pytest.mark.parametrize("non_blocking", [False, True])
def test_a_dtype_is_converted_on_the_way(before, after, non_blocking, source, target):
    x = numbers(torch.uint8).to(before)
    there = x.to(source)
    made = torch.zeros(6, 4, dtype=after, device=target)
    made.t().copy_(there, non_blocking=non_blocking)
    assert torch.equal(made.cpu(), x.t().to(after))
    assert torch.equal(there[1:].to(target, after, non_blocking=non_blocking).cpu(), x[1:].to(after))


def test_elements_of_a_part_are_written_and_no_others(source, target):
    x = numbers()
    made = torch.full((8, 6), -1.0, device=target)
    made[::2].copy_(x.to(source))
    made[1, 1:3].copy_(x[0, :1].to(source))  # spread over both
    wanted = torch.full((8, 6), -1.0)
    wanted[::2] = x
    wanted[1, 1:3] = x[0, 0]
    assert torch.equal(made.cpu(), wanted)


def test_complex_numbers_arrive(source, target):
    z = torch.view_as_complex(torch.randn(5, 2))
    assert torch.equal(z.to(source).to(target).cpu(), z)


def test_no_tensor_of_the_cpu_lies_between(source, target):
    x = numbers().to(source)
    made = torch.empty(4, 6, device=target)
    made.copy_(x)
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profile:
        for _ in range(3):
            made.copy_(x)
        for _ in range(2):
            arrived = x.to(target)
    torch.heddle.synchronize(target)
    counts = {each.key: each.count for each in profile.key_averages()}
    assert counts == {
        "aten::copy_": 5,
        "aten::_copy_from": 5,
        "copy": 5 * COPIES,
        "aten::to": 2,
        "aten::_to_copy": 2,
        "aten::empty_strided": 2,
    }
    assert torch.equal(arrived.cpu(), made.cpu())


def test_what_is_written_later_is_not_copied_and_what_is_read_later_is_there(source, target):
    """The streams that are current on both devices, and others, are in order with the copy."""
    x = torch.zeros(300, 300, device=source)
    made = torch.zeros(300, 300, device=target)
    for i in range(20):
        x.fill_(i)
        made.copy_(x, non_blocking=True)
        x.fill_(-1)
        doubled = made * 2
        with torch.Stream(target):
            more = made + 1
        made.fill_(-2)
        assert torch.equal(doubled.cpu(), torch.full((300, 300), 2.0 * i))
        assert torch.equal(more.cpu(), torch.full((300, 300), i + 1.0))


def test_who_waits_for_the_targets_stream_waits_for_the_copy(source, target):
    matrix = (torch.eye(192) * 0.5).to(source)
    for kept in (False, True):
        here, there = torch.heddle.current_stream(source), torch.heddle.current_stream(target)
        product = matrix
        for _ in range(12):
            product = product @ matrix
        made = torch.empty(192, 192, device=target)
        made.copy_(product, non_blocking=True)
        if kept:
            there.record_event().synchronize()
        else:
            there.synchronize()
        assert here.query()
        assert torch.equal(made.cpu(), torch.eye(192) * 0.5**13)


@pytest.mark.parametrize("non_blocking", [False, True])
def test_eight_threads_send_tensors_there_and_back(non_blocking, source, target):
    times = 12
    x = torch.randn(THREADS, times, 33, 17)

    def on(device, other):
        def work(t, i):
            stream = torch.Stream(device) if i % 3 else torch.heddle.current_stream(device)
            with stream:
                y = x[t, i].to(device).relu()
                y = y.to(other, non_blocking=non_blocking) + i
                back = torch.empty(17, 33, dtype=torch.float16, device=device)
                back.t().copy_(y, non_blocking=non_blocking)
                return back.float() * 2

        return work

    def expected(t, i):
        return (x[t, i].relu() + i).t().half().float() * 2

    assert count_right(THREADS, times, on(source, target), expected, rtol=0, atol=0) == THREADS * times


def test_eight_threads_copy_one_tensor(source, target):
    x = torch.randn(64, 64)
    there, tally = x.to(source), Tally()

    def body(t):
        for i in range(10):
            got = there[t * 8 :].to(target, non_blocking=i % 2 == 0)
            assert torch.equal(got.cpu(), x[t * 8 :])
            tally.add()

    run_threads(THREADS, body)
    assert tally["done"] == THREADS * 10
