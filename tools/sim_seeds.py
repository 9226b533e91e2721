"""Run the simulations of a build of the preset sim under other seeds than the stage `sim` has, many of them.

usage: sim_seeds.py [--floor N] [--rounds N] [--round N] [--workers N] [--json FILE]

In a round each test case has its usual number of seeds, from a first one of its own; --round (1) is the first
round, and the stage `sim` has round 0. What is counted is what the programs say they ran.

Exit status: 0, or 1 if a case failed or hung (its seed is named, and the command that repeats it), if there
were fewer seeds than --floor (200,000), if rounds were not over within --seconds, or if a case had fewer
seeds in one round than in another, or none where it is not known for that; or if a case that is known for
that is no longer there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from cores_pack import ROOT, SEEDS, commit
from cores_seeds import Case, Seeds

FLOOR = 200_000
# They have no seeds but those that they name, or a schedule of their own.
WITHOUT = {
    "simulated: hits between any two steps of an eviction do not keep it going",
    "simulated: equal seeds make equal schedules of the threads and of the device",
    "simulated: operations that a fault once left wrong are whole after it",
    "simulated: where runs are short callers do not sleep, nor does the one that keeps the time",
    "simulated: for as many tasks as leaders look for no other leader is woken",
    "simulated: a request tells a worker that sleeps, unless that waits for others who come back",
    "simulated: who was asked for slots may end there, and then look for memory itself",
}


class Told(Seeds):
    """Seeds that are told as they are counted."""

    floor = FLOOR

    def told(self, case: Case, seeds: int) -> None:
        so_far = sum(self.of_case.values()) + seeds
        print(f"{so_far:>9,} of {self.floor:,}  {seeds:>6,}  {case.program.name}: {case.name}", flush=True)

    def wrong(self, rounds: int) -> list[str]:
        """Why this is no pass; nothing if it is one."""
        found = []
        for failure in self.failures:
            program, case, seed = failure["program"], failure["case"], failure["seed"]
            again = f"HEDDLE_SIM_SEED={seed}" if seed is not None else f"HEDDLE_SIM_FIRST={failure['first']}"
            words = str(case).replace(",", "\\,")
            found.append(f"{program}: {case}: {failure['what']}: {again} build/sim/{program} -tc='{words}'")
        failed = {failure["case"] for failure in self.failures}
        for case in self.cases:
            title, counts = f"{case.program.name}: {case.name}", self.of_rounds.get(case, [])
            if case in self.without:
                found += [] if case.name in WITHOUT else [f"{title}: ran no seed"]
            elif case.name not in failed and len(counts) != rounds:
                found.append(f"{title}: {len(counts)} of {rounds} rounds were over in time")
            elif len(set(counts)) > 1:
                found.append(f"{title}: {min(counts)} seeds in one round, {max(counts)} in another")
        for name in sorted(WITHOUT - {case.name for case in self.cases}):
            found.append(f"WITHOUT of tools/sim_seeds.py names '{name}', and no case has that name")
        ran = sum(self.of_case.values())
        if ran < self.floor:
            found.append(f"{ran:,} seeds, and at least {self.floor:,} are asked for")
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--floor", type=int, default=FLOOR, help="fewer seeds are a failure")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--round", type=int, default=1, help="to begin with")
    parser.add_argument("--seconds", type=float, default=7200, help="all have to be over by then")
    parser.add_argument("--limit", type=float, default=1800, help="seconds of one case: longer, and it hangs")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--builds", type=Path, default=ROOT / "build", help="the folder that has sim/")
    parser.add_argument("--json", type=Path, help="write what ran and what is wrong to this file")
    arguments = parser.parse_args()
    programs = SEEDS.programs(arguments.builds)
    if not programs:
        parser.error(f"there are no simulations in {arguments.builds / SEEDS.preset}")
    with tempfile.TemporaryDirectory(prefix="heddle_seeds_") as name:
        work = Path(name)
        seeds = Told(programs, os.environ.get("LD_LIBRARY_PATH", ""), work, work, commit())
        seeds.floor = arguments.floor
        seeds.run(arguments.workers, arguments.seconds, arguments.round, arguments.limit, arguments.rounds)
    wrong = seeds.wrong(arguments.rounds)
    if arguments.json:
        figures = seeds.figures() | {"floor": seeds.floor, "wrong": wrong}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    of_program: dict[str, int] = {}
    for case, count in seeds.of_case.items():
        of_program[case.program.name] = of_program.get(case.program.name, 0) + count
    for program, count in sorted(of_program.items()):
        print(f"{count:>9,}  {program}")
    for failure in seeds.failures:
        print(failure["tail"])
    for line in wrong:
        print(f"error: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
