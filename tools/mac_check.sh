#!/bin/bash
# mac_check.sh OUTDIR: everything that only a Mac can show, in one run, into OUTDIR/result.json.
#
# Build, conformance and threads tests on device "metal", the guard on Apple's own driver (which methods it
# finds, the stress with and without it, its cost), the bench. Needs macOS 14 or newer on Apple silicon,
# Xcode's command line tools, Homebrew; changes nothing outside OUTDIR, build/ and .venv.
#
# This script has not been run: it was written on Linux, without a Mac. A failing step does not stop others.
# MAC_CHECK_RUNS (20) is the number of stress runs of each kind, MAC_CHECK_ONLY a list of steps: build,guard.
set -u
if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
  echo "usage: tools/mac_check.sh OUTDIR" >&2
  exit 2
fi
if [ "$(uname -s)" != Darwin ] || [ "$(uname -m)" != arm64 ]; then
  echo "mac_check.sh: this is $(uname -sm); it needs macOS on Apple silicon" >&2
  exit 2
fi
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 2
root=$PWD
runs=${MAC_CHECK_RUNS:-20}
all=system,setup,build,tests,conformance,guard_build,guard_classes,stress_null,stress_raw,cost,bench
only=,${MAC_CHECK_ONLY:-$all},
export HEDDLE_PYTHON=$root/.venv/bin/python
steps="$out/steps.jsonl"
: > "$steps"

# step NAME COMMAND...: runs it, keeps its output in NAME.log, notes exit code and seconds.
step() {
  name=$1
  shift
  case $only in *,"$name",*) ;; *) return 0 ;; esac
  printf '%-16s ' "$name"
  begin=$(date +%s)
  "$@" > "$out/$name.log" 2>&1
  code=$?
  seconds=$(($(date +%s) - begin))
  printf '{"step": "%s", "exit": %d, "seconds": %d}\n' "$name" "$code" "$seconds" >> "$steps"
  [ $code -eq 0 ] && echo "ok, $seconds s" || echo "exit $code after $seconds s, see $out/$name.log"
  return $code
}

system() {
  sw_vers
  uname -v
  sysctl -n machdep.cpu.brand_string hw.memsize hw.ncpu
  system_profiler SPDisplaysDataType
  xcodebuild -version || true
  clang++ --version
}

build() { cmake --preset release && cmake --build build/release -j "$(sysctl -n hw.ncpu)"; }

tests() { ctest --test-dir build/release --output-on-failure -LE stress; }

# The suites of all drivers, on the GPU.
conformance() {
  HEDDLE_DEVICE=metal build/release/driver_conformance && HEDDLE_DEVICE=metal build/release/stress_test
}

guard_build() {
  cmake -S agx_guard -B build/guard -DCMAKE_BUILD_TYPE=Release && cmake --build build/guard
}

# What the guard finds in Apple's driver: classes, methods, and those whose signature it does not know.
guard_classes() {
  DYLD_INSERT_LIBRARIES=$root/build/guard/libagx_guard.dylib AGX_GUARD_VERBOSE=1 \
    AGX_GUARD_REPORT="$out/guard_report.json" build/guard/agx_guard_stress null 1 100
}

crash_rate() {
  AGX_GUARD_LIBRARY=$root/build/guard/libagx_guard.dylib "$HEDDLE_PYTHON" -m heddle crash-rate \
    --runs "$runs" --timeout 60 --json -- "$root/build/guard/agx_guard_stress" "$1" 4 5000 \
    > "$out/crash_rate_$1.json"
}
stress_null() { crash_rate null; }
stress_raw() { crash_rate raw; }

cost() {
  build/guard/agx_guard_bench > "$out/cost_without.json" || return 1
  DYLD_INSERT_LIBRARIES=$root/build/guard/libagx_guard.dylib build/guard/agx_guard_bench \
    > "$out/cost_with.json"
}

bench() { make bench; }

step system system
step setup tools/setup.sh test
step build build && step tests tests
step conformance conformance
step guard_build guard_build && {
  step guard_classes guard_classes
  step stress_null stress_null
  step stress_raw stress_raw
  step cost cost
}
step bench bench

# One file of it all.
/usr/bin/python3 - "$out" "$root" <<'PYTHON'
import json
import pathlib
import subprocess
import sys

out, root = pathlib.Path(sys.argv[1]), sys.argv[2]
result = {"steps": [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]}
commit = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
result["commit"] = commit.stdout.strip()
for name in ("crash_rate_null", "crash_rate_raw", "guard_report", "cost_with", "cost_without"):
    path = out / f"{name}.json"
    try:
        result[name] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        result[name] = f"missing: {error}"
result["logs"] = {path.stem: path.read_text(errors="replace")[-20000:] for path in sorted(out.glob("*.log"))}
(out / "result.json").write_text(json.dumps(result, indent=1))
PYTHON
echo "all of it: $out/result.json"
grep -q '"exit": [1-9]' "$steps" && exit 1
exit 0
