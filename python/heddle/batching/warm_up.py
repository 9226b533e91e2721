"""The batches that a worker runs before its first request, so that no caller pays for a size's first run."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .rows import Rows, is_torch, map_leaves


class _Sample:
    def __init__(self, payload: Any, rows: int, length: int) -> None:
        self.payload = payload
        self.rows = rows
        self.length = length


def samples_of(rows: Rows, example: Any, max_batch: int, preferred: Sequence[int]) -> list[tuple[Any, ...]]:
    """`example`, a request (a tuple: its arguments), at each size and each bucket's length."""
    if example is None:
        return []
    args = example if isinstance(example, tuple) else (example,)
    payload, _, count, length = rows.describe(args)
    sizes = sorted({1, max_batch, *preferred})
    out = []
    for bucket in rows.buckets or (length,):
        one = _Sample(map_leaves(payload, functools.partial(_to_length, bucket)), count, bucket)
        out += [rows.stack([one] * max(1, size // count)) for size in sizes]
    return out


def _to_length(length: int, array: Any, _: str) -> Any:
    """Cut or repeated along axis 1: values stay within the example's own."""
    if array.ndim < 2 or not length or array.shape[1] == length:
        return array
    index = np.arange(length) % array.shape[1]
    return array[:, index.tolist()] if is_torch(array) else array[:, index]
