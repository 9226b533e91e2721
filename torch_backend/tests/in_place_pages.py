"""Writes in place on the host while all pages but those to be written can be neither read nor written.

Prints each case before it runs: a process that touches another page ends there, by SIGSEGV.
"""

import ctypes
import mmap
import sys

import heddle.torch  # noqa: F401
import torch

aten = torch.ops.aten
PAGE = mmap.PAGESIZE
WIDTH = PAGE // 4
BATCH, HEADS, LENGTH = 2, 3, 16
SHAPE = (BATCH, HEADS, LENGTH, WIDTH)
PROT_NONE, PROT_ALL = 0, mmap.PROT_READ | mmap.PROT_WRITE
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def on_whole_pages(values):
    """A tensor of the device whose first element begins a page."""
    room = torch.empty(values.numel() + WIDTH, dtype=values.dtype, device="heddle")
    first = -room.data_ptr() % PAGE // 4
    placed = room[first : first + values.numel()].view(values.shape)
    assert placed.data_ptr() % PAGE == 0
    return placed.copy_(values)


def protect(tensor, rows, how):
    """All pages but those of `rows`, which count the rows of WIDTH elements."""
    for row in set(range(tensor.numel() // WIDTH)) - set(rows):
        if libc.mprotect(tensor.data_ptr() + row * PAGE, PAGE, how) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")


def rows_at(*positions):
    """Of all batches and heads at these positions of axis 2."""
    return [b * LENGTH + p for b in range(BATCH * HEADS) for p in positions]


def along_last(positions):
    """An index for scatter_ that names, of axis 2, only `positions`."""
    return torch.tensor(positions).view(1, 1, -1, 1).expand(BATCH, HEADS, -1, WIDTH)


TWO = torch.tensor([11, 5])
NEW = torch.arange(float(BATCH * HEADS * 2 * WIDTH)).view(BATCH, HEADS, 2, WIDTH)
CASES = {
    "index_copy_": (rows_at(11, 5), lambda x, on: x.index_copy_(2, on(TWO), on(NEW))),
    "index_add_": (rows_at(11, 5), lambda x, on: x.index_add_(2, on(TWO), on(NEW), alpha=3)),
    "index_fill_": (rows_at(11, 5), lambda x, on: x.index_fill_(2, on(TWO), 4.5)),
    "index_put_": (rows_at(11, 5), lambda x, on: aten.index_put_(x, [None, None, on(TWO)], on(NEW))),
    "an item": (rows_at(3), lambda x, on: x.__setitem__((slice(None), slice(None), on(TWO)[1] - 2), 2.5)),
    "accumulating": (
        rows_at(11, 5),
        lambda x, on: aten.index_put_(x, [None, None, on(TWO)], on(NEW), True),
    ),
    "indices apart": (
        [LENGTH * HEADS * b + h * LENGTH + p for h in range(HEADS) for b, p in ((1, 2), (0, 9))],
        lambda x, on: aten.index_put_(
            x, [on(torch.tensor([1, 0])), None, on(torch.tensor([2, 9]))], on(NEW)[0, 0, 0]
        ),
    ),
    "scatter_": (rows_at(11, 5), lambda x, on: x.scatter_(2, on(along_last([11, 5])), on(NEW))),
    "scatter_ of a number": (rows_at(7), lambda x, on: x.scatter_(2, on(along_last([7])), 6.0)),
    "scatter_add_": (rows_at(5), lambda x, on: x.scatter_add_(2, on(along_last([5, 5])), on(NEW))),
    "scatter_reduce_": (
        rows_at(11),
        lambda x, on: x.scatter_reduce_(2, on(along_last([11, 11])), on(NEW), "amax"),
    ),
    "put_": (
        [9],
        lambda x, on: x.put_(on(torch.tensor([9 * WIDTH, 9 * WIDTH + 7])), on(torch.tensor([1.0, 2.0]))),
    ),
    "copy_ to a slice": (rows_at(4, 5), lambda x, on: x[:, :, 4:6].copy_(on(NEW))),
    "copy_ of another dtype": (rows_at(4, 5), lambda x, on: x[:, :, 4:6].copy_(on(NEW.to(torch.int32)))),
    "fill_ of a slice": (rows_at(4), lambda x, on: x[:, :, 4].fill_(3.0)),
    "zero_ of a part": (range(16, 32), lambda x, on: x[0, 1].zero_()),
    "masked_fill_ of a part": (
        range(16, 32),
        lambda x, on: x[0, 1].masked_fill_(on(torch.arange(WIDTH) % 3 == 0), -1.0),
    ),
    "add_ to a part": (range(16, 32), lambda x, on: x[0, 1].add_(on(NEW[0, 0, :1]))),
    "out= of a part": (range(16, 32), lambda x, on: torch.mul(on(NEW[0, 0, :1]), 2, out=x[0, 1, :1])),
}


def main():
    values = torch.arange(float(BATCH * HEADS * LENGTH * WIDTH)).view(SHAPE)
    for name, (rows, write) in CASES.items():
        print(name, flush=True)
        wanted = values.clone()
        write(wanted, lambda each: each)
        # The first call compiles; PyTorch's shape functions see no memory.
        for _ in range(2):
            cache = on_whole_pages(values)
            protect(cache, rows, PROT_NONE)
            write(cache, lambda each: each.to("heddle"))
            protect(cache, rows, PROT_ALL)
            torch.testing.assert_close(cache.cpu(), wanted)
    print(f"{len(CASES)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
