"""Question  does eager PyTorch on device "heddle" get faster with its threads, or does a global lock show?
Read as   forward passes of a small MLP per second with 8 threads over those with 1, each thread waiting for
          its own result: median and quartiles, taken round by round in turn.
          The device is the Metal double with passes that take 200 us and need no processor for it: a thread
          that is alone is held up by the device, so nothing but locks (the GIL too) and the two processors'
          time for submitting keeps eight from being eight times as fast. As many calls are in flight as the
          Metal device asks for, unless HEDDLE_IN_FLIGHT is set.
Checked   every answer is compared with PyTorch's on the CPU.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
DOUBLE = BUILD / "on_the_double" / "libheddle.so.0"
PASS_US = 200
THREADS = 8
BAR = ">= 6"
SYMBOLS = {"longest_delay": "_ZN6heddle12metal_double20set_longest_delay_usEj",
           "pass_time": "_ZN6heddle12metal_double16set_pass_time_usEj"}  # fmt: skip


def again_on_the_double() -> None:
    """Starts this program once more, with the double's libheddle in the place of the installed one."""
    if not DOUBLE.exists():
        raise SystemExit(f"{DOUBLE} is missing: cmake --build build/release --target heddle_on_the_double")
    environment = os.environ | {"LD_PRELOAD": str(DOUBLE), "HEDDLE_DEVICE": "metal"}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def set_times(pass_us: int) -> None:
    double = ctypes.CDLL(str(BUILD / "libmetal_double.so"))
    getattr(double, SYMBOLS["longest_delay"])(ctypes.c_uint(0))
    getattr(double, SYMBOLS["pass_time"])(ctypes.c_uint(pass_us))


def main() -> int:
    sys.path.insert(0, str(ROOT / "bench" / "models"))
    import torch
    from ratios import in_turn, parser, ratio, show, spread, write
    from torch import nn

    from heddle.cli.together import run_together

    options = parser(__doc__).parse_args()
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)).eval()
    rows = [torch.randn(4, 16) for _ in range(THREADS)]
    with torch.inference_mode():
        wanted = [module(each) for each in rows]
    module = module.to("heddle")
    there = [each.to("heddle") for each in rows]
    wrong = threading.Event()

    def rate(threads: int) -> float:
        def loop(i: int, begin: float) -> int:
            calls = 0
            with torch.inference_mode():
                while time.perf_counter() < begin + options.seconds:
                    if not torch.allclose(module(there[i]).cpu(), wanted[i], rtol=1e-4, atol=1e-5):
                        wrong.set()
                    calls += 1
            return calls

        counts, seconds = run_together(threads, loop)
        return sum(counts) / seconds

    set_times(PASS_US)
    rate(THREADS)  # compiles, leases and fills caches
    rates = in_turn(
        {"1 thread": lambda: rate(1), f"{THREADS} threads": lambda: rate(THREADS)}, options.rounds
    )
    if wrong.is_set():
        raise SystemExit("an answer differs from PyTorch's on the CPU")
    for name, values in rates.items():
        show(name, spread(values), "passes/s")
    figure = ratio(rates[f"{THREADS} threads"], rates["1 thread"])
    show(f"{THREADS} threads / 1 thread, passes of {PASS_US} us", figure, "x", BAR)
    write(options.json, {"ratio": figure, "forward_passes_per_s": rates, "pass_us": PASS_US})
    return 0


if __name__ == "__main__":
    if os.environ.get("LD_PRELOAD") != str(DOUBLE):
        again_on_the_double()
    sys.exit(main())
