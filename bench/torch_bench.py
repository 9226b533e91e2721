"""Question  what does PyTorch's device "heddle" cost or give, beside PyTorch on the CPU?
Read as   eager     per model, one row and one thread: time on the device over the time of PyTorch's eager CPU
          compiled  the same of heddle.torch.compile over the best of eager, torch.compile (inductor), and
                    torch.compile with freezing and max-autotune
          callers   16 threads with single rows of an MLP: rows per second of the compiled model over those of
                    PyTorch's best
          dispatch  relu of 8 elements: microseconds on the device beyond the CPU's own
          Ratios and differences are taken round by round, peers in turn in one process: median and quartiles.
          PyTorch is tried with every number of threads the machine has; the setting with the best median
          counts. Each thread is in inference_mode() while it calls. Device "heddle" is Heddle's default
          device, "host" where there is no other.
Checked   before anything is timed, every answer is compared with eager PyTorch's on the CPU: within 1e-4 of
          the output's scale.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo
import torch._inductor.config
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench" / "models"), str(ROOT / "tools" / "models")]

import heddle.torch  # noqa: E402
from heddle.torch.compiled import CompiledModule  # noqa: E402
from ratios import call_rates, in_turn, parser, ratio, show, spread, write  # noqa: E402

from heddle.cli.together import run_together  # noqa: E402

torch._dynamo.config.recompile_limit = 64  # threads that arrive while it compiles compile too
torch._inductor.config.compile_threads = 1
CORES = len(os.sched_getaffinity(0))
TOLERANCE = 1e-4
CALLERS = 16
DISPATCHES = 5000
Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Case:
    net: str  # of tools/models/export_torch.py
    tokens: int = 0

    @property
    def name(self) -> str:
        return f"{self.net}-{self.tokens}" if self.tokens else self.net

    def module(self) -> nn.Module:
        import export_torch

        return export_torch.module(self.net)

    def inputs(self, rows: int) -> tuple[Tensor, ...]:
        import export_torch

        extents = {"batch": rows} | ({"length": self.tokens} if self.tokens else {})
        return tuple(map(torch.from_numpy, export_torch.arrays(self.net, extents, seed=rows)))


CASES = (
    Case("mlp"),
    Case("conv1d"),
    Case("encoder"),
    Case("minilm_torch", 32),
    Case("minilm_torch", 128),
    Case("resnet18"),
)
BARS = {
    "eager": "geometric mean <= 1.00, worst <= 1.30",
    "compiled": "mean <= 0.85",
    "callers": ">= 6",
    "dispatch": "<= 2 us",
}


def first(output: object) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


@dataclass(frozen=True)
class Peer:
    call: Call
    threads: int = CORES  # of PyTorch's own, in every thread that begins from now on

    def answer(self) -> Tensor:
        """On a thread of its own, as what is timed: dynamo compiles here, once."""
        torch.set_num_threads(self.threads)
        with_mode = torch.inference_mode()(self.call)
        return run_together(1, lambda *_: with_mode())[0][0]

    def rate(self, callers: int, seconds: float) -> float:
        torch.set_num_threads(self.threads)
        return call_rates(self.call, callers, seconds, torch.inference_mode)[0]


def on_cpu(module: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, Peer]:
    """PyTorch's own settings. Dynamo compiles anew for another number of threads."""
    tuned = torch.compile(module, options={"freezing": True, "max_autotune": True})
    kinds = {"torch eager": module, "torch.compile": torch.compile(module), "torch.compile, tuned": tuned}
    return {
        f"{kind}, {n} threads": Peer(lambda each=each: first(each(*inputs)), n)
        for kind, each in kinds.items()
        for n in range(1, CORES + 1)
    }


def eager_call(module: nn.Module, inputs: tuple[Tensor, ...]) -> Call:
    there = tuple(each.to("heddle") for each in inputs)
    module = module.to("heddle")

    def call() -> Tensor:
        output = first(module(*there))
        torch.heddle.synchronize()
        return output

    return call


def compiled_model(case: Case) -> CompiledModule:
    return heddle.torch.compile(case.module(), case.inputs(3))


def compiled_call(model: CompiledModule, inputs: tuple[Tensor, ...]) -> Call:
    return lambda: first(model(*inputs))


def check(name: str, got: Tensor, wanted: Tensor) -> None:
    error = (got.cpu() - wanted).abs().max() / max(1.0, wanted.abs().max())
    if not error < TOLERANCE:
        raise SystemExit(f"{name}: the answer differs by {error:.2e}")


def fastest(rates: dict[str, list[float]], names: list[str]) -> str:
    return max(names, key=lambda name: statistics.median(rates[name]))


