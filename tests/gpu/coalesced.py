"""64 threads whose calls share batches on the device: a sequential reference's values, each call counted."""

from __future__ import annotations

import numpy as np
from program import TOLERANCE, arguments, error, finish, mlp

from heddle.cli.together import run_together


def main() -> None:
    options = arguments(__doc__)
    threads, calls, width = (8, 10, 32) if options.double else (64, 300, 512)
    random = np.random.default_rng(5)
    inputs = [random.standard_normal((1 + i % 3, width), dtype=np.float32) for i in range(48)]
    reference = mlp("host", width)
    wanted = [reference(x) for x in inputs]
    model = mlp("cuda", width)

    def body(thread: int, _: float) -> list[float]:
        order = [(7 * thread + i) % len(inputs) for i in range(calls)]
        return [error(model(inputs[k]), wanted[k]) for k in order]

    results, seconds = run_together(threads, body)
    errors = [wrong for thread in results for wrong in thread]
    mistakes = [f"a call was wrong by {wrong:.2e}" for wrong in errors if wrong > TOLERANCE]
    stats = model.coalescing_stats()
    if stats is None:
        finish({}, [f"calls do not share batches: {model.explain_coalescing()}"])
        return
    if len(errors) != threads * calls or stats["calls"] != threads * calls:
        mistakes.append(f"{threads * calls} calls: {len(errors)} came back, {stats['calls']} were counted")
    if sum(stats["rows"].values()) != stats["batches"]:
        mistakes.append(f"{stats['batches']} batches, of which {sum(stats['rows'].values())} have rows")
    if not options.double and stats["batches"] >= stats["calls"]:
        mistakes.append(f"no call shared a batch: {stats['batches']} batches of {stats['calls']} calls")
    finish(
        {
            "threads": threads,
            "calls": len(errors),
            "batches": stats["batches"],
            "largest_batch": max(stats["rows"]),
            "calls_per_s": round(len(errors) / seconds),
            "largest_error": max(errors),
        },
        mistakes,
    )


if __name__ == "__main__":
    main()
