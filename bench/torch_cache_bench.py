"""Question  what does a static cache of keys and values cost a token, on device "heddle"?
Read as   per dtype, index_copy_ of one position into [1, 32, length, 128]: time at 4096 positions over that
          at 256, where 1 is what the write alone costs and 16 what the cache does; and at 4096 over PyTorch's
          CPU, one thread each. Round by round, in turn in one process: median and quartiles.
Checked   before anything is timed, the cache is the CPU's after three writes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench" / "models")]

import heddle.torch  # noqa: E402, F401
from ratios import in_turn, parser, ratio, seconds_a_call, show, spread, write  # noqa: E402

SHORT, LONG = 256, 4096
DTYPES = (torch.float32, torch.bfloat16)


class Cache:
    def __init__(self, device: str, length: int, dtype: torch.dtype) -> None:
        self.values = torch.zeros(1, 32, length, 128, dtype=dtype, device=device)
        self.new = torch.ones(1, 32, 1, 128, dtype=dtype, device=device)
        self.positions = [torch.tensor([at], device=device) for at in range(0, length, 7)]

    def write(self, at: int) -> None:
        self.values.index_copy_(2, self.positions[at % len(self.positions)], self.new)


def microseconds_of(cache: Cache, seconds: float) -> Callable[[], float]:
    def measure() -> float:
        torch.set_num_threads(1)
        return seconds_a_call(cache.write, seconds) * 1e6

    return measure


def check(dtype: torch.dtype) -> None:
    ours, theirs = Cache("heddle", SHORT, dtype), Cache("cpu", SHORT, dtype)
    for at in range(3):
        ours.write(at)
        theirs.write(at)
    if not torch.equal(ours.values.cpu(), theirs.values):
        raise SystemExit(f"{dtype}: the cache is not the CPU's")


def main() -> int:
    options = parser(__doc__).parse_args()
    figures = {}
    with torch.inference_mode():
        for dtype in DTYPES:
            check(dtype)
            caches = {
                "short": Cache("heddle", SHORT, dtype),
                "long": Cache("heddle", LONG, dtype),
                "cpu": Cache("cpu", LONG, dtype),
            }
            times = in_turn(
                {name: microseconds_of(cache, options.seconds) for name, cache in caches.items()},
                options.rounds,
            )
            of_length, of_cpu = ratio(times["long"], times["short"]), ratio(times["long"], times["cpu"])
            show(f"{dtype}, {LONG} positions", spread(times["long"]), "us")
            show(f"{dtype}, {LONG} positions / {SHORT}", of_length, "x", "near 1")
            show(f"{dtype}, {LONG} positions / PyTorch's CPU", of_cpu, "x")
            figures[str(dtype)] = {"microseconds": times, "of_length": of_length, "of_cpu": of_cpu}
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
