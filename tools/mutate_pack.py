"""Lay down what tools/mutate.py needs on a machine without network: doctest's header, CMake and ninja.

usage: mutate_pack.py [DIR]

DIR (.mutate/, which git ignores) is carried there beside the tree; `mutate.py --packed DIR` takes it. CMake
and ninja travel as wheels for Linux on x86-64, and are unpacked where the machine has none. A compiler of
C++20 and Python it has to have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = Path("doctest/doctest.h")
TOOLS = ("cmake", "ninja")


def header() -> Path:
    for folder in ("/usr/include", "/usr/local/include", "/opt/homebrew/include"):
        if (Path(folder) / HEADER).exists():
            return Path(folder) / HEADER
    raise SystemExit(
        "mutate_pack.py: doctest.h was not found: install doctest-dev (tools/setup.sh test does)"
    )


def pack(folder: Path) -> None:
    target = folder / "include" / HEADER
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(header(), target)
    for old in folder.glob("*.whl"):
        old.unlink()
    kinds = [f"manylinux{number}_x86_64" for number in ("_2_28", "_2_17", "2014")]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                    "--python-version", "3.12", *(f"--platform={kind}" for kind in kinds),
                    "--dest", str(folder), *TOOLS], check=True)  # fmt: skip


def unpacked(wheels: Path, tool: str, folder: Path) -> Path:
    """The folder with the program, out of its wheel."""
    with zipfile.ZipFile(next(wheels.glob(f"{tool}-*.whl"))) as archive:
        archive.extractall(folder / tool)
    program = next(path for path in sorted((folder / tool).rglob(tool))
                   if path.is_file() and path.parent.name in ("bin", "scripts"))  # fmt: skip
    for path in program.parent.iterdir():
        path.chmod(0o755)
    return program.parent


def use(packed: Path, folder: Path) -> None:
    """Puts the packed header into the compiler's search, and packed tools that are missing into PATH."""
    paths = [str(packed / "include"), *filter(None, [os.environ.get("CPLUS_INCLUDE_PATH")])]
    os.environ["CPLUS_INCLUDE_PATH"] = os.pathsep.join(paths)
    for tool in TOOLS:
        if not shutil.which(tool):
            found = unpacked(packed, tool, folder / "tools")
            os.environ["PATH"] = f"{found}{os.pathsep}{os.environ.get('PATH', '')}"


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".mutate"
    pack(where)
    size = sum(path.stat().st_size for path in where.rglob("*") if path.is_file())
    print(f"{where}: {size >> 20} MiB")
