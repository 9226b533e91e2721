"""What writes in place writes what PyTorch's CPU writes, and on the host touches nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import in_place_pages
import pytest
import torch
from threads import count_right

aten = torch.ops.aten
THREADS, TIMES = 8, 25


def test_a_write_in_place_touches_no_page_but_those_that_it_writes():
    run = subprocess.run(
        [sys.executable, Path(in_place_pages.__file__)],
        env={**os.environ, "HEDDLE_DEVICE": "host"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == f"{len(in_place_pages.CASES)} cases"


# ---- values, in every layout of the target

SHAPE = (3, 4, 5)


def strided(x):
    """The same values in memory that has others between them."""
    room = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype, device=x.device)
    return room[..., ::2].copy_(x)


LAYOUTS = {
    "contiguous": lambda x: x.clone(),
    "transposed": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
    "strided": strided,
    "a part of another": lambda x: torch.stack([x + 1, x, x - 1])[1],
    "a window of another": lambda x: torch.nn.functional.pad(x, (1, 2, 2, 1))[:, 2:-1, 1:-2],
}
INDEX = torch.tensor([2, 0])
MASK = (torch.arange(60) % 4 == 1).view(SHAPE)


def rows(shape, seed=3):
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(seed)).float()


OPERATORS = {
    "index_copy_ 0": lambda x, on: x.index_copy_(0, on(INDEX), on(rows((2, 4, 5)).to(x.dtype))),
    "index_copy_ 1": lambda x, on: x.index_copy_(1, on(INDEX), on(rows((3, 2, 5)).to(x.dtype))),
    "index_copy_ -1": lambda x, on: x.index_copy_(-1, on(INDEX), on(rows((3, 4, 2)).to(x.dtype))),
    "index_add_ 2": lambda x, on: x.index_add_(2, on(INDEX), on(rows((3, 4, 2)).to(x.dtype))),
    "index_fill_": lambda x, on: x.index_fill_(1, on(INDEX), 7),
    "index_put_ of a number": lambda x, on: x.__setitem__((slice(None), on(INDEX)), 5),
    "index_put_ in the middle": lambda x, on: x.__setitem__(
        (slice(None), on(INDEX)), on(rows((2, 5)).to(x.dtype))
    ),
    "index_put_ from the end": lambda x, on: x.__setitem__(
        (..., on(INDEX - 3)), on(rows((4, 1)).to(x.dtype))
    ),
    "index_put_ apart": lambda x, on: x.__setitem__(
        (on(INDEX), slice(None), on(INDEX + 1)), on(rows((2, 4)).to(x.dtype))
    ),
    "index_put_ in a grid": lambda x, on: x.__setitem__(
        (on(INDEX[:, None]), on(torch.tensor([1, 3, 0]))), on(rows((2, 3, 5)).to(x.dtype))
    ),
    "index_put_ in a grid behind": lambda x, on: x.__setitem__(
        (slice(None), on(INDEX[:, None]), on(torch.tensor([1, 3, 0]))), on(rows((3, 2, 3)).to(x.dtype))
    ),
    "index_put_ under a mask": lambda x, on: x.__setitem__((slice(None), on(MASK[0, :, 0])), 6),
    "accumulate": lambda x, on: aten.index_put_(
        x, [None, on(torch.tensor([1, 1, 3]))], on(rows((3, 3, 5)).to(x.dtype)), True
    ),
    "accumulate at one place": lambda x, on: x.index_put_(
        (on(torch.tensor(1)), on(torch.tensor([2, 2]))), on(rows((2, 5)).to(x.dtype)), accumulate=True
    ),
    "scatter_": lambda x, on: x.scatter_(
        1, on(INDEX.view(1, 2, 1).expand(3, 2, 5)), on(rows(SHAPE).to(x.dtype))
    ),
    "scatter_ of a number": lambda x, on: x.scatter_(2, on(INDEX.expand(3, 4, 2)), 8),
    "scatter_add_": lambda x, on: x.scatter_add_(
        0, on(INDEX.view(2, 1, 1).expand(2, 4, 5)), on(rows(SHAPE).to(x.dtype))
    ),
    "scatter_reduce_ amin": lambda x, on: x.scatter_reduce_(
        2, on(INDEX.expand(3, 4, 2)), on(rows((3, 4, 2)).to(x.dtype)), "amin"
    ),
    "scatter_reduce_ without self": lambda x, on: x.scatter_reduce_(
        2, on(INDEX.expand(3, 4, 2)), on(rows((3, 4, 2)).to(x.dtype)), "sum", include_self=False
    ),
    "put_": lambda x, on: x.put_(on(torch.tensor([3, 59, -2])), on(rows((3,)).to(x.dtype))),
    "fill_": lambda x, on: x.fill_(3),
    "zero_": lambda x, on: x.zero_(),
    "masked_fill_": lambda x, on: x.masked_fill_(on(MASK), 4),
    "masked_fill_ by a row": lambda x, on: x.masked_fill_(on(MASK[0, 0]), 4),
    "copy_": lambda x, on: x[1:, :, ::2].copy_(on(rows((4, 3)).to(x.dtype))),
    "copy_ of another dtype": lambda x, on: x[1:].copy_(on(rows((2, 4, 5)).to(torch.int16))),
    "add_ of itself": lambda x, on: x.add_(x),
    "mul_ by a row": lambda x, on: x.mul_(on(rows((5,)).to(x.dtype))),
    "out= over an operand": lambda x, on: torch.sub(on(rows(SHAPE).to(x.dtype)), x, out=x),
    "cumsum_": lambda x, on: x.cumsum_(1),
}
DTYPES = (torch.float32, torch.bfloat16, torch.int64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_target_and_what_lies_around_it_are_the_cpu_s(name, layout, device):
    for dtype in DTYPES:
        wanted = LAYOUTS[layout](rows(SHAPE, seed=1).to(dtype))
        around = torch.as_strided(
            wanted, (wanted.untyped_storage().nbytes() // wanted.element_size(),), (1,), 0
        )
        memory = around.to(device)
        target = torch.as_strided(memory, wanted.shape, wanted.stride(), wanted.storage_offset())
        OPERATORS[name](wanted, lambda each: each)
        for _ in range(2):  # the second call finds a graph
            target_before = target.cpu()
            OPERATORS[name](target, lambda each: each.to(device))
            torch.testing.assert_close(memory.cpu(), around, rtol=0, atol=0)
            target.copy_(target_before)


def test_eight_threads_write_what_one_would(device):
    """Each into a cache of its own, at positions that all read from one tensor."""
    positions = torch.arange(TIMES)
    there = positions.to(device)
    caches = {}

    def step(thread, time, on, position):
        cache = caches.setdefault((thread, on.__name__), on(torch.zeros(2, 3, TIMES, 4)))
        new = on(rows((2, 3, 1, 4), seed=100 * thread + time))
        cache.index_copy_(2, position[time : time + 1], new)
        cache[:, :, position[time]] += 1
        cache.scatter_add_(2, position[time].expand(2, 3, 1, 4), new)
        cache[1].masked_fill_(new[1] > 5, 0.5)
        return cache.clone()

    def to_device(each):
        return each.to(device)

    def stay(each):
        return each

    done = count_right(
        THREADS,
        TIMES,
        lambda thread, time: step(thread, time, to_device, there),
        lambda thread, time: step(thread, time, stay, positions),
    )
    assert done == THREADS * TIMES


def test_a_refused_index_leaves_the_target_as_it_was(device):
    target = torch.arange(12.0, device=device).view(4, 3)

    def write():
        target.index_copy_(0, torch.tensor([1, 4], device=device), torch.zeros(2, 3, device=device))
        target.cpu()

    with pytest.raises((IndexError, RuntimeError), match="outside"):
        write()
    if torch.heddle.device_names()[0] == "host":  # elsewhere it is known when the target was written
        assert target.cpu().flatten().tolist() == list(range(12))
