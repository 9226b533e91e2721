"""Replay what simulated threads did against the models of models/, with spin.

usage: replay_models.py [--build FOLDER] [--jobs N] [--json FILE] [--list] [WORD ...]

A model's head has a line "Replay NAME: PROGRAM BOUND=n .." for each scenario of a "replayed:" test of that
program (base/replay_fixture.h). The programs write what their threads did, a log for each seed. spin looks
for an execution of the model, within that bound, with the steps of a log in their order and no others.
With words only models whose names contain one of them. models/README.md says more.
Exits with 1 when a program fails, when a log is no execution of its model, or when no log has a step of it.
"""

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

from spin_models import COMPILER, DEPTH, MODELS, ROOT, TRUNCATED, in_turn
from verdict import tell_verdict

WORK = ROOT / "build" / "replay"
LIMIT_S = 300
STEP = re.compile(r"\bSTEP\(\s*(\w+)\s*,")
# A step that the bound of every replay leaves out says so on its line.
NOT_REPLAYED = "// not replayed"


@dataclass
class Replay:
    """One scenario: of which model, by which program, within which bound."""

    model: Path
    name: str
    program: str
    bound: list[str]

    @property
    def title(self) -> str:
        return f"{self.model.stem} {self.name}"

    @staticmethod
    def read(model: Path) -> "list[Replay]":
        source = model.read_text(encoding="utf-8")
        found = []
        for name, rest in re.findall(r"^//   Replay (\w+): (.+)$", source, re.M):
            program, *bound = rest.split()
            found.append(Replay(model, name, program, bound))
        if bool(found) != bool(STEP.search(source)):
            raise ValueError(f"{model.name}: it has STEPs and no line 'Replay', or a line and no STEP")
        return found


@dataclass
class Step:
    who: int
    name: str
    value: int

    def __str__(self) -> str:
        return f"process {self.who}: {self.name} {self.value}"


@dataclass
class Log:
    seed: int
    steps: list[Step] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> "list[Log]":
        logs: list[Log] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[0] == "seed":
                logs.append(Log(int(words[1])))
            else:
                logs[-1].steps.append(Step(int(words[0]), words[1].replace(".", "_"), int(words[2])))
        return logs


@dataclass
class Outcome:
    title: str
    logs: int = 0
    steps: int = 0
    seconds: float = 0.0
    wrong: str = ""
    names: set[str] = field(default_factory=set)  # of the steps in its logs


@functools.cache
def names_of(model: Path) -> list[str]:
    return sorted(set(STEP.findall(model.read_text(encoding="utf-8"))))


def write_logs(folder: Path, names: list[str], logs: list[Log]) -> None:
    """What replay.inc reads: the names as numbers, and all logs one after the other, a 0 behind each."""
    numbers = {name: i for i, name in enumerate(names, 1)}
    (folder / "steps.h").write_text(
        "".join(f"#define {name} {number}\n" for name, number in numbers.items())
        + f"#define LOGS {len(logs)}\n",
        encoding="utf-8",
    )
    columns: dict[str, list[int]] = {"name": [], "who": [], "value": []}
    begins = []
    for log in logs:
        begins.append(len(columns["name"]))
        for step in log.steps:
            columns["name"].append(numbers[step.name])
            columns["who"].append(step.who)
            columns["value"].append(step.value)
        for column in columns.values():
            column.append(0)
    if len(columns["name"]) > 32_000:
        raise ValueError("the logs have more steps together than a short of Promela can count: fewer seeds")
    arrays = [f"static const short log_{name}[] = {{{', '.join(map(str, column))}}};"
              for name, column in columns.items()]  # fmt: skip
    arrays.append(f"static const short log_begin[] = {{{', '.join(map(str, begins))}}};")
    arrays.append(f"static short log_seen[{len(logs)}];")
    arrays.append(f"static char log_accepted[{len(logs)}];")
    (folder / "logs.h").write_text(
        "\n".join(arrays)
        + """
static void note_step(int log, int next) {
  if (next > log_seen[log]) {
    log_seen[log] = next;
    printf("seen %d %d\\n", log, next - log_begin[log]);
  }
}
static void note_accepted(int log) {
  if (log_accepted[log]) return;
  log_accepted[log] = 1;
  printf("accepted %d\\n", log);
}
""",
        encoding="utf-8",
    )


def objection(log: Log, seen: int, folder: Path) -> str:
    """What no execution of the model does, after what it can do."""
    before = "\n".join(f"        {step}" for step in log.steps[max(0, seen - 12) : seen])
    if seen == len(log.steps):
        then = "then the model's processes do not end without more steps"
    else:
        then = f"then the code did, and the model cannot do\n        {log.steps[seen]}"
    (folder / f"seed_{log.seed}.log").write_text("\n".join(map(str, log.steps)) + "\n", encoding="utf-8")
    return f"seed {log.seed}, {seen} of {len(log.steps)} steps:\n{before}\n    {then}"


