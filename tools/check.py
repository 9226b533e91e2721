"""Run every check of the project: what `make test` and CI do once there is a .venv that can build.

usage: check.py [--only STAGE,STAGE] [--list]

The packages that only tests need are installed beside the release build, which is the first stage. Stages run
in order and are timed; a failure does not stop the later ones. A stage that runs tests adds their
number to the total, any other stage counts as one test. The last line reads "N passed, N failed".
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import free_threaded
from counts import Count
from stage import JOBS, ROOT, WARNINGS_ARE_ERRORS, Log, build, run_ctest, run_pytest
from telling import telling_lines
from torch_choice import APART
from torch_stages import (
    install_packages,
    torch_sanitizer_stage,
    torch_stage,
    torch_versions_stage,
    torch_whole_stage,
)

BIN = Path(sys.executable).parent


def sources(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [name for name in listed if name and (ROOT / name).exists()]


def format_stage(log: Log) -> None:
    cpp = sources("*.cpp", "*.h", "*.mm")
    if cpp:
        log.run(BIN / "clang-format", "--dry-run", "-Werror", *cpp)
    log.run(BIN / "ruff", "check", ".")
    log.run(BIN / "ruff", "format", "--check", ".")
    log.run(sys.executable, "-m", "mypy")
    # Its modules lie in the heddle package, and not in its folder.
    log.run(sys.executable, "-m", "mypy", "--config-file", "torch_backend/pyproject.toml")


def tidy_stage(log: Log) -> None:
    log.run(sys.executable, "tools/tidy.py")
    log.run(sys.executable, "tools/broken.py", "--applies")


def judged_stage(tool: str, *options: str) -> Callable[[Log], Count]:
    """A tool that judges cases, and says what is wrong with each."""

    def stage(log: Log) -> Count:
        outcome = log.path.with_suffix(".json")
        outcome.unlink(missing_ok=True)
        log.run(sys.executable, tool, *options, "--json", outcome)
        if not outcome.exists():
            return Count(0, 1)
        cases = json.loads(outcome.read_text(encoding="utf-8")).values()
        failed = sum(bool(wrong) for wrong in cases)
        return Count(len(cases) - failed, failed)

    return stage


def fuzz_stage(log: Log) -> Count:
    """Each target for a while, and those that tools/cores_pack.py lays down."""
    total = judged_stage("tools/fuzz.py", "--build", "--seconds", "20", "--runs", "4000")(log)
    if not build(log, "asan", "asan", "fuzz_every"):
        return total + Count(0, 1)
    return total + run_pytest(log, "tests/fuzz/packed_programs.py")


def release_stage(log: Log) -> None:
    build(log, "release", "release")


def benches_stage(log: Log) -> None:
    build(log, "release", "release", "benches")


def headers_stage(log: Log) -> None:
    """Each header compiles alone, and each source of the preset sim: tools/mutate.py builds so."""
    if build(log, "release", "release", "verify_headers"):
        folder = "build/alone"
        log.run("cmake", "--preset", "sim", "-B", folder, "-DHEDDLE_UNITY=OFF", WARNINGS_ARE_ERRORS)
        log.run("cmake", "--build", folder, "-j", JOBS)


def models_stage(log: Log) -> None:
    """The model files that tests of every language read."""
    path = ROOT / "build" / "models" / "minilm.onnx"
    values = path.with_name("minilm_values.bin")
    if not path.exists() or not values.exists():
        log.run(sys.executable, "tools/models/minilm.py", "--out", path, "--values", values)
    log.run(sys.executable, "tools/models/real_files.py")


def unit_stage(log: Log) -> Count:
    return run_ctest(log, "release", "-LE", "stress|metal|cuda|graphs")


def stress_stage(log: Log) -> Count:
    return run_ctest(log, "release", "-L", "stress")


def soak_stage(log: Log) -> None:
    """Two minutes of `make soak`."""
    log.run(sys.executable, "tools/soak.py", "--seconds", "120")


def sanitizer_stage(preset: str) -> Callable[[Log], Count]:
    """Our code under a sanitizer, the Metal driver on the double among it."""

    def stage(log: Log) -> Count:
        doubled = () if sys.platform == "darwin" else ("metal_tests",)
        if not build(log, preset, preset, "sanitize_tests", *doubled):
            return Count(0, 1)
        return run_ctest(log, preset, "-L", "sanitize|metal")

    return stage


def labelled_stage(preset: str, label: str, *targets: str) -> Callable[[Log], Count]:
    """Tests by their label, of a build of their own."""

    def stage(log: Log) -> Count:
        if not build(log, preset, preset, *targets):
            return Count(0, 1)
        return run_ctest(log, preset, "-L", label)

    return stage


def sim_stage(log: Log) -> Count:
    """Schedules (base/simulation.h, base/strategy.h), and what Python adds under faults."""
    total = labelled_stage("sim", "^sim$", "sim_tests")(log)
    launcher = (sys.executable, "tools/python_simulated.py")
    return total + run_pytest(log, "-s", "tests/fault_points/python_points.py", launcher=launcher)


def sim_long_stage(log: Log) -> Count:
    """Schedules with more preemptions, and the simulations under 200,000 seeds that the stage sim has not."""
    total = labelled_stage("sim", "^sim_long$", "sim_tests")(log)
    outcome = log.path.with_suffix(".json")
    outcome.unlink(missing_ok=True)
    log.run(sys.executable, "tools/sim_seeds.py", "--json", outcome)
    if not outcome.exists():
        return total + Count(0, 1)
    told = json.loads(outcome.read_text(encoding="utf-8"))
    return total + Count(told["cases"], len(told["wrong"]))


def double_stage(preset: str, label: str) -> Callable[[Log], Count]:
    """A driver and what stands for its vendor's, on Linux; compiled beside the release build."""

    def stage(log: Log) -> Count:
        if not build(log, preset, "release", f"{label}_tests"):
            return Count(0, 1)
        return run_ctest(log, "release", "-L", label)

    return stage


