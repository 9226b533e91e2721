"""500 ragged shapes under a byte budget for compiled ones: right values, and nothing left by evicted ones.

What the device holds with an empty cache must be the same after the first pass over all shapes and the last.
"""

from __future__ import annotations

import numpy as np
from program import arguments, error, finish, mistakes_of, mixer

import heddle
from heddle.cli.together import run_together


def main() -> None:
    options = arguments(__doc__)
    count, threads, passes, width = (20, 4, 3, 16) if options.double else (500, 8, 4, 64)
    budget = (16 << 10) if options.double else (1 << 20)
    device = heddle.Device.open("cuda", executable_bytes=budget)
    random = np.random.default_rng(9)
    inputs = [random.standard_normal((1 + i % 3, 1 + i, width), dtype=np.float32) for i in range(count)]
    reference = mixer("host", width)
    wanted = [reference(x) for x in inputs]
    model = mixer(device, width)
    with_cache, without = [], []
    errors: list[float] = []

    def one_pass() -> None:
        def body(thread: int, _: float) -> list[float]:
            return [error(model(inputs[k]), wanted[k]) for k in range(thread, count, threads)]

        results, _ = run_together(threads, body)
        errors.extend(wrong for thread in results for wrong in thread)
        device.synchronize()
        with_cache.append(device.stats()["reserved"])
        device.empty_cache()
        without.append(device.stats()["reserved"])

    for _ in range(passes):
        one_pass()
    stats = device.stats()
    mistakes = mistakes_of(errors, passes * count)
    if stats["evictions"] == 0:
        mistakes.append("nothing was evicted: the budget was not met")
    if stats["cached_bytes"] > budget:
        mistakes.append(f"{stats['cached_bytes']} bytes are cached, {budget} are allowed")
    if without[-1] > without[0]:
        mistakes.append(f"device memory grew from {without[0]} to {without[-1]} bytes")
    finish(
        {
            "shapes": count,
            "calls": len(errors),
            "evictions": stats["evictions"],
            "cached_bytes": stats["cached_bytes"],
            "budget": budget,
            "device_bytes_after_each_pass": with_cache,
            "without_its_cache": without,
            "largest_error": max(errors),
        },
        mistakes,
    )


if __name__ == "__main__":
    main()
