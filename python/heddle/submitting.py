"""Model.submit and Model.asubmit: calls that no thread waits for."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import weakref
from concurrent.futures import Future
from typing import Any

from ._heddle import Mail, Model, Submitted
from .batching.answers import deliver, set_done


class Submission(Future):  # type: ignore[type-arg]
    """The future of one call. cancel() takes it out of its batch; a run that has begun goes on without it."""

    _submitted: Submitted | None = None

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        if self._submitted is not None:
            self._submitted.withdraw()
        return True


def submit(self: Model, *inputs: Any, **named: Any) -> Future[Any]:
    """``model(...)`` without a thread that waits: a future, answered by a thread of the model's.

    Takes what a call takes but ``stream``; ``timeout`` bounds the time to the answer. What is wrong with the
    call, and one call too many (ExhaustedError), raises here. Arrays must not be written before the answer.
    A done-callback runs on the model's thread: it should be short and must not wait for other answers.
    """
    future = Submission()

    # The model is held until the answer is there: its end would wait for it, with the GIL.
    def answer(result: Any, error: BaseException | None, model: Model = self) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    future._submitted = self._submit(answer, *inputs, **named)
    if future.cancelled():
        future._submitted.withdraw()
    return future


class Mailbox:
    """The answers to the calls of one event loop: models' threads put them in without the GIL, and the loop
    takes all that are there at once. Only its loop holds it, which lets go of it when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        ends = os.pipe()
        self.mail = Mail(*ends)
        self.waiting: dict[int, tuple[asyncio.Future[Any], Any]] = {}
        for end in ends:
            os.set_blocking(end, False)
        # In a context of its own: the loop would keep that of the task whose call is the first.
        contextvars.Context().run(loop.add_reader, ends[0], self.deliver)

    def deliver(self) -> None:
        deliver(self.mail.take(self.waiting))


# By the id of its loop, which another loop has only when that one, and its mailbox, are gone.
_mailboxes: weakref.WeakValueDictionary[int, Mailbox] = weakref.WeakValueDictionary()
_watch_nothing: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def _mailbox_of(loop: asyncio.AbstractEventLoop) -> Mailbox | None:
    """None: each answer wakes the loop."""
    mailbox = _mailboxes.get(id(loop))
    if mailbox is None and loop not in _watch_nothing:
        try:
            mailbox = _mailboxes[id(loop)] = Mailbox(loop)
        except NotImplementedError:
            _watch_nothing.add(loop)
        except OSError:  # the process may open no more descriptors now
            return None
    return mailbox


def _send(
    model: Model, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], inputs: Any, named: Any
) -> Submitted:
    mailbox = _mailbox_of(loop)
    if mailbox is None:
        return _send_alone(model, loop, future, inputs, named)
    return model._submit_to(mailbox.mail, mailbox.waiting, future, *inputs, **named)


def _send_alone(
    model: Model, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], inputs: Any, named: Any
) -> Submitted:
    def answer(result: Any, error: BaseException | None, model: Model = model) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing there waits any more
            loop.call_soon_threadsafe(set_done, future, result, error)

    return model._submit(answer, *inputs, **named)


async def asubmit(self: Model, *inputs: Any, **named: Any) -> Any:
    """``submit()`` for event loops: awaits what a call returns; also ``acall()``. A cancelled task takes
    its call out of its batch."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    # No mailbox in this frame, which a task that nobody ends keeps when its loop is closed.
    submitted = _send(self, loop, future, inputs, named)
    try:
        return await future
    except asyncio.CancelledError:
        submitted.withdraw()
        raise
