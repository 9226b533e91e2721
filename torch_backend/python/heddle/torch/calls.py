"""A module's call as data: which calls may share a batch, and what comes back.

A call's tensors are its rows; all else (flags, sizes, None, the nesting) must be equal within a batch. So a
batch is {Work: tensors}: heddle.BatchQueue joins requests of equal structure only, keys of dicts included.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from heddle.errors import UnsupportedError

from .private_names import pytree
from .settings import Settings

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout)
_TENSOR = object()  # stands for a tensor in Form.leaves


class Form:
    """The nesting of arguments or results, and the leaves that are no tensors."""

    __slots__ = ("leaves", "spec")

    def __init__(self, leaves: tuple[Any, ...], spec: pytree.TreeSpec) -> None:
        self.leaves = leaves
        self.spec = spec

    def _kinds(self) -> list[tuple[type, Any]]:
        return [(type(leaf), leaf) for leaf in self.leaves]  # True is not 1 here

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self._kinds() == other._kinds() and self.spec == other.spec

    def __hash__(self) -> int:
        return hash((len(self.leaves), self.spec.num_nodes, self.leaves))

    def fill(self, tensors: tuple[torch.Tensor, ...]) -> Any:
        """The arguments or results themselves."""
        rest = iter(tensors)
        return pytree.tree_unflatten([next(rest) if x is _TENSOR else x for x in self.leaves], self.spec)


def take_apart(tree: Any, what: str) -> tuple[tuple[torch.Tensor, ...], Form]:
    """Its tensors, and the rest. UnsupportedError names what is neither a tensor nor a plain value."""
    leaves, spec = pytree.tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, *_PLAIN)):
            raise UnsupportedError(
                f"{what} holds a {type(leaf).__name__}, which cannot be batched: tensors with one row per "
                "sample can, and numbers, strings and None that are equal for all"
            )
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    return tensors, Form(tuple(_TENSOR if isinstance(x, torch.Tensor) else x for x in leaves), spec)


class Callee:
    """What is called, compared by identity and held weakly: queues remember the requests they saw."""

    __slots__ = ("_hash", "_ref", "name")

    def __init__(self, target: Callable[..., Any]) -> None:
        self._ref = weakref.ref(target)
        self._hash = id(target)
        self.name = type(target).__name__

    def __call__(self) -> Callable[..., Any]:
        target = self._ref()
        assert target is not None  # its caller waits, and holds it
        return target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Callee) and (
            self is other or (self._ref() or self) is (other._ref() or other)
        )

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Work:
    """Calls of equal Work may be joined, up to `batch_size` rows."""

    callee: Callee
    training: bool
    form: Form
    settings: Settings
    batch_size: int
    at_home: bool  # tensors come from the CPU and go back there; the owner moves them
