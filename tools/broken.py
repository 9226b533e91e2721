"""Apply each removal of tests/broken to a copy of the tree, and demand that the test it names fails there.

usage: broken.py [--list | --applies] [--json FILE] [WORD ...]

Without words all patches are run, with words those whose name contains one of them. --applies only checks
that each patch has a header and applies to this tree. tests/broken/README.md says what a patch looks like.
Exits with 1 when a patch does not apply, a build fails, or a test passes without what it tests.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_choice import on_cuda_double
from verdict import tell_verdict

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "tests" / "broken"
COPY = ROOT / "build" / "broken" / "tree"
VENV = COPY / ".venv"  # where ROOT has its own: what ROOT's build has compiled, ccache then has for the copy
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TEST_LIMIT_S = 600
KINDS = ("pytest", "pytest-metal", "pytest-sim", "torch", "torch-metal", "torch-cuda")
# Of programs that another preset makes, or that need an environment: preset, folder, environment.
IN_PRESETS: dict[str, tuple[str, str, dict[str, str]]] = {
    "metal": ("metal-double", "build/release", {"HEDDLE_DEVICE": "metal", "HEDDLE_TEST_NARROWER": "4"}),
    "cuda": ("cuda", "build/release", {}),
    "avx2": ("release", "build/release", {"DNNL_MAX_CPU_ISA": "AVX2"}),
    "sim": ("sim", "build/sim", {}),
    "tsan": ("tsan", "build/tsan", {}),
}


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


class Copy:
    """A copy of the tree with a build and a virtual environment of its own."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.building_s = 0.0  # since it was last set to 0
        self.environment = {
            **os.environ,
            "HEDDLE_VENV": str(VENV),
            "HEDDLE_PYTHON": str(VENV / "bin" / "python"),
        }

    def run(
        self, command: Sequence[str | Path], limit_s: float | None = None, **extra: str
    ) -> tuple[int, str]:
        """Exit status and output; -1000 when the limit was passed. The log keeps the output."""
        words = [str(word) for word in command]
        environment = self.environment | extra
        with subprocess.Popen(
            words, cwd=COPY, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=limit_s)
                status = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                status = -1000
        with self.log.open("a", encoding="utf-8") as out:
            out.write(f"$ {shlex.join(words)}\n{output}\n")
        return status, output

    def must(self, command: Sequence[str | Path], **extra: str) -> None:
        begin = time.monotonic()
        status, output = self.run(command, **extra)
        self.building_s += time.monotonic() - begin
        if status != 0:
            raise RuntimeError(f"{shlex.join(map(str, command))} failed:\n{output[-1000:]}")

    def refresh(self) -> None:
        """Makes the copy equal to the working tree; unchanged files keep their times, so that builds stay."""
        COPY.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                                capture_output=True, text=True, check=True).stdout  # fmt: skip
        wanted = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
        for name in sorted(wanted):
            source, target = ROOT / name, COPY / name
            data = source.read_bytes()
            if not target.exists() or target.read_bytes() != data:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                target.chmod(source.stat().st_mode)
        for path in sorted(COPY.rglob("*")):
            name = path.relative_to(COPY)
            made = name.parts[0] == "build" or name.parts[0].startswith(".") or "__pycache__" in name.parts
            if path.is_file() and not made and str(name) not in wanted:
                path.unlink()
        if not (COPY / ".git").exists():
            self.must(["git", "init", "-q"])  # git apply wants paths below a repository of its own
        models = COPY / "build" / "models"
        if not models.exists() and (ROOT / "build" / "models").exists():
            models.parent.mkdir(exist_ok=True)
            models.symlink_to(ROOT / "build" / "models")
        self.link_packages()

    def link_packages(self) -> None:
        """All of this interpreter's environment but heddle and heddle-torch, which the copy builds."""
        if not (VENV / "bin" / "python").exists():
            self.must([sys.executable, "-m", "venv", "--without-pip", VENV])
        # Packages lie in lib/python3.x/site-packages, and oneDNN's files beside it.
        for folder in ("include", "share", "lib", f"lib/python{VERSION}/site-packages"):
            theirs, mine = Path(sys.prefix) / folder, VENV / folder
            mine.mkdir(exist_ok=True)
            for link in mine.iterdir():
                if link.is_symlink() and not link.exists():
                    link.unlink()
            for entry in theirs.iterdir() if theirs.exists() else ():
                link = mine / entry.name
                if not entry.name.startswith(("heddle", "__pycache__")) and not os.path.lexists(link):
                    link.symlink_to(entry)

    def fails(self, test: list[str]) -> tuple[bool, str]:
        """Builds what the test needs, runs it, and says whether it failed as a test fails."""
        if test[0] in KINDS:
            return self.pytest_fails(test[0], test[1])
        if test[0] == "replay":
            return self.replay_objects(test[1], test[2])
        program, case = test[-2], test[-1]
        preset, folder, device = IN_PRESETS.get(test[0], ("release", "build/release", {}))
        self.must(["cmake", "--preset", preset])
        self.must(["cmake", "--build", folder, "--target", program])
        command: list[str | Path] = []
        limit_s = TEST_LIMIT_S
        if test[0] == "tsan":
            command, device = self.as_ctest_runs(folder, program)
            limit_s += 120  # tools/watched.py, which is among those words, ends it before
        else:
            command = [next(path for path in (COPY / folder).rglob(program) if path.is_file())]
        status, output = self.run([*command, "-tc=" + case.replace(",", "\\,")], limit_s, **device)
        output = re.sub(r"\x1b\[[0-9;]*m", "", output)
        ran = re.search(r"test cases:\s*(\d+)", output)
        if ran and ran.group(1) == "0":
            return False, "no such test case"
        if status == -1000:
            return False, f"did not end within {TEST_LIMIT_S} s"
        if test[0] == "tsan" and status != 0:
            return "WARNING: ThreadSanitizer:" in output, "failed without a report of the thread sanitizer"
        return status != 0, "passed"

    def as_ctest_runs(self, folder: str, program: str) -> tuple[list[str | Path], dict[str, str]]:
        """The command and the environment of a test program, which a sanitizer needs."""
        status, output = self.run(["ctest", "--test-dir", folder, "--show-only=json-v1"])
        for test in json.loads(output)["tests"] if status == 0 else ():
            if test["name"] == program:
                lists = [each["value"] for each in test["properties"] if each["name"] == "ENVIRONMENT"]
                return test["command"], dict(word.split("=", 1) for words in lists for word in words)
        raise RuntimeError(f"ctest knows no test {program} in {folder}")

    def replay_objects(self, program: str, model: str) -> tuple[bool, str]:
        """Whether what the program's threads did is no execution of the model."""
        self.must(["cmake", "--preset", "sim"])
        self.must(["cmake", "--build", "build/sim", "--target", program])
        status, output = self.run([sys.executable, "tools/replay_models.py", model], TEST_LIMIT_S)
        return status != 0 and "are no execution" in output, "every log is an execution of the model"

    def pytest_fails(self, kind: str, test: str) -> tuple[bool, str]:
        python: tuple[str | Path, ...] = (VENV / "bin" / "python",)
        device = {}
        if kind == "pytest-sim":
            simulated = (*python, "tools/python_simulated.py")
            self.must([*simulated, "true"])
            python = simulated + python
        else:
            # With the compiler's words of the check stage `package`. Building heddle-torch imports torch,
            # which would load the heddle-torch of the patch before.
            self.must(
                ["tools/setup.sh", "torch" if kind.startswith("torch") else "package"],
                CMAKE_ARGS="-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
                TORCH_DEVICE_BACKEND_AUTOLOAD="0",
            )
        if kind.endswith("-metal"):
            self.must(["cmake", "--preset", "metal-double"])
            self.must(["cmake", "--build", "build/release", "--target", "heddle_on_the_double"])
            double = COPY / "build/release/on_the_double/libheddle.so.0"
            device = {"HEDDLE_DEVICE": "metal", "LD_PRELOAD": str(double)}
        if kind.endswith("-cuda"):
            self.must(["cmake", "--preset", "cuda"])
            self.must(["cmake", "--build", "build/release", "--target", "cuda_in_its_place"])
            python = (*on_cuda_double(COPY / "build/release"), *python)
        command = [*python, "-m", "pytest", "-q", "-x", test]
        status, output = self.run(command, TEST_LIMIT_S, **device)
        if status in (2, 3, 4, 5):
            return False, f"pytest ended with {status}: {output.strip().splitlines()[-1:]}"
        if status == -1000:
            return False, f"did not end within {TEST_LIMIT_S} s"
        return status != 0, "passed"


