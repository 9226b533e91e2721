"""Run a command with the PyTorch device under a sanitizer: libheddle, the Metal double's driver in it, and
torch_backend/csrc are built with it, PyTorch stays as pip brought it.

usage: torch_sanitized.py tsan|asan COMMAND [ARGUMENT...]

Builds what has changed, into build/tsan and build/torch-tsan (or asan). A report of this process or of one it
started is printed and makes the exit code 1, unless PyTorch alone is in it.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPRESSIONS = ROOT / "tests" / "sanitizers" / "tsan.supp"
COMPILER = "clang++-16"  # of the presets

SANITIZERS = {"tsan": "thread", "asan": "address"}
OPTIONS = {
    "tsan": (
        "second_deadlock_stack=1",
        # Threads that go on while a process ends are watched for another 100 ms, not 1 s.
        "atexit_sleep_ms=100",
        # Whether a report is PyTorch's alone is told by both stacks, so the older one has to be known, too.
        "history_size=4",
        # What counts is told from the reports.
        "exitcode=0",
        # Not ignore_noninstrumented_modules=1: on Linux it also ignores what our own code copies and frees.
    ),
    # Of what Python and PyTorch leave at their end there is more than the leak detector lists.
    "asan": ("detect_leaks=0",),
}


# The kind of an access and its stack.
ACCESS = re.compile(
    r"^  ((?:Previous )?(?:atomic )?(?:read|write)) of size .*\n((?:    #.*\n)+)", re.I | re.M
)
IN_PYTORCH = re.compile(r"\(lib(?:torch\w*|c10)\.so\+")
RELEASE = re.compile(r"    #0 (?:free|pthread_(?:mutex|cond)_destroy) ")
SYNCHRONISES = re.compile(r"    #0 pthread_(?:mutex|cond)_\w+ ")
NOT_OURS = re.compile(r"\(lib(?:torch\w*|c10|stdc\+\+|c|clang_rt\.[\w-]+)\.so[.\d]*\+")
POOL = re.compile(r"^  Thread T\d+ 'PTThreadPool' ", re.M)  # PyTorch's threads for torch.jit.fork
COUNTS = re.compile(r"    #0 fetch_\w+ .*atomic_base\.h.*\n    #1 .*/c10/util/intrusive_ptr\.h")


def is_pytorch_s(report: str) -> bool:
    """PyTorch lets go of an object of its own, whose lock or count another thread has used before, or which a
    thread of its pool has made and no code of ours has touched.

    Its counts of references are atomics compiled into it, where ThreadSanitizer does not see that they order
    the two. An access of ours, or to anything else, is not meant.
    """
    accesses = [(kind.lower(), stack) for kind, stack in ACCESS.findall(report)]
    if "data race" not in report or len(accesses) != 2:
        return False
    (_, last), (kind, former) = accesses
    counted = "atomic" in kind and COUNTS.match(former)
    frames = former.splitlines(keepends=True)
    locked = SYNCHRONISES.match(former) and len(frames) > 1 and IN_PYTORCH.search(frames[1])
    released = RELEASE.match(last) and IN_PYTORCH.search(last.splitlines()[1])
    apart = POOL.search(report) and all(NOT_OURS.search(frame) for frame in (last + former).splitlines())
    return bool(released and (counted or locked or apart))


def run(*command: str | Path, **environment: str) -> None:
    code = subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False).returncode
    if code:
        sys.exit(code)


def build(name: str) -> Path:
    """The folder that holds the package heddle with both parts sanitized."""
    libheddle = ROOT / "build" / name / "on_the_double" / "libheddle.so.0"
    folder = ROOT / "build" / f"torch-{name}"
    run("cmake", "--preset", name, HEDDLE_PYTHON=sys.executable)
    run("cmake", "--build", f"build/{name}", "--target", "heddle_on_the_double")
    run("cmake", "-S", "torch_backend", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DPython_EXECUTABLE={sys.executable}",
        "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", f"-DHEDDLE_LIBRARY={libheddle}",
        f"-DHEDDLE_TORCH_SANITIZE={SANITIZERS[name]}",
    )  # fmt: skip
    run("cmake", "--build", folder)
    spec = importlib.util.find_spec("heddle")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{sys.executable} has no package heddle; tools/setup.sh torch installs it")
    package = folder / "package"
    shutil.rmtree(package, ignore_errors=True)
    # Without its libheddle: a process has one.
    leave_out = shutil.ignore_patterns("torch", "libheddle.*", "__pycache__")
    shutil.copytree(spec.submodule_search_locations[0], package / "heddle", ignore=leave_out)
    (package / "heddle" / libheddle.name).symlink_to(libheddle)
    run("cmake", "--install", folder, "--prefix", package)
    return package


def libraries(*names: str) -> str:
    found = []
    for name in names:
        command = [COMPILER, f"-print-file-name={name}"]
        found.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        if not Path(found[-1]).is_absolute():
            sys.exit(f"{COMPILER} has no {name}")
    return " ".join(found)


def environment_of(name: str, package: Path, reports: Path) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    options = ":".join((*OPTIONS[name], f"log_path={reports}"))
    if name == "tsan":
        options += f":suppressions={SUPPRESSIONS}"
    return {
        "PYTHONPATH": os.pathsep.join((str(package), *([before] if before else []))),
        # The interpreter is linked with neither; what the first replaces in the second it looks up early.
        "LD_PRELOAD": libraries(f"libclang_rt.{name}-x86_64.so", "libstdc++.so.6"),
        f"{name.upper()}_OPTIONS": options,
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # PyTorch's own kernels for the CPU would start libgomp's threads, whose barriers the sanitizers miss.
        # Heddle asks OpenMP for teams of one anyway.
        "OMP_NUM_THREADS": "1",
    }


def at_fixed_addresses() -> list[str]:
    """The shadow memory cannot be placed everywhere that recent kernels' address randomisation allows."""
    launcher = [shutil.which("setarch") or "setarch", "-R"]
    try:
        allowed = subprocess.run([*launcher, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    return launcher if allowed else []


def run_sanitized(
    name: str, package: Path, label: str, command: list[str], is_others: Callable[[str], bool]
) -> int:
    """The exit code of the command; not 0 after a report that is not of others."""
    reports = ROOT / "build" / "logs" / f"{label}_{name}.report"
    reports.parent.mkdir(parents=True, exist_ok=True)
    for former in reports.parent.glob(f"{reports.name}.*"):
        former.unlink()
    done = subprocess.run(
        [*at_fixed_addresses(), *command],
        env=os.environ | environment_of(name, package, reports),
        check=False,
    )
    ours, others = [], 0
    for file in sorted(reports.parent.glob(f"{reports.name}.*")):
        text = re.sub(r" \(BuildId: \w+\)", "", file.read_text(errors="replace"))
        for report in re.split(r"^={18,}\n", text, flags=re.M):
            if is_others(report):
                others += 1
            elif report.strip() and not re.fullmatch(r"ThreadSanitizer: reported \d+ warnings\s*", report):
                ours.append(report)
    print(*ours, f"{len(ours)} reports, and {others} of other libraries alone", sep="\n", flush=True)
    return done.returncode or int(bool(ours))


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] not in SANITIZERS:
        sys.exit(__doc__)
    name = sys.argv[1]
    return run_sanitized(name, build(name), "torch", sys.argv[2:], is_pytorch_s)


if __name__ == "__main__":
    sys.exit(main())