def metal_apple_stage(log: Log) -> None:
    """What ships for macOS is checked by Apple's language rules."""
    build(log, "metal-double", "release", "metal_apple_syntax")


def aarch64_stage(log: Log) -> Count:
    """Everything up to the host driver for 64-bit Arm, its tests under qemu-user."""
    if not build(log, "aarch64", "aarch64", "tests"):
        return Count(0, 1)
    # Its first test, an encoder under 8 threads, has not ended within minutes under emulation.
    return run_ctest(log, "aarch64", "-E", "^driver_conformance$")


COMPILERS = ("g++-12", "clang++-16", "clang++-19")


def compilers_stage(log: Log) -> Count:
    """The library with each compiler of Debian 12 that it is said to build with."""
    total = Count()
    for compiler in COMPILERS:
        folder = f"build/compilers/{compiler}"
        built = log.run("cmake", "-S", ".", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                        "-DHEDDLE_TESTS=OFF", "-DHEDDLE_UNITY=OFF", f"-DCMAKE_CXX_COMPILER={compiler}",
                        WARNINGS_ARE_ERRORS,
                        ) and log.run("cmake", "--build", folder, "-j", JOBS)  # fmt: skip
        total.passed += built
        total.failed += not built
    return total


def install_stage(log: Log) -> None:
    log.run(sys.executable, "tools/check_install.py", "build/release")


def package_stage(log: Log) -> None:
    install_packages(log)


def wheel_stage(log: Log) -> None:
    """The wheels, each run in an environment that holds nothing but what it declares."""
    if log.run("tools/setup.sh", "torch"):
        log.run(sys.executable, "tools/wheel.py")


# Tests of waiting, joining and meeting, which want the machine for themselves.
OF_THREADS = ("batch_", "calls", "coalescing", "meetings", "processes", "threads")


def pytest_stage(log: Log) -> Count:
    of_threads = [f"tests/python/{path.name}" for name in OF_THREADS
                  for path in sorted(ROOT.glob(f"tests/python/test_{name}*.py"))]  # fmt: skip
    left_out = [f"--ignore={name}" for name in of_threads]
    return run_pytest(log, *left_out, *APART) + run_pytest(log, *of_threads)


# Compiled with the sanitizer for this stage alone: their tables take it minutes.
LONG_SANITIZED = ("onnx_test", "plan_test", "hostile_test")
UNDER_ASAN = tuple(
    f"tests/python/test_{name}.py"
    for name in ("calls", "models", "hostile", "batch_queue", "batch_queue_life", "threads", "onnx_operators")
)


def python_asan_stage(log: Log) -> Count:
    """The ONNX reader, the planner and the Python module under AddressSanitizer, hostile files among them."""
    if not build(log, "asan", "asan", *LONG_SANITIZED):
        return Count(0, 1)
    os.environ["HEDDLE_HOSTILE_MUTATIONS"] = "1500"
    total = run_ctest(log, "asan", "-R", f"^({'|'.join(LONG_SANITIZED)})$")
    if not log.run("tools/setup.sh", "package"):
        return Count(total.passed, total.failed + 1)
    launcher = (sys.executable, "tools/python_sanitized.py", "asan")
    # A sanitizer does not survive the fork of a process with threads: docs/concurrency.md.
    return total + run_pytest(log, *UNDER_ASAN, "-k", "not fork", launcher=launcher)


# Of tests/python: those with threads, and what they share.
FREE_THREADED = tuple(
    f"tests/python/test_{name}.py"
    for name in ("free_threaded", "threads", "calls", "coalescing", "submit", "acall", "answers_to_loops",
                 "batch_queue", "batch_queue_life", "batch_queue_asyncio", "batch_inference", "exit")
)  # fmt: skip


def free_threaded_stage(log: Log) -> Count:
    """Threads without a GIL, where an interpreter for it is at hand; elsewhere no test."""
    if free_threaded.find() is None:
        log.note("not run: there is no python3.14t and no python3.13t on the PATH")
        return Count()
    # There is no PyTorch there, and nanobind reports no leaks without a GIL.
    without = ("-k", "not torch and not report_of_leaks")
    return run_pytest(log, *FREE_THREADED, *without, python=(sys.executable, "tools/free_threaded.py"))


