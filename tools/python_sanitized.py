"""Run a command with the Python module under AddressSanitizer: libheddle and the nanobind module are built
with it, the interpreter stays as it is.

usage: python_sanitized.py asan COMMAND [ARGUMENT...]

Builds what has changed, into build/asan. A report of this process or of one it started is printed and makes
the exit code 1.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from torch_sanitized import ROOT, run, run_sanitized

# Leaks are not looked for: the interpreter, numpy and nanobind keep thousands of blocks to the end of the
# process. tests/python shows that nothing of ours is left, by nanobind's own report.


def build(preset: str) -> Path:
    """The folder that holds the package heddle with the module of that preset."""
    found = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    run("cmake", "--preset", preset, "-DHEDDLE_PYTHON_MODULE=ON", f"-Dnanobind_DIR={found}",
        f"-DPython_EXECUTABLE={sys.executable}", HEDDLE_PYTHON=sys.executable)  # fmt: skip
    run("cmake", "--build", f"build/{preset}", "--target", "_heddle")
    package = ROOT / "build" / preset / "package"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(
        ROOT / "python" / "heddle", package / "heddle", ignore=shutil.ignore_patterns("__pycache__", "*.so*")
    )
    for module in (ROOT / "build" / preset / "python").glob("_heddle.*.so"):
        (package / "heddle" / module.name).symlink_to(module)
    return package


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] != "asan":
        sys.exit(__doc__)
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # heddle-torch's libheddle is another
    return run_sanitized("asan", build("asan"), "python", sys.argv[2:], lambda _: False)


if __name__ == "__main__":
    sys.exit(main())
