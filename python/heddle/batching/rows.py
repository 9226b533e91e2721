"""Arrays to batches and back, by the arrays' own framework: stacked, padded, split and cut.

A request is an array, or tuples, lists and dicts of arrays, all with the same number of rows (axis 0);
with ``item=True`` it is one row without that axis. Everything that can be wrong with a request is found
here or by ``_heddle.Requests``, which knows shapes, in the thread that submits it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from .._heddle import Requests
from ..errors import InvalidError

Described = tuple[Any, tuple[int, int, int]]  # payload; rows, length, group
Cost = Literal["bytes", "padded"] | Callable[..., int] | None


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")  # never imported here: without it nothing can be one of its tensors
    return torch is not None and isinstance(x, torch.Tensor)


def to_leaf(x: Any, where: str) -> Any:
    """A numpy array or torch tensor. What cannot be one is refused by name."""
    if isinstance(x, np.ndarray) or is_torch(x):
        array = x
    else:
        try:
            array = np.asarray(x)
        except Exception as error:
            raise InvalidError(f"{where} cannot be made an array: {type(error).__name__}: {error}") from error
    if array.dtype == object:
        raise InvalidError(
            f"{where} is {type(x).__name__}, which cannot be stacked: give arrays, or collate="
        )
    return array


def map_leaves(tree: Any, change: Callable[[Any, str], Any], where: str = "the request") -> Any:
    if isinstance(tree, dict):
        return {key: map_leaves(value, change, f"{where}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        parts = [map_leaves(value, change, f"{where}[{i}]") for i, value in enumerate(tree)]
        return rebuild(tree, parts)
    return change(tree, where)


def rebuild(like: Any, parts: list[Any]) -> Any:
    if isinstance(like, list):
        return parts
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def zip_trees(trees: Sequence[Any], join: Callable[[list[Any]], Any]) -> Any:
    """One tree of the same structure, each leaf joined from those of all trees."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: zip_trees([tree[key] for tree in trees], join) for key in first}
    if isinstance(first, (tuple, list)):
        return rebuild(first, [zip_trees(column, join) for column in zip(*trees, strict=True)])
    return join(list(trees))


def structure(tree: Any) -> Any:
    """What requests of one batch have in common beside shapes: the tree, dtypes, devices."""
    if isinstance(tree, dict):
        return ("dict", *((key, structure(value)) for key, value in tree.items()))
    if isinstance(tree, (tuple, list)):
        return (type(tree).__name__, *map(structure, tree))
    return str(tree.dtype), str(getattr(tree, "device", ""))


