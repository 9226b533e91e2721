"""Change one line of the library at a time, in a copy of the tree, and ask whether its tests notice.

usage: mutate.py [--count N] [--seed N] [--only FILE] [--limit S] [--json FILE] [--list]

A mutation weakens a memory order, ends a lock at once, flips a comparison, removes a notification, exchanges
"and" and "or", or counts one too many. The seed chooses among all of src/base, src/runtime and src/batch;
--only keeps the files whose path contains a word. The tests of the file's folder are built and run in the
build of the preset `sim`, in order, until one fails: the mutation is killed. One that hangs is killed, too.
One that no test notices survived; one that does not compile counts for nothing. Before the first mutation the
tests have to pass. Exits with 1 when they do not; survivors are findings, and no failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIM = Path("build/sim")

# What is mutated, and the programs that test it, the quickest first.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "src/base": ("base_test", "base_sim_test"),
    "src/runtime": ("runtime_test", "runtime_sim_test"),
    "src/batch": ("batch_test", "batch_sim_test"),
}

Rule = tuple[str, re.Pattern[str], str]
RULES: list[Rule] = [
    # To what Atomic has.
    ("order", re.compile(r"\b(load|store|add|sub|read_on)_(?:acquire|release|acq_rel|seq_cst)\("),
     r"\1_relaxed("),
    ("order", re.compile(r"\b(cas_strong|and|or)_seq_cst\("), r"\1_acq_rel("),
    # The pointer stays, and the lock ends with the expression.
    ("lock", re.compile(r"(?<=auto )(\w+) = ([\w>.()-]+\.lock\(\));"), r"\1 = &*\2;"),
    ("comparison", re.compile(r" == "), " != "),
    ("comparison", re.compile(r" != "), " == "),
    ("comparison", re.compile(r" < "), " <= "),
    ("comparison", re.compile(r" > "), " >= "),
    ("comparison", re.compile(r" <= "), " < "),
    ("comparison", re.compile(r" >= "), " > "),
    ("notify", re.compile(r"[\w.>()-]+notify_(?:one|all)\(\);"), "{}"),
    ("logic", re.compile(r" && "), " || "),
    ("logic", re.compile(r" \|\| "), " && "),
    ("off by one", re.compile(r" \+ 1\b(?!\.)"), " + 2"),
    ("off by one", re.compile(r" - 1\b(?!\.)"), " - 2"),
]  # fmt: skip
KINDS = tuple(dict.fromkeys(kind for kind, _, _ in RULES))
# Comments, strings, templates' heads and what only the compiler sees hold no step of the program.
LEFT_OUT = re.compile(r"^\s*(?://|#|\*|template\b|static_assert\b)|\boperator\b|\bstatic_assert\(")


@dataclass
class Mutation:
    path: str
    line: int  # from 1
    kind: str
    before: str
    after: str
    verdict: str = ""  # killed, survived, does not compile
    by: str = ""  # the program that noticed, and how
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.before.strip()}  ->  {self.after.strip()}"


def code_of(line: str) -> str:
    """The line with comments and strings blanked, so that columns stay."""
    blanked = re.sub(r'"(?:\\.|[^"\\])*"', lambda found: " " * len(found.group()), line)
    at = blanked.find("//")
    return blanked if at < 0 else blanked[:at] + " " * (len(blanked) - at)


def mutations_of(path: str, text: str) -> Iterator[Mutation]:
    for number, line in enumerate(text.splitlines(), 1):
        if LEFT_OUT.search(line):
            continue
        code = code_of(line)
        for kind, pattern, instead in RULES:
            for found in pattern.finditer(code):
                after = line[: found.start()] + found.expand(instead) + line[found.end() :]
                if after != line:
                    yield Mutation(path, number, kind, line, after)


@dataclass
class Project:
    """A tree, a copy of it, and how the copy's programs are made."""

    root: Path = ROOT
    copy: Path = ROOT / "build" / "mutate" / "tree"
    programs: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(PROGRAMS))
    configure: Sequence[str] = ("cmake", "--preset", "sim")
    build: Sequence[str] = ("cmake", "--build", str(SIM), "-j", "2", "--target")
    folder: Path = SIM  # of the copy, where the programs lie
    limit_s: float = 300.0  # of one program
    log: Path = ROOT / "build" / "logs" / "mutate_runs.log"

    def files(self) -> list[str]:
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=self.root,
                                capture_output=True, text=True, check=True).stdout  # fmt: skip
        return sorted(name for name in listed.split("\0") if name and (self.root / name).is_file())

    def mutations(self, only: str = "") -> list[Mutation]:
        found: list[Mutation] = []
        for name in self.files():
            stem, dot, suffix = name.rpartition(".")
            is_ours = any(name.startswith(folder + "/") for folder in self.programs)
            is_product = not stem.endswith(("_test", "_fixture", "_bench")) and dot and suffix in ("cpp", "h")
            if is_ours and is_product and only in name:
                found += mutations_of(name, (self.root / name).read_text(encoding="utf-8"))
        return found

    def refresh(self) -> None:
        """Makes the copy equal to the tree; unchanged files keep their times, so that builds stay."""
        wanted = self.files()
        for name in wanted:
            source, target = self.root / name, self.copy / name
            data = source.read_bytes()
            if not target.exists() or target.read_bytes() != data:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                target.chmod(source.stat().st_mode)
        for path in sorted(self.copy.rglob("*.cpp")) + sorted(self.copy.rglob("*.h")):
            name = str(path.relative_to(self.copy))
            if not name.startswith(("build/", ".")) and name not in set(wanted):
                path.unlink()
        packages, link = self.root / ".venv", self.copy / ".venv"
        if packages.exists() and not link.exists():
            link.symlink_to(packages.resolve())

    def run(self, command: Sequence[str], limit_s: float | None = None) -> int:
        """The exit status; -1000 when the limit was passed. What it started ends with it."""
        with self.log.open("a", encoding="utf-8") as out:
            out.write(f"$ {' '.join(command)}\n")
            out.flush()
            with subprocess.Popen(command, cwd=self.copy, stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.STDOUT, start_new_session=True) as process:  # fmt: skip
                try:
                    return process.wait(timeout=limit_s)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    return -1000

    def builds(self, program: str) -> bool:
        return self.run([*self.build, program]) == 0

    def fails(self, program: str) -> str:
        """How the program fails; empty: it passes."""
        status = self.run([str(self.copy / self.folder / program)], self.limit_s)
        if status == -1000:
            return "did not end"
        return "" if status == 0 else "failed" if status > 0 else f"died of signal {-status}"

    def programs_of(self, path: str) -> tuple[str, ...]:
        return next(names for folder, names in self.programs.items() if path.startswith(folder + "/"))

    def is_sound(self, chosen: Sequence[Mutation]) -> str:
        """What is wrong with the unchanged copy; empty: its tests pass."""
        if self.configure and self.run(self.configure) != 0:
            return "the copy cannot be configured"
        for program in dict.fromkeys(name for each in chosen for name in self.programs_of(each.path)):
            if not self.builds(program):
                return f"{program} does not build"
            if failure := self.fails(program):
                return f"{program} {failure} without a mutation"
        return ""

    def judge(self, mutation: Mutation) -> None:
        begin = time.monotonic()
        path = self.copy / mutation.path
        unchanged = path.read_bytes()
        lines = unchanged.decode("utf-8").split("\n")
        assert lines[mutation.line - 1] == mutation.before
        lines[mutation.line - 1] = mutation.after
        path.write_text("\n".join(lines), encoding="utf-8")
        try:
            mutation.verdict = "survived"
            for program in self.programs_of(mutation.path):
                if not self.builds(program):
                    mutation.verdict = "does not compile"
                    break
                if failure := self.fails(program):
                    mutation.verdict, mutation.by = "killed", f"{program} {failure}"
                    break
        finally:
            path.write_bytes(unchanged)
        mutation.seconds = round(time.monotonic() - begin, 1)


