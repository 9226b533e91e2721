#!/bin/bash
# gpu_pack.sh [ARCHITECTURES]: what tools/gpu_check.sh needs on a machine with a GPU and without a network.
#
# Builds into build/gpu, with nvcc, for ARCHITECTURES (90; several as "80;90"), what changed since the last
# time, and lays down .gpu/, which git ignores: three archives, each made anew only when it changed. Fails
# above GPU_PACK_LIMIT (56) MiB together. Refuses a tree with changes that no commit has, unless
# GPU_PACK_DIRTY=1, which the results then say.
# The Python module is for the version of Python of GPU_PYTHON (a Python 3.12), with its headers; the machine
# there has to have the same. HEDDLE_NVCC: nvcc, if it is not in PATH.
# GPU_TORCH: a Python of that version with the PyTorch of the machine there (pip install torch==2.11.0 in a
# venv): heddle-torch, built against it, is carried as well. GPU_CUPY=cupy-cuda13x: that package, too, in
# .gpu_more/, which is carried alone, after .gpu/ was unpacked there.
# GPU_PROBE: the program of the probe, built for the machine there, beside which the row `probe` of
# bench/cuda/figure.py holds Heddle's callers; it is carried as bin/probe.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=$root/build/gpu
staged=$build/pack
limit=${GPU_PACK_LIMIT:-56}
python=$root/.venv/bin/python
nvcc=${HEDDLE_NVCC:-$(command -v nvcc || true)}
fail() { echo "gpu_pack.sh: $*" >&2; exit 1; }
[ -n "$nvcc" ] || fail "there is no nvcc in PATH; set HEDDLE_NVCC"
pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
target=${GPU_PYTHON:-$(ls -d "$pyenv"/3.12.*/bin/python3.12 2> /dev/null | head -1)}
target=${target:-$(command -v python3.12 || true)}
[ -n "$target" ] || fail "there is no Python 3.12; set GPU_PYTHON to the version of the machine with the GPU"
probe=${GPU_PROBE:-}
[ -z "$probe" ] || { [ -f "$probe" ] && [ -x "$probe" ]; } || fail "GPU_PROBE names no program: $probe"
mkdir -p "$root/build/logs"
commit=$(git rev-parse HEAD)
if [ -n "$(git status --porcelain)" ]; then
  [ "${GPU_PACK_DIRTY:-}" = 1 ] || fail "there are changes that no commit has; GPU_PACK_DIRTY=1 packs them"
  commit="$commit and changes"
fi

# Compiled within ninja's limit of two, at low priority: nvcc takes minutes.
{
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHEDDLE_CUDA=DOUBLE -DHEDDLE_NVCC="$nvcc" \
    -DHEDDLE_CUDA_ARCHITECTURES="${1:-90}" -DHEDDLE_PYTHON="$python" -DHEDDLE_PYTHON_MODULE=ON \
    -DPython_EXECUTABLE="$target" -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)"
  nice ninja -C "$build" -j 2 _heddle heddle_shared cuda_conformance stress_test cuda_callers
} > build/logs/gpu_pack.log 2>&1 || { tail -n 30 build/logs/gpu_pack.log >&2; fail "the build failed"; }
for package in rapidocr-onnxruntime silero-vad; do
  "$python" tools/models/packages.py "$package" >> build/logs/gpu_pack.log 2>&1
done
[ -e build/models/minilm.onnx ] || "$python" tools/models/minilm.py --out build/models/minilm.onnx
"$python" tools/models/wav2vec2.py --out build/models/wav2vec2.onnx >> build/logs/gpu_pack.log 2>&1

rm -rf "$staged"
mkdir -p "$staged"/{programs/bin,programs/site/heddle,libraries/lib,models} .gpu
install -s -m 755 "$build"/{cuda_conformance,stress_test,bench/cuda_callers} "$staged/programs/bin"
[ -z "$probe" ] || install -m 755 "$probe" "$staged/programs/bin/probe"
for component in python heddle; do
  cmake --install "$build" --prefix "$staged/prefix" --component $component >> build/logs/gpu_pack.log
