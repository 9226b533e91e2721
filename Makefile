# The words people type. Each target sets up what it needs (packages, .venv, build) on a fresh Debian 12
# or on macOS 14 with Homebrew.
#   make demo     embed sentences from 1 to 16 threads, check them against ONNX Runtime, plot the figures
#   make test     every check of the project;  ONLY=unit,tsan picks stages
#   make test-long    the same, each header alone, the benchmarks' programs, the library with each compiler
#                     it builds with, 100,000 random graphs, everything up to the host driver for 64-bit Arm
#                     under qemu, the removals of tests/broken, schedules with more preemptions, simulations
#                     under 200,000 seeds, the wheels, and Python's module and the PyTorch device under
#                     sanitizers
#   make fuzz     the targets of tests/fuzz, five minutes each, and how many lines they reach; FUZZ_SECONDS=60
#   make soak     random threads, models, cancellations and faults for an hour, each answer checked and memory
#                 watched; SOAK_SECONDS=600 bounds it, SOAK_SEED=7 names its choices; into build/soak
#   make bench    every figure of docs/performance.md;  ONLY=once_map,minilm picks benchmarks
#   make bench-cuda  many small callers beside PyTorch, on a machine with a GPU and the .gpu of
#                     tools/gpu_pack.sh;  FIGURE_ROWS="callers one" picks rows; into FIGURE_OUT;
#                     FIGURE_PROBE=PROGRAM: the probe, unless .gpu carries it
#   make conformance   the ONNX node tests, and docs/conformance.md
#   make torch    the PyTorch device "heddle": builds and installs heddle-torch into .venv
#   make wheel    wheels of heddle and heddle-torch in dist/, each run in an empty environment
#   make build    PRESET=dev|release|asan|tsan|sim
#   make format   rewrite the sources as the checks want them
PRESET ?= dev
ONLY ?=
FUZZ_SECONDS ?= 300
SOAK_SECONDS ?= 3600
SOAK_SEED ?=
FIGURE_OUT ?= build/bench_cuda
GPU_CHECK_PYTHON ?= python3
VENV := $(or $(HEDDLE_VENV),.venv)
PYTHON_IN_VENV := $(VENV)/bin/python
export HEDDLE_PYTHON := $(if $(filter /%,$(VENV)),,$(CURDIR)/)$(VENV)/bin/python

.PHONY: demo test test-long fuzz soak bench bench-cuda conformance build format clean package torch wheel
.PHONY: setup setup-build setup-test setup-long setup-bench
demo: package
	@$(PYTHON_IN_VENV) demo/demo.py

test: setup-build
	@$(PYTHON_IN_VENV) tools/check.py $(if $(ONLY),--only $(ONLY))

test-long: setup-long
	@$(PYTHON_IN_VENV) tools/check.py --long

fuzz: setup-build
	@$(PYTHON_IN_VENV) tools/fuzz.py --build --seconds $(FUZZ_SECONDS) --keep \
	  --json build/fuzz/verdicts.json --coverage build/fuzz/coverage.json

soak: setup-build
	@cmake --preset release > /dev/null
	@cmake --build build/release --target stress_test
	@$(PYTHON_IN_VENV) tools/soak.py --seconds $(SOAK_SECONDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

bench: setup-bench torch
	@$(PYTHON_IN_VENV) tools/bench.py $(if $(ONLY),--only $(ONLY))

bench-cuda: export HEDDLE_PYTHON := $(GPU_CHECK_PYTHON)
bench-cuda:
	@tools/gpu_check.sh $(FIGURE_OUT) module export figure; status=$$?; \
	  $(GPU_CHECK_PYTHON) bench/cuda/figure_table.py $(FIGURE_OUT)/gpu_figure.json; exit $$status

conformance: setup-test package
	@$(PYTHON_IN_VENV) tools/conformance.py --document docs/conformance.md

build: setup-test
	@cmake --preset $(PRESET) > /dev/null
	@cmake --build --preset $(PRESET)

package: setup
	@tools/setup.sh package

torch: setup-test
	@tools/setup.sh torch

wheel: torch
	@$(PYTHON_IN_VENV) tools/wheel.py

format: setup-test
	@git ls-files -co --exclude-standard '*.cpp' '*.h' | xargs $(VENV)/bin/clang-format -i
	@$(VENV)/bin/ruff check -q --fix .
	@$(VENV)/bin/ruff format -q .

clean:
	@rm -rf build dist

setup:
	@tools/setup.sh demo

setup-build:
	@tools/setup.sh build
setup-test:
	@tools/setup.sh test
setup-long:
	@tools/setup.sh long
setup-bench:
	@tools/setup.sh bench
