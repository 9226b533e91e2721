"""Question  what does heddle-torch add to the time of `import torch`?
Read as   seconds of `import torch` in a new process with heddle-torch loaded by it, less those with
          TORCH_DEVICE_BACKEND_AUTOLOAD=0, round by round, in turn: median and quartiles.
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
begin = time.perf_counter()
import torch
print(time.perf_counter() - begin, hasattr(torch, "heddle"))
"""


def seconds_of(autoload: bool) -> Callable[[], float]:
    def measure() -> float:
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload))}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seconds, there = done.stdout.split()
        if there != str(autoload):
            raise SystemExit(f"with autoload {autoload} the device is there: {there}")
        return float(seconds)

    return measure


def main() -> int:
    command = parser(__doc__)
    command.set_defaults(rounds=15)
    options = command.parse_args()
    times = in_turn({"with": seconds_of(True), "without": seconds_of(False)}, options.rounds)
    for name, values in times.items():
        show(f"import torch, {name} heddle-torch", spread(values), "s")
    more = spread([a - b for a, b in zip(times["with"], times["without"], strict=True)])
    show("with - without", more, "s", BAR)
    write(options.json, {"seconds": times, "more": more})
    return 0


if __name__ == "__main__":
    sys.exit(main())
