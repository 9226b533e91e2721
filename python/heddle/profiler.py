"""Spans of calls, compiles, waits and allocations, written as a Chrome / Perfetto JSON file."""

import contextlib
from collections.abc import Iterator

from . import _heddle

__all__ = ["profile", "start", "stop"]


def start(path: str) -> None:
    """Begins recording; what was recorded is written to ``path`` by :func:`stop`. Any thread."""
    _heddle.start_trace(path)


def stop() -> None:
    """Ends recording and writes the file. Blocks until it is written."""
    _heddle.stop_trace()


@contextlib.contextmanager
def profile(path: str) -> Iterator[None]:
    """Records the spans of a ``with`` block into ``path``."""
    start(path)
    try:
        yield
    finally:
        stop()
