"""Tensors on their way to another process: memory of the device stays in the one that has it.

PyTorch has a way for CUDA's memory and takes all other for the CPU's. What it says then names neither device
nor remedy, and comes up in the thread of a queue, where nobody hears of it.
"""

from __future__ import annotations

import multiprocessing.queues
import threading
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

MESSAGE = "memory of device heddle cannot be given to another process: send x.cpu()"
_DEPTH, _WIDTH = 3, 64  # of what put() looks into, so that it costs little

_share_of_others = torch.UntypedStorage.share_memory_


def _refuse() -> NoReturn:
    raise NotImplementedError(MESSAGE)


def _guarded(reduce: Any) -> Any:
    def reduce_others(value: Any) -> Any:
        if getattr(value, "_untyped_storage", value).device.type != "heddle":
            return reduce(value)
        # An error in a queue's own thread would leave the receiver waiting: it is raised there.
        if threading.current_thread().name == "QueueFeederThread":
            return _refuse, ()
        _refuse()

    return reduce_others


def _is_or_has_one(value: object, depth: int = _DEPTH) -> bool:
    if isinstance(value, (torch.Tensor, torch.UntypedStorage)):
        return value.device.type == "heddle"
    if depth == 0 or not isinstance(value, (list, tuple, dict)):
        return False
    inside = list(islice(value.values() if isinstance(value, dict) else value, _WIDTH))
    return any(_is_or_has_one(each, depth - 1) for each in inside)


def _guarded_put(put: Any) -> Any:
    def put_others(self: Any, obj: Any, *arguments: Any, **named: Any) -> None:
        if _is_or_has_one(obj):
            _refuse()
        put(self, obj, *arguments, **named)

    return put_others


def _share_memory_(self: torch.UntypedStorage, *arguments: Any, **named: Any) -> torch.UntypedStorage:
    if self.device.type == "heddle":
        _refuse()
    return _share_of_others(self, *arguments, **named)


def register() -> None:
    torch.UntypedStorage.share_memory_ = _share_memory_  # type: ignore[method-assign]
    for name, types in {
        "reduce_tensor": (torch.Tensor, torch.nn.Parameter),
        "reduce_storage": (torch.UntypedStorage,),
        "reduce_typed_storage": (torch.storage.TypedStorage,),
    }.items():
        reduce = _guarded(getattr(reductions, name))
        setattr(reductions, name, reduce)
        for each in types:
            ForkingPickler.register(each, reduce)
    for queue in (multiprocessing.queues.Queue, multiprocessing.queues.JoinableQueue):
        setattr(queue, "put", _guarded_put(queue.put))  # noqa: B010
