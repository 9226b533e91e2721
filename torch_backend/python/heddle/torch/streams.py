"""Streams and events, by the names that torch.cuda uses. Waiting frees the GIL.

Plain use needs none of them: a thread has a stream of its own (the main thread the default one), and a tensor
that another thread or stream made is waited for by the runtime. They are for ordering, timing and querying.
"""

from __future__ import annotations

import threading
from types import TracebackType

import torch

from . import _C
from .devices import DeviceLike, _exchange_device, index_of
from .private_names import privateuse1_type

_PRIVATE_USE = int(privateuse1_type)


class Stream(torch.Stream):
    """A stream of its own, of `device` or the current device. Streams have no priorities."""

    def __new__(cls, device: DeviceLike = None, priority: int = 0) -> Stream:
        return super().__new__(cls, device=torch.device("heddle", index_of(device)), priority=priority)

    @classmethod
    def _of(cls, stream_id: int, index: int) -> Stream:
        return torch.Stream.__new__(cls, stream_id=stream_id, device_index=index, device_type=_PRIVATE_USE)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        made = Event(device=self.device) if event is None else event
        made.record(self)
        return made

    def __enter__(self) -> Stream:
        context = StreamContext(self)
        context.__enter__()
        _entered.contexts.append(context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _entered.contexts.pop().__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"torch.heddle.Stream(device={self.device}, stream_id={self.stream_id})"


class _Entered(threading.local):
    """`with stream:` blocks this thread is in: the same Stream may be entered by several threads."""

    def __init__(self) -> None:
        self.contexts: list[StreamContext] = []


_entered = _Entered()


class _OfHeddle(type):
    def __instancecheck__(cls, event: object) -> bool:
        return isinstance(event, torch.Event) and event.device.type == "heddle"


class Event(torch.Event, metaclass=_OfHeddle):
    """A point in a stream, to wait for or to measure from.

    What it makes are plain torch.Event: PyTorch's elapsed_time() takes no others.
    """

    def __new__(  # type: ignore[misc]
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        device: DeviceLike = None,
    ) -> torch.Event:
        where = torch.device("heddle", index_of(device))
        return torch.Event(
            device=where, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


class StreamContext:
    """Inside, `stream` (and its device) is this thread's; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: Stream | None = None
        self._device_before = -1

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            index = self.stream.device.index
            self._device_before = _exchange_device(index)
            self._before = current_stream(index)
            set_stream(self.stream)
        return self.stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            set_stream(self._before)
            _exchange_device(self._device_before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: operators of this thread go to `stream`. Nests."""
    return StreamContext(stream)


def current_stream(device: DeviceLike = None) -> Stream:
    """This thread's: the innermost `with stream(...)`, else its lease; the main thread's is the default."""
    index = index_of(device)
    return Stream._of(_C.stream_id(index), index)


def default_stream(device: DeviceLike = None) -> Stream:
    """Stream 0."""
    return Stream._of(0, index_of(device))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes it this thread's, and its device current; None changes nothing. Prefer `with stream(...)`."""
    if stream is None:
        return
    if stream.device.type != "heddle":
        raise ValueError(f"expected a stream of heddle, not of {stream.device}")
    torch.accelerator.set_stream(stream)


def synchronize(device: DeviceLike | torch.Stream = None) -> None:
    """Blocks until all work given to the device, or to the stream, is over; raises its first failure."""
    if isinstance(device, torch.Stream):
        device.synchronize()
    else:
        _C.synchronize(index_of(device))


def release_current_thread_slot(device: DeviceLike = None) -> None:
    """Gives this thread's leased stream back before the thread ends."""
    _C.release_current_thread_slot(index_of(device))
