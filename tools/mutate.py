"""Change one line of the library at a time, in a copy of the tree, and ask whether its tests notice.

usage: mutate.py [--count N] [--seed N] [--only WORD ...] [--more FILE | --again FILE [--tsan]] [--jobs N]
                 [--seconds S] [--json FILE] [--packed DIR] [--list]

A mutation weakens a memory order, ends a lock at once, flips a comparison, removes a notification, exchanges
"and" and "or", or counts one too many (tools/mutations.py). The seed draws from all of src/base, src/runtime
and src/batch; --only keeps the files whose path contains a word, or one of several. The tests of the file's
folder are built, as the preset `sim` has them, and run in order until one fails: the mutation is killed. One
that no test notices survived; one that does not compile counts for nothing; one of tools/mutate_explained.tsv
that survives is explained. Before the first mutation the workers run the tests unchanged, all at once: they
have to pass, in one of three tries. A program that failed once kills nothing until it has failed twice. A
mutated program that takes five times as long as the slowest unchanged run, and a minute, hangs, which kills,
too.

--jobs workers take mutations from one list, each in a copy of the tree and of the build of its own. After
--seconds no more are handed out. Those before are a fair sample all the same, and their score is printed with
its 95 % interval. --more goes on with the draw of an earlier file of --json, and --again asks about its
survivors once more; both count what else is there. --tsan asks the folder's tests under the thread sanitizer
about those survivors that are an order or a lock: the simulation is sequentially consistent, and none of its
steps is between a lock's end and what the lock guards. Exits with 1 when the tests fail unchanged; survivors
are findings, and no failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import mutate_pack
from mutations import KINDS, Mutation, Place, choose, explanations, mutations_of, summary

ROOT = Path(__file__).resolve().parent.parent
SIM = Path("build/sim")

# What these programs are made of. CMake asks for no library of a folder that is not here.
SOURCES = ("CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src/base", "src/ir", "src/plan",
           "src/device", "src/drivers/sim", "src/runtime", "src/batch", "tests/*.h", "tests/doctest_main.cpp",
           "tests/sanitizers", "tools/find_file.py", "tools/watched.py")  # fmt: skip
# A change compiles alone, and a warning about it is no verdict of a test.
OPTIONS = ("-DHEDDLE_UNITY=OFF", "-DCMAKE_COMPILE_WARNING_AS_ERROR=OFF", "-DHEDDLE_CCACHE=",
           f"-DHEDDLE_PYTHON={sys.executable}")  # fmt: skip
ERROR = re.compile(r"error|ERROR|==\d+==|TEST CASE|values:|logged:")
SAID = 20  # lines
TIMES = 5  # as long as the slowest unchanged run of the program, and a program hangs


def said(what: str, log: Path) -> str:
    """A sentence, and what a build or a test wrote of its errors."""
    lines = [line for line in log.read_text("utf-8", errors="replace").splitlines() if ERROR.search(line)]
    return "\n".join([f"{what}: see {log}", *lines[:SAID]])


@dataclass
class Build:
    """One way to make and run the tests."""

    name: str
    out: Path  # of a copy, where the programs lie
    configure: Sequence[str]
    make: Sequence[str]
    programs: dict[str, tuple[str, ...]]  # that test a folder, the quickest first
    launcher: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    # Of a process that never stops asking for more, so that it harms no other: a file in blocks of 512 bytes,
    # no core, memory in KiB.
    limits: str = "ulimit -f 2097152; ulimit -c 0; ulimit -v 33554432"

    def programs_of(self, path: str) -> tuple[str, ...]:
        return next(names for folder, names in self.programs.items() if path.startswith(folder + "/"))


SIM = Build(
    "sim",
    Path("build/sim"),
    ("cmake", "--preset", "sim", *OPTIONS),
    ("ninja", "-C", "build/sim"),
    {f"src/{name}": (f"{name}_test", f"{name}_sim_test") for name in ("base", "runtime", "batch")},
)
# The compiler of the machine, where the preset tsan wants clang. Its run time cannot place its memory under
# recent kernels' address randomisation.
TSAN = Build(
    "tsan",
    Path("build/tsan"),
    ("cmake", "-B", "build/tsan", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DHEDDLE_METAL=OFF",
     "-DHEDDLE_SANITIZE=thread", *OPTIONS),
    ("ninja", "-C", "build/tsan"),
    {f"src/{name}": (f"{name}_test",) for name in ("base", "runtime", "batch")},
    ("setarch", "-R"),
    {"TSAN_OPTIONS": "halt_on_error=1 atexit_sleep_ms=100 suppressions=tests/sanitizers/tsan.supp"},
    "ulimit -f 2097152; ulimit -c 0",  # it reserves terabytes
)  # fmt: skip
TSAN_KINDS = ("order", "lock")


@dataclass
class Project:
    """A tree, and how its programs are made and tested."""

    root: Path = ROOT
    folder: Path = ROOT / "build" / "mutate"  # of the copies
    sources: Sequence[str] = SOURCES
    sim: Build = field(default_factory=lambda: SIM)
    tsan: Build = field(default_factory=lambda: TSAN)
    least_limit_s: float = 60.0  # of one program

    def files(self) -> list[str]:
        listed = [path for pattern in self.sources for path in self.root.glob(pattern)]
        below = [each for path in listed for each in (path.rglob("*") if path.is_dir() else [path])]
        return sorted(str(path.relative_to(self.root)) for path in below
                      if path.is_file() and path.suffix != ".pyc")  # fmt: skip

    def mutations(self, only: Sequence[str] = ("",)) -> list[Mutation]:
        found: list[Mutation] = []
        for name in self.files():
            stem, dot, suffix = name.rpartition(".")
            is_ours = any(name.startswith(folder + "/") for folder in self.sim.programs)
            is_product = not stem.endswith(("_test", "_fixture", "_bench")) and dot and suffix in ("cpp", "h")
            if is_ours and is_product and any(word in name for word in only):
                found += mutations_of(name, (self.root / name).read_text(encoding="utf-8"))
        return found


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below the folder, with its time and size."""
    found: dict[str, tuple[int, int]] = {}
    for at, _, names in os.walk(folder):
        for name in names:
            known = os.stat(os.path.join(at, name))
            found[os.path.relpath(os.path.join(at, name), folder)] = (known.st_mtime_ns, known.st_size)
    return found


