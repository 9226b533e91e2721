"""The phases of tools/gpu_check.py: what each runs, where, for how long, and after which others."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpu_findings import (
    FOUND,
    doctest,
    facts_of,
    json_line,
    pytest_end,
    read_json,
    sanitizer,
    sanitizer_passes,
)

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("programs", "libraries", "models")
MODELS = ("resnet18", "minilm_torch", "mlp", "encoder", "conv1d")
OPINFO_SHARE = 4  # of PyTorch's samples of operators, one of so many
TWO_CARDS = {"HEDDLE_CUDA_DOUBLE_DEVICES": "2"}  # of the double
# Whose events are the double's.
NOT_FOREIGN = (
    "-tce=*foreign event*,*signalled event*,*a refused submission is over once what it waits for is*"
)
PRODUCTS = "-tc=products of*"  # which the libraries would compute
OURS = {"HEDDLE_TEST_LIBRARIES": "off"}
# By phase of compute-sanitizer: the cases of conformance. initcheck runs without NVIDIA's libraries: in their
# kernels it takes minutes, and finds what is not ours to mend.
SANITIZED = {
    "memcheck": ("-tc=a queue does*,one module*,many threads*,what only*,outputs*,an output*,copies*,"
                 "convolutions*,a row*"),
    "racecheck": "-tc=a queue does*,one module*,copies*,outputs*,an output*,what only*",
    "racecheck_windows": "-tc=convolutions*,a row*,what a convolution*",
    "initcheck": "-tc=a queue does*,one module*,copies*,outputs*,an output*",
    "initcheck_windows": "-tc=convolutions*,a row*",
    "memcheck_products": PRODUCTS,
    "racecheck_products": PRODUCTS,
    "initcheck_products": PRODUCTS,
}  # fmt: skip


@dataclass
class Phase:
    name: str
    command: list[str | Path]
    limit: float
    findings: Callable[[str], dict[str, object]]
    needs: tuple[str, ...] = ()  # which have to be ok
    after: tuple[str, ...] = ()  # which have to have ended: it says itself what it misses of them
    alone: bool = False
    env: dict[str, str] = field(default_factory=dict)
    passes: Callable[[int | None, dict[str, object]], bool] = lambda code, _: code == 0


class Machine:
    """Where the programs and libraries are, and what the environment of a phase is."""

    def __init__(self, double: bool) -> None:
        self.double = double
        base = ROOT / "build" / ("release" if double else "gpu_card")
        if double:
            self.programs = base
            folder = base / "cuda_double"
            if not (folder / "libcuda.so.1").exists():
                sys.exit("gpu_check: --double needs cmake --build --preset cuda")
            self.env = {
                "LD_LIBRARY_PATH": str(folder),
                "HEDDLE_CUDA_IMAGE": str(folder / "kernels"),
                "HEDDLE_TEST_NARROWER": "4",
            }
        else:
            self.unpack(base)
            self.programs = base / "bin"
            self.env = self.environment_there(base)
        self.env |= {"HEDDLE_TUNE": "off", "HEDDLE_DEVICE": "cuda", "PYTHONUNBUFFERED": "1",
                     "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip

    @staticmethod
    def unpack(base: Path) -> None:
        shutil.rmtree(base, ignore_errors=True)
        for part in PARTS:
            archive = ROOT / ".gpu" / f"{part}.tar.xz"
            if not archive.exists():
                print(f"gpu_check: there is no {archive}; tools/gpu_pack.sh makes it", file=sys.stderr)
                sys.exit(2)
            with tarfile.open(archive) as opened:
                opened.extractall(base / "models" if part == "models" else base)
        more = ROOT / ".gpu_more" / "cupy.tar.xz"
        if more.exists():
            with tarfile.open(more) as opened:
                opened.extractall(base)
        for library in (base / "lib").iterdir():  # where the wheel has them
            (base / "site" / "heddle" / library.name).symlink_to(library)

    @staticmethod
    def environment_there(base: Path) -> dict[str, str]:
        """cuBLASLt is looked for as beside a wheel: the packages that PyTorch brought are linked there."""
        places = [base / "lib"]
        for folder in map(Path, sys.path):
            if (folder / "nvidia").is_dir():
                (base / "site" / "nvidia").symlink_to(folder / "nvidia")
                places += sorted({path.parent for path in folder.glob("nvidia/*/lib/libcublasLt.so.*")})
                break
        before = os.environ.get("LD_LIBRARY_PATH")
        joined = [*map(str, places), *([before] if before else [])]
        return {"LD_LIBRARY_PATH": ":".join(joined), "PYTHONPATH": str(base / "site")}


def setup_commands() -> str:
    """Of a shell: the model files that are made there, from what was carried."""
    python, models = sys.executable, "build/models"
    carried = "build/gpu_card/models"
    return " && ".join(
        (
            f"mkdir -p {models}/packages/rapidocr-onnxruntime {models}/packages/silero-vad",
            f"cp {carried}/ch_*.onnx {models}/packages/rapidocr-onnxruntime",
            f"cp {carried}/silero*.onnx {models}/packages/silero-vad",
            f"{{ [ -e {models}/minilm.onnx ] || "
            f"{python} tools/gpu_models.py unpack {carried}/minilm.f16 {models}/minilm.onnx; }}",
            f"{{ [ -e {models}/wav2vec2.onnx ] || "
            f"{python} tools/gpu_models.py unpack {carried}/wav2vec2.graph {models}/wav2vec2.onnx; }}",
            f"{python} tools/models/minilm.py --out {models}/minilm.onnx --values {models}/minilm_values.bin",
        )
    )


def facts(machine: Machine) -> Phase:
    doctor = f"{sys.executable} -m heddle doctor --json | {sys.executable} -m json.tool --compact"
    if machine.double:
        return Phase("facts", ["bash", "-c", f"set -o pipefail; uname -a && {doctor}"], 60, facts_of)
    words = "nvidia-smi; nvcc --version; gcc --version; uname -a; nproc; free -g; "
    words += f"{sys.executable} -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())'; "
    return Phase("facts", ["bash", "-c", f"set -o pipefail; {words} {doctor}"], 60, facts_of)


def program(machine: Machine, name: str, limit: float, after: tuple[str, ...] = ()) -> Phase:
    words: list[str | Path] = [sys.executable, ROOT / "tests" / "gpu" / f"{name}.py"]
    made = Phase(name, words + ["--double"] * machine.double, limit, json_line, ("module",), after)
    if machine.double and name == "several":
        made.env = TWO_CARDS
    elif machine.double and name in ("exact", "real_models"):  # libraries have to be named there
        # The double's NVRTC is a compiler for the host, which takes a second for each chain.
        made.env = {"HEDDLE_CUDA_LIBRARIES": str(machine.programs / "cuda_double" / "libraries"),
                    "HEDDLE_CUDA_NVRTC": "off"}  # fmt: skip
    return made


def suites(machine: Machine) -> list[Phase]:
    """The programs in C++, and compute-sanitizer over chosen cases of conformance."""
    double = machine.double
    conformance, stress = machine.programs / "cuda_conformance", machine.programs / "stress_test"
    env = {"HEDDLE_TEST_DRIVER": "cuda"} | ({} if double else {"HEDDLE_TEST_CARD": "1"})
    one_case = "-tc=a queue does its commands in order"
    stressed = "-tce=warm calls on thirty-one streams*,*memory pressure*,*memory-pressure*"
    if double:
        stressed = "-tc=two threads call one model and both get right values"
    made = [
        Phase("conformance", [conformance, one_case if double else NOT_FOREIGN], 150, doctest, env=env),
        Phase("chains", [conformance, one_case if double else "-tc=chains of*"], 60, doctest,
              env=env | {"HEDDLE_TEST_CHAINS": "1"}),
        Phase("products", [conformance, one_case if double else PRODUCTS], 60, doctest, env=env | OURS),
        Phase("stress", [stress, stressed], 150, doctest, ("setup",),
              env={"HEDDLE_TEST_MODELS": str(ROOT / "build" / "models")}),
    ]  # fmt: skip
    for name, cases in SANITIZED.items():
        tool = name.partition("_")[0]
        words = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit",
                 "10000", conformance, one_case if double else cases, NOT_FOREIGN, "-d"]  # fmt: skip
        more = OURS if tool == "initcheck" or cases == PRODUCTS else {}
        made.append(Phase(name, words, 200, sanitizer, env=env | more, passes=sanitizer_passes))
    return made


def phases(machine: Machine, out: Path) -> list[Phase]:
    """What others wait for comes first."""
    double = machine.double
    setup = Phase("setup", ["bash", "-c", "true" if double else setup_commands()], 60, json_line)
    export: list[str | Path] = [sys.executable, "tools/models/export_torch.py", "--jobs", "5"]
    export += ["--out", "build/models/torch", *MODELS]
    exported = [] if double else [Phase("export", export, 120, json_line)]
    test_cuda: list[str | Path] = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tested = ("cuda", "cuda_tensors", "several_devices")
    test_cuda += [f"tests/python/test_{name}.py" for name in tested]
    test_cuda += ["-k", "dlpack"] * double
    card = {} if double else {"HEDDLE_TEST_CARD": "1"}
    names = ("mixed_shapes", "coalesced", "ragged", "lost", "several", "exact")
    programs = [program(machine, name, 90) for name in names]
    exits = program(machine, "exits", 120)
    exits.alone = True  # the contexts of its processes need what memory others leave
    module = "import heddle; print(heddle.Device('cuda').description)"
    return [
        facts(machine),
        Phase("module", [sys.executable, "-c", module], 60, json_line),
        setup,
        *exported,
        *suites(machine),
        Phase("python", test_cuda, 100, pytest_end, ("module",), env=card),
        *programs,
        exits,
        program(machine, "real_models", 170, ("setup", "export")),
        *beside_torch(machine, out),
    ]


def beside_torch(machine: Machine, out: Path) -> list[Phase]:
    """What needs PyTorch on the same GPU. What is timed chooses algorithms by measurement, as is usual."""
    # PyTorch is in the process, but its own captures are over when Heddle is measured.
    tuned = {"HEDDLE_TUNE": "on", "HEDDLE_CACHE_DIR": str(ROOT / "build" / "gpu_card" / "cache"),
             "HEDDLE_CUDA_GRAPHS": "all"}  # fmt: skip
    # Kept from call to call: torch.compile tries each product and convolution once.
    compiled = tuned | {"TORCHINDUCTOR_CACHE_DIR": str(ROOT / "build" / "inductor")}
    bf16, best = ("--dtype", "bf16", "--batches"), ("--compiled", "--batches")
    # Of the others apart: torch.compile tries for minutes how its convolutions are the fastest.
    apart = "resnet18"
    others = ("--models", *(name for name in MODELS if name != apart))
    if machine.double:
        return [
            bench(machine, out, "bench", 60, {}),
            bench(machine, out, "bench_bf16", 60, {}, *bf16),
            figure(machine, out, TWO_CARDS),
        ]
    start = program(machine, "start", 40, ("export",))
    start.alone, start.env = True, tuned
    return [
        program(machine, "torch_tensors", 60),
        program(machine, "cupy_tensors", 60),
        program(machine, "capture", 60),
        *torch_device(machine),
        bench(machine, out, "bench", 75, tuned),
        bench(machine, out, "bench_bf16", 45, tuned, *bf16),
        start,
        bench(machine, out, "bench_compiled", 500, compiled, *best, *others),
        bench(machine, out, "bench_compiled_bf16", 500, compiled, *best, *bf16[:2], *others),
        bench(machine, out, "bench_compiled_resnet", 500, compiled, *best, "--models", apart),
        bench(machine, out, "bench_compiled_resnet_bf16", 500, compiled, *best, *bf16[:2], "--models", apart),
        figure(machine, out, compiled),
    ]


def torch_device(machine: Machine) -> list[Phase]:
    """PyTorch's device heddle over the GPU, where heddle-torch was carried."""
    if not (ROOT / "build" / "gpu_card" / "site" / "heddle" / "torch").is_dir():
        return []
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=20"]
    folder = "torch_backend/tests"
    # Left out: what PyTorch 2.11's CPU says of bf16 is NaN where the divisor is the smallest number.
    opinfo = [f"{folder}/test_opinfo.py", "--share", str(OPINFO_SHARE)]
    opinfo += ["-k", "not fmod-bfloat16 and not remainder-bfloat16"]
    # Left out: PyTorch 2.11 crashes there with any backend.
    threads = [f"{folder}/test_{name}.py" for name in ("threads", "on_cuda", "pinned_on_cuda")]
    threads += ["-k", "not compile_from_eight"]
    models = program(machine, "torch_device", 170)
    models.name = "torch_models"
    made = [
        Phase("torch_opinfo", [*tests, *opinfo], 250, pytest_end, ("module",)),
        Phase("torch_threads", [*tests, *threads], 250, pytest_end, ("module",)),
        models,
    ]
    # With the entry points by which PyTorch loads it.
    places = [machine.env["PYTHONPATH"], str(ROOT / "build" / "gpu_card" / "site_torch")]
    for phase in made:
        phase.env = {"PYTHONPATH": ":".join(places)}
    made[0].env["HEDDLE_CUDA_NVRTC"] = "off"  # which would compile hundreds of operators, called one by one
    return made


