"""Run removals of tests/broken beside each other, each in a layer of its own over one built tree.

usage: broken_layers.py TREE LOG EACH PATCH TEST ...      (in a layer: tools/broken.py --jobs starts it)

The programs are built once, in build/broken/base. A removal gets a mount namespace in which an overlay lies
over that folder: the patch, what is compiled again and what a test writes are in memory and end with it, so
that each removal begins with the built tree, under the same path. That takes Linux and root. Where the kernel
has no overlays, each layer is a whole copy of the folder, in memory. Every named test first has to pass in a
layer without a removal, beside the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from broken_copy import PASSED, REPLAYED, Copy
from removals import IN_PRESETS, ROOT, Removal, apply_without_git, kind_of

# As the machine's compiler has it: a warning of another one is no verdict of a test.
OPTIONS = ("-DCMAKE_COMPILE_WARNING_AS_ERROR=OFF", f"-DHEDDLE_PYTHON={sys.executable}")
MADE = ("build", "dist", "shared")  # folders of the tree that are no sources, beside those of a leading dot
# $1 is the tree, $2 a folder in which each namespace has its own memory, $3 how it lies over the tree.
MOUNT = """set -e
mount -t tmpfs -o size=75% layer "$2"
mkdir "$2/changed" "$2/work" "$2/tmp"
if [ "$3" = overlay ]; then
  mount -t overlay -o "lowerdir=$1,upperdir=$2/changed,workdir=$2/work" layer "$1"
else
  cp -a "$1/." "$2/changed"
  mount --bind "$2/changed" "$1"
fi
ulimit -c 0
shift 3
exec "$@"
"""
OVERLAY, COPIED = "overlay", "copy"
NOT_RUN, NOTICED, WRONG = "not run", "noticed", "wrong"


@dataclass
class Outcome:
    """Of one removal, or of one test without a removal."""

    verdict: str = NOT_RUN
    wrong: list[str] = field(default_factory=list)  # or why it was not run
    seconds: float = 0.0
    building_s: float = 0.0


def preset_of(test: Sequence[str]) -> tuple[str, str]:
    """The preset and the folder of its build."""
    kind = "sim" if kind_of(test) == "replay" else kind_of(test)
    preset, folder, _ = IN_PRESETS.get(kind, ("release", "build/release", {}))
    return preset, folder


def files_of(root: Path) -> list[str]:
    """What a build and a test read there, without git, which the machine may not have."""
    found = []
    for at, folders, names in os.walk(root):
        is_top = Path(at) == root
        folders[:] = [each for each in folders if not each.startswith(".") and each != "__pycache__"
                      and not (is_top and each in MADE)]  # fmt: skip
        found += [os.path.relpath(os.path.join(at, name), root) for name in names
                  if not (is_top and name.startswith("."))]  # fmt: skip
    return sorted(found)


def mirror(root: Path, tree: Path) -> None:
    """Makes the tree's sources equal to the root's; unchanged files keep their times, so that builds stay."""
    wanted = files_of(root)
    for name in wanted:
        source, target = root / name, tree / name
        data = source.read_bytes()
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(source.stat().st_mode)
    for name in set(files_of(tree)) - set(wanted):
        (tree / name).unlink()


def propagation() -> str:
    """Under which no mount of a namespace is seen outside. Root may be no mount itself, as after chroot."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return "private" if " shared:" in mounts else "unchanged"


def namespace() -> list[str]:
    """The command before one that gets mounts and processes of its own, which end with it."""
    return ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", propagation(),
            "--pid", "--fork", "--kill-child", "--mount-proc"]  # fmt: skip


