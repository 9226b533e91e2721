"""The demo's second model: a small ranking model, of which a batch of rows costs little more than a row.

One row of features a call, from 1 to 64 threads: Heddle with calls that share batches and without, and ONNX
Runtime called from as many threads. Every answer is compared with ONNX Runtime's to the same row alone.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from tqdm import tqdm

import heddle

LAYERS = (512, 1024, 1024, 64)  # features of a candidate in, scores of it out
CANDIDATES = 256
THREADS = (1, 2, 4, 8, 16, 32, 64)
TOLERANCE = 1e-4  # of the scores' scale
WARM_SECONDS = 0.2  # in which it is learnt what joining brings with so many callers

Call = Callable[[np.ndarray], np.ndarray]


def build(path: Path) -> Path:
    """Writes the model, whose weights are random but always the same ones."""
    random = np.random.default_rng(5)
    nodes, weights, value = [], [], "features"
    for i, (k, n) in enumerate(itertools.pairwise(LAYERS)):
        weights += [
            numpy_helper.from_array(random.normal(0, k**-0.5, (k, n)).astype(np.float32), f"w{i}"),
            numpy_helper.from_array(random.normal(0, 0.1, n).astype(np.float32), f"b{i}"),
        ]
        last = i == len(LAYERS) - 2
        nodes.append(helper.make_node("Gemm", [value, f"w{i}", f"b{i}"], ["scores" if last else f"h{i}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"h{i}"], [f"r{i}"]))
        value = f"r{i}"
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n])
        for name, n in (("features", LAYERS[0]), ("scores", LAYERS[-1]))
    ]
    graph = helper.make_graph(nodes, "ranking", ports[:1], ports[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(made, path)
    return path


def rate(call: Call, rows: np.ndarray, expected: np.ndarray, threads: int, seconds: float) -> float:
    """Calls a second of so many threads, each of which compares every answer, once they are warm."""
    counts = [0] * threads
    errors: list[BaseException] = []
    start, end = threading.Barrier(threads + 1), threading.Event()
    scale = TOLERANCE * float(np.abs(expected).max())

    def work(me: int) -> None:
        start.wait()
        try:
            at = me
            while not end.is_set():
                error = float(np.abs(call(rows[at : at + 1]) - expected[at]).max())
                if not error <= scale:
                    raise SystemExit(f"{threads} threads: a score differs from ONNX Runtime's by {error:.2e}")
                counts[me] += 1
                at = (at + threads) % len(rows)
        except BaseException as error:
            errors.append(error)
            raise

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    time.sleep(WARM_SECONDS)
    begin, before = time.perf_counter(), sum(counts)
    time.sleep(seconds)
    rows_served, elapsed = sum(counts) - before, time.perf_counter() - begin
    end.set()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return rows_served / elapsed


def sweep(path: Path, rounds: int, seconds: float = 0.3) -> list[dict]:
    """The table's rows. The order of the cases is rotated from round to round."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    on, off = heddle.load(path), heddle.load(path, coalesce=False)
    random = np.random.default_rng(6)
    rows = random.standard_normal((CANDIDATES, LAYERS[0]), dtype=np.float32)
    calls: dict[str, Call] = {
        "heddle": on,
        "heddle, not joined": off,
        "onnxruntime": lambda x: session.run(None, {"features": x})[0],
    }
    expected = np.concatenate([calls["onnxruntime"](rows[i : i + 1]) for i in range(CANDIDATES)])
    cases = [(name, n) for n in THREADS for name in calls]
    rates: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    with tqdm(total=len(cases) * rounds, desc="ranking model", unit="case", leave=False) as bar:
        for turn in range(rounds):
            shift = turn * len(cases) // rounds
            for name, n in cases[shift:] + cases[:shift]:
                rates[name, n].append(rate(calls[name], rows, expected, n, seconds))
                bar.update()
    return [{"engine": name, "threads": n, "rates": rates[name, n]} for name, n in cases]


def print_table(rows: list[dict]) -> None:
    print(
        f"\nA ranking model ({'-'.join(map(str, LAYERS))}), one row a call, every score checked; "
        "calls a second:\n"
    )
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    print("threads  " + "  ".join(f"{name:>28s}" for name in engines))
    for n in THREADS:
        mine = {row["engine"]: row["rates"] for row in rows if row["threads"] == n}
        cells = [
            f"{statistics.median(mine[name]):12.0f} ({min(mine[name]):.0f}..{max(mine[name]):.0f})"
            for name in engines
        ]
        print(f"{n:7d}  " + "  ".join(f"{cell:>28s}" for cell in cells))
    print(
        "\nJoined rows of this model read its weights together. A sentence of MiniLM costs the same alone\n"
        "and among others: what its table gains from more threads is the cores."
    )


def draw(rows: list[dict], axes) -> None:
    for name, color in (("heddle", "#3b6ea5"), ("heddle, not joined", "#c2703d"), ("onnxruntime", "#777777")):
        mine = [row["rates"] for row in rows if row["engine"] == name]
        median = [statistics.median(rates) for rates in mine]
        below = [m - min(rates) for m, rates in zip(median, mine, strict=True)]
        above = [max(rates) - m for m, rates in zip(median, mine, strict=True)]
        axes.errorbar(THREADS, median, yerr=[below, above], marker="o", capsize=4, color=color, label=name)
    axes.set(xlabel="calling threads", ylabel="calls per second", title="Ranking model", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.set_xticks(THREADS, [str(n) for n in THREADS])
    axes.grid(alpha=0.3)
    axes.legend()
