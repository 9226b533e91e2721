"""Model.submit and Model.asubmit: calls that no thread waits for."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future
from typing import Any

from ._heddle import Model, Submitted
from .batching.answers import set_done


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


async def asubmit(self: Model, *inputs: Any, **named: Any) -> Any:
    """``submit()`` for event loops: awaits what a call returns; also ``acall()``. A cancelled task takes
    its call out of its batch."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def answer(result: Any, error: BaseException | None, model: Model = self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing there waits any more
            loop.call_soon_threadsafe(set_done, future, result, error)

    submitted = self._submit(answer, *inputs, **named)
    try:
        return await future
    except asyncio.CancelledError:
        submitted.withdraw()
        raise