class Layers:
    """One built tree, and removals that are run in layers over it."""

    def __init__(self, jobs: int, root: Path = ROOT, folder: Path = ROOT / "build" / "broken") -> None:
        self.jobs, self.root, self.way = jobs, root, OVERLAY
        self.tree, self.scratch, self.logs = folder / "base", folder / "layer", folder / "logs"
        cores = len(os.sched_getaffinity(0))
        self.each = max(2, cores // jobs)  # processes of a layer's compiler; the layers do not all compile
        for path in (self.tree, self.scratch, self.logs):
            path.mkdir(parents=True, exist_ok=True)

    def in_layer(self, command: Sequence[str], log: Path) -> subprocess.CompletedProcess[str]:
        """What it started ends with it, and with this process, however that ends."""
        words = [*namespace(), "/bin/sh", "-c", MOUNT, "layer",
                 str(self.tree), str(self.scratch), self.way, *command]  # fmt: skip
        environment = os.environ | {"TMPDIR": str(self.scratch / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
        with log.open("w", encoding="utf-8") as out, subprocess.Popen(
            words, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=out, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate()
            finally:
                with contextlib.suppress(ProcessLookupError):  # all of it has ended
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(words, process.returncode, said, log.read_text("utf-8", "replace"))

    def refused(self) -> str:
        """Why there are no layers here. Chooses the way, and says so where it is the slower one."""
        said = ""
        for self.way in (OVERLAY, COPIED):
            try:
                done = self.in_layer(["true"], self.logs / "layer.log")
            except FileNotFoundError:
                return "no layers here: there is no program setpriv (of util-linux)"
            if done.returncode == 0:
                if said:
                    print(f"no overlays here, each layer is a copy: {said}", flush=True)
                return ""
            said = done.stderr.strip()
        return f"no layers here, which take Linux and root: {said}"

    def build(self, tests: Sequence[Sequence[str]]) -> str:
        """Builds the programs of the tests, each folder beside the others. Says what is wrong."""
        if not tests:
            return ""
        mirror(self.root, self.tree)
        models, here = self.tree / "build" / "models", self.root / "build" / "models"
        if here.exists() and not models.exists():
            models.parent.mkdir(exist_ok=True)
            models.symlink_to(here)
        programs: dict[str, set[str]] = {}
        presets: dict[str, set[str]] = {}
        for test in tests:
            preset, folder = preset_of(test)
            programs.setdefault(folder, set()).add(test[-2])
            presets.setdefault(folder, set()).add(preset)
        # The preset `cuda` adds to what `release` makes in that folder.
        chosen = {folder: min(names, key=lambda name: name == "release") for folder, names in presets.items()}
        with ThreadPoolExecutor(len(chosen)) as pool:
            done = pool.map(lambda folder: self.made(chosen[folder], folder, programs[folder]), chosen)
            return "\n".join(filter(None, done))

    def made(self, preset: str, folder: str, programs: set[str]) -> str:
        begin = time.monotonic()
        log = self.logs / f"build_{preset}.log"
        log.write_bytes(b"")
        copy = Copy(log, self.tree, each=len(os.sched_getaffinity(0)))
        try:
            copy.must(["cmake", "--preset", preset, *OPTIONS])
            copy.must(["cmake", "--build", folder, "-j", str(copy.each), "--target", *sorted(programs)])
        except RuntimeError as error:
            return f"preset {preset}: {error}: see {log}"
        print(f"preset {preset}: {len(programs)} programs in {time.monotonic() - begin:.0f} s", flush=True)
        return ""

    def judged(self, name: str, patch: Path | None, tests: Sequence[Sequence[str]]) -> Outcome:
        """NOTICED: every test failed as a test fails. NOT_RUN: its layer said nothing of them."""
        begin = time.monotonic()
        log = self.logs / f"{name}.log"
        done = self.in_layer(
            [sys.executable, str(ROOT / "tools" / "broken_layers.py"), str(self.tree), str(log.resolve()),
             str(self.each), str(patch or ""), *map(shlex.join, tests)],
            self.logs / f"{name}.errors",
        )  # fmt: skip
        seconds = round(time.monotonic() - begin, 1)
        if done.returncode != 0:
            return Outcome(
                NOT_RUN, [f"its layer ended with {done.returncode}: {done.stderr[-1000:]}"], seconds
            )
        told = json.loads(done.stdout)
        wrong = told["wrong"]
        return Outcome(WRONG if wrong else NOTICED, wrong, seconds, round(told["building_s"], 1))

    def unchanged(self, number: int, test: Sequence[str]) -> Outcome:
        """NOTICED: it fails without a removal, or was not run as a test."""
        outcome = self.judged(f"unchanged_{number}", None, [test])
        passes = [f"{shlex.join(test)}: {word}" for word in (PASSED, REPLAYED)]
        if outcome.verdict == WRONG and outcome.wrong[0] in passes:
            return Outcome("passes", [], outcome.seconds)
        if outcome.verdict == NOT_RUN:
            return outcome
        said = "; ".join(outcome.wrong) or "it fails"
        return Outcome(WRONG, [f"{shlex.join(test)}, without a removal: {said}"], outcome.seconds)


class Report:
    """What came out so far, printed and in a file, which stays when the run is stopped."""

    def __init__(self, file: Path | None, left_out: dict[str, str]) -> None:
        self.file, self.left_out = file, left_out
        self.removals: dict[str, Outcome] = {}
        self.tests: dict[str, Outcome] = {}
        self.lock = threading.Lock()

    def add(self, name: str, outcome: Outcome, to: dict[str, Outcome]) -> None:
        with self.lock:
            to[name] = outcome
            building = f", {outcome.building_s:5.1f} s of it building" if outcome.building_s else ""
            print(f"{name:<50} {outcome.seconds:6.1f} s{building}  {outcome.verdict}", flush=True)
            for line in outcome.wrong:
                print(f"    {line}", flush=True)
            self.write()

    def write(self) -> None:
        if self.file:
            told = {"removals": {name: asdict(each) for name, each in self.removals.items()},
                    "unchanged": {name: asdict(each) for name, each in self.tests.items()},
                    "left out": self.left_out}  # fmt: skip
            part = self.file.with_name(self.file.name + ".part")
            part.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
            part.replace(self.file)

    def end(self) -> int:
        counts = {verdict: sum(each.verdict == verdict for each in self.removals.values())
                  for verdict in (NOTICED, WRONG, NOT_RUN)}  # fmt: skip
        failing = [each.wrong[0] for each in self.tests.values() if each.verdict == WRONG]
        for line in failing:
            print(f"error: {line}")
        print(f"{counts[NOTICED]} noticed, {counts[WRONG]} wrong, {counts[NOT_RUN]} not run; "
              f"{len(failing)} of {len(self.tests)} tests fail without a removal")  # fmt: skip
        if counts[WRONG] or failing:
            return 1
        return 3 if counts[NOT_RUN] else 0


def longest_first(removals: Sequence[Removal], known: dict[str, Outcome]) -> list[Removal]:
    """By what an earlier run took; else headers first, from which most is compiled."""

    def cost(removal: Removal) -> tuple[float, bool, int]:
        seconds = known[removal.name].seconds if removal.name in known else 0.0
        return -seconds, not any(name.endswith(".h") for name in removal.files()), -len(removal.tests)

    return sorted(removals, key=cost)


def run(layers: Layers, removals: Sequence[Removal], report: Report, until: float | None) -> str:
    """Judges the removals; hands none out after `until`, of time.monotonic(). Says what is wrong."""
    if refused := layers.refused():
        return refused
    tests = {shlex.join(test): test for removal in removals for test in removal.tests}
    if wrong := layers.build(list(tests.values())):
        return wrong
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"built with {used.ru_utime + used.ru_stime:.0f} s of processors", flush=True)

    def is_over() -> bool:
        return until is not None and time.monotonic() >= until

    def check(number: int, name: str) -> Outcome:
        if is_over():
            return Outcome(NOT_RUN, ["there was no time to see its test pass"])
        outcome = layers.unchanged(number, tests[name])
        report.add(name, outcome, report.tests)
        return outcome

    def judge(removal: Removal) -> None:
        outcomes = [checked[shlex.join(test)].result() for test in removal.tests]
        failing = [line for outcome in outcomes for line in outcome.wrong]
        if failing:
            report.add(removal.name, Outcome(NOT_RUN, failing), report.removals)
        elif not is_over():
            outcome = layers.judged(removal.name, removal.path, removal.tests)
            report.add(removal.name, outcome, report.removals)

    # What waits for a test waits for one that was begun before.
    checked: dict[str, Future[Outcome]] = {}
    with ThreadPoolExecutor(layers.jobs) as pool:
        checked |= {name: pool.submit(check, number, name) for number, name in enumerate(tests)}
        for done in [pool.submit(judge, each) for each in longest_first(removals, report.removals)]:
            done.result()
    return ""


def main(tree: str, log: str, each: str, patch: str, *tests: str) -> int:
    """In the layer."""
    removal = Removal(Path(patch).stem, Path(patch), "", [shlex.split(test) for test in tests])
    copy = Copy(Path(log), Path(tree), int(each))
    copy.log.write_bytes(b"")
    try:
        if patch:
            apply_without_git(removal, copy.tree)
        wrong = copy.wrong(removal)
    except ValueError as error:
        wrong = [f"does not apply: {error}"]
    print(json.dumps({"wrong": wrong, "building_s": copy.building_s}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
