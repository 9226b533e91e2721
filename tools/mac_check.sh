#!/bin/bash
# mac_check.sh [--double] [FOLDER]: everything that only a Mac can show, in one run, as one archive.
#
# Builds; runs the unit tests, conformance and threads tests on device "metal", the probes of MPSGraph's
# limits, heddle doctor, the guard on Apple's own driver with its crash rates and cost, and every benchmark.
# Asks for nothing. FOLDER is ~/heddle-mac-DATE if left out; FOLDER.tar.gz is the archive, made whatever
# fails. Needs macOS 14 or newer on Apple silicon, Xcode's command line tools, Homebrew; changes nothing
# outside FOLDER, build/ and .venv. Exit status: 0 all phases are ok, 1 one is not, 2 this cannot run here.
#
# --double: on Linux, against the doubles in build/release, a small part of each phase: that the script works.
# MAC_CHECK_RUNS (20): stress runs of each kind. MAC_CHECK_ONLY: a list of phases, build,guard_classes.
# MAC_CHECK_LIMIT (7200): the seconds that one phase may take.
set -u
set -m  # each phase is a process group, which ends as a whole
usage() {
  echo "usage: tools/mac_check.sh [--double] [FOLDER]" >&2
  exit 2
}
double=
if [ "${1:-}" = --double ]; then
  double=yes
  shift
fi
case "${1:-}" in -*) usage ;; esac
[ $# -le 1 ] || usage
if [ -z "$double" ] && { [ "$(uname -s)" != Darwin ] || [ "$(uname -m)" != arm64 ]; }; then
  echo "mac_check.sh: this is $(uname -sm); it needs macOS on Apple silicon, or --double" >&2
  exit 2
fi
out=${1:-$HOME/heddle-mac-$(date +%Y-%m-%d-%H%M%S)}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
if [ -n "$(ls -A "$out")" ]; then
  echo "mac_check.sh: $out is not empty; it needs a folder of its own" >&2
  exit 2
fi
cd "$(dirname "$0")/.." || exit 2
root=$PWD
release=$root/build/release
runs=${MAC_CHECK_RUNS:-20}
limit=${MAC_CHECK_LIMIT:-7200}
all="system setup build tests conformance threads probes doctor guard_build guard_classes crash_rate_null
     crash_rate_raw cost figures"
only=,${MAC_CHECK_ONLY:-$(echo $all | tr ' ' ,)},
for chosen in $(echo "$only" | tr , ' '); do
  case " $(echo $all) " in *" $chosen "*) ;; *)
    echo "mac_check.sh: MAC_CHECK_ONLY names '$chosen'; the phases are: $(echo $all)" >&2
    exit 2 ;;
  esac
done
export HEDDLE_PYTHON=${HEDDLE_PYTHON:-$root/.venv/bin/python}
lines= not_ok=, stopped= running=

note() {  # PHASE STATUS MORE
  lines="$lines${lines:+,
}  {\"phase\": \"$1\", \"status\": \"$2\"$3}"
  [ "$2" = ok ] || not_ok="$not_ok$1,"
}

# phase NAME "NEEDED ..." COMMAND...: runs it unless what it needs is not ok; its output is NAME.log.
phase() {
  local name=$1 needed=$2 begin seconds code=0 watchdog status=failed
  shift 2
  case $only in *,"$name",*) ;; *) return ;; esac
  for each in $needed; do
    case $not_ok in *,"$each",*)
      echo "$name: not run, it needs $each"
      note "$name" "not run" ", \"needs\": \"$each\""
      return ;;
    esac
  done
  if [ -n "$stopped" ]; then
    note "$name" "not run" ", \"needs\": \"no interruption\""
    return
  fi
  begin=$(date +%s)
  "$@" > "$out/$name.log" 2>&1 < /dev/null &
  running=$!
  { sleep "$limit"; kill -9 -- "-$running"; } > /dev/null 2>&1 &
  watchdog=$!
  wait "$running" 2> /dev/null || code=$?
  kill -9 -- "-$running" 2> /dev/null  # what it left behind
  running=
  kill -9 -- "-$watchdog" 2> /dev/null
  wait "$watchdog" 2> /dev/null
  seconds=$(($(date +%s) - begin))
  [ $seconds -lt "$limit" ] || status="out of time"
  [ $code -ne 0 ] || status=ok
  [ -z "$stopped" ] || status=interrupted
  note "$name" "$status" ", \"exit\": $code, \"seconds\": $seconds"
  echo "$name: $status, exit $code"
}

