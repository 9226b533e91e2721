"""Threads that begin together: what sweeps and benchmarks measure with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_together(count: int, body: Callable[[int, float], T]) -> tuple[list[T], float]:
    """`body(i, begin)` on `count` threads released at once, at the time `begin` of `time.perf_counter()`.

    Gives the results in order, and the seconds until the last thread ended. The first exception is raised
    here, when all have ended.
    """
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    begin = 0.0

    def note_time() -> None:
        nonlocal begin
        begin = time.perf_counter()

    start = threading.Barrier(count, action=note_time)

    def work(i: int) -> None:
        try:
            start.wait()
            results[i] = body(i, begin)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    if errors:
        raise errors[0]
    return [results[i] for i in range(count)], seconds