STAGES: dict[str, Callable[[Log], Count | None]] = {
    "release": release_stage,
    "format": format_stage,
    "tidy": tidy_stage,
    "models": models_stage,
    "unit": unit_stage,
    "stress": stress_stage,
    "spin": judged_stage("tools/spin_models.py"),
    "sim": sim_stage,
    "replay": judged_stage("tools/replay_models.py"),  # of what simulated threads did, by the models
    "install": install_stage,
    "package": package_stage,
    "metal": double_stage("metal-double", "metal"),  # before pytest, which runs programs on that double
    "cuda": double_stage("cuda", "cuda"),
    "pytest": pytest_stage,
    "torch": torch_stage,
    "tsan": sanitizer_stage("tsan"),
    "asan": sanitizer_stage("asan"),
    "fuzz": fuzz_stage,
    # The CUDA driver on its double: what threads do, and what is quick.
    "cuda_tsan": labelled_stage("tsan", "^cuda$", "cuda_tests"),
    "cuda_asan": labelled_stage("asan", "^cuda$", "cuda_tests"),
    "metal_apple": metal_apple_stage,
    "headers": headers_stage,
    "aarch64": aarch64_stage,
    "graphs": labelled_stage("release", "^graphs$", "differential_test"),
    "benches": benches_stage,
    "compilers": compilers_stage,
    "broken": judged_stage("tools/broken.py"),
    "sim_long": sim_long_stage,
    "soak": soak_stage,
    "spin_long": judged_stage("tools/spin_models.py", "--long"),
    "wheel": wheel_stage,
    # What a sanitizer's stages leave out.
    "tsan_whole": labelled_stage("tsan", "long", "metal_tests", "cuda_tests"),
    "asan_whole": labelled_stage("asan", "long", "metal_tests", "cuda_tests"),
    "python_asan": python_asan_stage,
    "free_threaded": free_threaded_stage,
    "torch_whole": torch_whole_stage,
    "torch_versions": torch_versions_stage,
    "torch_tsan": torch_sanitizer_stage("tsan"),
    "torch_asan": torch_sanitizer_stage("asan"),
}

# Another build of everything each, or what no test needs: `make test-long`, or ONLY=.
LONG = ("headers", "aarch64", "graphs", "benches", "compilers", "broken", "sim_long", "soak", "spin_long",
        "wheel", "tsan_whole", "asan_whole", "python_asan", "free_threaded", "torch_whole", "torch_versions",
        "torch_tsan", "torch_asan")  # fmt: skip

# On a Mac the usual builds have Apple's Metal: no double of it there, no futex, no Debian cross compiler.
LINUX_ONLY = (
    "fuzz",
    "metal",
    "metal_apple",
    "cuda",
    "cuda_tsan",
    "cuda_asan",
    "spin",
    "sim",
    "replay",
    *LONG,
)


def processor_seconds() -> float:
    """Of all processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def run_stage(name: str) -> Count:
    if sys.stdout.isatty():
        print(f"{name:<11} ...\r", end="", flush=True)
    log = Log(name)
    begin, used = time.monotonic(), processor_seconds()
    counted = STAGES[name](log)
    seconds, used = time.monotonic() - begin, processor_seconds() - used
    count = counted or Count(passed=int(not log.failed))
    if log.failed and count.failed == 0:
        count.failed = 1
    tests = f", {count.passed} passed" if counted else ""
    verdict = f"FAILED ({count.failed})" if count.failed else "ok"
    print(f"{name:<11} {seconds:7.1f} s ({used:.0f} of processors)  {verdict}{tests}", flush=True)
    if count.failed:
        print("\n".join("    " + line for line in telling_lines(log.path)))
        print(f"    (the whole output: {log.path.relative_to(ROOT)})", flush=True)
    return count


class SetUp:
    """The packages that tests need, installed while the first stage runs if it needs none of them."""

    COMMAND = ("tools/setup.sh", "test")

    def __init__(self) -> None:
        self.process = subprocess.Popen(self.COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL)

    def wait(self) -> None:
        if self.process.wait() != 0:
            sys.exit(f"{self.COMMAND[0]} failed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="stages to run, separated by commas")
    parser.add_argument(
        "--long", action="store_true", help="all stages; otherwise without " + ", ".join(LONG)
    )
    parser.add_argument("--list", action="store_true", help="print the stages' names")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(STAGES))
        return 0
    left_out = (() if arguments.long else LONG) + (LINUX_ONLY if sys.platform == "darwin" else ())
    usual = [name for name in STAGES if name not in left_out]
    chosen = [name for name in arguments.only.split(",") if name] or usual
    unknown = [name for name in chosen if name not in STAGES]
    if unknown:
        parser.error(f"no stage named {', '.join(unknown)}; there are {', '.join(STAGES)}")
    os.environ.setdefault("HEDDLE_TUNE", "off")  # nothing depends on this machine's times
    begin = time.monotonic()
    total = Count()
    set_up = SetUp()
    for name in chosen:
        if name != "release":
            set_up.wait()
        total += run_stage(name)
    set_up.wait()
    print(f"\nall stages {time.monotonic() - begin:.0f} s")
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
