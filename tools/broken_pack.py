"""Lay down what tools/broken.py --jobs needs on a Linux for x86-64 with g++, CMake, ninja and no network.

usage: broken_pack.py [DIR]

DIR (.broken/, which git ignores) is carried there beside the tree; `broken.py --packed DIR` takes it. In it
are doctest, oneDNN without the names of its inner functions, ONNX's schema, protobuf and spin, as one
archive.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import mutate_pack
from cores_pack import compress, libraries, told_size
from find_file import find_file

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = "needs.tar.xz"
LIMIT = 40 << 20  # bytes
NEEDED = ("cmake", "ninja", "g++", "gcc", "setpriv", "unshare")  # of the machine
# Files that cmake/HeddlePython.cmake asks the interpreter for: distribution, end of the path, place.
FILES = (
    ("onnx", "onnx/onnx.proto", "site/onnx/onnx.proto"),
    ("onednn-devel-cpu-gomp", "include/dnnl.hpp", "include/dnnl.hpp"),
    ("onednn-cpu-gomp", "lib/libdnnl.so.3", "lib/libdnnl.so.3"),
)
PROGRAMS = ("protoc", "spin")
PROTOBUF = Path("/usr/include/google/protobuf")


def lay_file(distribution: str, suffix: str, place: str, staged: Path) -> Path:
    """The file, and the record by which tools/find_file.py finds it. Says where it came from."""
    source = find_file(distribution, suffix)
    if source is None:
        raise SystemExit(f"broken_pack.py: {sys.executable} has no {suffix} of {distribution}")
    target = staged / place
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    record = staged / "site" / f"{distribution.replace('-', '_')}-0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0\n")
    (record / "RECORD").write_text(f"{os.path.relpath(target, record.parent)},,\n")
    return source


def lay(staged: Path) -> None:
    for folder in ("bin", "lib", "include/google", "include/doctest"):
        (staged / folder).mkdir(parents=True)
    sources = {suffix: lay_file(name, suffix, place, staged) for name, suffix, place in FILES}
    headers = sources["include/dnnl.hpp"].parent
    for path in headers.glob("dnnl*.h*"):
        shutil.copy(path, staged / "include")
    shutil.copytree(headers / "oneapi", staged / "include" / "oneapi")
    shutil.copy(mutate_pack.header(), staged / "include" / "doctest")
    if not PROTOBUF.exists():
        raise SystemExit(f"broken_pack.py: there is no {PROTOBUF}: tools/setup.sh build installs it")
    shutil.copytree(PROTOBUF, staged / "include" / "google" / "protobuf")
    found: list[Path] = []
    for name in PROGRAMS:
        program = shutil.which(name)
        if program is None:
            raise SystemExit(f"broken_pack.py: there is no program {name}: tools/setup.sh test installs it")
        shutil.copy(program, staged / "bin" / name)
        found += libraries(Path(program))
    whole = next(path for path in found if path.name.startswith("libprotobuf.so"))
    lite = whole.with_name(whole.name.replace("protobuf", "protobuf-lite"))
    for path in (*found, lite):
        shutil.copy(path, staged / "lib" / path.name)
    (staged / "lib" / "libprotobuf-lite.so").symlink_to(lite.name)  # by this name it is linked
    for path in (staged / "lib").iterdir():
        if not path.is_symlink():
            path.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", path], check=True)


def pack(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as name:
        lay(Path(name))
        folder.mkdir(parents=True, exist_ok=True)
        compress(Path(name), folder / ARCHIVE, 6)
    return (folder / ARCHIVE).stat().st_size


def use(packed: Path, folder: Path) -> None:
    """Unpacks it into the folder, and puts it before what the machine has."""
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        raise SystemExit(f"broken.py: this machine has no {', '.join(missing)}")
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(packed / ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    for variable, below in (("PATH", "bin"), ("LD_LIBRARY_PATH", "lib"), ("CPLUS_INCLUDE_PATH", "include"),
                            ("PYTHONPATH", "site"), ("CMAKE_PREFIX_PATH", "")):  # fmt: skip
        paths = [str(folder / below), *filter(None, [os.environ.get(variable)])]
        os.environ[variable] = os.pathsep.join(paths)
    os.environ["HEDDLE_SPIN_COMPILER"] = "gcc"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / ".broken")
    folder = parser.parse_args().folder
    return told_size(folder, pack(folder), LIMIT)


if __name__ == "__main__":
    sys.exit(main())
