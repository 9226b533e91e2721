"""Question  what do sixteen bits cost or gain on device "heddle", eager, where Linears take the time, and
          where convolutions do?
Read as   per model and number of rows, time over that of the same model in float32, round by round, both in
          turn in one process: of the model in bfloat16, in float16, and of the float32 model under autocast
          to bfloat16. Above 1 something is converted that need not be. Median and quartiles; one thread
          calls.
Checked   before anything is timed, each answer is within 3 % of the float32 model's largest value.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench" / "models"), str(ROOT / "tools" / "models")]

import export_torch  # noqa: E402
import heddle.torch  # noqa: E402, F401
from ratios import in_turn, parser, ratio, seconds_a_call, show, spread, write  # noqa: E402

WIDTH, INNER, LAYERS = 768, 3072, 4
TOLERANCE = 0.03
BAR = "<= 1.1 without units for bfloat16, <= 0.7 with them"


def linears() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH)]
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class Case:
    module: Callable[[], nn.Module]
    row: tuple[int, ...]  # the shape of one
    rows: tuple[int, ...]
    bar: str = ""


CASES = {
    "linears": Case(linears, (WIDTH,), (1, 4, 16, 128), BAR),
    "resnet18": Case(lambda: export_torch.module("resnet18"), (3, 224, 224), (1, 4)),
}


def peers(case: Case, rows: int) -> dict[str, Callable[[], Tensor]]:
    x = torch.randn(rows, *case.row, generator=torch.Generator().manual_seed(rows))
    reference = case.module().eval().requires_grad_(False)

    def call(dtype: torch.dtype, autocast: bool) -> Callable[[], Tensor]:
        module = copy.deepcopy(reference).to("heddle", dtype)
        there = x.to("heddle", dtype)

        def run() -> Tensor:
            with torch.autocast("heddle", dtype=torch.bfloat16) if autocast else nullcontext():
                return module(there)

        return run

    return {
        "float32": call(torch.float32, False),
        "bfloat16": call(torch.bfloat16, False),
        "float16": call(torch.float16, False),
        "autocast": call(torch.float32, True),
    }


def milliseconds_of(call: Callable[[], Tensor], seconds: float) -> Callable[[], float]:
    return lambda: seconds_a_call(lambda _: call(), seconds, torch.heddle.synchronize) * 1e3


def check(calls: dict[str, Callable[[], Tensor]]) -> None:
    wanted = calls["float32"]().float().cpu()
    for name, call in calls.items():
        error = float((call().float().cpu() - wanted).abs().max() / wanted.abs().max())
        if not error < TOLERANCE:
            raise SystemExit(f"{name}: off by {error:.2e}")


def compared(case: Case, rows: int, rounds: int, seconds: float) -> dict:
    calls = peers(case, rows)
    check(calls)
    times = in_turn({name: milliseconds_of(call, seconds) for name, call in calls.items()}, rounds)
    ratios = {name: ratio(times[name], times["float32"]) for name in times if name != "float32"}
    show(f"{rows} rows, float32", spread(times["float32"]), "ms")
    for name, figure in ratios.items():
        show(f"{rows} rows, {name} / float32", figure, "x", case.bar)
    return {"milliseconds": times, "ratios": ratios}


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    options = command.parse_args()
    figures: dict[str, dict] = {}
    with torch.inference_mode():
        for name in options.models:
            print(f"\n{name}", flush=True)
            case = CASES[name]
            figures[name] = {
                rows: compared(case, rows, options.rounds, options.seconds) for rows in case.rows
            }
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
