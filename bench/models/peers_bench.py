"""Question  is Heddle as fast as the best of ONNX Runtime, OpenVINO and PyTorch for each model?
Read as   per model and load, Heddle's rows per second over those of the peer setting with the best median,
          round by round: median and quartiles. Loads: one caller with one row; two callers with batches of 64
          (8 for the two large ones), in f32 and in bf16 each against its like; sixteen callers with one row
          each. Every peer runs at every thread setting that makes sense for the load; peers take turns in one
          process.
          Beside it, rows per second of processor time of the same two: where the cores are shared with
          somebody else, it says more.
Checked   before anything is timed, every setting's answers are compared with ONNX Runtime's in f32: within
          1e-4 of the output's scale in f32, within 5e-2 in bf16. A setting that cannot run says why and is
          left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers import Arrays, Call, Setting, Work, onnxruntime_call, settings
from ratios import call_rates, in_turn, parser, ratio, show, spread, write

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "models"))
MODELS = ROOT / "build" / "models"
TOLERANCE = {"f32": 1e-4, "bf16": 5e-2}


@dataclass(frozen=True)
class Case:
    work: str
    batch: int  # of the batched load
    tokens: int = 0

    @property
    def name(self) -> str:
        return f"{self.work}-{self.tokens}" if self.tokens else self.work


@dataclass(frozen=True)
class Load:
    name: str
    callers: int
    batched: bool
    precision: str
    bar: str


CASES = (
    Case("mlp", 64),
    Case("conv1d", 64),
    Case("encoder", 64),
    Case("minilm", 64, 32),
    Case("minilm", 8, 128),
    Case("resnet18", 8),
)
LOADS = (
    Load("one", 1, False, "f32", ">= 0.95 (time <= 1.05), geometric mean >= 1.05"),
    Load("batch", 2, True, "f32", ">= 1.00, mean >= 1.1"),
    Load("batch-bf16", 2, True, "bf16", ">= 1.00, mean >= 1.1"),
    Load("sixteen", 16, False, "f32", ">= 1.05"),
)


def minilm_work() -> Work:
    path = MODELS / "minilm.onnx"
    if not path.exists():
        import minilm

        minilm.build(path)
    return Work("minilm", path, None)


def exported_work(name: str) -> Work:
    import real_files

    def module() -> object:
        import export_torch  # and torch, which takes seconds

        return export_torch.module(name)

    return Work(name, real_files.exports() / f"{name}.onnx", module)


EXPORTED = ("mlp", "conv1d", "encoder", "resnet18", "mobilenet")


def works(names: Sequence[str] = ("minilm", *EXPORTED)) -> dict[str, Work]:
    return {name: minilm_work() if name == "minilm" else exported_work(name) for name in names}


def inputs_for(case: Case, rows: int) -> Arrays:
    if case.work == "minilm":
        ids = np.random.default_rng(rows).integers(1000, 20000, (rows, case.tokens))
        return ids, np.ones_like(ids), np.zeros_like(ids)
    import export_torch

    return tuple(export_torch.arrays(case.work, {"batch": rows}, seed=rows))


def open_settings(work: Work, load: Load, inputs: Arrays, want: np.ndarray) -> dict[Setting, Call]:
    """The settings that run this model and give the right answer."""
    opened = {}
    for setting in settings(load.precision, load.callers):
        try:
            call = setting.open(work)
        except LookupError as why:
            print(f"  {setting.name}: left out, {why}")
            continue
        error = np.abs(call(inputs) - want).max() / max(1.0, np.abs(want).max())
        if not error < TOLERANCE[load.precision]:
            raise SystemExit(f"{work.name}, {setting.name}: the answer differs by {error:.2e}")
        opened[setting] = call
    return opened


def measure(case: Case, load: Load, work: Work, rounds: int, seconds: float) -> dict:
    rows = case.batch if load.batched else 1
    inputs = inputs_for(case, rows)
    print(f"\n{case.name}, {load.name}: {load.callers} callers x {rows} rows, {load.precision}", flush=True)
    opened = open_settings(work, load, inputs, onnxruntime_call(work, 1)(inputs))
    per_cpu_s: dict[str, list[float]] = {setting.name: [] for setting in opened}

    def rate(name: str, call: Call) -> float:
        per_s, of_processor = call_rates(lambda: call(inputs), load.callers, seconds)
        per_cpu_s[name].append(rows * of_processor)
        return rows * per_s

    peers_in_turn = {s.name: lambda s=s, call=call: rate(s.name, call) for s, call in opened.items()}
    rates = in_turn(peers_in_turn, rounds)
    ours, *peers = rates
    best = max(peers, key=lambda name: spread(rates[name])[1])
    for name, values in rates.items():
        show(name, spread(values), "rows/s")
    figure = ratio(rates[ours], rates[best])
    show(f"heddle / {best}", figure, "x", f"bar: {load.bar}")
    by_cpu = ratio(per_cpu_s[ours], per_cpu_s[best])
    show("the same by processor time", by_cpu, "x")
    return {"rows_per_s": rates, "best_peer": best, "ratio": figure, "ratio_by_processor_time": by_cpu}


def plot(figures: dict[str, dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 4.5), constrained_layout=True)
    names = list(figures)
    middle = [figures[name]["ratio"][1] for name in names]
    low = [figures[name]["ratio"][1] - figures[name]["ratio"][0] for name in names]
    high = [figures[name]["ratio"][2] - figures[name]["ratio"][1] for name in names]
    axes.bar(names, middle, yerr=[low, high], capsize=3, color="#3b6ea5")
    axes.axhline(1, color="#c2703d", linewidth=1)
    axes.set(ylabel="rows per second / best peer's", title="Heddle against the best of its peers")
    axes.tick_params(axis="x", rotation=60)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--models", nargs="+", default=[case.name for case in CASES])
    command.add_argument("--loads", nargs="+", default=[load.name for load in LOADS])
    command.add_argument("--plot", type=Path, default=ROOT / "build" / "bench" / "peers.png")
    options = command.parse_args()
    known = works()
    figures = {}
    for load in LOADS:
        for case in CASES:
            if case.name in options.models and load.name in options.loads:
                figures[f"{load.name} {case.name}"] = measure(
                    case, load, known[case.work], options.rounds, options.seconds
                )
    print()
    for load in LOADS:
        middle = [f["ratio"][1] for name, f in figures.items() if name.startswith(f"{load.name} ")]
        if middle:
            mean = math.exp(sum(map(math.log, middle)) / len(middle))
            print(f"  {load.name:12s} geometric mean {mean:.3f}, lowest {min(middle):.3f}   bar: {load.bar}")
    if figures:
        plot(figures, options.plot)
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
