"""Exceptions by code. Each names the node or argument, what is wrong, and what would be right."""

import asyncio
import threading


class Error(Exception):
    """Base of all that Heddle raises; ``code`` says what kind it is."""

    code = "internal"


class InvalidError(Error, ValueError):
    """The argument or the file is wrong: the same call fails again."""

    code = "invalid"


class UnsupportedError(Error, NotImplementedError):
    """Right, but Heddle or this device does not do it."""

    code = "unsupported"


class ExhaustedError(Error, MemoryError):
    """Memory, streams or a queue are full: may work later."""

    code = "exhausted"


class UnavailableError(Error, RuntimeError):
    """Closed, forked or shutting down."""

    code = "unavailable"


class DeadlineError(Error, TimeoutError):
    """The timeout passed first."""

    code = "deadline"


class CancelledError(Error):
    """The caller withdrew."""

    code = "cancelled"


class DeviceLostError(Error, RuntimeError):
    """The device failed: what ran on it is lost."""

    code = "device_lost"


class InternalError(Error, RuntimeError):
    """A mistake of Heddle's own: please report it."""

    code = "internal"


BY_CODE = {
    kind.code: kind
    for kind in (
        InvalidError,
        UnsupportedError,
        ExhaustedError,
        UnavailableError,
        DeadlineError,
        CancelledError,
        DeviceLostError,
        InternalError,
    )
}

_exit_begun = False


def begin_exit() -> None:
    """Called first by whatever closes Heddle's queues at exit."""
    global _exit_begun
    _exit_begun = True


def exit_has_begun() -> bool:
    return _exit_begun


def on_daemon_at_exit() -> bool:
    """Whether this is a daemon thread in a process that exits: no thread awaits its work."""
    if not _exit_begun:
        return False
    thread = threading.current_thread()
    # Python did not start a _DummyThread: a library may wait for it.
    return thread.daemon and not isinstance(thread, threading._DummyThread)


def exit_ends_this_thread() -> bool:
    """Whether to raise SystemExit instead of UnavailableError: Python then ends the thread without a message.

    An event loop would report it. A thread that runs one waits here for the end of the process.
    """
    if not on_daemon_at_exit():
        return False
    if asyncio._get_running_loop() is not None:
        threading.Event().wait()
    return True
