"""heddle bench: how throughput and latency depend on threads, batch and the way callers synchronise."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import heddle

from ..errors import InternalError
from .ports import make_inputs, parse_dims, symbols
from .profile import print_profile, profile
from .together import run_together

SYNC = ("call", "every", "event", "end", "device")


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "bench", help="throughput and latency over threads, batch and synchronisation"
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="the first symbolic dimension")
    parser.add_argument(
        "--dims", nargs="*", default=[], metavar="NAME=N", help="numbers for the other symbolic dimensions"
    )
    parser.add_argument(
        "--sync",
        nargs="+",
        choices=SYNC,
        default=["call"],
        help="call: plain blocking calls; on the thread's own stream: synchronise after every call, "
        "by event one call behind, once at the end, or the whole device after every call",
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each cell, in rotated order")
    parser.add_argument("--device", default="")
    parser.add_argument("--json", action="store_true", help="print the cells as JSON instead of a table")
    parser.add_argument("--plot", type=Path, metavar="OUT.png")
    parser.add_argument(
        "--profile", action="store_true", help="no sweep: where the time of one caller's call goes, per batch"
    )
    parser.set_defaults(execute=execute)


def loop(model, inputs, sync: str, until: float) -> list[float]:
    """Calls until the clock passes `until`; seconds of each call. What was submitted is over on return."""
    seconds = []
    stream = heddle.current_stream(model.device)
    behind = heddle.Event()
    while (begin := time.perf_counter()) < until:
        if sync == "call":
            model(*inputs)
        else:
            model(*inputs, stream=stream)
            if sync == "every":
                stream.synchronize()
            elif sync == "device":
                heddle.synchronize(model.device)
            elif sync == "event":
                behind.wait()
                behind = stream.record_event()
        seconds.append(time.perf_counter() - begin)
    stream.synchronize()
    return seconds


def measure(model, inputs, threads: int, sync: str, seconds: float) -> tuple[float, list[float]]:
    """Calls per second over all threads, and every call's seconds."""
    per_thread, elapsed = run_together(threads, lambda _, begin: loop(model, inputs, sync, begin + seconds))
    latencies = [s for calls in per_thread for s in calls]
    return len(latencies) / elapsed, latencies


def check_answers(model, inputs) -> None:
    """Four threads get what one gets, to the tolerance of a different split of the work."""
    expected = model(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)

    def compare(*_) -> None:
        got = model(*inputs)
        for a, b in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
            if not np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
                error = float(np.abs(a - b).max())
                raise InternalError(f"threads disagree with one thread by {error}; nothing was measured")

    run_together(4, compare)


def sweep(model, options) -> list[dict]:
    dims = parse_dims(options.dims)
    names = symbols(model)
    batches = options.batch if names else [1]
    cells = []
    for batch in batches:
        inputs = make_inputs(model, ({names[0]: batch} if names else {}) | dims)
        check_answers(model, inputs)
        for sync in options.sync:
            cells += [
                {"threads": n, "batch": batch, "sync": sync, "inputs": inputs, "rates": [], "calls": []}
                for n in options.threads
            ]
    with tqdm(total=len(cells) * options.rounds, unit="cell", leave=False) as bar:
        for turn in range(options.rounds):
            shift = turn * len(cells) // options.rounds
            for cell in cells[shift:] + cells[:shift]:
                rate, calls = measure(model, cell["inputs"], cell["threads"], cell["sync"], options.seconds)
                cell["rates"].append(rate * cell["batch"])
                cell["calls"] += calls
                bar.update()
    for cell in cells:
        del cell["inputs"]
        milliseconds = np.array(cell.pop("calls")) * 1e3
        cell["rows_per_s"] = statistics.median(cell["rates"])
        cell["p50_ms"], cell["p99_ms"] = (float(np.percentile(milliseconds, p)) for p in (50, 99))
    return cells


def print_table(cells: list[dict]) -> None:
    print("  batch  sync     threads       rows/s   (lowest .. highest)    p50 ms    p99 ms")
    for cell in cells:
        spread = f"({min(cell['rates']):.0f} .. {max(cell['rates']):.0f})"
        print(
            f"{cell['batch']:7d}  {cell['sync']:8s}{cell['threads']:8d} {cell['rows_per_s']:12.1f}"
            f"   {spread:20s} {cell['p50_ms']:9.3f} {cell['p99_ms']:9.3f}"
        )


def plot(cells: list[dict], path: Path, title: str) -> None:
    try:
        import matplotlib
    except ImportError as error:
        raise ValueError("--plot needs matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), constrained_layout=True)
    for batch, sync in dict.fromkeys((cell["batch"], cell["sync"]) for cell in cells):
        line = [cell for cell in cells if (cell["batch"], cell["sync"]) == (batch, sync)]
        axes.plot(
            [c["threads"] for c in line],
            [c["rows_per_s"] for c in line],
            marker="o",
            label=f"batch {batch}, {sync}",
        )
    axes.set(xlabel="calling threads", ylabel="rows per second", title=title, ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def execute_profile(model, options) -> int:
    names = symbols(model)
    reports = []
    for batch in options.batch if names else [1]:
        dims = ({names[0]: batch} if names else {}) | parse_dims(options.dims)
        reports.append({"batch": batch} | profile(model, make_inputs(model, dims)))
    if options.json:
        print(json.dumps({"model": str(options.model), "profiles": reports}, indent=1))
        return 0
    for report in reports:
        print(f"batch {report['batch']}: ", end="")
        print_profile(report)
    return 0


def execute(options) -> int:
    model = heddle.load(options.model, options.device)
    if options.profile:
        return execute_profile(model, options)
    cells = sweep(model, options)
    if options.json:
        print(
            json.dumps(
                {"model": str(options.model), "device": model.device.description, "cells": cells}, indent=1
            )
        )
    else:
        print_table(cells)
    if options.plot:
        plot(cells, options.plot, options.model.name)
    return 0
