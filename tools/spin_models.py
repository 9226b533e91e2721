"""Check every model of models/ with spin, and demand that spin objects to each removal of models/broken.

usage: spin_models.py [--long] [--list] [--jobs N] [--json FILE] [--document] [WORD ...]

Without words all models are checked and all removals tried; with words those whose file name contains one of
them. --long searches the larger bounds as well. --document writes the table of models/README.md.
models/README.md says what the heads of a model and of a removal look like.
Exits with 1 when spin finds an error in a model, when a search was cut short, when a statement of a model is
reached by none of its runs, when a removal is not noticed, or when the table of the README is out of date.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from verdict import tell_verdict

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
WORK = ROOT / "build" / "spin"
# Room for a deep path costs a search time before it begins, which is most of what many take. Few paths are
# 1,000 steps long; one longer than this is an error.
DEPTH, LONG_DEPTH = 20_000, 20_000_000
MEMORY_MIB, LONG_MEMORY_MIB = 1500, 6000
LIMIT_S, LONG_LIMIT_S = 300, 3600
# What a run looks for: how the verifier is compiled, and what it is told.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "safety": (("-DSAFETY",), ()),
    "ends": (("-DNP",), ("-l",)),
    "ends_fairly": (("-DNP", "-DNFAIR=3"), ("-l", "-f")),
}
# Most searches take less time than the compilation of their verifier, so that optimising it does not pay.
# Clang needs half of GCC's time for it, which a machine without Clang has to do with; and less without tables
# for who unwinds the stack.
COMPILER = (os.environ.get("HEDDLE_SPIN_COMPILER", "clang-16"), "-O0", "-w",
            "-fno-asynchronous-unwind-tables", "-DVECTORSZ=4096")  # fmt: skip
LONG_COMPILED = ("-O1", "-DCOLLAPSE")  # five seconds of compilation halve what may take minutes
FOUND = re.compile(r"^pan:\d+: (assertion violated|invalid end state|non-progress cycle)", re.M)
TRUNCATED = re.compile(
    r"^(?:error: max search depth|pan: (?:out of memory|reached -DMEMLIM)|.*-DMEMLIM|.*VECTORSZ)", re.M
)
UNREACHED = re.compile(r"^\t\S+?:(\d+), state (\d+), \"(.*)\"$", re.M)
LATER = "// reached in long runs only"
BEGIN, END = "<!-- written by tools/spin_models.py --document -->", "<!-- end -->"


@dataclass
class Run:
    """One search: of which model, for what, and within which bound."""

    name: str
    kind: str
    bound: list[str]
    is_long: bool

    @staticmethod
    def read(source: str, path: Path) -> "list[Run]":
        runs = []
        for word, name, rest in re.findall(r"^//   (Run|Long) (\w+): (.+)$", source, re.M):
            kind, *bound = rest.split()
            if kind not in KINDS:
                raise ValueError(
                    f"{path.name}: run {name} is of kind {kind}, and there are {', '.join(KINDS)}"
                )
            runs.append(Run(name, kind, bound, word == "Long"))
        if not runs:
            raise ValueError(f"{path.name}: the head has no line 'Run name: kind BOUND=n'")
        return runs


@dataclass
class Model:
    path: Path
    source: str
    runs: list[Run]

    @staticmethod
    def read(path: Path) -> "Model":
        source = path.read_text(encoding="utf-8")
        for file in re.findall(r"(?:src|agx_guard)/[\w/]+\.\w+", source):
            if not (ROOT / file).exists():
                raise ValueError(f"{path.name}: {file} does not exist")
        for word in ("Models", "Safety", "Liveness", "Fairness", "Bound", "Left out"):
            if f"\n//   {word} " not in source:
                raise ValueError(f"{path.name}: the head says nothing under '{word}'")
        return Model(path, source, Run.read(source, path))


@dataclass
class Removal:
    """One patch: what it takes away, in which runs spin must object, and how."""

    path: Path
    removes: str
    runs: list[str]
    found: str

    @property
    def model(self) -> str:
        return str(
            re.findall(r"^\+\+\+ b/models/(\w+)\.pml$", self.path.read_text(encoding="utf-8"), re.M)[0]
        )

    @staticmethod
    def read(path: Path) -> "Removal":
        header = path.read_text(encoding="utf-8").split("\ndiff --git ", 1)[0]
        said = {key: re.findall(rf"^{key}: (.+)$", header, re.M) for key in ("Removes", "Run", "Found")}
        if len(said["Removes"]) != 1 or not said["Run"] or len(said["Found"]) != 1:
            raise ValueError(f"{path.name}: the header needs 'Removes:', 'Run:' and 'Found:'")
        return Removal(path, said["Removes"][0], said["Run"], said["Found"][0])


@dataclass
class Outcome:
    title: str
    seconds: float = 0.0
    states: int = 0
    depth: int = 0
    found: str = ""  # what spin objects to
    wrong: str = ""  # why this is not as it should be
    unreached: set[tuple[str, int, int, str]] = field(default_factory=set)


def command(words: Sequence[str], folder: Path, limit_s: float) -> tuple[int, str]:
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return -1, f"did not end within {limit_s:.0f} s"
    return done.returncode, done.stdout + done.stderr


def in_turn(steps: Sequence[Sequence[str]], folder: Path, limit_s: float) -> tuple[str, str]:
    """Runs spin, the compiler and the verifier, each with a log: the last output, and what is wrong."""
    output = ""
    for step in steps:
        status, output = command(step, folder, limit_s)
        (folder / f"{Path(step[0]).name}.log").write_text(output, encoding="utf-8")
        if status != 0 or (step[0] == "spin" and "Error:" in output):
            return output, f"{' '.join(step)}: {output.strip()[-400:]}"
    return output, ""


def unreached_in(output: str) -> set[tuple[str, int, int, str]]:
    """The statements that a search did not reach: process, line, state, text. Ends of processes aside."""
    found = set()
    for block in re.split(r"^unreached in ", output, flags=re.M)[1:]:
        process = block.split("\n", 1)[0]
        if process.startswith("proctype") or process.startswith("init"):
            for line, state, text in UNREACHED.findall(block):
                if text != "-end-":
                    found.add((process, int(line), int(state), text))
    return found


def search(title: str, source: Path, run: Run) -> Outcome:
    """Generates, compiles and runs the verifier of one run."""
    begin = time.monotonic()
    folder = WORK / title.replace(" ", "_")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in (source, MODELS / "replay.inc"):
        shutil.copy(file, folder / file.name)
    outcome = Outcome(title)
    compiled, told = KINDS[run.kind]
    limit = LONG_LIMIT_S if run.is_long else LIMIT_S
    memory = LONG_MEMORY_MIB if run.is_long else MEMORY_MIB
    depth = LONG_DEPTH if run.is_long else DEPTH
    steps = [
        ["spin", *(f"-D{word}" for word in run.bound), "-a", source.name],
        [*COMPILER, f"-DMEMLIM={memory}", *(LONG_COMPILED if run.is_long else ()), *compiled,
         "-o", "pan", "pan.c"],
        ["./pan", f"-m{depth}", f"-w{26 if run.is_long else 21}", *told],
    ]  # fmt: skip
    output, outcome.wrong = in_turn(steps, folder, limit)
    if outcome.wrong:
        return outcome
    outcome.seconds = time.monotonic() - begin
    if found := FOUND.search(output):
        outcome.found = found.group(1)
    errors = re.search(r"errors: (\d+)", output)
    states = re.search(r"^ *(\d+) states, stored", output, re.M)
    reached = re.search(r"depth reached (\d+)", output)
    if errors is None or states is None or reached is None:
        outcome.wrong = f"the verifier's report was not understood: {output.strip()[-400:]}"
        return outcome
    outcome.states, outcome.depth = int(states.group(1)), int(reached.group(1))
    if TRUNCATED.search(output):
        outcome.wrong = "the search was cut short: too deep, or out of memory"
    elif errors.group(1) != "0" and not outcome.found:
        outcome.wrong = "an error of an unknown kind"
    outcome.unreached = unreached_in(output)
    return outcome


def check_run(model: Model, run: Run) -> Outcome:
    outcome = search(f"{model.path.stem} {run.name}", model.path, run)
    if outcome.found and not outcome.wrong:
        folder = WORK / outcome.title.replace(" ", "_")
        trail = ["spin", *(f"-D{word}" for word in run.bound), "-t", "-p", "-g", model.path.name]
        _, shown = command(trail, folder, LIMIT_S)
        (folder / "trail.log").write_text(shown, encoding="utf-8")
        outcome.wrong = f"{outcome.found}; the way there: {folder.relative_to(ROOT)}/trail.log"
    return outcome


def check_removal(removal: Removal, models: dict[str, Model]) -> Outcome:
    """Spin objects in each named run; the kind of the objection is the one that the patch expects."""
    total = Outcome(f"broken {removal.path.stem}")
    model = models[removal.model]
    tree = WORK / "broken" / removal.path.stem
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "models").mkdir(parents=True)
    shutil.copy(model.path, tree / "models")
    # Git must not take the tree for a folder of this repository.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    applied = subprocess.run(["git", "apply", str(removal.path)], cwd=tree, env=environment,
                             capture_output=True, text=True, check=False)  # fmt: skip
    if applied.returncode != 0:
        total.wrong = f"does not apply: {applied.stderr.strip()}"
        return total
    for name in removal.runs:
        run = next((each for each in model.runs if each.name == name), None)
        if run is None:
            total.wrong = f"{model.path.name} has no run {name}"
            return total
        title = f"broken {removal.path.stem} {name}"
        outcome = search(title, tree / "models" / model.path.name, run)
        total.seconds += outcome.seconds
        total.states += outcome.states
        total.found = outcome.found
        if outcome.wrong:
            total.wrong = outcome.wrong
        elif not outcome.found:
            total.wrong = f"run {name} found nothing"
        elif outcome.found != removal.found:
            total.wrong = f"run {name} found '{outcome.found}', not '{removal.found}'"
    return total


def lines_of_one_place(source: str) -> set[int]:
    """The lines of processes, and of inlines that stand in one place: of others the verifier has copies."""
    blocks: dict[str, tuple[int, list[str]]] = {}
    lines = source.splitlines()
    for first, line in enumerate(lines, 1):
        if head := re.match(r"(?:inline|proctype) (\w+)|init", line):
            count = next((i for i, text in enumerate(lines[first - 1 :], 1) if text.endswith("}")
                          and (i == 1 or text == "}")), 1)  # fmt: skip
            blocks[head.group(1) or "init"] = (first, lines[first - 1 : first - 1 + count])

    def copies(name: str) -> int:
        if lines[blocks[name][0] - 1].startswith(("proctype", "init")):
            return 1
        calls = {user: sum(len(re.findall(rf"\b{name}\(", text)) for text in body[1:])
                 for user, (_, body) in blocks.items() if user != name}  # fmt: skip
        return sum(times * copies(user) for user, times in calls.items() if times)

    found: set[int] = set()
    for name, (first, body) in blocks.items():
        if copies(name) == 1:
            found.update(range(first, first + len(body)))
    return found


def idle_statements(model: Model, outcomes: dict[str, Outcome]) -> list[str]:
    """Statements that no run of the model reaches: they would show nothing."""
    of_runs = [outcomes[f"{model.path.stem} {run.name}"] for run in model.runs if not run.is_long]
    if any(each.wrong for each in of_runs):
        return []
    lines, once = model.source.splitlines(), lines_of_one_place(model.source)
    common = {each for each in set.intersection(*(run.unreached for run in of_runs))
              if each[1] in once and LATER not in lines[each[1] - 1]}  # fmt: skip
    return [
        f"{model.path.name}:{line}: no run reaches '{text}' ({who})" for who, line, _, text in sorted(common)
    ]


def table(models: Iterable[Model], removals: Sequence[Removal], outcomes: dict[str, Outcome]) -> list[str]:
    rows = ["| model | run | looks for | bound | states | depth | removals that it notices |",
            "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for model in models:
        for run in model.runs:
            outcome = outcomes.get(f"{model.path.stem} {run.name}")
            if outcome is None:
                continue
            noticed = [r.path.stem for r in removals if r.model == model.path.stem and run.name in r.runs]
            rows.append(
                f"| `{model.path.name}` | {run.name}{' (long)' if run.is_long else ''} | {run.kind} "
                f"| {', '.join(run.bound) or 'as in the head'} | {outcome.states:,} | {outcome.depth:,} "
                f"| {', '.join(f'`{name}`' for name in noticed) or '-'} |"
            )
    return rows


def is_current(written: Sequence[str], now: Sequence[str]) -> bool:
    """Rows name the same runs, bounds and removals, with counts alike: another spin may count otherwise."""
    old, new = ([row.split("|") for row in rows if "(long)" not in row][2:] for rows in (written, now))
    if len(old) != len(new):
        return False
    for a, b in zip(old, new, strict=True):
        counts = [int(row[5].replace(",", "")) for row in (a, b)]
        if a[:5] + a[7:] != b[:5] + b[7:] or max(counts) > 2 * min(counts):
            return False
    return True


def document(now: list[str], write: bool) -> list[str]:
    """What is wrong with the README's table, after writing it if asked to."""
    path = MODELS / "README.md"
    before, rest = path.read_text(encoding="utf-8").split(BEGIN, 1)
    written, after = rest.split(END, 1)
    if write:
        path.write_text(f"{before}{BEGIN}\n" + "\n".join(now) + f"\n{END}{after}", encoding="utf-8")
        return []
    if is_current(written.strip().splitlines(), now):
        return []
    return ["models/README.md: the table is out of date; run tools/spin_models.py --document"]