class Copy:
    """A copy of the tree with a build of its own."""

    def __init__(self, project: Project, build: Build, name: str, cores: int) -> None:
        self.project, self.build = project, build
        self.tree = project.folder / build.name / name
        self.log = project.folder / build.name / f"{name}.log"  # of the last mutation
        self.cores = cores

    def run(self, command: Sequence[str], limit_s: float | None = None) -> int:
        """The exit status; -1000 when the limit was passed. What it started ends with it."""
        scratch = self.tree / "tmp"
        scratch.mkdir(exist_ok=True)
        limited = f'{self.build.limits}; exec "$0" "$@"'
        with self.log.open("a", encoding="utf-8") as out:
            out.write(f"$ {' '.join(command)}\n")
            out.flush()
            with subprocess.Popen(["/bin/sh", "-c", limited, *command], cwd=self.tree, stdout=out,
                                  stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True,
                                  env=os.environ | self.build.environment | {"TMPDIR": str(scratch)}
                                  ) as process:  # fmt: skip
                try:
                    return process.wait(timeout=limit_s)
                except subprocess.TimeoutExpired:
                    return -1000
                finally:
                    with contextlib.suppress(ProcessLookupError):  # all of it has ended
                        os.killpg(process.pid, signal.SIGKILL)

    def builds(self, *programs: str) -> bool:
        return self.run([*self.build.make, "-j", str(self.cores), *programs]) == 0

    def fails(self, program: str, limit_s: float | None) -> str:
        """How the program fails; empty: it passes."""
        path = str(self.tree / self.build.out / program)
        status = self.run([*self.build.launcher, path, "--abort-after=1"], limit_s)
        if status == -1000:
            return "did not end"
        return "" if status == 0 else "failed" if status > 0 else f"died of signal {-status}"

    def relate(self) -> None:
        """Names no folder above the build's in the build's rules, so that a copy of the build is a build."""
        rules, tree = self.tree / self.build.out / "build.ninja", str(self.tree)
        text = re.sub(r"^build [^\n]*: (?:RERUN_CMAKE|VERIFY_GLOBS)\b[^\n]*\n(?:  [^\n]*\n)*", "",
                      rules.read_text(encoding="utf-8"), flags=re.MULTILINE)  # fmt: skip
        build, up = f"{tree}/{self.build.out}", "/".join(".." for _ in self.build.out.parts)
        lines = [line if line.startswith("cmake_ninja_workdir") else
                 line.replace(build + "/", "").replace(build, ".").replace(tree, up)
                 for line in text.split("\n")]  # fmt: skip
        rules.write_text("\n".join(lines), encoding="utf-8")

    def refresh(self, programs: Sequence[str]) -> str:
        """Makes the copy the tree's, built; unchanged files keep their times. Says what is wrong."""
        wanted = self.project.files()
        for name in wanted:
            source, target = self.project.root / name, self.tree / name
            data = source.read_bytes()
            if not target.exists() or target.read_bytes() != data:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                target.chmod(source.stat().st_mode)
        for name in stamps(self.tree).keys() - set(wanted):
            if not name.startswith((str(self.build.out) + "/", "build/")):
                (self.tree / name).unlink()
        self.log.write_bytes(b"")
        if self.build.configure:
            if self.run(self.build.configure) != 0:
                return f"the copy cannot be configured: see {self.log}"
            self.relate()
        return "" if self.builds(*programs) else said("the unchanged copy does not build", self.log)

    def mirror(self, unchanged: Copy, known: dict[str, tuple[int, int]]) -> None:
        """Makes the copy equal to the unchanged one, whose files are known, times and all."""
        here = stamps(self.tree) if self.tree.exists() else {}
        for name in here.keys() - known.keys():
            (self.tree / name).unlink()
        for name, stamp in known.items():
            if here.get(name) != stamp:
                target = self.tree / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)  # a child that a test forked may still run it
                shutil.copy2(unchanged.tree / name, target)

    def judge(self, mutation: Mutation, limits: dict[str, float], unsure: set[str]) -> None:
        """The verdict. The copy is to be mirrored again before the next one."""
        begin = time.monotonic()
        path = self.tree / mutation.path
        lines = path.read_bytes().decode("utf-8").split("\n")
        assert lines[mutation.line - 1] == mutation.before
        lines[mutation.line - 1] = mutation.after
        path.write_text("\n".join(lines), encoding="utf-8")
        self.log.write_text(f"{mutation}\n", encoding="utf-8")
        mutation.verdict = "survived"
        for program in self.build.programs_of(mutation.path):
            if not self.builds(program):
                mutation.verdict = "does not compile"
                break
            failure = self.fails(program, limits[program])
            if failure and program in unsure:
                failure = self.fails(program, limits[program])
            if failure:
                mutation.verdict, mutation.by = "killed", f"{self.build.name}/{program} {failure}"
                break
        mutation.seconds += round(time.monotonic() - begin, 1)