def applies(removal: Removal, tree: Path, *options: str) -> str:
    """What git says against the patch, empty when nothing."""
    command = ["git", "apply", *options, str(removal.path)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def run(removal: Removal, copy: Copy) -> list[str]:
    """What is wrong, empty when every named test noticed the removal."""
    copy.refresh()
    refused = applies(removal, COPY)
    if refused:
        return [f"does not apply: {refused.strip()}"]
    wrong = []
    for test in removal.tests:
        try:
            noticed, why = copy.fails(test)
        except RuntimeError as error:
            noticed, why = False, str(error)
        if not noticed:
            wrong.append(f"{shlex.join(test)}: {why}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="run the patches whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="name the patches and what they remove")
    parser.add_argument("--applies", action="store_true", help="only check headers and that patches apply")
    parser.add_argument("--json", type=Path, help="write the outcome of each patch to this file")
    arguments = parser.parse_args()
    removals = [Removal.read(path) for path in sorted(PATCHES.glob("*.patch"))]
    chosen = [r for r in removals if not arguments.words or any(word in r.name for word in arguments.words)]
    if not chosen and arguments.words:
        parser.error(
            f"no patch of {PATCHES.relative_to(ROOT)} has a name with {' or '.join(arguments.words)}"
        )
    if arguments.list:
        for removal in chosen:
            print(f"{removal.name:<32} {removal.removes}")
        return 0
    log = ROOT / "build" / "logs" / "broken_runs.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    copy = Copy(log)
    outcome = {}
    for removal in chosen:
        begin, copy.building_s = time.monotonic(), 0.0
        if arguments.applies:
            refused = applies(removal, ROOT, "--check")
            wrong = [f"does not apply: {refused.strip()}"] if refused else []
        else:
            wrong = run(removal, copy)
        outcome[removal.name] = wrong
        verdict = "error" if wrong else "applies" if arguments.applies else "noticed"
        building = f", {copy.building_s:5.1f} s of it building" if copy.building_s else ""
        took = time.monotonic() - begin
        print(f"{removal.name:<32} {took:6.1f} s{building}  {verdict}", flush=True)
        for line in wrong:
            print(f"    {line}", flush=True)
    return tell_verdict(outcome, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