@dataclass(frozen=True)
class Rows:
    """How one queue stacks and splits."""

    requests: Requests
    item: bool
    pad: float | None
    cut: bool
    collate: Callable[[list[Any]], Any] | None
    group: (
        Callable[..., tuple[int, ...]] | None
    )  # of a model whose seats are used: refuses what it does not take
    cost: Cost

    def __post_init__(self) -> None:
        if self.collate is not None and (self.pad is not None or self.item):
            raise InvalidError("collate= stacks by itself: leave pad= and item= out")

    # ---- in

    def describe(self, args: tuple[Any, ...]) -> Described:
        if self.collate is not None:
            return (args[0] if len(args) == 1 else args), self.requests.describe(len(args), ((1,),))
        x = args[0]
        plain = type(x) is np.ndarray and len(args) == 1 and self.pad is None and not self.item
        if plain and x.ndim and x.dtype.kind != "O" and x.shape[0]:
            if self.group is None:
                return args, self.requests.describe(x.dtype, (x.shape,))
            return args, (x.shape[0], 0, self.requests.group(self.group(x)))
        return self._describe_any(args)

    def _describe_any(self, args: tuple[Any, ...]) -> Described:
        def one(x: Any, where: str) -> Any:
            array = to_leaf(x, where)
            if self.item:
                return array[None]
            if array.ndim == 0:
                raise InvalidError(
                    f"{where} is a single value and has no rows: give an array whose axis 0 counts rows, "
                    "or make the queue with item=True"
                )
            return array

        payload = tuple(map_leaves(arg, one, f"argument {i}") for i, arg in enumerate(args))
        arrays = leaves(payload)
        rows, length, group = self.requests.describe(structure(payload), [a.shape for a in arrays])
        if self.group is not None:
            group = self.requests.group(self.group(*payload))
        return payload, (rows, length, group)

    def slice(self, payload: Any, begin: int, end: int) -> Any:
        return map_leaves(payload, lambda a, _: a[begin:end])

    def cost_of(self, job: Any) -> int:
        if self.cost is None:
            return 0
        if self.cost == "bytes":
            return sum(leaf.nbytes for leaf in leaves(job.payload))
        if self.cost == "padded":
            return job.length or max(leaf.nbytes // job.rows for leaf in leaves(job.payload))
        return int(self.cost(*job.payload) if isinstance(job.payload, tuple) else self.cost(job.payload))

    # ---- to a batch

    def stack(self, jobs: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of the callable."""
        if self.collate is not None:
            batch = self.collate([job.payload for job in jobs])
            return batch if isinstance(batch, tuple) else (batch,)
        if self.pad is not None:
            return self._stack_padded(jobs)
        if len(jobs) == 1:
            return jobs[0].payload
        first = jobs[0].payload
        if len(first) == 1 and type(first[0]) is np.ndarray:
            return (np.concatenate([job.payload[0] for job in jobs]),)
        return zip_trees([job.payload for job in jobs], concatenate)

    def _stack_padded(self, jobs: Sequence[Any]) -> tuple[Any, ...]:
        longest = max(job.length for job in jobs)

        def join(arrays: list[Any]) -> Any:
            whole = self.requests.stacked([a.shape for a in arrays], longest)
            if all(a.shape[1:] == whole[1:] for a in arrays):
                return arrays[0] if len(arrays) == 1 else concatenate(arrays)
            if is_torch(arrays[0]):
                out = arrays[0].new_full(whole, self.pad)
            else:
                out = np.full(whole, self.pad, arrays[0].dtype)
            row = 0
            for a in arrays:
                corner = (slice(row, row + a.shape[0]), *map(slice, a.shape[1:]))
                out[corner] = a
                row += a.shape[0]
            return out

        return zip_trees([job.payload for job in jobs], join)

    def samples(
        self, example: Any, sizes: Collection[int], lengths: Sequence[int] | None
    ) -> list[tuple[Any, ...]]:
        """`example`, a request (a tuple: its arguments), at each size and each bucket's length: the batches
        that a worker runs before its first request, so that no caller pays for a size's first run."""
        if example is None:
            return []
        payload, (count, own, _) = self.describe(example if isinstance(example, tuple) else (example,))
        out = []
        for length in lengths or (own,):
            one = SimpleNamespace(payload=map_leaves(payload, partial(to_length, length)), length=length)
            out += [self.stack([one] * max(1, size // count)) for size in sorted(sizes)]
        return out

    # ---- and back

    def split(self, result: Any, jobs: Sequence[Any], args: tuple[Any, ...]) -> list[Any]:
        """One result per request. InvalidError when the callable gave something else than one per row."""
        by_item = self.item or self.collate is not None
        rows = sum(job.rows for job in jobs)
        plain = type(result) is np.ndarray and not by_item and not self.cut and result.ndim
        if plain and len(result) == rows:
            if len(jobs) == 1:
                return [result.copy() if shares(result, args) else result]
            return [result[begin:end].copy() for begin, end in spans(jobs)]
        return self._split_any(result, jobs, rows, by_item, args)

    def _split_any(
        self, result: Any, jobs: Sequence[Any], rows: int, by_item: bool, args: tuple[Any, ...]
    ) -> list[Any]:
        if isinstance(result, tuple) and result:
            columns = [self._split_any(part, jobs, rows, by_item, args) for part in result]
            return [rebuild(result, list(parts)) for parts in zip(*columns, strict=True)]
        if isinstance(result, dict) and result:
            named = {key: self._split_any(part, jobs, rows, by_item, args) for key, part in result.items()}
            return [{key: parts[i] for key, parts in named.items()} for i in range(len(jobs))]
        shape = getattr(result, "shape", ())
        count = int(shape[0]) if shape else len(result) if isinstance(result, list) else None
        if count != rows:
            got = f"{type(result).__name__}" + ("" if count is None else f" of {count}")
            raise InvalidError(
                f"the callable returned {got} for {rows} rows; it must return one result per row: an array "
                "or list of as many, or a tuple or dict of such (a tuple, where a library gives several "
                "outputs in a list)"
            )
        return [
            self._own(result[begin] if by_item else result[begin:end], job, args)
            for job, (begin, end) in zip(jobs, spans(jobs), strict=True)
        ]

    def _own(self, part: Any, job: Any, args: tuple[Any, ...]) -> Any:
        if self.cut and job.length and getattr(part, "ndim", 0) > (0 if self.item else 1):
            part = part[: job.length] if self.item else part[:, : job.length]
        if isinstance(part, np.ndarray):
            return part.copy()  # so that keeping one row does not keep the batch
        return part.clone() if is_torch(part) and shares(part, args) else part

    def join(self, results: list[Any]) -> Any:
        """The result of a request that was split."""
        if isinstance(results[0], list):
            return [row for result in results for row in result]
        return zip_trees(results, concatenate)


def spans(jobs: Sequence[Any]) -> Iterable[tuple[int, int]]:
    """Which rows of the batch are each job's."""
    return pairwise(accumulate((job.rows for job in jobs), initial=0))


def concatenate(arrays: list[Any]) -> Any:
    if is_torch(arrays[0]):
        return sys.modules["torch"].cat(arrays)
    return np.concatenate(arrays)


def to_length(length: int, array: Any, _: str) -> Any:
    """Cut or repeated along axis 1: values stay within the example's own."""
    if array.ndim < 2 or not length or array.shape[1] == length:
        return array
    index = np.arange(length) % array.shape[1]
    return array[:, index.tolist()] if is_torch(array) else array[:, index]


def shares(part: Any, args: tuple[Any, ...]) -> bool:
    """Does a lone request's result lie in its input's memory?"""
    arrays = leaves(args)
    if isinstance(part, np.ndarray):
        return any(isinstance(a, np.ndarray) and np.may_share_memory(part, a) for a in arrays)
    return any(is_torch(a) and _first_byte(a) == _first_byte(part) for a in arrays)


def _first_byte(tensor: Any) -> int:
    """Of its memory. A storage as a Python object would have PyTorch ask for the GIL in a destructor, which
    ends the process where a daemon thread does so at exit."""
    first: int = tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()
    return first
