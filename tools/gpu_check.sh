#!/bin/bash
# gpu_check.sh [--double] OUT [PHASE...]: what only a GPU can show, in one run. All phases, or those named;
# "figures": those that measure time, which run alone at the end, and what they need.
#
# Unpacks .gpu/ (tools/gpu_pack.sh made it, perhaps on another machine), runs the phases of gpu_check.py, and
# leaves OUT/result.json and OUT/logs.tar.gz whatever fails. Asks for nothing and needs no network: a GPU, its
# driver, and a python3 with numpy, pytest, PyTorch, onnx, onnxscript, onnxruntime and safetensors.
# HEDDLE_PYTHON: another interpreter. compute-sanitizer is looked for in PATH and in CUDA's folder.
# GPU_CHECK_SECONDS (560): all of it; phases that have not ended by then are ended and named.
# FIGURE_PROBE: the probe's program for the row `probe` of figure, unless .gpu/ carries the one that is meant.
# FIGURE_ROWS: rows of figure.
# Exit status: 0 all phases are ok, 1 one is not, 2 this cannot run here.
#
# --double: a small part of each phase on the CUDA double of build/release: that the script works.
set -u
cd "$(dirname "$0")/.." || exit 2
python=${HEDDLE_PYTHON:-$(command -v python3)}
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
exec "$python" tools/gpu_check.py "$@"
