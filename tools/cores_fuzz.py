"""The fuzz targets on many cores: each gets as many CPU seconds, and goes on from what was found before.

A worker runs, a slice of time each, the target that has had the fewest CPU seconds, with those of earlier
calls and of what is under way: some targets wait for a disk. Processes of one target that run at once share
the folder of what was found, and have other seeds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import fuzz
from bounded import Ended, bounded

SLICE_MOST_S = 60
SLICES = 16  # of each target in a call, about
GIVEN_UP = 3  # failures in a call, after which a target gets no further slice
MERGE_SHARE = 0.1  # of the seconds, for choosing among what was found
MERGE_MOST_S = 60.0
# Beyond its slice: a process that has not ended by then hangs. It reads all inputs, a minute's work of some
# targets, before it looks at the clock, and tells of an input that takes 30 s itself.
GRACE_S = 120.0
SLICE_LEAST_S = 10.0  # a further one would do little but read
DUMP_S = 5.0  # from SIGABRT, at which libFuzzer writes the input that it is at, to SIGKILL
TAIL = 4000  # characters of the output of a process that failed
TOTALS, FOUND = "totals.json", "corpus"


@dataclass
class Target:
    """What all processes of a target did, in this call and in those that it goes on from."""

    name: str
    cpu_s: float = 0.0
    slices: int = 0
    runs: int = 0
    edges: int = 0  # the most that one process had reached
    features: int = 0
    failures: list[dict[str, object]] = field(default_factory=list)
    cpu_s_here: float = 0.0
    wall_s_here: float = 0.0
    runs_here: int = 0
    slices_here: int = 0
    failures_here: int = 0
    under_way_here: float = 0.0  # seconds

    def cpu_s_soon(self) -> float:
        share = self.cpu_s_here / self.wall_s_here if self.wall_s_here else 1.0
        return self.cpu_s + share * self.under_way_here


class Fuzzing:
    """One call. `programs`: the folder with the targets; `work`: one for what they write."""

    def __init__(
        self, programs: Path, libraries: str, work: Path, out: Path, commit: str, grace_s: float = GRACE_S
    ) -> None:
        self.programs, self.work, self.out, self.grace_s = programs, work, out, grace_s
        self.begin = time.monotonic()
        self.commits = [commit]
        # A machine without llvm-symbolizer may have addr2line, which finds names in what is packed.
        asan = f"{fuzz.SANITIZERS['ASAN_OPTIONS']}:allow_addr2line=1"
        self.env = {
            **fuzz.SANITIZERS,
            "ASAN_OPTIONS": asan,
            "HEDDLE_TUNE": "off",
            "LD_LIBRARY_PATH": libraries,
        }
        names = sorted(path.name for path in programs.iterdir() if path.is_file())
        self.targets = [Target(name) for name in names]
        self.turn = threading.Lock()
        self.merged: dict[str, str] = {}
        for folder in ("artifacts", "logs", *(f"{FOUND}/{name}" for name in names)):
            (work / folder).mkdir(parents=True, exist_ok=True)

    def go_on_from(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            tar.extractall(self.work, filter="data")
        totals = json.loads((self.work / TOTALS).read_text(encoding="utf-8"))
        self.commits = [*totals["commits"], *(each for each in self.commits if each not in totals["commits"])]
        before = {each["name"]: each for each in totals["targets"]}
        for target in self.targets:
            for key, value in before.get(target.name, {}).items():
                if not key.endswith("_here"):
                    setattr(target, key, value)

    def next(self, left: float, longest: int) -> tuple[Target, int, int] | None:
        """A target, which slice of it that is and how long; None: no more. Each has one, however late."""
        seconds = max(1, min(longest, int(left)))
        with self.turn:
            wanted = [target for target in self.targets if target.failures_here < GIVEN_UP]
            if left < min(SLICE_LEAST_S, longest):
                wanted = [target for target in self.targets if target.slices_here == 0]
            if not wanted:
                return None
            target = min(wanted, key=Target.cpu_s_soon)
            target.slices_here += 1
            target.slices += 1
            target.under_way_here += seconds
            return target, target.slices, seconds

    def run(self, workers: int, seconds: float) -> bool:
        end = self.begin + seconds - min(MERGE_MOST_S, MERGE_SHARE * seconds)
        of_each = (end - self.begin) * workers / len(self.targets)
        longest = max(1, min(SLICE_MOST_S, int(of_each / SLICES)))

        def work_of(_: int) -> None:
            while (picked := self.next(end - time.monotonic(), longest)) is not None:
                self.slice(*picked)

        try:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(work_of, range(workers)))
                list(pool.map(lambda target: self.merge(target, self.begin + seconds), self.targets))
        finally:
            self.write(workers)
            self.keep()
        return all(target.runs_here > 0 and target.failures_here == 0 for target in self.targets)

    def call(self, target: Target, log: Path, limit_s: float, *options: str) -> tuple[Ended, str]:
        with log.open("wb") as said:
            ended = bounded(
                fuzz.command(target.name, *options, programs=self.programs),
                said,
                limit_s,
                self.env,
                abort=True,
                grace_s=DUMP_S,
            )
        return ended, log.read_text(encoding="utf-8", errors="replace")

    def folders(self, target: Target) -> list[str]:
        committed = fuzz.SOURCES / "corpus" / target.name
        return [str(self.work / FOUND / target.name), *([str(committed)] if committed.exists() else [])]

    def slice(self, target: Target, nth: int, seconds: int) -> None:
        prefix = f"{target.name}-{nth}-"
        log = self.work / "logs" / f"{prefix}log"
        ended, said = self.call(
            target,
            log,
            seconds + self.grace_s,
            f"-max_total_time={seconds}",
            f"-seed={nth}",
            f"-artifact_prefix={self.work / 'artifacts' / prefix}",
            *self.folders(target),
        )
        runs = fuzz.last_number(r"stat::number_of_executed_units:\s+(\d+)", said)
        reached = re.findall(r"cov: (\d+) ft: (\d+)", said) or [("0", "0")]
        wrong = (
            "hangs" if ended.code is None else "failed" if ended.code != 0 else "" if runs else "ran nothing"
        )
        with self.turn:
            target.under_way_here -= seconds
            target.cpu_s += ended.cpu_s
            target.cpu_s_here += ended.cpu_s
            target.wall_s_here += ended.wall_s
            target.runs += runs
            target.runs_here += runs
            target.edges = max(target.edges, int(reached[-1][0]))
            target.features = max(target.features, int(reached[-1][1]))
            if wrong:
                target.failures_here += 1
                kept = sorted(path.name for path in (self.work / "artifacts").glob(f"{prefix}*"))
                target.failures.append(
                    {"what": wrong, "exit": ended.code, "seed": nth, "inputs": kept, "tail": said[-TAIL:]}
                )
        if not wrong:
            log.unlink()
        told = f"{ended.cpu_s:.0f} CPU s, {runs} runs, {target.edges} edges"
        print(f"fuzz: {target.name} {nth}: {wrong or 'ok'}, {told}", file=sys.stderr, flush=True)

    def merge(self, target: Target, end: float) -> None:
        """Keeps of what was found what reaches more than the committed inputs, if there is time for it."""
        found, left = self.work / FOUND / target.name, end - time.monotonic()
        if left < 1 or not any(found.iterdir()):
            self.merged[target.name] = "nothing was found" if left >= 1 else "no time"
            return
        chosen = self.work / "merged" / target.name
        chosen.mkdir(parents=True)
        _, *committed = self.folders(target)
        log = self.work / "logs" / f"{target.name}-merge.log"
        options = ("-merge=1", f"-artifact_prefix={self.work / 'artifacts' / target.name}-merge-")
        ended, _ = self.call(target, log, left, *options, str(chosen), *committed, str(found))
        if ended.code != 0:
            self.merged[target.name] = "no time" if ended.code is None else f"exit status {ended.code}"
            return
        log.unlink()
        old = {path.name for folder in committed for path in Path(folder).iterdir()}
        known = {path.read_bytes() for folder in committed for path in Path(folder).iterdir()}
        for path in list(chosen.iterdir()):
            if path.name in old or path.read_bytes() in known:
                path.unlink()
        before, after = len(list(found.iterdir())), len(list(chosen.iterdir()))
        shutil.rmtree(found)
        chosen.rename(found)
        self.merged[target.name] = f"{after} of {before}"

    def state(self) -> dict[str, object]:
        return {"commits": self.commits, "targets": [asdict(target) for target in self.targets]}

    def write(self, workers: int) -> None:
        told = {
            **self.state(),
            "seconds": round(time.monotonic() - self.begin, 1),
            "workers": workers,
            "processors": os.cpu_count(),
            "cpu_s_least": min(target.cpu_s for target in self.targets),
            "runs": sum(target.runs for target in self.targets),
            "failures": sum(len(target.failures) for target in self.targets),
            "merged": self.merged,
        }
        (self.out / "fuzz.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")

    def keep(self) -> None:
        """What a next call goes on from, and inputs and output of what failed or was slow."""
        (self.work / TOTALS).write_text(json.dumps(self.state()), encoding="utf-8")
        with tarfile.open(self.out / "corpus.tar.xz", "w:xz") as tar:
            tar.add(self.work / TOTALS, TOTALS)
            tar.add(self.work / FOUND, FOUND)
        if any(path for folder in ("artifacts", "logs") for path in (self.work / folder).iterdir()):
            with tarfile.open(self.out / "failures.tar.xz", "w:xz") as tar:
                for folder in ("artifacts", "logs"):
                    tar.add(self.work / folder, folder)
