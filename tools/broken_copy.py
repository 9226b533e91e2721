"""A copy of the tree for tools/broken.py: builds what a test needs, and says whether the test fails there."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from removals import IN_PRESETS, PYTHON_KINDS, ROOT, Removal
from torch_choice import on_cuda_double

COPY = ROOT / "build" / "broken" / "tree"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TEST_LIMIT_S = 600
# What is said of a test that ran and did not fail.
PASSED, REPLAYED = "passed", "every log is an execution of the model"


class Copy:
    """A copy of the tree with a build of its own.

    With `each`, the number of the compiler's processes, it is built for its programs already, without a
    virtual environment: by tools/broken_layers.py.
    """

    def __init__(self, log: Path, tree: Path = COPY, each: int = 0) -> None:
        self.log, self.tree, self.each = log, tree, each
        # Where ROOT has its own: what ROOT's build has compiled, ccache then has for the copy.
        self.venv = tree / ".venv"
        self.building_s = 0.0  # since it was last set to 0
        python = sys.executable if each else str(self.venv / "bin" / "python")
        self.environment = {**os.environ, "HEDDLE_VENV": str(self.venv), "HEDDLE_PYTHON": python}

    def run(
        self, command: Sequence[str | Path], limit_s: float | None = None, **extra: str
    ) -> tuple[int, str]:
        """Exit status and output; -1000 when the limit was passed. The log keeps the output."""
        words = [str(word) for word in command]
        environment = self.environment | extra
        with subprocess.Popen(
            words, cwd=self.tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
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

    def build(self, preset: str, folder: str, target: str) -> None:
        if not self.each:
            self.must(["cmake", "--preset", preset])
        words = ["-j", str(self.each)] if self.each else []
        self.must(["cmake", "--build", folder, *words, "--target", target])

    def refresh(self) -> None:
        """Makes the copy equal to the working tree; unchanged files keep their times, so that builds stay."""
        self.tree.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                                capture_output=True, text=True, check=True).stdout  # fmt: skip
        wanted = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
        for name in sorted(wanted):
            source, target = ROOT / name, self.tree / name
            data = source.read_bytes()
            if not target.exists() or target.read_bytes() != data:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                target.chmod(source.stat().st_mode)
        for path in sorted(self.tree.rglob("*")):
            name = path.relative_to(self.tree)
            made = name.parts[0] == "build" or name.parts[0].startswith(".") or "__pycache__" in name.parts
            if path.is_file() and not made and str(name) not in wanted:
                path.unlink()
        if not (self.tree / ".git").exists():
            self.must(["git", "init", "-q"])  # git apply wants paths below a repository of its own
        models = self.tree / "build" / "models"
        if not models.exists() and (ROOT / "build" / "models").exists():
            models.parent.mkdir(exist_ok=True)
            models.symlink_to(ROOT / "build" / "models")
        self.link_packages()

    def link_packages(self) -> None:
        """All of this interpreter's environment but heddle and heddle-torch, which the copy builds."""
        if not (self.venv / "bin" / "python").exists():
            self.must([sys.executable, "-m", "venv", "--without-pip", self.venv])
        # Packages lie in lib/python3.x/site-packages, and oneDNN's files beside it.
        for folder in ("include", "share", "lib", f"lib/python{VERSION}/site-packages"):
            theirs, mine = Path(sys.prefix) / folder, self.venv / folder
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
        if test[0] in PYTHON_KINDS:
            return self.pytest_fails(test[0], test[1])
        if test[0] == "replay":
            return self.replay_objects(test[1], test[2])
        program, case = test[-2], test[-1]
        preset, folder, device = IN_PRESETS.get(test[0], ("release", "build/release", {}))
        self.build(preset, folder, program)
        command: list[str | Path] = []
        limit_s = TEST_LIMIT_S
        if test[0] == "tsan":
            command, device = self.as_ctest_runs(folder, program)
            limit_s += 120  # tools/watched.py, which is among those words, ends it before
        else:
            command = [next(path for path in (self.tree / folder).rglob(program) if path.is_file())]
        status, output = self.run([*command, "-tc=" + case.replace(",", "\\,")], limit_s, **device)
        output = re.sub(r"\x1b\[[0-9;]*m", "", output)
        ran = re.search(r"test cases:\s*(\d+)", output)
        if ran and ran.group(1) == "0":
            return False, "no such test case"
        if status == -1000:
            return False, f"did not end within {TEST_LIMIT_S} s"
        if status in (-signal.SIGKILL, 126, 127):
            return False, f"ended with {status}: it was killed, or did not start"
        if test[0] == "tsan" and status != 0:
            return "WARNING: ThreadSanitizer:" in output, "failed without a report of the thread sanitizer"
        return status != 0, PASSED

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
        self.build("sim", "build/sim", program)
        status, output = self.run([sys.executable, "tools/replay_models.py", model], TEST_LIMIT_S)
        return status != 0 and "are no execution" in output, REPLAYED

    def pytest_fails(self, kind: str, test: str) -> tuple[bool, str]:
        python: tuple[str | Path, ...] = (self.venv / "bin" / "python",)
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
            self.build("metal-double", "build/release", "heddle_on_the_double")
            double = self.tree / "build/release/on_the_double/libheddle.so.0"
            device = {"HEDDLE_DEVICE": "metal", "LD_PRELOAD": str(double)}
        if kind.endswith("-cuda"):
            self.build("cuda", "build/release", "cuda_in_its_place")
            python = (*on_cuda_double(self.tree / "build/release"), *python)
        command = [*python, "-m", "pytest", "-q", "-x", test]
        status, output = self.run(command, TEST_LIMIT_S, **device)
        if status in (2, 3, 4, 5):
            return False, f"pytest ended with {status}: {output.strip().splitlines()[-1:]}"
        if status == -1000:
            return False, f"did not end within {TEST_LIMIT_S} s"
        return status != 0, PASSED

    def wrong(self, removal: Removal) -> list[str]:
        """What is wrong where the removal is applied, empty when every named test noticed it."""
        wrong = []
        for test in removal.tests:
            try:
                noticed, why = self.fails(test)
            except RuntimeError as error:
                noticed, why = False, str(error)
            if not noticed:
                wrong.append(f"{shlex.join(test)}: {why}")
        return wrong
