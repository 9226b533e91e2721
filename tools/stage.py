"""What the stages of check.py are made of: a log, a build, a run of tests and its count."""

import os
import subprocess
import sys
from pathlib import Path

from counts import Count, count_doctest, count_pytest
from skips import allowed_skips

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"
JOBS = str(os.cpu_count() or 2)


class Log:
    """Where a stage's commands write; knows whether one of them failed."""

    def __init__(self, name: str) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.path = LOGS / f"{name}.log"
        self.path.write_bytes(b"")
        self.failed = False

    def run(self, *command: str | Path) -> bool:
        words = [str(word) for word in command]
        with self.path.open("ab") as out:
            out.write(f"$ {' '.join(words)}\n".encode())
            out.flush()
            done = subprocess.run(
                words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
            )
        self.failed = self.failed or done.returncode != 0
        return done.returncode == 0

    def note(self, text: str, failed: bool = False) -> None:
        with self.path.open("a", encoding="utf-8") as out:
            out.write(text + "\n")
        self.failed = self.failed or failed


# There the sanitizers are Apple's, and its Metal is the usual one.
ON_A_MAC = ("-DCMAKE_CXX_COMPILER=c++", "-DHEDDLE_METAL=APPLE") if sys.platform == "darwin" else ()

WARNINGS_ARE_ERRORS = "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"  # of the presets


def build(log: Log, preset: str, folder: str, *targets: str) -> bool:
    command: list[str] = ["cmake", "--build", f"build/{folder}", "-j", JOBS]
    if targets:
        command += ["--target", *targets]
    return log.run("cmake", "--preset", preset, *ON_A_MAC) and log.run(*command)


def run_ctest(log: Log, preset: str, *selection: str) -> Count:
    junit = ROOT / "build" / preset / "junit.xml"
    junit.unlink(missing_ok=True)
    log.run("ctest", "--test-dir", f"build/{preset}", "--output-on-failure", "--no-tests=error", "-j", JOBS,
            "--test-output-size-passed", "10000000", "--test-output-size-failed", "10000000",
            "--output-junit", junit, *selection)  # fmt: skip
    return count_doctest(junit) if junit.exists() else Count(0, 1)


def run_pytest(
    log: Log, *tests: str, launcher: tuple[str, ...] = (), python: tuple[str, ...] = (sys.executable,)
) -> Count:
    junit = log.path.with_suffix(".xml")
    junit.unlink(missing_ok=True)
    log.run(*launcher, *python, "-m", "pytest", "-q", "-ra", "--durations=10", f"--junitxml={junit}",
            *tests)  # fmt: skip
    if not junit.exists():
        return Count(0, 1)
    count, refused = count_pytest(junit, allowed_skips())
    for line in refused:
        log.note(line, failed=True)
    return count