interrupt() {
  stopped=yes
  [ -z "$running" ] || kill -9 -- "-$running" 2> /dev/null
}
trap interrupt INT TERM

if [ -n "$double" ]; then
  library=$release/guard/libagx_guard.so guard=$release/guard insert=LD_PRELOAD small=--small
  one_case="-tc=a queue does its commands in order"
  two_threads="-tc=two threads call one model and both get right values"
  stress_calls=300
  system() { uname -a; }
  setup() { "$HEDDLE_PYTHON" -c "import heddle"; }
  build() {
    cmake --build "$release" --target limit_probes driver_conformance stress_test heddle_on_the_double
  }
  tests() { ctest --test-dir "$release" --output-on-failure --no-tests=error -R '^metal_foundation_test$'; }
  guard_build() { cmake --build "$release" --target agx_guard_stress agx_guard_bench; }
  heddle() {
    LD_PRELOAD=$release/on_the_double/libheddle.so.0 HEDDLE_DEVICE=metal "$HEDDLE_PYTHON" -m heddle "$@"
  }
  figures() {
    "$HEDDLE_PYTHON" tools/bench.py --only encoding_turns && cp build/bench/encoding_turns_bench.json "$out"
  }
else
  library=$root/build/guard/libagx_guard.dylib guard=$root/build/guard insert=DYLD_INSERT_LIBRARIES small=
  one_case= two_threads=
  stress_calls=5000
  system() {
    sw_vers
    uname -v
    sysctl -n machdep.cpu.brand_string hw.memsize hw.ncpu
    system_profiler SPDisplaysDataType
    xcodebuild -version || true
    clang++ --version
  }
  setup() { tools/setup.sh test && tools/setup.sh package; }
  build() { cmake --preset release && cmake --build "$release" -j "$(sysctl -n hw.ncpu)"; }
  tests() { ctest --test-dir "$release" --output-on-failure -LE stress; }
  guard_build() { cmake -S agx_guard -B "$guard" -DCMAKE_BUILD_TYPE=Release && cmake --build "$guard"; }
  heddle() { "$HEDDLE_PYTHON" -m heddle "$@"; }
  figures() { make bench && cp build/bench/*.json "$out"; }
fi
# The suites of all drivers, on the GPU.
on_metal() { HEDDLE_DEVICE=metal HEDDLE_TEST_DRIVER=metal "$@"; }
conformance() { on_metal "$release/driver_conformance" ${one_case:+"$one_case"}; }
threads() { on_metal "$release/stress_test" ${two_threads:+"$two_threads"}; }
probes() { "$release/limit_probes" $small --json "$out/probes.json"; }
doctor() { heddle doctor --json > "$out/doctor.json"; }
# What the guard finds in Apple's driver: classes, methods, and those whose signature it does not know.
guard_classes() {
  env "$insert=$library" AGX_GUARD_VERBOSE=1 AGX_GUARD_REPORT="$out/guard_report.json" \
    "$guard/agx_guard_stress" null 1 100
}
crash_rate() {
  AGX_GUARD_LIBRARY=$library "$HEDDLE_PYTHON" -m heddle crash-rate --runs "$runs" --timeout 60 --json -- \
    "$guard/agx_guard_stress" "$1" 4 "$stress_calls" > "$out/crash_rate_$1.json"
}
cost() {
  "$guard/agx_guard_bench" > "$out/cost_without.json" &&
    env "$insert=$library" "$guard/agx_guard_bench" > "$out/cost_with.json"
}

touch "$out/begun"
phase system "" system
phase setup "" setup
phase build setup build
phase tests build tests
phase conformance build conformance
phase threads build threads
phase probes build probes
phase doctor setup doctor
phase guard_build setup guard_build
phase guard_classes guard_build guard_classes
phase crash_rate_null "setup guard_build" crash_rate null
phase crash_rate_raw "setup guard_build" crash_rate raw
phase cost guard_build cost
phase figures build figures

# What crashed meanwhile, as macOS wrote it down.
crashes=$HOME/Library/Logs/DiagnosticReports
find "$crashes" -name '*.ips' -newer "$out/begun" -exec cp {} "$out" \; 2> /dev/null
rm "$out/begun"
cat > "$out/result.json" << JSON
{"commit": "$(git rev-parse HEAD)",
 "changed": $([ -z "$(git status --porcelain)" ] && echo false || echo true),
 "double": $([ -n "$double" ] && echo true || echo false), "phases": [
$lines
]}
JSON
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")" || exit 1
echo "to attach: $out.tar.gz"
[ "$not_ok" = , ]
