"""Question  what do eager operators on device "heddle" give when more threads call them?
Read as   per model, calls per second of n threads, each with one row and its own inputs, over those of one
          thread, round by round, all in turn in one process: median and quartiles. Once as PyTorch's own CPU
          does it with one thread each, too. n is 2, 8 and, with as many processors, 16. `topk-N` is one
          operator that no other core helps with, of a row of N numbers. HEDDLE_SLICES says how many threads
          are in eager operators at once.
Checked   before anything is timed, every answer is within 1e-4 of PyTorch's on the CPU.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "models"), str(ROOT / "tools" / "models")]

import heddle.torch  # noqa: E402, F401
from ratios import in_turn, parser, ratio, show, spread, write  # noqa: E402
from torch_bench import CORES, Case, Peer, check, eager_call, first  # noqa: E402


class LargestEight(torch.nn.Module):
    def forward(self, row: torch.Tensor) -> torch.Tensor:
        return torch.topk(row, 8).values


@dataclass(frozen=True)
class TopK(Case):
    def module(self) -> torch.nn.Module:
        return LargestEight()

    def inputs(self, rows: int) -> tuple[torch.Tensor, ...]:
        return (torch.randn(rows, self.tokens, generator=torch.Generator().manual_seed(rows)),)


CASES = (Case("minilm_torch", 32), Case("resnet18"), TopK("topk", 100_000))
THREADS = (1, 2, 8, 16)
BAR = {2: "", 8: ">= 1.8 on 2 cores, >= 10 on 16", 16: ""}


def peers(case: Case) -> dict[str, Peer]:
    inputs, module = case.inputs(1), case.module()
    cpu = Peer(lambda: first(module(*inputs)), 1)
    ours = Peer(eager_call(case.module(), inputs), 1)
    with torch.inference_mode():
        check(case.name, ours.answer(), cpu.answer())
    return {"heddle": ours, "torch": cpu}


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--models", nargs="+", default=[case.name for case in CASES])
    options = command.parse_args()
    numbers = [n for n in THREADS if n <= max(8, CORES)]
    figures: dict[str, dict] = {}
    for case in CASES:
        if case.name not in options.models:
            continue
        print(f"\n{case.name}, {CORES} processors", flush=True)
        every = peers(case)
        rates = in_turn(
            {
                f"{who}, {n} threads": lambda peer=peer, n=n: peer.rate(n, options.seconds)
                for who, peer in every.items()
                for n in numbers
            },
            options.rounds,
        )
        figures[case.name] = {"processors": CORES, "calls_per_s": rates}
        for who in every:
            show(f"{who}, 1 threads", spread(rates[f"{who}, 1 threads"]), "calls/s")
            for n in numbers[1:]:
                figure = ratio(rates[f"{who}, {n} threads"], rates[f"{who}, 1 threads"])
                figures[case.name][f"{who} {n} / 1"] = figure
                show(f"{who}, {n} threads / 1", figure, "x", BAR[n] if who == "heddle" else "")
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
