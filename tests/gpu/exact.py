"""64 threads on an exact model: a row's bits are those of the row alone on an idle device.

Calls of 1 to 3 rows, submissions and requests of a queue share batches; then calls of many sizes. The same
load on the model without exact: its rows are right, within a tolerance, and how many have other bits than
alone is told.
"""

from __future__ import annotations

import numpy as np
from program import TOLERANCE, arguments, encoder, error, finish, mlp

import heddle
from heddle.cli.together import run_together

SIZES = (2, 3, 7, 16, 33, 64, 96, 97, 128, 200, 257)
ROWS = 40  # that differ


def other_bits(got: np.ndarray, wanted: np.ndarray) -> int:
    """Rows whose bits differ; all of them where the shapes do."""
    if got.shape != wanted.shape:
        return len(wanted)
    differ = got.view(np.uint32) != wanted.view(np.uint32)
    return int(differ.reshape(len(wanted), -1).any(axis=1).sum())


class Work:
    """Rows, what the host makes of each, and what the model makes of each alone."""

    def __init__(self, make, shape: tuple[int, ...], width: int, exact: bool, sizes: tuple[int, ...]) -> None:
        random = np.random.default_rng(3)
        self.sizes = sizes
        self.rows = random.standard_normal((ROWS, *shape), dtype=np.float32)
        self.model = make("cuda", width, exact=exact)
        self.wanted = make("host", width)(self.rows)
        self.alone = np.concatenate([self.model(self.rows[i : i + 1]) for i in range(ROWS)])

    def check(self, first: int, count: int, ask) -> tuple[int, int, float]:
        """Of rows from the first on: how many, how many of other bits, and the error."""
        chosen = np.arange(first, first + count) % ROWS
        got = ask(self.rows[chosen])
        return count, other_bits(got, self.alone[chosen]), error(got, self.wanted[chosen])

    def judged(self, threads: int, calls: int) -> tuple[dict[str, object], float]:
        ways = (self.model, lambda x: self.model.submit(x).result(), lambda x: queue.submit(x).result())

        def body(thread: int, _: float) -> list[tuple[int, int, float]]:
            return [
                self.check(5 * thread + i, 1 + (thread + i) % 3, ways[i % len(ways)]) for i in range(calls)
            ]

        with heddle.BatchQueue(self.model) as queue:
            results, _ = run_together(threads, body)
        checked = [each for thread in results for each in thread]
        stats = self.model.coalescing_stats()
        checked += [self.check(size, size, self.model) for size in self.sizes]
        rows, other, errors = (list(of) for of in zip(*checked, strict=True))
        found: dict[str, object] = {"rows": sum(rows), "of_other_bits": sum(other)}
        if stats is not None:
            found |= {"batches": stats["batches"], "largest_batch": max(stats["rows"])}
        return found, max([*errors, error(self.alone, self.wanted)])


def main() -> None:
    options = arguments(__doc__)
    threads, calls, sizes = (8, 6, (2, 7, 33)) if options.double else (64, 60, SIZES)
    widths, length = ((32, 32), 6) if options.double else ((512, 256), 32)
    works = {"mlp": (mlp, (widths[0],), widths[0]), "encoder": (encoder, (length, widths[1]), widths[1])}
    found: dict[str, object] = {"threads": threads}
    mistakes: list[str] = []
    for name, (make, shape, width) in works.items():
        for exact in (True, False):
            kind = f"{name}, {'exact' if exact else 'not exact'}"
            told, wrong = Work(make, shape, width, exact, sizes).judged(threads, calls)
            found[kind] = told | {"largest_error": wrong}
            if not wrong <= TOLERANCE:
                mistakes.append(f"{kind}: wrong by {wrong:.2e}")
            if "batches" not in told or told["largest_batch"] < 4:
                mistakes.append(f"{kind}: calls did not share batches: {told}")
            if exact and told["of_other_bits"] != 0:
                mistakes.append(f"{kind}: {told['of_other_bits']} of {told['rows']} rows have other bits")
    finish(found, mistakes)


if __name__ == "__main__":
    main()