class Judges:
    """Workers, each with a copy, that take mutations from one list."""

    def __init__(self, project: Project, build: Build, jobs: int) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.project, self.build = project, build
        self.unchanged = Copy(project, build, "unchanged", cores)
        each = max(1, cores // jobs)
        self.copies = [Copy(project, build, f"worker{number}", each) for number in range(jobs)]
        self.known: dict[str, tuple[int, int]] = {}
        self.limits: dict[str, float] = {}
        self.unsure: set[str] = set()  # programs that failed unchanged

    def each(self, work: Callable[[Copy], str]) -> list[str]:
        with ThreadPoolExecutor(len(self.copies)) as pool:
            return list(pool.map(work, self.copies))

    def prepare(self, chosen: Sequence[Mutation]) -> str:
        """Builds, copies, and runs the tests unchanged in all copies at once. Says what is wrong."""
        programs = list(dict.fromkeys(name for each in chosen for name in self.build.programs_of(each.path)))
        self.unchanged.tree.mkdir(parents=True, exist_ok=True)
        if wrong := self.unchanged.refresh(programs):
            return wrong
        self.known = stamps(self.unchanged.tree)
        took: dict[str, list[float]] = {program: [] for program in programs}

        def passes(copy: Copy, program: str) -> bool:
            for _ in range(3):
                begin = time.monotonic()
                if not copy.fails(program, None):
                    took[program].append(time.monotonic() - begin)
                    return True
                self.unsure.add(program)
            return False

        def try_out(copy: Copy) -> str:
            copy.mirror(self.unchanged, self.known)
            copy.log.write_bytes(b"")
            mine, jobs = self.copies.index(copy), len(self.copies)
            # Every program in some worker, every worker with some program.
            for number in range(mine, max(jobs, len(programs)), jobs):
                program = programs[number % len(programs)]
                if not passes(copy, program):
                    return said(f"{program} fails without a mutation", copy.log)
            return ""

        wrong = next(filter(None, self.each(try_out)), "")
        if not wrong:
            self.limits = {program: max(self.project.least_limit_s, TIMES * max(times))
                           for program, times in took.items()}  # fmt: skip
            slowest = ", ".join(f"{program} {max(times):.1f} s" for program, times in took.items())
            print(f"{self.build.name}, unchanged: {slowest}", flush=True)
            for program in sorted(self.unsure):
                print(f"{self.build.name}/{program} failed unchanged, and passed when it was tried again")
        return wrong

    def judge(
        self, chosen: Sequence[Mutation], seconds: float | None, tell: Callable[[Mutation], None]
    ) -> None:
        """Calls `tell` with one after the other; hands none out after that many seconds."""
        begin, lock, waiting = time.monotonic(), threading.Lock(), iter(chosen)

        def handed_out() -> Iterator[Mutation]:
            while seconds is None or time.monotonic() - begin < seconds:
                with lock:
                    following = next(waiting, None)
                if following is None:
                    return
                yield following

        def work(copy: Copy) -> str:
            for mutation in handed_out():
                copy.mirror(self.unchanged, self.known)
                copy.judge(mutation, self.limits, self.unsure)
                with lock:
                    tell(mutation)
            return ""

        self.each(work)


class Report:
    """What was judged so far, printed and in the file of --json, which stays when the run is stopped."""

    def __init__(self, drawn: dict, reasons: dict[Place, str], file: Path | None) -> None:
        self.drawn, self.reasons, self.file = drawn, reasons, file
        self.judged: list[Mutation] = []

    def told(self) -> dict:
        return self.drawn | summary(self.judged)

    def add(self, mutation: Mutation) -> None:
        self.judged.append(mutation)
        if reason := self.reasons.get(mutation.place(), ""):
            if mutation.verdict == "survived":
                mutation.verdict, mutation.by = "explained", reason
            elif mutation.verdict == "killed":
                mutation.by += ", although tools/mutate_explained.tsv says that no test can"
        by = mutation.by and f"  ({mutation.by})"
        print(f"{mutation.verdict:<16} {mutation.seconds:6.1f} s  {mutation}{by}", flush=True)
        if self.file:
            part = self.file.with_name(self.file.name + ".part")
            part.write_text(json.dumps(self.told(), indent=2) + "\n", encoding="utf-8")
            part.replace(self.file)

    def text(self) -> str:
        told = self.told()
        lines = [", ".join(f"{count} {word}" for word, count in told["verdicts"].items())]
        for name, score in told["scores"].items():
            if score["of"]:
                lines.append(f"score {name}: {score['killed']} of {score['of']}, {score['share']:.1%} "
                             f"(95 % interval {score['low']:.1%} to {score['high']:.1%})")  # fmt: skip
        return "\n".join(lines)


def earlier(file: Path) -> tuple[dict, list[Mutation]]:
    """What a file of --json says: how it was drawn, and what was tried."""
    told = json.loads(file.read_text(encoding="utf-8"))
    return told, [Mutation(**each) for each in told.pop("mutations")]


def drawn_of(
    arguments: argparse.Namespace, found: Sequence[Mutation]
) -> tuple[dict, list[Mutation], list[Mutation]]:
    """How it is drawn, what has its verdict already, and what is to be tried."""
    drawn = {"seed": arguments.seed, "only": arguments.only, "mutations there are": len(found)}
    if arguments.more:
        drawn, settled = earlier(arguments.more)
        done = {each.place() for each in settled}
        rest = [each for each in choose(found, len(found), drawn["seed"]) if each.place() not in done]
        return drawn, settled, rest[: arguments.count]
    if arguments.again:
        drawn, tried = earlier(arguments.again)
        asked = TSAN_KINDS if arguments.tsan else KINDS
        alive = {each.place() for each in tried
                 if each.verdict in ("survived", "explained") and each.kind in asked}  # fmt: skip
        chosen = [each for each in found if each.place() in alive]
        gone = len(alive - {each.place() for each in chosen})
        print(f"{gone} of {len(alive)} survivors are no longer in the tree")
        return drawn, [each for each in tried if each.place() not in alive], chosen
    return drawn, [], choose(found, arguments.count, arguments.seed)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", default=[""], nargs="+", metavar="WORD", help="a part of the path, or several"
    )
    parser.add_argument(
        "--more", type=Path, metavar="FILE", help="go on with the draw of this file of --json"
    )
    parser.add_argument("--again", type=Path, metavar="FILE", help="the survivors of that file")
    parser.add_argument("--jobs", type=int, default=1, help="workers, each with a copy of tree and build")
    parser.add_argument("--seconds", type=float, metavar="S", help="from the start; none is handed out later")
    parser.add_argument("--tsan", action="store_true", help="ask the thread sanitizer, with --again")
    parser.add_argument("--json", type=Path, help="written after each mutation")
    parser.add_argument("--packed", type=Path, metavar="DIR", help="what tools/mutate_pack.py laid down")
    parser.add_argument("--list", action="store_true", help="print what would be run")
    arguments = parser.parse_args()
    if arguments.tsan and not arguments.again:
        parser.error("--tsan asks about survivors: --again names the file")
    return arguments


def main(project: Project | None = None, explained: Path = ROOT / "tools" / "mutate_explained.tsv") -> int:
    project = project or Project()
    arguments = parsed()
    begin = time.monotonic()
    found = project.mutations(arguments.only)
    drawn, settled, chosen = drawn_of(arguments, found)
    print(f"{len(chosen)} of {len(found)} mutations, seed {drawn['seed']}", flush=True)
    if not chosen:
        print("there is nothing to change")
        return 1
    if arguments.list:
        print("\n".join(map(str, chosen)))
        return 0
    if arguments.packed:
        mutate_pack.use(arguments.packed.resolve(), project.folder)
    report = Report(drawn, explanations(explained), arguments.json)
    report.judged += settled
    build = project.tsan if arguments.tsan else project.sim
    judges = Judges(project, build, max(1, min(arguments.jobs, len(chosen))))
    if wrong := judges.prepare(chosen):
        print(wrong)
        return 1
    left = None if arguments.seconds is None else arguments.seconds - (time.monotonic() - begin)
    judges.judge(chosen, left, report.add)
    tried = len(report.judged) - len(settled)
    print(f"{tried} of the {len(chosen)} chosen were tried in {time.monotonic() - begin:.0f} s")
    print(report.text(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
