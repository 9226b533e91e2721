"""What the benchmarks of whole models share: peers in turn, pauses between, ratios and their spread, JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from heddle.cli.together import run_together

PAUSE_S = 0.2  # between two measurements, so that one's heat and leftovers do not meet the next


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, help="write the figures there")
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--seconds", type=float, default=0.7, help="of one measurement")
    return made


def arguments(description: str) -> argparse.Namespace:
    return parser(description).parse_args()


def call_rates(
    call: Callable[[], object],
    callers: int,
    seconds: float,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[float, float]:
    """`callers` threads call in a loop for `seconds`, each in a context of `within`; calls per second until
    the last of them ended, and per second of this process's processor time."""

    def loop(_: int, begin: float) -> int:
        calls = 0
        with within():
            while time.perf_counter() < begin + seconds:
                call()
                calls += 1
        return calls

    before = time.process_time()
    counts, elapsed = run_together(callers, loop)
    return sum(counts) / elapsed, sum(counts) / (time.process_time() - before)


def calls_per_second(call: Callable[[], object], callers: int, seconds: float) -> float:
    return call_rates(call, callers, seconds)[0]


def seconds_a_call(
    call: Callable[[int], object], seconds: float, end: Callable[[], object] = lambda: None
) -> float:
    """This thread's, of calls with 0, 1, ..., until `seconds` are over and `end` returns."""
    begin = time.perf_counter()
    calls = 0
    while time.perf_counter() < begin + seconds:
        call(calls)
        calls += 1
    end()
    return (time.perf_counter() - begin) / calls


def in_turn(peers: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each peer's measurement once a round, the order rotated from round to round."""
    names = list(peers)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            time.sleep(PAUSE_S)
            figures[name].append(peers[name]())
    return figures


def spread(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def ratio(a: list[float], b: list[float]) -> tuple[float, float, float]:
    """Quartiles of a / b, round by round."""
    return spread([x / y for x, y in zip(a, b, strict=True)])


def show(name: str, figure: tuple[float, float, float], unit: str, bar: str = "") -> None:
    low, median, high = figure
    print(f"  {name:58s} {median:10.3f} {unit:10s} ({low:.3f} .. {high:.3f})  {bar}", flush=True)


def write(path: Path | None, figures: dict) -> None:
    if path:
        path.write_text(json.dumps(figures, indent=1))
