"""Threads whose work is compared and counted."""

import os
import threading
import time
from collections import Counter

import torch

from heddle.cli.together import run_together


def run_threads(count, body):
    """body(i) on `count` threads released at once; results in order. The first exception is raised here."""
    return run_together(count, lambda i, _: body(i))[0]


def comes_true(condition, within_s=60):
    """What a thread of Heddle's is about to do: it drops what finished work has held, after telling of it."""
    until = time.monotonic() + within_s
    while not condition() and time.monotonic() < until:
        os.sched_yield()
    return condition()


class Tally:
    """Counts what threads did, by name."""

    def __init__(self):
        self._lock = threading.Lock()
        self._done = Counter()

    def add(self, what="done"):
        with self._lock:
            self._done[what] += 1

    def __getitem__(self, what):
        return self._done[what]


def count_right(threads, times, work, expected, rtol=1e-4, atol=1e-4):
    """`work(thread, time)` on so many threads, so many times; each tensor it gives must be what `expected`
    (same arguments, called before, one after the other) gives. The number compared, for the caller to assert.
    """
    wanted = {(t, i): expected(t, i) for t in range(threads) for i in range(times)}
    tally = Tally()

    def body(thread):
        for i in range(times):
            got = work(thread, i)
            torch.testing.assert_close(got.detach().cpu(), wanted[thread, i], rtol=rtol, atol=atol)
            tally.add()

    run_threads(threads, body)
    return tally["done"]
