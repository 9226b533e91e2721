"""The patches of tests/broken: what each removes, which tests must notice, and of which kinds those are."""

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "tests" / "broken"
PYTHON_KINDS = ("pytest", "pytest-metal", "pytest-sim", "torch", "torch-metal", "torch-cuda")
# Of programs that another preset makes, or that need an environment: preset, folder, environment.
IN_PRESETS: dict[str, tuple[str, str, dict[str, str]]] = {
    "metal": ("metal-double", "build/release", {"HEDDLE_DEVICE": "metal", "HEDDLE_TEST_NARROWER": "4"}),
    "cuda": ("cuda", "build/release", {}),
    "avx2": ("release", "build/release", {"DNNL_MAX_CPU_ISA": "AVX2"}),
    "sim": ("sim", "build/sim", {}),
    "tsan": ("tsan", "build/tsan", {}),
}
KINDS = ("release", *IN_PRESETS, "replay", *PYTHON_KINDS)
# Those that a Linux with g++ alone can build and run.
LAYERED_KINDS = ("release", "cuda", "avx2", "sim", "replay")


def kind_of(test: Sequence[str]) -> str:
    return test[0] if test[0] in KINDS else "release"


@dataclass
class Removal:
    """One patch: what it takes away, and the tests that must notice."""

    name: str
    path: Path
    removes: str
    tests: list[list[str]]

    @staticmethod
    def read(path: Path) -> "Removal":
        header = path.read_text(encoding="utf-8").split("\ndiff --git ", 1)[0]
        removes = re.findall(r"^Removes: (.+)$", header, re.M)
        tests = [shlex.split(line) for line in re.findall(r"^Test: (.+)$", header, re.M)]
        if len(removes) != 1 or not tests:
            raise ValueError(f"{path.name}: the header needs one line 'Removes:' and at least one 'Test:'")
        for test in tests:
            if len(test) != (3 if test[0] in (*IN_PRESETS, "replay") else 2):
                raise ValueError(
                    f"{path.name}: 'Test: {shlex.join(test)}' is none of the forms of the README"
                )
        return Removal(path.stem, path, removes[0], tests)

    def kinds(self) -> set[str]:
        return {kind_of(test) for test in self.tests}

    def files(self) -> list[str]:
        return re.findall(r"^diff --git a/(\S+) ", self.path.read_text(encoding="utf-8"), re.M)


def applies(removal: Removal, tree: Path, *options: str) -> str:
    """What git says against the patch, empty when nothing."""
    command = ["git", "apply", *options, str(removal.path)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def hunks(diff: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """The first line, from 0, and the lines before and after, of each part of one file's diff."""
    for part in re.split(r"^@@ ", diff, flags=re.M)[1:]:
        head, *lines = part.removesuffix("\n").split("\n")
        found = re.match(r"-(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@", head)
        if found is None or any(line[:1] not in (" ", "-", "+") for line in lines):
            raise ValueError(f"no part of a diff: {head}")
        before = [line[1:] for line in lines if line[0] != "+"]
        yield int(found[1]) - 1, before, [line[1:] for line in lines if line[0] != "-"]


def patched(text: str, diff: str) -> str:
    """The file as git makes it: each part goes where its lines are, nearest to where they were."""
    lines = text.split("\n")
    moved = 0
    for first, before, after in hunks(diff):
        count = len(before)
        places = [at for at in range(len(lines) - count + 1) if lines[at : at + count] == before]
        if not places:
            raise ValueError(f"these lines are not there: {before[:3]}")
        at = min(places, key=lambda place: abs(place - first - moved))
        lines[at : at + count] = after
        moved = at - first + len(after) - count
    return "\n".join(lines)


def apply_without_git(removal: Removal, tree: Path) -> None:
    """Changes the files of the patch, which makes and deletes none."""
    for diff in removal.path.read_text(encoding="utf-8").split("\ndiff --git ")[1:]:
        found = re.search(r"^--- a/(\S+)\n\+\+\+ b/(\S+)$", diff, re.M)
        if found is None or found[1] != found[2]:
            raise ValueError(f"{removal.path.name}: a file is made, deleted or renamed")
        path = tree / found[1]
        path.write_text(patched(path.read_text(encoding="utf-8"), diff), encoding="utf-8")