def show(outcome: Outcome) -> None:
    verdict = "error" if outcome.wrong else outcome.found or "ok"
    print(f"{outcome.title:<58} {outcome.seconds:6.1f} s {outcome.states:>10,} states  {verdict}", flush=True)
    if outcome.wrong:
        print(f"    error: {outcome.wrong}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="models and removals whose names contain one of these")
    parser.add_argument("--long", action="store_true", help="also the larger bounds")
    parser.add_argument("--list", action="store_true", help="name the runs and the removals")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="searches at once")
    parser.add_argument("--json", type=Path, help="write the outcome of each search to this file")
    parser.add_argument("--document", action="store_true", help="write the table of models/README.md")
    arguments = parser.parse_args()
    models = {path.stem: Model.read(path) for path in sorted(MODELS.glob("*.pml"))}
    removals = [Removal.read(path) for path in sorted((MODELS / "broken").glob("*.patch"))]

    def wanted(name: str) -> bool:
        return not arguments.words or any(word in name for word in arguments.words)

    runs = [(model, run) for model in models.values() if wanted(model.path.stem) for run in model.runs
            if arguments.long or not run.is_long]  # fmt: skip
    chosen = [removal for removal in removals if wanted(removal.path.stem)]
    if arguments.list:
        for model, run in runs:
            print(f"{model.path.stem} {run.name}: {run.kind} {' '.join(run.bound)}")
        for removal in chosen:
            print(f"broken {removal.path.stem}: {removal.removes}")
        return 0
    outcomes: dict[str, Outcome] = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        tasks = [pool.submit(check_run, model, run) for model, run in runs]
        tasks += [pool.submit(check_removal, removal, models) for removal in chosen]
        for task in as_completed(tasks):
            outcome = task.result()
            outcomes[outcome.title] = outcome
            show(outcome)
    wrong = [
        line for name, model in models.items() if wanted(name) for line in idle_statements(model, outcomes)
    ]
    if not arguments.words:
        wrong += document(table(models.values(), removals, outcomes), arguments.document)
    for line in wrong:
        print(f"error: {line}")
    told = {each.title: [each.wrong] if each.wrong else [] for each in outcomes.values()}
    return tell_verdict(told | {line: [line] for line in wrong}, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
