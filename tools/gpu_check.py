"""The phases of tools/gpu_check.sh, which says how to run this: beside each other, each with a time-out.

What measures time runs alone, after the rest. gpu_phases.py has the phases, gpu_findings.py what is read from
their output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import BinaryIO

from bounded import bounded
from gpu_phases import ROOT, Machine, Phase, phases

AT_ONCE = 12  # phases; a GPU serves several processes in turns
FIGURES = "figures"  # a word for the phases that run alone, and for what they need
LOG_BYTES = 200_000  # of a log, its begin and its end
GRACE = 1.5  # seconds from SIGTERM, at which doctest says where it is, to SIGKILL
TAIL = 1500  # characters of the log in the result of a phase that is not ok


class Run:
    """All phases of one call: which have ended, and how."""

    def __init__(
        self, machine: Machine, chosen: list[Phase], out: Path, begin: float, seconds: float
    ) -> None:
        self.machine, self.chosen, self.out, self.begin = machine, chosen, out, begin
        self.end = self.begin + seconds
        alone = sum(phase.limit for phase in chosen if phase.alone)
        self.end_of_together = max(self.begin + 1, self.end - min(alone, seconds / 2))
        self.results: dict[str, dict[str, object]] = {}
        self.turn = threading.Condition()
        self.running = 0

    def note(self, phase: Phase, status: str, **more: object) -> None:
        with self.turn:
            self.results[phase.name] = {"phase": phase.name, "status": status, **more}
            self.write()
            self.turn.notify_all()
        print(f"{phase.name}: {status}, at {time.monotonic() - self.begin:.0f} s", flush=True)

    def write(self) -> None:
        ordered = [self.results[phase.name] for phase in self.chosen if phase.name in self.results]
        done = {
            "commit": commit(self.machine.double),
            "double": self.machine.double,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "seconds": round(time.monotonic() - self.begin, 1),
            "phases": ordered,
        }
        (self.out / "result.json").write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")

    def execute(self, phase: Phase) -> None:
        log = self.out / "logs" / f"{phase.name}.log"
        end = self.end if phase.alone else self.end_of_together
        begin = time.monotonic()
        limit = min(phase.limit, end - begin)
        if limit <= 0:
            self.note(phase, "not run", needs="time")
            return
        try:
            with log.open("wb") as said:
                code = self.code_of(phase, said, limit)
            self.judge(phase, log, code, round(time.monotonic() - begin, 1))
        except Exception as error:  # what is wrong with one phase must not stop the others
            self.note(phase, "failed", error=f"{type(error).__name__}: {error}")

    def code_of(self, phase: Phase, said: BinaryIO, limit: float) -> int | None:
        """The exit code; None: it had to be ended."""
        return bounded(phase.command, said, limit, self.machine.env | phase.env, grace_s=GRACE).code

    def judge(self, phase: Phase, log: Path, code: int | None, seconds: float) -> None:
        said = log.read_text(encoding="utf-8", errors="replace")
        findings = phase.findings(said)
        status = "out of time" if code is None else "ok" if phase.passes(code, findings) else "failed"
        more: dict[str, object] = {"exit": code, "seconds": seconds, "findings": findings}
        if status != "ok":
            more["tail"] = said[-TAIL:]
        if len(said) > LOG_BYTES:
            log.write_text(
                f"{said[: LOG_BYTES // 4]}\n[...]\n{said[-3 * LOG_BYTES // 4 :]}", encoding="utf-8"
            )
        self.note(phase, status, **more)

    def refusal(self, phase: Phase) -> str:
        """What it needs that is not ok; waits for all that it comes after, and for its turn."""
        chosen = {each.name for each in self.chosen}
        needs = [name for name in phase.needs if name in chosen]
        before = {*needs, *phase.after} & chosen
        if phase.alone:  # and in the order of the list
            before |= {each.name for each in self.chosen if not each.alone}
            before |= {each.name for each in self.chosen[: self.chosen.index(phase)]}
        with self.turn:
            self.turn.wait_for(lambda: before <= self.results.keys())
            for name in needs:
                if self.results[name]["status"] != "ok":
                    return name
            self.turn.wait_for(lambda: self.running < (1 if phase.alone else AT_ONCE))
            self.running += 1
        return ""

    def run(self, phase: Phase) -> None:
        refused = self.refusal(phase)
        if refused:
            self.note(phase, "not run", needs=refused)
            return
        try:
            self.execute(phase)
        finally:
            with self.turn:
                self.running -= 1
                self.turn.notify_all()

    def run_all(self) -> bool:
        (self.out / "logs").mkdir(parents=True, exist_ok=True)
        threads = [threading.Thread(target=self.run, args=(phase,)) for phase in self.chosen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with tarfile.open(self.out / "logs.tar.gz", "w:gz") as archive:
            archive.add(self.out / "logs", "logs")
        shutil.rmtree(self.out / "logs")
        return all(result["status"] == "ok" for result in self.results.values())


def commit(double: bool) -> str:
    """Of the pack, which holds what runs, or of this checkout, whose double runs."""
    carried = ROOT / ".gpu" / "commit"
    if not double and carried.exists():
        return carried.read_text(encoding="utf-8").strip()
    words = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def pick(every: list[Phase], words: list[str]) -> list[Phase]:
    """Those that the words name; all, without a word. ValueError: a word names none."""
    names = {phase.name for phase in every}
    unknown = [word for word in words if word not in {*names, FIGURES}]
    if unknown:
        told = " ".join(phase.name for phase in every)
        raise ValueError(f"no phase is called {unknown[0]}; there are {told}, and {FIGURES} for those alone")
    wanted = set(words) or names
    if FIGURES in wanted:
        alone = [phase for phase in every if phase.alone]
        wanted |= {name for phase in alone for name in (phase.name, *phase.needs, *phase.after)}
    return [phase for phase in every if phase.name in wanted]


def main() -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description="see tools/gpu_check.sh")
    parser.add_argument("--double", action="store_true")
    parser.add_argument("out", type=Path)
    parser.add_argument("phases", nargs="*")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        parser.error(f"{out} is not empty; it needs a folder of its own")
    machine = Machine(options.double)
    try:
        chosen = pick(phases(machine, out), options.phases)
    except ValueError as error:
        parser.error(str(error))
    seconds = float(os.environ.get("GPU_CHECK_SECONDS", "560"))
    right = Run(machine, chosen, out, begin, seconds).run_all()
    print(f"{out / 'result.json'}: {'all phases are ok' if right else 'not all phases are ok'}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