done
cp -r python/heddle/. "$staged/programs/site/heddle/"
find "$staged/programs/site" -name __pycache__ -exec rm -rf {} +
find "$staged/prefix" -name '_heddle*.so' -exec install -s -m 755 {} "$staged/programs/site/heddle" \;
install -s -m 755 "$(find "$staged/prefix" -name libheddle.so.0)" "$staged/programs/site/heddle"
find "$staged/prefix" \( -name 'libdnnl.so.*' -o -name 'libprotobuf-lite.so.*' \) ! -name '*.txt' \
  -exec install -m 755 {} "$staged/libraries/lib" \;
# What the stress tests' programs and a machine without them need of the same name, gcc's, is the system's.
cp build/models/packages/rapidocr-onnxruntime/*.onnx "$staged/models"
cp build/models/packages/silero-vad/silero_vad_{16k_op15,op18_ifless}.onnx "$staged/models"
"$python" tools/gpu_models.py pack build/models/minilm.onnx "$staged/models/minilm.f16"
"$python" tools/gpu_models.py describe build/models/wav2vec2.onnx "$staged/models/wav2vec2.graph"

# heddle-torch as pip would lay it down, and what PyTorch's own samples of operators import. Its entry points,
# by which each `import torch` loads it, lie apart: only its own phases have them in PYTHONPATH.
entry_points() {
  "$python" - torch_backend/pyproject.toml <<'END'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
for group, entries in project["entry-points"].items():
    print(f"[{group}]", *(f"{name} = {place}" for name, place in entries.items()), sep="\n")
END
}
if [ -n "${GPU_TORCH:-}" ]; then
  # No ||, behind which bash goes on after a command that fails.
  trap 'tail -n 30 build/logs/gpu_pack.log >&2; echo "gpu_pack.sh: heddle-torch failed" >&2' ERR
  {
    PYTHONPATH=$staged/programs/site LD_LIBRARY_PATH=$staged/libraries/lib cmake -S torch_backend \
      -B "$build/torch" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$GPU_TORCH" \
      -DHEDDLE_LIBRARY="$staged/programs/site/heddle/libheddle.so.0"
    nice ninja -C "$build/torch" -j 2
    cmake --install "$build/torch" --prefix "$staged/programs/site"
    strip "$staged"/programs/site/heddle/torch/_C*.so
    info=$staged/programs/site_torch/heddle_torch-0.1.0.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: heddle-torch\nVersion: 0.1.0\n' > "$info/METADATA"
    entry_points > "$info/entry_points.txt"
    find "$staged/programs/site" -name __pycache__ -exec rm -rf {} +
    "$GPU_TORCH" -m pip install --quiet --no-deps --no-compile --target "$staged/programs/site" expecttest
  } >> build/logs/gpu_pack.log 2>&1
  trap - ERR
fi
# Without its symbols, and without the GPU code of its sorts.
if [ -n "${GPU_CUPY:-}" ]; then
  mkdir -p "$staged/cupy/site" .gpu_more
  "$target" -m pip install --quiet --no-deps --no-compile --target "$staged/cupy/site" "$GPU_CUPY"
  find "$staged/cupy/site" -name '*.so' -exec strip {} +
  rm -f "$staged"/cupy/site/cupy/cuda/thrust.*.so
fi

# pack NAME PRESET [FOLDER]: FOLDER/NAME.tar.xz, unless it holds these very files. The dictionary holds all of
# a part, so that the kernels, which are in three programs, are stored once.
pack() {
  local sum file=${3:-.gpu}/$1
  sum=$(cd "$staged/$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
  if [ -e "$file.tar.xz" ] && [ "$(cat "$file.sum" 2> /dev/null)" = "$sum" ]; then return; fi
  tar -C "$staged/$1" --sort=name --mtime=@0 --owner=0 --group=0 -cf - . |
    xz -T 1 --lzma2=preset="$2",dict=64MiB > "$file.part"
  mv "$file.part" "$file.tar.xz"
  printf '%s\n' "$sum" > "$file.sum"
}
pack libraries 6
pack models 1
pack programs 1
[ ! -d "$staged/cupy" ] || pack cupy 6 .gpu_more
printf '%s\n' "$commit" > .gpu/commit
du -ab .gpu/* .gpu_more/* 2> /dev/null || true
total=$(cat .gpu/* | wc -c)
echo "together $total bytes, $(git ls-files -z | xargs -0 cat | wc -c) more in the working tree"
[ "$total" -le $((limit << 20)) ] || fail ".gpu holds more than $limit MiB"
