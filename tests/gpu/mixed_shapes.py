"""31 shapes, each called 100 times, mixed over 16 threads: a sequential reference's values, none lost."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
from program import TOLERANCE, arguments, error, finish, mixer

import heddle
from heddle.cli.together import run_together


def main() -> None:
    options = arguments(__doc__)
    count, times, threads, width = (5, 4, 4, 16) if options.double else (31, 100, 16, 256)
    random = np.random.default_rng(3)
    extents = [(1 + i % 4, 3 + 2 * i) for i in range(count)]
    inputs = [random.standard_normal((*each, width), dtype=np.float32) for each in extents]
    reference = mixer("host", width)
    wanted = [reference(x) for x in inputs]
    model = mixer("cuda", width)
    order = random.permutation(np.repeat(np.arange(count), times))
    shares = [order[thread::threads] for thread in range(threads)]
    before = heddle.Device("cuda").stats()

    def body(thread: int, _: float) -> list[tuple[int, float]]:
        return [(int(k), error(model(inputs[k]), wanted[k])) for k in shares[thread]]

    begin = time.perf_counter()
    results, seconds = run_together(threads, body)
    answered = [each for thread in results for each in thread]
    calls = Counter(k for k, _ in answered)
    mistakes = [f"shape {extents[k]}: wrong by {wrong:.2e}" for k, wrong in answered if wrong > TOLERANCE]
    mistakes += [
        f"shape {extents[k]}: {calls[k]} calls of {times}" for k in range(count) if calls[k] != times
    ]
    after = heddle.Device("cuda").stats()
    stats = model.coalescing_stats()
    if stats is not None and stats["calls"] != count * times:
        mistakes.append(f"{stats['calls']} calls were counted, {count * times} were made")
    finish(
        {
            "shapes": count,
            "calls": len(answered),
            "threads": threads,
            "seconds": round(seconds, 3),
            "with_compiling_s": round(time.perf_counter() - begin, 3),
            "largest_error": max(wrong for _, wrong in answered),
            "compiled": after["compiles"] - before["compiles"],
        },
        mistakes,
    )


if __name__ == "__main__":
    main()