def choose(found: Sequence[Mutation], count: int, seed: int) -> list[Mutation]:
    """As many, the kinds in turn, so that a rare kind is among them."""
    chooser = random.Random(seed)
    by_kind = {kind: [each for each in found if each.kind == kind] for kind in KINDS}
    for each in by_kind.values():
        chooser.shuffle(each)
    chosen: list[Mutation] = []
    while len(chosen) < count and any(by_kind.values()):
        chosen += [by_kind[kind].pop() for kind in KINDS if by_kind[kind]]
    return chosen[:count]


def summary(judged: Sequence[Mutation]) -> dict:
    verdicts = {word: sum(each.verdict == word for each in judged)
                for word in ("killed", "survived", "does not compile")}  # fmt: skip
    return {"verdicts": verdicts, "mutations": [asdict(each) for each in judged]}


def main(project: Project | None = None) -> int:
    project = project or Project()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="FILE", help="part of a path")
    parser.add_argument("--limit", type=float, default=project.limit_s, metavar="S", help="of one program")
    parser.add_argument("--json", type=Path, help="written after each mutation")
    parser.add_argument("--list", action="store_true", help="print what would be run")
    arguments = parser.parse_args()
    project.limit_s = arguments.limit
    found = project.mutations(arguments.only)
    if not found:
        parser.error(f"no line of {', '.join(project.programs)} can be mutated in '{arguments.only}'")
    chosen = choose(found, arguments.count, arguments.seed)
    print(f"{len(chosen)} of {len(found)} mutations, seed {arguments.seed}", flush=True)
    if arguments.list:
        print("\n".join(map(str, chosen)))
        return 0
    project.log.parent.mkdir(parents=True, exist_ok=True)
    project.log.write_bytes(b"")
    project.refresh()
    if wrong := project.is_sound(chosen):
        print(f"{wrong}: see {project.log}")
        return 1
    judged: list[Mutation] = []
    for each in chosen:
        project.judge(each)
        judged.append(each)
        print(f"{each.verdict:<16} {each.seconds:6.1f} s  {each}{each.by and f'  ({each.by})'}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(summary(judged), indent=2) + "\n", encoding="utf-8")
    verdicts = summary(judged)["verdicts"]
    print(", ".join(f"{count} {word}" for word, count in verdicts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
