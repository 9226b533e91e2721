"""The simulations under many seeds, each process with a range of its own.

A job is a test case with its usual number of seeds, from another first one than any other job's. A case that
tells of no seeds has none, and runs once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bounded import bounded

APART = 1_000_000  # from the first seed of one round to that of the next
TAIL = 4000
GIVEN_UP = 3  # failures of a case, after which it runs no more
PREFIX = "simulated:"  # of the names of what runs under seeds


@dataclass(frozen=True)
class Case:
    program: Path
    name: str

    def command(self) -> list[str | Path]:
        return [self.program, "-tc=" + self.name.replace(",", "\\,")]


def cases(programs: Iterable[Path], libraries: str) -> list[Case]:
    found = []
    for program in sorted(programs):
        done = subprocess.run(
            [program, "--list-test-cases"],
            env=os.environ | {"LD_LIBRARY_PATH": libraries},
            capture_output=True,
            text=True,
            check=True,
        )
        found += [Case(program, line) for line in done.stdout.splitlines() if line.startswith(PREFIX)]
    return found


class Seeds:
    def __init__(self, programs: Iterable[Path], libraries: str, work: Path, out: Path, commit: str) -> None:
        self.libraries, self.work, self.out, self.commit = libraries, work, out, commit
        self.cases = cases(programs, libraries)
        self.turn = threading.Lock()
        self.of_case: dict[Case, int] = {}
        self.of_rounds: dict[Case, list[int]] = {}  # the same, each round's
        self.without: set[Case] = set()  # seeds
        self.left_out: set[Case] = set()  # of further rounds
        self.failures: list[dict[str, object]] = []
        self.first = self.rounds = self.cut = self.workers = 0
        self.cpu_s = self.wall_s = 0.0
        work.mkdir(parents=True, exist_ok=True)

    def jobs(self, first: int, rounds: int | None) -> Iterator[tuple[int, Case]]:
        """Round by round, without `rounds` for as long as a case has seeds."""
        at = first
        while len(self.left_out) < len(self.cases) and (rounds is None or at < first + rounds):
            for case in self.cases:
                if case not in self.left_out:
                    yield at, case
            at += 1

    def run(
        self, workers: int, seconds: float, first: int, limit_s: float, rounds: int | None = None
    ) -> bool:
        begin = time.monotonic()
        jobs = self.jobs(first, rounds)
        self.rounds = self.first = first
        self.workers = workers

        def work_of(worker: int) -> None:
            while (left := begin + seconds - time.monotonic()) > 0:
                with self.turn:
                    job = next(jobs, None)
                if job is None:
                    return
                self.job(worker, *job, left, limit_s)

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work_of, range(workers)))
        self.wall_s = time.monotonic() - begin
        self.write()
        return not self.failures and sum(self.of_case.values()) > 0

    def job(self, worker: int, at: int, case: Case, left: float, limit_s: float) -> None:
        first = 1 + at * APART
        env = {"HEDDLE_SIM_FIRST": str(first), "HEDDLE_SIM_RATES": "1", "LD_LIBRARY_PATH": self.libraries}
        log = self.work / f"{worker}.log"
        with log.open("wb") as said_here:
            ended = bounded(case.command(), said_here, min(left, limit_s), env)
        said = log.read_text(encoding="utf-8", errors="replace")
        seeds = sum(int(count) for count in re.findall(r"\b(\d+) seeds: ", said))
        with self.turn:
            self.rounds = max(self.rounds, at + 1)
            self.cpu_s += ended.cpu_s
            self.told(case, seeds)
            if ended.code is None and left <= limit_s:
                self.cut += 1  # by the end of the whole
            elif ended.code != 0:
                self.fail(case, first, ended.code, said)
            elif seeds == 0:
                self.without.add(case)
                self.left_out.add(case)
            else:
                self.of_case[case] = self.of_case.get(case, 0) + seeds
                self.of_rounds.setdefault(case, []).append(seeds)

    def told(self, case: Case, seeds: int) -> None:
        """A job is over, and its program says that it ran so many."""

    def fail(self, case: Case, first: int, code: int | None, said: str) -> None:
        named = re.findall(r"\bseed (\d+)", said)
        failure: dict[str, object] = {
            "program": case.program.name,
            "case": case.name,
            "what": "hangs" if code is None else "failed",
            "exit": code,
            "seed": int(named[0]) if named else None,
            "first": first,
            "tail": said[-TAIL:],
        }
        self.failures.append(failure)
        if sum(each["case"] == case.name for each in self.failures) == GIVEN_UP:
            self.left_out.add(case)
        print(f"seeds: {case.name}: {failure['what']}, seed {failure['seed']}", file=sys.stderr, flush=True)

    def figures(self) -> dict[str, object]:
        return {
            "commit": self.commit,
            "seconds": round(self.wall_s, 1),
            "workers": self.workers,
            "processors": os.cpu_count(),
            "cpu_s": round(self.cpu_s, 1),
            "rounds": [self.first, self.rounds],  # a next call begins with the second
            "cases": len(self.of_case),
            "seeds": sum(self.of_case.values()),
            "failures": self.failures,
            "cut": self.cut,
            "of_case": {f"{case.program.name}: {case.name}": n for case, n in sorted(self.of_case.items(),
                        key=lambda each: (each[0].program.name, each[0].name))},
            "without_seeds": sorted(case.name for case in self.without),
        }  # fmt: skip

    def write(self) -> None:
        figures = self.figures()
        (self.out / "seeds.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"seeds: {figures['seeds']} of {figures['cases']} cases, {len(self.failures)} failures",
              file=sys.stderr, flush=True)  # fmt: skip
