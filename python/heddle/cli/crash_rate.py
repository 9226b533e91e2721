"""heddle crash-rate: how often a program crashes with and without the guard, and what the guard costs."""

from __future__ import annotations

import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from heddle import guard
from heddle.errors import InvalidError

from .crash_report import find_report, find_signal, sign

Z = 1.959964  # of a 95 % interval


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "crash-rate", help="how often a program crashes with and without the guard against Apple's race"
    )
    parser.add_argument(
        "command", nargs="+", metavar="COMMAND", help="the program; after -- if it has options"
    )
    parser.add_argument("--runs", type=int, default=20, help="of each kind (20)")
    parser.add_argument(
        "--timeout", type=float, default=300, help="seconds after which a run counts as hung (300)"
    )
    parser.add_argument("--without-only", action="store_true", help="do not run it with the guard")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(execute=execute)


def find_interval(hits: int, runs: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate: right also for 0 of n and n of n."""
    if runs == 0:
        return 0.0, 1.0
    rate = hits / runs
    middle = (rate + Z * Z / (2 * runs)) / (1 + Z * Z / runs)
    half = Z / (1 + Z * Z / runs) * math.sqrt(rate * (1 - rate) / runs + Z * Z / (4 * runs * runs))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass
class Runs:
    """The runs of one kind."""

    guarded: bool
    crashed: int = 0
    hung: int = 0
    failed: int = 0
    clean: int = 0
    guard_seen: int = 0
    seconds: list[float] = field(default_factory=list)  # of clean runs
    signatures: Counter = field(default_factory=Counter)
    guard_numbers: Counter = field(default_factory=Counter)

    @property
    def runs(self) -> int:
        return self.crashed + self.hung + self.failed + self.clean

    def summarize(self) -> dict:
        bad = self.crashed + self.hung
        low, high = find_interval(bad, self.runs)
        summary = {
            "runs": self.runs,
            "crashed": self.crashed,
            "hung": self.hung,
            "failed": self.failed,
            "clean": self.clean,
            "rate": bad / self.runs if self.runs else None,
            "interval_95": [low, high],
            "median_seconds": statistics.median(self.seconds) if self.seconds else None,
            "signatures": dict(self.signatures.most_common()),
        }
        if self.guarded:
            summary |= {"guard_seen": self.guard_seen, "guard": dict(self.guard_numbers)}
        return summary


def run_once(command: list[str], guarded: bool, timeout: float, runs: Runs) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report_file = Path(folder) / "guard.json"
        environment = dict(os.environ)
        if guarded:
            environment = guard.guarded_environment(environment) | {"AGX_GUARD_REPORT": str(report_file)}
        output_file = Path(folder) / "output"
        begun, since = time.perf_counter(), time.time()
        with output_file.open("wb") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
            try:
                returncode = child.wait(timeout)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                returncode = None
        seconds = time.perf_counter() - begun
        said = output_file.read_text(encoding="utf-8", errors="replace")[-20000:]
        judge(runs, returncode, seconds, said, child.pid, since)
        if report_file.exists():
            numbers = json.loads(report_file.read_text())["statistics"]
            runs.guard_seen += 1
            runs.guard_numbers.update(
                {name: numbers[name] for name in ("calls", "late_carried", "late_refused")}
            )


def judge(runs: Runs, returncode: int | None, seconds: float, said: str, pid: int, since: float) -> None:
    if returncode is None:
        runs.hung += 1
        runs.signatures["no end"] += 1
    elif find_signal(returncode):
        runs.crashed += 1
        runs.signatures[sign(returncode, said, find_report(pid, since))] += 1
    elif returncode:
        runs.failed += 1
        runs.signatures[sign(returncode, said)] += 1
    else:
        runs.clean += 1
        runs.seconds.append(seconds)


def show_progress(done: int, total: int, kinds: list[Runs]) -> None:
    if not sys.stderr.isatty():
        return
    filled = 30 * done // total
    bad = ", ".join(f"{'with' if kind.guarded else 'without'} {kind.crashed + kind.hung}" for kind in kinds)
    print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total}  crashed: {bad} ", end="", file=sys.stderr)
    if done == total:
        print(file=sys.stderr)


def measure(command: list[str], runs: int, timeout: float, with_guard: bool) -> dict:
    """Both kinds in turn, so that the machine's moods fall on both."""
    kinds = [Runs(guarded=False)] + [Runs(guarded=True)] * with_guard
    for i in range(runs):
        for j, kind in enumerate(kinds):
            run_once(command, kind.guarded, timeout, kind)
            show_progress(i * len(kinds) + j + 1, runs * len(kinds), kinds)
    result: dict = {"command": command, "without": kinds[0].summarize()}
    if with_guard:
        result["with"] = kinds[1].summarize()
        times = [kind["median_seconds"] for kind in (result["without"], result["with"])]
        result["slow_down"] = times[1] / times[0] if all(times) else None
    return result


def print_kind(name: str, kind: dict) -> None:
    low, high = (100 * bound for bound in kind["interval_95"])
    text = (
        f"{name:8s} {kind['crashed']} crashed, {kind['hung']} hung, {kind['failed']} failed of {kind['runs']}"
    )
    print(f"{text}: {100 * kind['rate']:.1f} % crash or hang (95 %: {low:.1f} to {high:.1f} %)")
    for signature, count in kind["signatures"].items():
        print(f"  {count:4d} x {signature}")


def print_result(result: dict) -> None:
    print_kind("without", result["without"])
    guarded = result.get("with")
    if not guarded:
        return
    print_kind("with", guarded)
    if guarded["clean"] > guarded["guard_seen"]:
        print(f"  the guard was seen in {guarded['guard_seen']} of {guarded['clean']} clean runs")
    numbers = guarded["guard"]
    if numbers:
        print(
            f"  guard: {numbers['calls']} calls, {numbers['late_carried']} carried over, "
            f"{numbers['late_refused']} refused"
        )
    if result["slow_down"]:
        print(f"slow-down {result['slow_down']:.3f} (median of clean runs, with / without)")
    else:
        print("slow-down unknown: one kind had no clean run")


def execute(options) -> int:
    if options.runs < 1:
        raise InvalidError(f"--runs {options.runs}: at least one run is needed")
    command = shlex.split(options.command[0]) if len(options.command) == 1 else options.command
    if not options.without_only:
        guard.library()  # its absence is said before the first run
    result = measure(command, options.runs, options.timeout, not options.without_only)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_result(result)
    return 0
