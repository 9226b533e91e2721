"""Question  is a compiled mixture of experts slower than an eager one, on device "heddle"?
Read as   per form, time of torch.compile(backend="heddle") over that of eager calls, both in turn in one
          process: a product of groups (grouped_mm) in bfloat16, the module's weights plain and transposed.
          Above 1 the graph computes what the eager call leaves out. Median and quartiles; one thread calls.
Checked   before anything is timed, both answers agree within 3 % of the largest value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench" / "models")]

import heddle.torch  # noqa: E402, F401
from ratios import in_turn, parser, ratio, seconds_a_call, show, spread, write  # noqa: E402

# Groups, rows, depth, columns.
FORMS = ((32, 64, 256, 512), (32, 256, 256, 512), (64, 512, 128, 256), (8, 4, 512, 512), (4, 1024, 512, 1024))
TOLERANCE = 0.03
BAR = "<= 1"


class Experts(nn.Module):
    def __init__(self, groups: int, depth: int, columns: int, transposed: bool):
        super().__init__()
        shape = (groups, columns, depth) if transposed else (groups, depth, columns)
        weight = (torch.randn(shape) / depth**0.5).bfloat16()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.transposed = transposed

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        return F.grouped_mm(x, self.weight.transpose(1, 2) if self.transposed else self.weight, offs=ends)


def peers(form: tuple[int, int, int, int], transposed: bool) -> dict[str, Callable[[], Tensor]]:
    groups, rows, depth, columns = form
    torch.manual_seed(rows)
    torch._dynamo.reset()
    module = Experts(groups, depth, columns, transposed).eval().to("heddle")
    x = torch.randn(rows, depth).bfloat16().to("heddle")
    ends = torch.cat([torch.randint(0, rows + 1, (groups - 1,)).sort().values, torch.tensor([rows])])
    ends = ends.int().to("heddle")
    fast = torch.compile(module, backend="heddle", dynamic=False)
    return {"compiled": lambda: fast(x, ends), "eager": lambda: module(x, ends)}


def check(made: dict[str, Callable[[], Tensor]]) -> None:
    got, wanted = (made[name]().cpu().float() for name in ("compiled", "eager"))
    worst = float((got - wanted).abs().max() / wanted.abs().max())
    if worst > TOLERANCE:
        raise SystemExit(f"the compiled product is {worst:.3f} of the largest value off")


def milliseconds_of(call: Callable[[], Tensor], seconds: float) -> Callable[[], float]:
    return lambda: seconds_a_call(lambda _: call(), seconds, torch.heddle.synchronize) * 1e3


def main() -> int:
    options = parser(__doc__).parse_args()
    figures = {}
    with torch.inference_mode():
        for form in FORMS:
            for transposed in (False, True):
                calls = peers(form, transposed)
                check(calls)
                times = in_turn(
                    {name: milliseconds_of(call, options.seconds) for name, call in calls.items()},
                    options.rounds,
                )
                groups, rows, depth, columns = form
                what = f"{groups} experts, {rows} rows, {depth} x {columns}{', transposed' * transposed}"
                show(f"{what}, eager", spread(times["eager"]), "ms")
                figure = ratio(times["compiled"], times["eager"])
                show(f"{what}, compiled / eager", figure, "x", BAR)
                figures[what] = {"milliseconds": times, "ratio": figure}
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
