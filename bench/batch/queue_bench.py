"""Question  what does heddle.BatchQueue cost from Python, against the `batched` library at its best setting?
Read as   microseconds a request, and batched / heddle by rounds. A no-op that returns its rows, and for both
          one ONNX Runtime session of the 512-1024-1024-512 MLP, with 64 threads that wait for each answer and
          with 64 tasks of one event loop; then a lone caller over the no-op. Bars: 15 us over the no-op, 2
          times `batched`, 60 us for a lone caller. `batched` runs at each of its settings first (batch size
          64 and 256, window 0 to 5 ms); the best is compared. It hands a list of items to its function, so
          its ORT function stacks them and gives the rows back, as its users write it.
Checked   every sixteenth answer is compared with the row's own.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import batched
import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "models"))
sys.path.insert(0, str(ROOT / "tools" / "models"))
from ratios import in_turn, parser, ratio, show, spread, write  # noqa: E402

import heddle  # noqa: E402
from heddle.cli.together import run_together  # noqa: E402

CALLERS = 64
SETTINGS = [(size, window) for size in (64, 256) for window in (0.0, 0.1, 1.0, 5.0)]


class Work:
    """One function in the two forms its callers need, with inputs and right answers."""

    def __init__(
        self, name: str, rows: np.ndarray, stacked: Callable[[np.ndarray], np.ndarray], close: float
    ):
        self.name = name
        self.rows = [rows[i : i + 1] for i in range(len(rows))]
        self.stacked = stacked
        self.expected = [stacked(row) for row in self.rows]
        self.close = close

    def listed(self, items: list[np.ndarray]) -> list[np.ndarray]:
        y = self.stacked(np.concatenate(items))
        return [y[i : i + 1] for i in range(len(items))]

    def check(self, i: int, got: np.ndarray) -> None:
        error = np.abs(got - self.expected[i]).max()
        if got.shape != self.expected[i].shape or not error <= self.close:
            raise SystemExit(f"{self.name}: the answer to row {i} differs by {error}")


class NoOp(Work):
    def __init__(self) -> None:
        super().__init__("no-op", np.arange(64 * 8, dtype=np.float32).reshape(64, 8), lambda x: x, 0.0)

    def listed(self, items: list[np.ndarray]) -> list[np.ndarray]:
        return items


def ort_mlp() -> Work:
    import onnxruntime
    import real_files

    folder = real_files.exports()
    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(
        str(folder / "mlp.onnx"), options, providers=["CPUExecutionProvider"]
    )
    port = session.get_inputs()[0]
    width = port.shape[-1]
    rows = np.random.default_rng(5).standard_normal((64, width)).astype(np.float32)
    return Work("ORT, MLP", rows, lambda x: session.run(None, {port.name: x})[0], 1e-4)


def with_threads(call: Callable[[np.ndarray], np.ndarray], work: Work, callers: int, seconds: float) -> float:
    """Microseconds a request."""

    def loop(thread: int, begin: float) -> int:
        calls = 0
        row = thread % len(work.rows)
        while time.perf_counter() < begin + seconds:
            work_got = call(work.rows[row])
            if calls % 16 == 0:
                work.check(row, work_got)
            calls += 1
        return calls

    counts, elapsed = run_together(callers, loop)
    return elapsed / sum(counts) * 1e6


def with_tasks(call: Callable, work: Work, seconds: float) -> float:
    async def main() -> tuple[int, float]:
        begin = time.perf_counter()

        async def loop(task: int) -> int:
            calls = 0
            row = task % len(work.rows)
            while time.perf_counter() < begin + seconds:
                got = await call(work.rows[row])
                if calls % 16 == 0:
                    work.check(row, got)
                calls += 1
            return calls

        counts = await asyncio.gather(*(loop(i) for i in range(CALLERS)))
        return sum(counts), time.perf_counter() - begin

    calls, elapsed = asyncio.run(main())
    return elapsed / calls * 1e6


class Ours:
    """The queue of each measurement is new, as the peer's is."""

    def __init__(self, work: Work, seconds: float):
        self.work, self.seconds = work, seconds

    def threads(self, callers: int = CALLERS) -> float:
        with heddle.BatchQueue(self.work.stacked, max_batch=64) as queue:
            return with_threads(lambda x: queue.submit(x).result(), self.work, callers, self.seconds)

    def tasks(self) -> float:
        with heddle.BatchQueue(self.work.stacked, max_batch=64) as queue:
            return with_tasks(queue.asubmit, self.work, self.seconds)


class Theirs:
    def __init__(self, work: Work, seconds: float, setting: tuple[int, float]):
        self.work, self.seconds, (self.size, self.window) = work, seconds, setting

    def threads(self, callers: int = CALLERS) -> float:
        made = batched.dynamically(self.work.listed, batch_size=self.size, timeout_ms=self.window)
        taken = with_threads(lambda x: made([x])[0], self.work, callers, self.seconds)
        made.shutdown()
        return taken

    def tasks(self) -> float:
        made = batched.aio.dynamically(self.async_listed, batch_size=self.size, timeout_ms=self.window)

        async def call(x: np.ndarray) -> np.ndarray:
            return (await made([x]))[0]

        return with_tasks(call, self.work, self.seconds)

    async def async_listed(self, items: list[np.ndarray]) -> list[np.ndarray]:
        return self.work.listed(items)


def compare(work: Work, kind: str, options, bar_us: float | None) -> dict:
    def run(peer: Ours | Theirs) -> float:
        if kind == "tasks":
            return peer.tasks()
        return peer.threads(1 if kind == "lone" else CALLERS)

    tried = {s: min(run(Theirs(work, options.seconds / 2, s)) for _ in range(2)) for s in SETTINGS}
    best = min(tried, key=tried.__getitem__)
    ours, theirs = Ours(work, options.seconds), Theirs(work, options.seconds, best)
    costs = in_turn({"heddle": lambda: run(ours), "batched": lambda: run(theirs)}, options.rounds)
    print(f"\n{work.name}, {kind if kind == 'lone' else f'{CALLERS} {kind}'}")
    show("heddle.BatchQueue", spread(costs["heddle"]), "us", f"bar: {bar_us:g}" if bar_us else "")
    show(f"batched, size {best[0]}, window {best[1]} ms", spread(costs["batched"]), "us")
    show(
        "batched / heddle", ratio(costs["batched"], costs["heddle"]), "x", "" if kind == "lone" else "bar: 2"
    )
    return {
        "us": costs,
        "ratio": ratio(costs["batched"], costs["heddle"]),
        "batched_tried": {f"{size}, {window} ms": us for (size, window), us in tried.items()},
    }


def main() -> int:
    options = parser(__doc__).parse_args()
    figures = {}
    no_op, ort = NoOp(), ort_mlp()
    for work, kind, bar in (
        (no_op, "threads", 15.0),
        (no_op, "tasks", 15.0),
        (ort, "threads", None),
        (ort, "tasks", None),
        (no_op, "lone", 60.0),
    ):
        figures[f"{work.name}, {kind}"] = compare(work, kind, options, bar)
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
