"""Processes that exit while eight threads call a model: how many end as they should, how others do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from program import arguments, finish, mixer

import heddle

CODE = 42
LIMIT = 60.0


def exit_while_busy(rows: int, width: int) -> None:
    """The child: daemon threads call for ever, the main thread exits after 32 calls."""
    model = mixer("cuda", width)
    x = np.random.default_rng(0).standard_normal((rows, 32, width), dtype=np.float32)
    calls = threading.Semaphore(0)

    def work() -> None:
        try:
            while True:
                model(x)
                calls.release()
        except heddle.UnavailableError:
            return  # the process is ending

    for _ in range(8):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(32):
        calls.acquire()
    sys.exit(CODE)


def end_of_child(double: bool) -> str:
    command = [sys.executable, __file__, "--child", *(["--double"] if double else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return "hung"
    if done.returncode == CODE:
        return "as it should"
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return f"{done.returncode} {last[:200]}".strip()


def main() -> None:
    child = "--child" in sys.argv
    if child:
        sys.argv.remove("--child")
    options = arguments(__doc__)
    processes, at_once = (2, 2) if options.double else (40, 8)
    if child:
        # On a GPU rows enough for products of cuBLASLt, which has an exit of its own.
        exit_while_busy(*((1, 16) if options.double else (16, 256)))
    with ThreadPoolExecutor(at_once) as pool:
        ends = Counter(pool.map(lambda _: end_of_child(options.double), range(processes)))
    mistakes = [f"{times} of {processes}: {end}" for end, times in ends.items() if end != "as it should"]
    finish({"processes": processes, "ends": dict(ends)}, mistakes)


if __name__ == "__main__":
    main()
