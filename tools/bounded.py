"""A command that has so many seconds: how it ended, and what it took of the processors."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Ended:
    code: int | None  # None: it had to be ended
    wall_s: float
    cpu_s: float  # of it and of those of its children that it waited for


def bounded(
    words: Sequence[str | Path],
    said: BinaryIO,
    limit_s: float,
    env: Mapping[str, str],
    *,
    abort: bool = False,
    grace_s: float = 1.5,
) -> Ended:
    """Runs it in a session of its own, all of which is gone afterwards. What it prints goes into `said`.

    After `limit_s` all there are asked to end (SIGTERM), and killed `grace_s` later. `abort`: SIGABRT in its
    place, to the first process alone, since it would kill a leak sanitizer that looks at that one.
    """
    begin = time.monotonic()
    started = subprocess.Popen(
        [str(word) for word in words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        env=os.environ | dict(env),
        start_new_session=True,
    )
    over, late = threading.Event(), threading.Event()

    def tell(what: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, what)

    def watch() -> None:
        if not over.wait(limit_s):
            late.set()
            if abort:
                os.kill(started.pid, signal.SIGABRT)
            else:
                tell(signal.SIGTERM)
            if not over.wait(grace_s):
                tell(signal.SIGKILL)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
    finally:
        over.set()
        watcher.join()
        tell(signal.SIGKILL)  # what it left behind
    return Ended(
        None if late.is_set() else started.returncode,
        time.monotonic() - begin,
        usage.ru_utime + usage.ru_stime,
    )
