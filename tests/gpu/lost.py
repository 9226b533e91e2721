"""A stranger's kernel writes to an illegal address in the context that Heddle shares: each call must end.

Threads call a model meanwhile. From the fault on every call must raise DeviceLostError with CUDA's name for
it; none may hang or end the process, and a call that began later is refused as well.
"""

from __future__ import annotations

import threading
import time

import numpy as np
from program import TOLERANCE, arguments, error, finish, mlp
from wild import NAME, lose

import heddle

PATIENCE = 20.0  # seconds from the fault to the end of every thread


class Callers:
    """Threads that call until the device is lost."""

    def __init__(self, count: int, width: int) -> None:
        random = np.random.default_rng(1)
        self.inputs = [random.standard_normal((1 + i % 4, width), dtype=np.float32) for i in range(8)]
        reference = mlp("host", width)
        self.wanted = [reference(x) for x in self.inputs]
        self.model = mlp("cuda", width)
        self.right = [0] * count
        self.answered = threading.Semaphore(0)
        self.ends: dict[int, str] = {}
        self.threads = [threading.Thread(target=self.call, args=(i,), daemon=True) for i in range(count)]

    def call(self, thread: int) -> None:
        try:
            for i in range(thread, 1 << 30):
                k = i % len(self.inputs)
                wrong = error(self.model(self.inputs[k]), self.wanted[k])
                if wrong > TOLERANCE:
                    self.ends[thread] = f"a call was wrong by {wrong:.2e}"
                    return
                self.right[thread] += 1
                self.answered.release()
        except heddle.Error as raised:
            self.ends[thread] = f"{raised.code}: {raised}"

    def judge(self) -> list[str]:
        """What is not as it must be, once the device is lost."""
        mistakes = []
        for thread in range(len(self.threads)):
            end = self.ends.get(thread, f"did not end within {PATIENCE} s")
            if not end.startswith("device_lost: ") or NAME not in end:
                mistakes.append(f"thread {thread}: {end}")
        try:
            self.model(self.inputs[0])
            mistakes.append("a call after the loss was answered")
        except heddle.DeviceLostError as raised:
            if NAME not in str(raised):
                mistakes.append(f"a call after the loss: {raised}")
        return mistakes


def main() -> None:
    options = arguments(__doc__)
    count, width = (4, 32) if options.double else (16, 512)
    callers = Callers(count, width)
    for thread in callers.threads:
        thread.start()
    for _ in range(20 * count):
        if not callers.answered.acquire(timeout=PATIENCE):
            break  # judge() says what each thread did
    begin = time.monotonic()
    lose(options.double)
    for thread in callers.threads:
        thread.join(max(0.0, begin + PATIENCE - time.monotonic()))
    seconds = time.monotonic() - begin
    mistakes = callers.judge()
    finish(
        {
            "threads": count,
            "right_before": sum(callers.right),
            "seconds_to_the_end": round(seconds, 3),
            "said": next(iter(callers.ends.values()), ""),
        },
        mistakes,
    )


if __name__ == "__main__":
    main()
