"""Pinned memory where device heddle is a GPU: copies from it and to it are the GPU's own, and go on by
themselves with non_blocking=True.

conftest.py leaves this file out where the process runs on another device. The double of CUDA ends the process
for a copy whose memory of the host is not pinned, and for a call of CUDA's in a forked child.
"""

import gc
import os
import subprocess
import sys

import pytest
import torch
from threads import comes_true, run_threads

ON_THE_DOUBLE = "HEDDLE_CUDA_IMAGE" in os.environ
SIDE, PRODUCTS = (256, 8) if ON_THE_DOUBLE else (4096, 40)
SMALL, LARGE = 1000, 300_000  # a kernel copies the one, a copy engine the other


@pytest.fixture
def keep_busy():
    """A function that gives the current stream work for some tens of milliseconds or more."""
    matrix = (torch.eye(SIDE) * 0.5).to("heddle")
    torch.matmul(matrix, matrix)
    torch.heddle.synchronize()

    def start():
        product = matrix
        for _ in range(PRODUCTS):
            product = torch.matmul(product, matrix)

    return start


def is_busy():
    return not torch.heddle.current_stream().query()


def empty_pinned(count):
    """torch.empty(pin_memory=True) is of PyTorch's own CUDA, where that finds a GPU."""
    own = not torch.cuda.is_available()
    return torch.empty(count, pin_memory=True) if own else torch.empty(count).pin_memory()


def test_memory_is_pinned_where_it_was_asked_for():
    x = torch.randn(SMALL)
    pinned = x.pin_memory()
    assert torch.equal(pinned, x)
    assert not x.is_pinned()
    for each in (pinned, pinned[500:], pinned.view(10, 100).t(), empty_pinned(7)):
        assert each.is_pinned()
        assert each.is_cpu
    assert pinned.pin_memory() is pinned
    assert torch.empty(0, pin_memory=True).numel() == 0


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_copies_that_do_not_block_return_while_the_stream_is_busy(keep_busy, count):
    x = torch.randn(count)
    pinned, back = x.pin_memory(), torch.zeros(count).pin_memory()
    keep_busy()
    y = pinned.to("heddle", non_blocking=True)
    back.copy_(y, non_blocking=True)
    assert is_busy()
    torch.heddle.current_stream().synchronize()
    assert torch.equal(back, x)


def test_copies_that_block_are_over_when_they_return(keep_busy):
    x = torch.randn(LARGE)
    pinned = x.pin_memory()
    keep_busy()
    y = pinned.to("heddle")
    pinned.zero_()
    keep_busy()
    pinned.copy_(y)
    assert torch.equal(pinned, x)
    assert not is_busy()


@pytest.mark.parametrize("view", [lambda x: x[100:500], lambda x: x[::3], lambda x: x.view(20, 50).t()])
def test_windows_on_pinned_memory_are_copied_as_they_lie(view):
    x = torch.randn(SMALL)
    pinned = x.pin_memory()
    y = view(pinned).to("heddle", non_blocking=True)
    torch.heddle.synchronize()
    assert torch.equal(y.cpu(), view(x))
    target = torch.zeros(SMALL).pin_memory()
    view(target).copy_(y, non_blocking=True)
    torch.heddle.synchronize()
    wanted = torch.zeros(SMALL)
    view(wanted).copy_(view(x))
    assert torch.equal(target, wanted)


def test_another_dtype_is_converted_on_the_way():
    x = torch.randn(SMALL).pin_memory()
    assert torch.equal(x.to("heddle", torch.float16, non_blocking=True).cpu(), x.half())
    wide = torch.empty(SMALL, dtype=torch.float64, pin_memory=True)
    wide.copy_(x.to("heddle"))
    assert torch.equal(wide, x.double())


def test_memory_that_is_dropped_is_not_used_again_before_its_copy_is_over(keep_busy):
    sevens = torch.full((LARGE,), 7.0).pin_memory()
    at = sevens.data_ptr()
    keep_busy()
    y = sevens.to("heddle", non_blocking=True)
    del sevens
    eights = torch.full((LARGE,), 8.0).pin_memory()
    assert is_busy()
    assert eights.data_ptr() != at
    assert (y == 7).all().item()
    assert comes_true(lambda: empty_pinned(LARGE).data_ptr() == at)


def test_a_mistake_in_what_is_copied_is_raised_by_copies_that_block():
    table, wrong = torch.arange(6.0, device="heddle"), torch.tensor([1, 9], device="heddle")
    pinned = torch.ones(2).pin_memory()
    with pytest.raises(RuntimeError, match="outside"):
        pinned.copy_(table[wrong])
    pinned.fill_(3)
    assert pinned.to("heddle").tolist() == [3, 3]
    pinned.copy_(table[wrong], non_blocking=True)
    torch.heddle.synchronize()
    pinned.fill_(4)
    for non_blocking in (True, False):
        assert pinned.to("heddle", non_blocking=non_blocking).tolist() == [4, 4]


def test_a_compiled_module_takes_pinned_inputs():
    module = torch.nn.Linear(SMALL, 3).eval()
    compiled = torch.compile(module, backend="heddle")
    x = torch.randn(4, SMALL).pin_memory()
    with torch.inference_mode():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
            x += 1


def test_each_of_eight_threads_has_the_values_of_its_own_memory():
    times = 20

    def body(thread):
        ring = [torch.empty(LARGE // 10, pin_memory=True) for _ in range(2)]
        right = 0
        for i in range(times):
            source, target = ring[i % 2], torch.empty(LARGE // 10, pin_memory=True)
            source.fill_(100 * thread + i)
            y = source.to("heddle", non_blocking=True) + 1
            target.copy_(y, non_blocking=True)
            torch.heddle.current_stream().synchronize()
            right += bool((target == 100 * thread + i + 1).all())
        return right

    assert run_threads(8, body) == [times] * 8


FORKED = """import gc, os, torch
x = torch.arange(1000.0).pin_memory()
y = x.to("heddle", non_blocking=True)
child = os.fork()
if child == 0:
    del x, y
    gc.collect()
    try:
        torch.ones(4).pin_memory()
    except RuntimeError as error:
        print(error, flush=True)
        os._exit(7)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(code, y.sum().item(), x.sum().item(), (x + 1).pin_memory().to("heddle").sum().item())
"""


def test_a_forked_child_drops_what_it_has_inherited_and_the_parent_goes_on():
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=120
    )
    total = sum(range(1000)) / 1.0
    assert done.stdout.splitlines()[-1] == f"7 {total} {total} {total + 1000}", done.stdout + done.stderr
    assert "fork" in done.stdout


def test_a_loader_pins_what_its_workers_make():
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(
        data, batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork"
    )
    total = 0
    for (batch,) in loader:
        assert batch.is_pinned()
        total += batch.to("heddle", non_blocking=True).sum().item()
    assert total == sum(range(64))
    gc.collect()