def replay(each: Replay, logs_folder: Path) -> Outcome:
    outcome = Outcome(each.title)
    begin = time.monotonic()
    path = logs_folder / f"{each.model.stem}.{each.name}.log"
    if not path.exists():
        outcome.wrong = f"{each.program} wrote no {path.name}: it has no such scenario, or failed"
        return outcome
    logs = Log.read(path)
    names = names_of(each.model)
    # Steps of another protocol's model alone are that model's: of a timeline, say, that this one stands on.
    others = {name for model in MODELS.glob("*.pml") for name in names_of(model)} - set(names)
    for log in logs:
        log.steps = [step for step in log.steps if step.name not in others]
    outcome.names = {step.name for log in logs for step in log.steps}
    if unknown := outcome.names - set(names):
        outcome.wrong = f"{each.model.name} has no STEP for {', '.join(sorted(unknown))}"
        return outcome
    folder = WORK / each.title.replace(" ", "_")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in (each.model, MODELS / "replay.inc"):
        shutil.copy(source, folder)
    write_logs(folder, names, logs)
    steps = [
        ["spin", "-DREPLAY", *(f"-D{word}" for word in each.bound), "-a", each.model.name],
        [*COMPILER, "-DSAFETY", "-DMEMLIM=1500", "-o", "pan", "pan.c"],
        # With -E it is no error that processes stand still: those of logs that are no execution do.
        ["./pan", f"-m{DEPTH}", "-E", "-w21"],
    ]
    output, outcome.wrong = in_turn(steps, folder, LIMIT_S)
    if outcome.wrong:
        return outcome
    if TRUNCATED.search(output):
        outcome.wrong = "the search was cut short: too deep, or out of memory"
        return outcome
    if not re.search(r"errors: 0$", output, re.M):
        outcome.wrong = f"the model failed: {output.strip()[:400]}"
        return outcome
    accepted = {int(number) for number in re.findall(r"^accepted (\d+)$", output, re.M)}
    seen = dict.fromkeys(range(len(logs)), 0)
    seen |= {int(log): int(steps) for log, steps in re.findall(r"^seen (\d+) (\d+)$", output, re.M)}
    outcome.logs, outcome.steps = len(logs), sum(len(log.steps) for log in logs)
    refused = [(log, seen[i]) for i, log in enumerate(logs) if i not in accepted]
    if refused:
        log, steps = min(refused, key=lambda pair: pair[1])
        outcome.wrong = (
            f"{len(refused)} of {len(logs)} logs are no execution; {objection(log, steps, folder)}"
        )
    outcome.seconds = time.monotonic() - begin
    return outcome


def run_programs(replays: list[Replay], build: Path, logs: Path) -> list[str]:
    wrong = []
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    for program in sorted({each.program for each in replays}):
        path = next((p for p in sorted(build.rglob(program)) if p.is_file()), None)
        if path is None:
            wrong.append(f"{program} is not in {build}: build the preset sim")
            continue
        done = subprocess.run([path, "-tc=replayed:*"], env={**os.environ, "HEDDLE_STEP_LOGS": str(logs)},
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)  # fmt: skip
        if done.returncode != 0:
            wrong.append(f"{program} failed: {(done.stdout + done.stderr)[-2000:]}")
    return wrong


def silent_steps(outcomes: list[tuple[Replay, Outcome]]) -> list[str]:
    """Steps of a model that no log has: nothing ties them to the code."""
    said: dict[Path, set[str]] = {}
    for each, outcome in outcomes:
        said.setdefault(each.model, set()).update(outcome.names)
    wrong = []
    for model, names in said.items():
        for number, line in enumerate(model.read_text(encoding="utf-8").splitlines(), 1):
            wrong += [f"{model.name}:{number}: no log has {name}" for name in STEP.findall(line)
                      if name not in names and NOT_REPLAYED not in line]  # fmt: skip
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="models whose names contain one of these")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sim", help="where the programs lie")
    parser.add_argument("--json", type=Path, help="write the outcome of each scenario to this file")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="searches at once")
    arguments = parser.parse_args()
    replays = [each for model in sorted(MODELS.glob("*.pml")) for each in Replay.read(model)
               if not arguments.words or any(word in model.stem for word in arguments.words)]  # fmt: skip
    if arguments.list:
        print("\n".join(f"{each.title}: {each.program} {' '.join(each.bound)}" for each in replays))
        return 0
    logs = WORK / "logs"
    told = {line: [line] for line in run_programs(replays, arguments.build, logs)}
    outcomes = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for each, outcome in zip(replays, pool.map(replay, replays, repeat(logs)), strict=True):
            outcomes.append((each, outcome))
            told[outcome.title] = [outcome.wrong] if outcome.wrong else []
            print(f"{outcome.title:<40} {outcome.logs:>5} logs {outcome.steps:>6} steps"
                  f" {outcome.seconds:6.1f} s  {'error' if outcome.wrong else 'ok'}", flush=True)  # fmt: skip
    told |= {line: [line] for line in silent_steps(outcomes)}
    for lines in told.values():
        for line in lines:
            print(f"error: {line}")
    return tell_verdict(told, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
