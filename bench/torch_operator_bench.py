"""Question  what does one small eager operator cost on device "heddle", and what do its callers share?
Read as   per operator, microseconds on the device over those on PyTorch's CPU, one thread each; per device
          the operators per second of two threads, with inputs of their own and shared weights, over those of
          one. Round by round, all in turn in one process: median and quartiles. TorchScript loops over the
          operator: without Python, whose lock two threads would share.
          --instructions: also the instructions of one operator, as callgrind counts them, dispatch included.
          They are the same in each run to within a percent; --profile FOLDER keeps callgrind's files.
Checked   before anything is timed, the answer of each loop is within 1e-4 of PyTorch's on the CPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench" / "models")]

import heddle.torch  # noqa: E402, F401
from ratios import call_rates, in_turn, parser, ratio, show, spread, write  # noqa: E402

DEVICES = ("heddle", "cpu")
THREADS = (1, 2)
LOOP = 100  # operators of one call
COUNTED = 20  # calls that callgrind sees


@torch.jit.script
def relu(x: Tensor, weights: list[Tensor], n: int) -> Tensor:
    for _ in range(n):
        x = torch.relu(x)
    return x


@torch.jit.script
def add(x: Tensor, weights: list[Tensor], n: int) -> Tensor:
    for _ in range(n):
        x = x + weights[0]
    return x


@torch.jit.script
def linear(x: Tensor, weights: list[Tensor], n: int) -> Tensor:
    for _ in range(n):
        x = F.linear(x, weights[0], weights[1])
    return x


@torch.jit.script
def layer_norm(x: Tensor, weights: list[Tensor], n: int) -> Tensor:
    for _ in range(n):
        x = F.layer_norm(x, [384], weights[0], weights[1])
    return x


@torch.jit.script
def view_and_copy(x: Tensor, weights: list[Tensor], n: int) -> Tensor:
    for _ in range(n):
        x = x.view(16, 4, 4).transpose(1, 2).contiguous().view(16, 16)
    return x


@dataclass(frozen=True)
class Case:
    loop: Callable[[Tensor, list[Tensor], int], Tensor]
    shape: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...] = ()

    def call(self, device: str) -> Callable[[int], Tensor]:
        """Each call has an input of its own; the weights are everybody's."""
        torch.manual_seed(1)
        weights = [torch.randn(shape).div(max(shape[-1], 1)).to(device) for shape in self.weights]
        x = torch.randn(self.shape).to(device)
        return lambda n: self.loop(x.clone(), weights, n)


CASES = {
    "relu of 8": Case(relu, (8,)),
    "add of 16 x 16": Case(add, (16, 16), ((16, 16),)),
    "layer_norm of 16 x 384": Case(layer_norm, (16, 384), ((384,), (384,))),
    "linear of 16 x 384": Case(linear, (16, 384), ((384, 384), (384,))),
    "view and copy of 16 x 16": Case(view_and_copy, (16, 16)),
}


def check(name: str, case: Case) -> None:
    ours, theirs = case.call("heddle")(7).cpu(), case.call("cpu")(7)
    error = (ours - theirs).abs().max().item()
    if not error < 1e-4:
        raise SystemExit(f"{name}: the answer differs by {error:.2e}")


def rate(call: Callable[[int], Tensor], threads: int, seconds: float) -> float:
    def some() -> None:
        call(LOOP)
        torch.heddle.synchronize()

    return LOOP * call_rates(some, threads, seconds, torch.inference_mode)[0]


# ---- instructions


def run_counted(name: str, device: str) -> None:
    """Under callgrind, which instruments between the two words to its control."""
    call = CASES[name].call(device)
    with torch.inference_mode():
        for _ in range(3):  # TorchScript rewrites its loop at the second call
            call(LOOP)
        for word in ("on", "off"):
            control = ["callgrind_control", "-i", word, str(os.getpid())]
            subprocess.run(control, check=True, capture_output=True)
            for _ in range(COUNTED if word == "on" else 0):
                call(LOOP)


def instructions(name: str, device: str, folder: Path) -> float:
    out = folder / f"{name.replace(' ', '_')}.{device}.callgrind"
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}",
               sys.executable, __file__, "--counted", name, device]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return int(re.findall(r"^totals: (\d+)", out.read_text(), re.M)[-1]) / (COUNTED * LOOP)


def count(names: list[str], keep: Path | None) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            figures[name] = {device: instructions(name, device, folder) for device in DEVICES}
            counts = ", ".join(f"{device} {n:8.0f}" for device, n in figures[name].items())
            print(f"  {name:30s} instructions: {counts}", flush=True)
    return figures


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--operators", nargs="+", default=list(CASES), choices=list(CASES))
    command.add_argument("--instructions", action="store_true")
    command.add_argument("--profile", type=Path, help="where callgrind's files stay")
    command.add_argument("--counted", nargs=2, help="NAME DEVICE: for --instructions")
    options = command.parse_args()
    torch.set_num_threads(1)
    if options.counted:
        run_counted(*options.counted)
        return 0
    figures: dict[str, dict] = {}
    for name in options.operators:
        case = CASES[name]
        with torch.inference_mode():
            check(name, case)
            calls = {device: case.call(device) for device in DEVICES}
        rates = in_turn(
            {
                f"{device} {n}": lambda call=call, n=n: rate(call, n, options.seconds)
                for device, call in calls.items()
                for n in THREADS
            },
            options.rounds,
        )
        print(f"\n{name}", flush=True)
        for device in DEVICES:
            show(f"{device}, one thread", spread([1e6 / each for each in rates[f"{device} 1"]]), "us")
        of_time = ratio(rates["cpu 1"], rates["heddle 1"])
        show("time on heddle / cpu", of_time, "x")
        of_threads = {device: ratio(rates[f"{device} 2"], rates[f"{device} 1"]) for device in DEVICES}
        for device, figure in of_threads.items():
            show(f"{device}, 2 threads / 1", figure, "x")
        figures[name] = {"per_s": rates, "time_of_cpu": of_time, "two_threads": of_threads}
    if options.instructions:
        print()
        for name, counts in count(options.operators, options.profile).items():
            figures[name]["instructions"] = counts
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
