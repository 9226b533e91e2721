"""Question  what does heddle-torch add to the time of `import torch`?
Read as   seconds of `import torch` in a new process with heddle-torch loaded by it, less those with
          TORCH_DEVICE_BACKEND_AUTOLOAD=0, round by round, in turn: median and quartiles. Once by the clock,
          and once of the processor's time, which other programs on the machine lengthen less.
Checked   device "heddle" is there in the first process and not in the second.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench" / "models")]

from ratios import in_turn, parser, show, spread, write  # noqa: E402

BAR = "<= 0.3 s"
PROGRAM = """
import time
begin, used = time.perf_counter(), time.process_time()
import torch
print(time.perf_counter() - begin, time.process_time() - used, hasattr(torch, "heddle"))
"""


def seconds_of(autoload: bool, of_processor: list[float]) -> Callable[[], float]:
    """By the clock; the processor's are put into the list."""

    def measure() -> float:
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload))}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seconds, used, there = done.stdout.split()
        if there != str(autoload):
            raise SystemExit(f"with autoload {autoload} the device is there: {there}")
        of_processor.append(float(used))
        return float(seconds)

    return measure


def main() -> int:
    command = parser(__doc__)
    command.set_defaults(rounds=15)
    options = command.parse_args()
    used: dict[str, list[float]] = {"with": [], "without": []}
    peers = {name: seconds_of(name == "with", seconds) for name, seconds in used.items()}
    times = in_turn(peers, options.rounds)
    figures = {}
    for what, seconds in (("by the clock", times), ("of the processor", used)):
        for name, values in seconds.items():
            show(f"import torch, {name} heddle-torch, {what}", spread(values), "s")
        more = spread([a - b for a, b in zip(seconds["with"], seconds["without"], strict=True)])
        show(f"with - without, {what}", more, "s", BAR)
        figures[what] = {"seconds": seconds, "more": more}
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
