"""Which lines of src/onnx and src/api the fuzz targets reach with given inputs.

The preset coverage compiles these folders with Clang's counters of source regions. Each target runs its
inputs once and writes what it counted; llvm-profdata adds the counts up, and llvm-cov says which lines have
any.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build" / "coverage" / "fuzz"
FOLDERS = ("src/onnx", "src/api")
PROFDATA, COV = "llvm-profdata-16", "llvm-cov-16"

Counts = dict[str, dict[str, int]]


def build() -> bool:
    configure = ["cmake", "--preset", "coverage"]
    compile_all = ["cmake", "--build", "build/coverage", "--target", "fuzz_targets"]
    return all(
        subprocess.run(words, cwd=ROOT, check=False).returncode == 0 for words in (configure, compile_all)
    )


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


def run(target: str, inputs: Sequence[Path], raw: Path, environment: Mapping[str, str]) -> None:
    words = [PROGRAMS / target, "-runs=0", *(folder for folder in inputs if folder.exists())]
    counting = {**os.environ, **environment, "LLVM_PROFILE_FILE": str(raw)}
    done = subprocess.run(words, cwd=ROOT, env=counting, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False)  # fmt: skip
    if done.returncode != 0 or not raw.exists():
        raise RuntimeError(f"{target} did not end rightly on its inputs: {done.stderr[-2000:]}")


def files_reached(inputs: Mapping[str, Sequence[Path]], environment: Mapping[str, str], folder: Path) -> list:
    """llvm-cov's words about each file, of all targets together. `folder` is empty, and gets their counts."""
    for target, of_target in inputs.items():
        run(target, of_target, folder / f"{target}.profraw", environment)
    profile = folder / "all.profdata"
    subprocess.run([PROFDATA, "merge", "-o", profile, *sorted(folder.glob("*.profraw"))], check=True)
    first, *others = [PROGRAMS / target for target in inputs]
    objects = [word for program in others for word in ("-object", program)]
    command = [COV, "export", "-summary-only", f"-instr-profile={profile}", first, *objects]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout)["data"][0]["files"])
