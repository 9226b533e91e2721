"""Which lines of src/onnx and src/api the fuzz targets have reached.

The preset coverage compiles these folders with Clang's counters of source regions. A target writes what it
counted (tools/fuzz.py); llvm-profdata adds the counts up, and llvm-cov says which lines have any.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build" / "coverage" / "fuzz"
FOLDERS = ("src/onnx", "src/api")
PROFDATA, COV = "llvm-profdata-16", "llvm-cov-16"

Counts = dict[str, dict[str, int]]


def by_folder(files: Iterable[Mapping[str, object]], root: Path) -> Counts:
    """Of llvm-cov's files: lines that hold code, and how many of them were reached. Tests lie beside them."""
    table = {folder: {"lines": 0, "reached": 0} for folder in FOLDERS}
    for file in files:
        name = str(file["filename"]).removeprefix(f"{root}/")
        folder = next((each for each in FOLDERS if name.startswith(each + "/")), None)
        if folder is None or name.endswith("_test.cpp"):
            continue
        lines = file["summary"]["lines"]  # type: ignore[index]
        table[folder]["lines"] += lines["count"]
        table[folder]["reached"] += lines["covered"]
    return table


def files_counted(targets: Sequence[str], folder: Path) -> list:
    """llvm-cov's words about each file, of all targets together. `folder` has the counts of each."""
    profile = folder / "all.profdata"
    subprocess.run([PROFDATA, "merge", "-o", profile, *sorted(folder.glob("*.profraw"))], check=True)
    first, *others = [PROGRAMS / target for target in targets]
    objects = [word for program in others for word in ("-object", program)]
    command = [COV, "export", "-summary-only", f"-instr-profile={profile}", first, *objects]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout)["data"][0]["files"])