def bench(machine: Machine, out: Path, name: str, limit: float, env: dict[str, str], *words: str) -> Phase:
    figures = out / f"gpu_{name}.json"
    command: list[str | Path] = [sys.executable, "bench/models/gpu_bench.py", "--json", figures, *words]
    command += (
        ["--rounds", "2", "--seconds", "0.02"] if machine.double else ["--rounds", "3", "--seconds", "0.1"]
    )
    command += ["--double", "--models", "mlp"] * machine.double
    return Phase(name, command, limit, lambda _: read_json(figures), ("module",), ("export",), True, env=env)


def figure(machine: Machine, out: Path, env: dict[str, str]) -> Phase:
    """Many small callers beside PyTorch's; what FIGURE_ROWS names, else all rows that there is time for."""
    figures = out / "gpu_figure.json"
    program = machine.programs / ("bench" if machine.double else "") / "cuda_callers"
    command: list[str | Path] = [sys.executable, "bench/cuda/figure.py", "--json", figures]
    command += ["--picture", out / "gpu_figure.png", "--program", program]
    entry_points = ROOT / "build" / "gpu_card" / "site_torch"
    if machine.double:
        command += ["--double", "--rounds", "2", "--seconds", "0.02", "--rows", "one", "cards"]
    elif entry_points.is_dir():
        command += ["--torch-device", entry_points]
    carried = machine.programs / "probe"
    if carried.exists() and "FIGURE_PROBE" not in os.environ:
        env = env | {"FIGURE_PROBE": str(carried)}
    rows = os.environ.get("FIGURE_ROWS", "").split()
    command += ["--rows", *rows] * bool(rows)
    return Phase(
        "figure", command, 500, lambda _: read_json(figures), ("module",), ("export",), True, env=env
    )
