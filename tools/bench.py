"""Build and run every benchmark; each states its question, checks its answers and prints ratios with spread.

usage: bench.py [--only NAME,NAME]      NAME is part of a benchmark's file name

C++ benchmarks are bench/**/*_bench.cpp, Python ones bench/**/*_bench.py. Each is called with `--json FILE`;
the files land in build/bench/.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
NEEDS = {"torch_on_the_double_bench": ["heddle_on_the_double"]}  # targets beside a benchmark's own
MAC = sys.platform == "darwin"  # whose Metal is Apple's
PAUSE_S = 2.0  # the cores' clocks settle between two benchmarks


def find(chosen: list[str]) -> list[Path]:
    found = sorted([*ROOT.glob("bench/**/*_bench.cpp"), *ROOT.glob("bench/**/*_bench.py")])
    found = [path for path in found if not (MAC and "on_the_double" in path.stem)]
    return [path for path in found if not chosen or any(word in path.stem for word in chosen)]


def build(benches: list[Path]) -> bool:
    targets = [path.stem for path in benches if path.suffix == ".cpp"]
    targets += [target for path in benches for target in NEEDS.get(path.stem, [])]
    if not targets:
        return True
    steps = [
        # Release, and the driver of bench/metal beside it.
        ["cmake", "--preset", "release" if MAC else "metal-double"],
        ["cmake", "--build", str(BUILD), "-j", str(os.cpu_count() or 2), "--target", *targets],
    ]
    for step in steps:
        done = subprocess.run(step, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout + done.stderr, file=sys.stderr)
            return False
    return True


def run(bench: Path, out: Path) -> bool:
    program = [str(BUILD / "bench" / bench.stem)] if bench.suffix == ".cpp" else [sys.executable, str(bench)]
    print(f"\n== {bench.relative_to(ROOT)}", flush=True)
    done = subprocess.run([*program, "--json", str(out / f"{bench.stem}.json")], cwd=ROOT, check=False)
    if done.returncode != 0:
        print(f"{bench.relative_to(ROOT)} failed with exit code {done.returncode}", file=sys.stderr)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="parts of file names, separated by commas")
    chosen = [word for word in parser.parse_args().only.split(",") if word]
    benches = find(chosen)
    if not benches:
        print(f"no benchmark below bench/ matches {chosen}", file=sys.stderr)
        return 1
    if not build(benches):
        return 1
    out = ROOT / "build" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for bench in benches:
        failed += not run(bench, out)
        time.sleep(PAUSE_S)
    good = len(benches) - failed
    print(f"\n{good} of {len(benches)} benchmarks passed; figures in {out.relative_to(ROOT)}/*.json")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
