"""The batches that a worker runs before its first request, so that no caller pays for a size's first run."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from .rows import Rows, is_torch, map_leaves


def samples_of(
    rows: Rows, example: Any, sizes: Collection[int], lengths: Sequence[int] | None
) -> list[tuple[Any, ...]]:
    """`example`, a request (a tuple: its arguments), at each size and each bucket's length."""
    if example is None:
        return []
    payload, count, own, _ = rows.describe(example if isinstance(example, tuple) else (example,))
    out = []
    for length in lengths or (own,):
        one = SimpleNamespace(
            payload=map_leaves(payload, functools.partial(_to_length, length)), length=length
        )
        out += [rows.stack([one] * max(1, size // count)) for size in sorted(sizes)]
    return out


def _to_length(length: int, array: Any, _: str) -> Any:
    """Cut or repeated along axis 1: values stay within the example's own."""
    if array.ndim < 2 or not length or array.shape[1] == length:
        return array
    index = np.arange(length) % array.shape[1]
    return array[:, index.tolist()] if is_torch(array) else array[:, index]
