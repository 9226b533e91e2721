"""Run a free-threaded Python with the module built for it.

usage: free_threaded.py ARGUMENT...          such as: -m pytest tests/python/test_threads.py

Takes $HEDDLE_FREE_THREADED, or the first of python3.14t and python3.13t on the PATH. Builds what has changed
of the module and libheddle into build/free_threaded. A virtual environment there has what the tests import,
but for PyTorch.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from torch_sanitized import ROOT, run

FOLDER = ROOT / "build" / "free_threaded"
PACKAGES = ("numpy", "ml_dtypes", "tqdm", "pytest")


def find() -> str | None:
    """An interpreter whose GIL can be off; None: there is none here."""
    for name in (os.environ.get("HEDDLE_FREE_THREADED", ""), "python3.14t", "python3.13t"):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    return None


def environment(interpreter: str) -> Path:
    """The interpreter of a virtual environment of its own."""
    python = FOLDER / "venv" / "bin" / "python"
    if not python.exists():
        run(interpreter, "-m", "venv", str(FOLDER / "venv"))
        # No wheel for it: a build of numpy takes longer than all tests.
        run(str(python), "-m", "pip", "install", "-q", "--only-binary", ":all:", *PACKAGES)
    return python


def build(python: Path) -> Path:
    """The folder that holds the package heddle with the module for this interpreter."""
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={python}", "-DHEDDLE_PYTHON_MODULE=ON"
    run("cmake", "--preset", "release", "-B", FOLDER, "-DHEDDLE_TESTS=OFF", *options,
        HEDDLE_PYTHON=sys.executable)  # fmt: skip
    run("cmake", "--build", str(FOLDER), "-j", str(os.cpu_count() or 2), "--target", "_heddle")
    package = FOLDER / "package"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(
        ROOT / "python" / "heddle", package / "heddle", ignore=shutil.ignore_patterns("__pycache__", "*.so*")
    )
    for module in (FOLDER / "python").glob("_heddle.*.so"):
        (package / "heddle" / module.name).symlink_to(module)
    return package


def main() -> int:
    interpreter = find()
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if interpreter is None:
        sys.exit("there is no python3.14t and no python3.13t on the PATH")
    python = environment(interpreter)
    package = build(python)
    inside = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}  # the module's word
    inside["PYTHONPATH"] = str(package)
    return subprocess.run([str(python), *sys.argv[1:]], cwd=ROOT, env=inside, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
