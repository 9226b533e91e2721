"""heddle-torch for another PyTorch than .venv's, in build/torch-VERSION: prints the Python that has both.

usage: other_torch.py VERSION

Made once for each version: a virtual environment with that PyTorch (several GB with the CUDA libraries that
it brings). What tests need besides, that Python takes from .venv; heddle is .venv's, heddle-torch is compiled
against that PyTorch, with warnings as errors.
"""

import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], cwd=ROOT, check=True, stdout=sys.stderr)


def site_packages(python: Path) -> Path:
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())


def make(version: str) -> Path:
    folder = ROOT / "build" / f"torch-{version}"
    python = folder / "venv" / "bin" / "python"
    ours, stamp = site_packages(Path(sys.executable)), folder / "made"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder / "venv", with_pip=True)
        numpy = f"numpy=={metadata.version('numpy')}"
        run(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", f"torch=={version}", numpy)
        (site_packages(python) / "tests.pth").write_text(f"{ours}\n")
        stamp.touch()
    apart = folder / "venv" / "apart"
    if not apart.is_symlink():
        apart.symlink_to(Path(sys.prefix) / "apart")
    theirs = site_packages(python) / "heddle"
    shutil.rmtree(theirs, ignore_errors=True)
    shutil.copytree(
        ours / "heddle", theirs, ignore=lambda at, _: ["torch"] if Path(at) == ours / "heddle" else []
    )
    build = folder / "build"
    run("cmake", "-S", "torch_backend", "-B", build, "-G", "Ninja", f"-DPython_EXECUTABLE={python}",
        "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON")  # fmt: skip
    run("cmake", "--build", build)
    run("cmake", "--install", build, "--prefix", theirs.parent)
    return python


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(make(sys.argv[1]))