def rates_of(peers: dict[str, Peer], callers: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    rates = in_turn(
        {name: lambda peer=peer: peer.rate(callers, seconds) for name, peer in peers.items()}, rounds
    )
    for name, values in rates.items():
        show(name, spread(values), "calls/s")
    return rates


def checked(case: Case, ours: dict[str, Call]) -> tuple[dict[str, Peer], list[str]]:
    """All that run this model and give the right answer, and which of them are PyTorch's."""
    inputs = case.inputs(1)
    with torch.inference_mode():
        wanted = first(case.module()(*inputs))
    peers = on_cpu(case.module(), inputs)
    every = {name: Peer(call) for name, call in ours.items()} | peers
    for name, peer in every.items():
        check(f"{case.name}, {name}", peer.answer(), wanted)
    return every, list(peers)


def models(chosen: list[str], rounds: int, seconds: float) -> dict[str, dict]:
    figures: dict[str, dict] = {"eager": {}, "compiled": {}}
    for case in (case for case in CASES if case.name in chosen):
        print(f"\n{case.name}: one row, one thread", flush=True)
        inputs = case.inputs(1)
        ours = {
            "heddle eager": eager_call(case.module(), inputs),
            "heddle compiled": compiled_call(compiled_model(case), inputs),
        }
        every, theirs = checked(case, ours)
        rates = rates_of(every, 1, rounds, seconds)
        eager = fastest(rates, [name for name in theirs if name.startswith("torch eager")])
        best = fastest(rates, theirs)
        for figure, peer in (("eager", eager), ("compiled", best)):
            of_time = ratio(rates[peer], rates[f"heddle {figure}"])
            show(f"time of heddle {figure} / {peer}", of_time, "x")
            figures[figure][case.name] = {"ratio": of_time, "peer": peer, "calls_per_s": rates}
    return figures


def one_batch(case: Case, rounds: int, seconds: float) -> list[float]:
    """What all processors make of as many rows as there are callers, if nobody had to bring them together."""
    module, inputs = case.module(), case.inputs(CALLERS)
    peer = Peer(lambda: first(module(*inputs)))
    return [CALLERS * peer.rate(1, seconds) for _ in range(rounds)]


def callers(rounds: int, seconds: float) -> dict:
    case = CASES[0]
    print(f"\n{case.name}: {CALLERS} threads with one row each", flush=True)
    model = compiled_model(case)
    every, theirs = checked(case, {"heddle compiled": compiled_call(model, case.inputs(1))})
    rates = rates_of(every, CALLERS, rounds, seconds)
    best = fastest(rates, theirs)
    figure = ratio(rates["heddle compiled"], rates[best])
    show(f"heddle compiled / {best}", figure, "x", BARS["callers"])
    batches = one_batch(case, rounds, seconds)
    show(f"PyTorch, batches of {CALLERS} by one thread", spread(batches), "rows/s")
    stats = model.coalescing_stats()
    singles = stats["rows"].get(1, 0) / stats["batches"]
    print(f"  rows a batch {stats['calls'] / stats['batches']:.2f}, batches of one row {singles:.0%}")
    said = {"ratio": figure, "peer": best, "calls_per_s": rates, "batches_of_one": singles}
    return said | {"batch_rows_per_s": batches}


def dispatch(rounds: int) -> dict:
    print("\nrelu of 8 elements", flush=True)

    def microseconds(x: Tensor) -> Callable[[], float]:
        def measure() -> float:
            with torch.inference_mode():
                begin = time.perf_counter()
                for _ in range(DISPATCHES):
                    torch.relu(x)
                return (time.perf_counter() - begin) / DISPATCHES * 1e6

        return measure

    x = torch.randn(8)
    check("relu", torch.relu(x.to("heddle")), torch.relu(x))
    times = in_turn({"cpu": microseconds(x), "heddle": microseconds(x.to("heddle"))}, rounds)
    for name, values in times.items():
        show(name, spread(values), "us")
    beyond = spread([ours - cpu for ours, cpu in zip(times["heddle"], times["cpu"], strict=True)])
    show("heddle beyond cpu", beyond, "us", BARS["dispatch"])
    return {"us_beyond_cpu": beyond, "us": times}


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--models", nargs="+", default=[case.name for case in CASES])
    command.add_argument("--figures", nargs="+", default=list(BARS), choices=list(BARS))
    options = command.parse_args()
    figures: dict[str, dict] = {}
    if "dispatch" in options.figures:
        figures["dispatch"] = dispatch(options.rounds)
    if "callers" in options.figures:
        figures["callers"] = callers(options.rounds, options.seconds)
    if {"eager", "compiled"} & set(options.figures):
        figures |= models(options.models, options.rounds, options.seconds)
    print()
    for figure in ("eager", "compiled"):
        middle = [each["ratio"][1] for each in figures.get(figure, {}).values()]
        if middle:
            mean = math.exp(sum(map(math.log, middle)) / len(middle))
            print(f"  {figure:9s} geometric mean {mean:.3f}, worst {max(middle):.3f}   bar: {BARS[figure]}")
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
