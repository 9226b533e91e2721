"""Run what tools/cores_pack.py laid down, on a machine of many cores: fuzz targets, soak, simulations' seeds.

usage: cores_check.py OUT [fuzz] [soak] [seeds] --seconds S [--workers N] [--packed DIR] [--corpus FILE]
                      [--round N] [--soaks N]

The phases that are named (all, without a word) run one after the other and share the seconds. Needs Python
3.12 alone, the tree and DIR (.cores/), which it unpacks into a folder of its own. OUT then has

  fuzz.json       for each target CPU seconds, executions, edges, features and what failed
  corpus.tar.xz   the inputs that were found, and the sums so far: the next call's --corpus
  failures.tar.xz inputs and output of what failed or was slow; only then
  soak.json       the figures of tools/soak.py, of a process for each worker (or --soaks), and its seed
  soak_failures.tar.xz  the output of those that failed; only then
  seeds.json      how many seeds of each case ran, and which failed; the next call's --round goes on

whatever fails. Exit status: 0 nothing failed, 1 something did.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fuzz
import soak
from bounded import bounded
from cores_fuzz import GRACE_S, Fuzzing
from cores_pack import ARCHIVE, FUZZ, ROOT, SEEDS, SOAK, SOAK_TSAN
from cores_seeds import Seeds

PHASES = ("fuzz", "soak", "seeds")
ROUNDS_MOST = 500  # of a soak, in its figures
SOAK_LATE_S = 60.0  # beyond its seconds: a soak that has not ended by then never does
TAIL = 4000


class Packed:
    """What was unpacked: a folder for each group, its libraries in lib/, beside those that all share."""

    def __init__(self, packed: Path, folder: Path) -> None:
        with tarfile.open(packed / ARCHIVE) as tar:
            tar.extractall(folder, filter="data")
        self.folder = folder
        self.commit = (packed / "commit").read_text(encoding="utf-8").strip()

    def programs(self, name: str) -> Path:
        return self.folder / name

    def libraries(self, name: str) -> str:
        return f"{self.folder / name / 'lib'}:{self.folder / 'lib'}"


def fewer(rounds: list[dict]) -> list[dict]:
    """As many as a picture shows: those beside each other as one, with its highest levels."""
    many = -(-len(rounds) // ROUNDS_MOST)
    parts = [rounds[at : at + many] for at in range(0, len(rounds), max(many, 1))]
    highest = ("at_s", "threads", "books", "heap", "rss")
    return [
        {key: max(each[key] for each in part) for key in highest}
        | {key: sum(each[key] for each in part) for key in ("took_s", "operations")}
        for part in parts
    ]


def run_soak(packed: Packed, work: Path, out: Path, count: int, seconds: float) -> bool:
    """Soaks beside each other; those under the thread sanitizer, if it was packed, are every other one."""
    groups = [name for name in (SOAK.name, SOAK_TSAN.name) if packed.programs(name).is_dir()]
    work.mkdir()

    def one(nth: int) -> dict[str, object]:
        group = groups[nth % len(groups)]
        figures, log = work / f"{nth}.json", work / f"{nth}.log"
        env = soak.environment(seconds, nth + 1, figures) | {
            "LD_LIBRARY_PATH": packed.libraries(group),
            "HEDDLE_TUNE": "off",
        }
        if group == SOAK_TSAN.name:
            env["TSAN_OPTIONS"] = f"halt_on_error=1 suppressions={ROOT}/tests/sanitizers/tsan.supp"
            env["HEDDLE_TEST_NARROWER"] = "4"
        launcher = fuzz.launcher() if group == SOAK_TSAN.name else []
        command: list[str | Path] = [*launcher, packed.programs(group) / "stress_test", soak.CASE]
        with log.open("wb") as said:
            ended = bounded(command, said, seconds + SOAK_LATE_S, env)
        told = log.read_text(encoding="utf-8", errors="replace")
        result: dict[str, object] = {
            "program": group,
            "seed": nth + 1,
            "exit": ended.code,
            "cpu_s": round(ended.cpu_s, 1),
            "seconds": round(ended.wall_s, 1),
        }
        if figures.exists():
            try:
                told_by_it = json.loads(figures.read_text(encoding="utf-8"))
                rounds = told_by_it["rounds"]
                result |= {"figures": told_by_it | {"rounds": fewer(rounds)}, "rounds": len(rounds)}
            except json.JSONDecodeError:  # of one that was ended
                result["figures"] = None
        fine = ended.code == 0 and bool(result.get("figures"))
        result["what"] = "" if fine else "hangs" if ended.code is None else "failed"
        if not fine:
            result["tail"] = told[-TAIL:]
        print(f"soak: {group}, seed {nth + 1}: {result['what'] or 'ok'}", file=sys.stderr, flush=True)
        return result

    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(one, range(count)))
    failed = [f"{nth}.log" for nth, result in enumerate(results) if result["what"]]
    if failed:
        with tarfile.open(out / "soak_failures.tar.xz", "w:xz") as tar:
            for name in failed:
                tar.add(work / name, name)
    whole = {"commit": packed.commit, "processors": os.cpu_count(), "soaks": results}
    (out / "soak.json").write_text(json.dumps(whole) + "\n", encoding="utf-8")
    return not any(result["what"] for result in results)


def main() -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("phases", nargs="*", metavar="fuzz|soak|seeds")
    parser.add_argument("--seconds", type=float, required=True, help="of all phases together")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--packed", type=Path, default=ROOT / ".cores")
    parser.add_argument("--corpus", type=Path, help="corpus.tar.xz of an earlier call: goes on from it")
    parser.add_argument("--round", type=int, default=0, help="of seeds, to begin with")
    parser.add_argument("--soaks", type=int, help="at once; otherwise as many as workers")
    parser.add_argument("--limit", type=float, default=240, help="seconds of one case: longer, and it hangs")
    parser.add_argument("--grace", type=float, default=GRACE_S, help="seconds until a fuzz target hangs")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.phases if name not in PHASES]
    if unknown:
        parser.error(f"no phase is called {unknown[0]}; there are {', '.join(PHASES)}")
    phases = [name for name in PHASES if name in (arguments.phases or PHASES)]
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    right = True
    with tempfile.TemporaryDirectory(prefix="heddle_cores_") as name:
        work = Path(name)
        packed = Packed(arguments.packed, work / "packed")
        for at, phase in enumerate(phases):
            left = arguments.seconds - (time.monotonic() - begin)
            seconds = max(left, 1) / (len(phases) - at)
            if phase == "fuzz":
                programs = packed.programs(FUZZ.name), packed.libraries(FUZZ.name)
                fuzzing = Fuzzing(*programs, work / phase, out, packed.commit, arguments.grace)
                if arguments.corpus:
                    fuzzing.go_on_from(arguments.corpus)
                right &= fuzzing.run(arguments.workers, seconds)
            elif phase == "soak":
                right &= run_soak(packed, work / phase, out, arguments.soaks or arguments.workers, seconds)
            else:
                simulations = [path for path in packed.programs(SEEDS.name).iterdir() if path.is_file()]
                libraries = packed.libraries(SEEDS.name)
                seeds = Seeds(simulations, libraries, work / phase, out, packed.commit)
                right &= seeds.run(arguments.workers, seconds, arguments.round, arguments.limit)
    print(f"{out}: {'nothing failed' if right else 'something failed'}", file=sys.stderr, flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
