"""One peer of bench/cuda/figure.py, in a process of its own: answers a line of JSON with a line of JSON.

Asked {"threads": N, "rows": R, "seconds": S} it answers {"rows_per_s": ..., "p50_us": ...} or {"error": ...}.
Every call begins and ends with arrays of the host's memory: the copies are part of it. The
first answer of each thread is held against PyTorch's on the CPU. f32, TF32 off.

  eager      the module, its input brought there and its result brought back
  compiled   the same of torch.compile(mode="reduce-overhead")
  graph      per thread a stream, pinned memory and a CUDA graph of copy, module and copy, replayed
  heddle     a heddle.Model called with arrays
  sentences  the module as sentence-transformers calls it: sorted by length, padded batches of 64
  asubmit, queue   our model's asubmit, and that of a BatchQueue over it, from tasks of one event loop
  device     16 threads of the eager module on PyTorch's device of --place, cuda or heddle
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from heddle.cli.together import run_together

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "models"))
import export_torch

ROOT = Path(__file__).resolve().parents[2]

TOLERANCE = 2e-3  # of the greatest value, as in bench/models/gpu_bench.py
LENGTHS = (4, 64)  # of sentences; figure.py gives cuda_callers the same
SENTENCES = 1024
TASKS = ("asubmit", "queue")  # of one event loop, over our model and over a BatchQueue of it
Call = Callable[[], np.ndarray]


def first(outputs):
    return outputs[0] if isinstance(outputs, tuple) else outputs


class Peer:
    """Calls of one kind for one work, made once for each number of rows and each thread."""

    def __init__(self, kind: str, work: str, place: str) -> None:
        self.kind, self.work, self.place = kind, work, place
        self.calls: dict[int, list[Call]] = {}
        self.module = export_torch.module(work)
        is_ours = kind in ("heddle", *TASKS)
        self.there = None if is_ours else export_torch.module(work).to(place)
        if is_ours:
            import heddle

            self.model = heddle.load(
                ROOT / "build" / "models" / "torch" / f"{work}.onnx", device="cuda", max_batch=256
            )
        if kind == "compiled":
            self.there = torch.compile(self.there, mode="reduce-overhead", dynamic=False)

    def of_tasks(self, threads: int, rows: int, seconds: float) -> dict[str, float]:
        """As many tasks of one event loop as threads are asked for, each with one request under way."""
        import heddle

        arrays = self.arrays(rows)
        with torch.inference_mode():
            wanted = first(self.module(*map(torch.from_numpy, arrays))).numpy()
        queue = heddle.BatchQueue(self.model, max_batch=256, workers=4) if self.kind == "queue" else None
        ask = self.model.asubmit if queue is None else queue.asubmit
        waits: list[float] = []

        async def task(end: float) -> None:
            last = time.perf_counter()
            while last < end:
                answer = first(await ask(*arrays))
                now = time.perf_counter()
                waits.append(now - last)
                if len(waits) % 256 == 1:
                    check(answer, wanted)
                last = now

        async def together(seconds: float) -> float:
            waits.clear()
            begin = time.perf_counter()
            await asyncio.gather(*(task(begin + seconds) for _ in range(threads)))
            return time.perf_counter() - begin

        asyncio.run(together(seconds / 2))
        elapsed = asyncio.run(together(seconds))
        if queue is not None:
            queue.close()
        return {"rows_per_s": len(waits) * rows / elapsed, "p50_us": statistics.median(waits) * 1e6}

    def arrays(self, rows: int) -> list[np.ndarray]:
        return export_torch.arrays(self.work, {"batch": rows, "length": 32})

    def call(self, arrays: list[np.ndarray]) -> Call:
        tensors = [torch.from_numpy(each) for each in arrays]
        if self.kind == "heddle":
            return lambda: first(self.model(*arrays))
        if self.kind == "graph":
            return graphed(self.there, tensors)
        if self.kind == "sentences":
            return lambda: first(self.there(*[each.to(self.place) for each in tensors])).cpu().numpy()
        if self.kind == "compiled":

            def compiled() -> np.ndarray:
                torch.compiler.cudagraph_mark_step_begin()
                return first(self.there(*[each.to(self.place) for each in tensors])).cpu().numpy()

            return compiled
        return lambda: first(self.there(*[each.to(self.place) for each in tensors])).cpu().numpy()

    def of_threads(self, rows: int, threads: int) -> list[Call]:
        made = self.calls.setdefault(rows, [])
        arrays = self.arrays(rows)
        with torch.inference_mode():
            wanted = first(self.module(*map(torch.from_numpy, arrays))).numpy()
            while len(made) < threads:
                call = self.call(arrays)
                check(call(), wanted)
                made.append(call)
        return made

    def measure(self, threads: int, rows: int, seconds: float) -> dict[str, float]:
        if self.kind in TASKS:
            return self.of_tasks(threads, rows, seconds)
        calls = self.of_threads(rows, threads)

        def loop(thread: int, begin: float, seconds: float) -> list[float]:
            waits, call, last = [], calls[thread], begin
            with torch.inference_mode():
                while last < begin + seconds:
                    call()
                    now = time.perf_counter()
                    waits.append(now - last)
                    last = now
            return waits

        def together(seconds: float) -> tuple[list[list[float]], float]:
            if threads > 1:
                return run_together(threads, lambda thread, begin: loop(thread, begin, seconds))
            begin = time.perf_counter()  # in this thread: CUDA graphs of torch.compile belong to it
            return [loop(0, begin, seconds)], time.perf_counter() - begin

        together(seconds / 2)
        waits, elapsed = together(seconds)
        every = [wait for thread in waits for wait in thread]
        return {"rows_per_s": len(every) * rows / elapsed, "p50_us": statistics.median(every) * 1e6}

    def sentences(self, seconds: float) -> dict[str, float]:
        random = np.random.default_rng(3)
        lengths = np.sort(random.integers(LENGTHS[0], LENGTHS[1] + 1, SENTENCES))
        batches = []
        for begin in range(0, SENTENCES, 64):
            some = lengths[begin : begin + 64]
            ids = random.integers(0, 2000, (64, some.max()))
            mask = (np.arange(some.max()) < some[:, None]).astype(np.int64)
            batches.append(self.call([ids * mask, mask, np.zeros_like(ids)]))
            if begin == 0:
                wanted = first(self.module(*map(torch.from_numpy, [ids * mask, mask, np.zeros_like(ids)])))
                check(batches[0](), wanted.numpy())
        for call in batches:
            call()
        begin, done = time.perf_counter(), 0
        while time.perf_counter() < begin + seconds:
            for call in batches:
                call()
            done += SENTENCES
        return {"rows_per_s": done / (time.perf_counter() - begin)}


def check(got: np.ndarray, wanted: np.ndarray) -> None:
    wrong = float(np.abs(got - wanted).max() / np.abs(wanted).max())
    if not wrong <= TOLERANCE:
        raise ValueError(f"an answer is wrong by {wrong:.2e} of the greatest value")


def graphed(module, tensors: list[torch.Tensor]) -> Call:
    """Captured in one thread, replayed in another, each with a stream of its own."""
    stream = torch.cuda.Stream()
    pinned = [each.pin_memory() for each in tensors]
    there = [each.cuda() for each in tensors]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):
            result = first(module(*there))
        back = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for to, given in zip(there, pinned, strict=True):
            to.copy_(given, non_blocking=True)
        back.copy_(first(module(*there)), non_blocking=True)

    def call() -> np.ndarray:
        for to, given in zip(pinned, tensors, strict=True):
            to.copy_(given)
        with torch.cuda.stream(stream):
            graph.replay()
        stream.synchronize()
        return back.numpy().copy()

    return call


def card() -> dict[str, object]:
    """What the card can do: an empty kernel awaited, bytes a second each way, flops a second in f32."""
    small, large = torch.zeros(1, device="cuda"), torch.zeros(1 << 26, device="cuda")
    other, host = torch.empty_like(large), torch.empty(1 << 24, pin_memory=True)
    factor = torch.randn(8192, 8192, device="cuda")

    def seconds(body: Callable[[], object], times: int) -> float:
        taken = []
        for _ in range(times):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            body()
            torch.cuda.synchronize()
            taken.append(time.perf_counter() - begin)
        return statistics.median(taken)

    return {
        "launch_us": 1e6 * seconds(lambda: small.add_(1), 200),
        "to_card_bytes_per_s": 2**26 / seconds(lambda: large[: 1 << 24].copy_(host), 20),
        "from_card_bytes_per_s": 2**26 / seconds(lambda: host.copy_(large[: 1 << 24]), 20),
        "memory_bytes_per_s": 2 * 2**28 / seconds(lambda: other.copy_(large), 20),
        "flops_per_s": 2 * 8192**3 / seconds(lambda: factor @ factor, 10),
        "name": torch.cuda.get_device_name(),
    }


def main() -> int:
    kind, work, place = sys.argv[1:4]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    if place == "heddle":
        import heddle.torch  # noqa: F401
    peer: Peer | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if kind == "card":
                told: dict[str, object] = card()
            else:
                peer = peer or Peer(kind, work, place)
                told = dict(
                    peer.sentences(asked["seconds"]) if kind == "sentences" else peer.measure(**asked)
                )
        except Exception as error:  # of this peer: the others are measured all the same
            told = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(told), flush=True)
    sys.stdout.flush()
    os._exit(0)  # some peers' threads never end


if __name__ == "__main__":
    sys.exit(main())
