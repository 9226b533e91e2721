"""What do many small callers get of one card, beside PyTorch on the same card in the same run?

Peers     PyTorch eager, torch.compile(mode="reduce-overhead") and CUDA graphs replayed on own streams, each
          with the number of threads that was best when tried first (`tried`), host memory to host memory, f32
          without TF32. A peer that fails is a mistake, is named, and is not timed.
          The row `probe` has another: the program that FIGURE_PROBE names (bench/cuda/figure_probe.py).
Read as   ratios, round by round, with their quartiles, beside the bars of issue 19. `roofline` has, for each
          case of callers in C++, what bounds it, and how many lanes its batches fill (roofline.py).
          `card_busy` has the share of time that the card is busy (figure_busy.py).
Checked   cuda_callers (bench/cuda/callers.cpp) compares some values of every answer, and all of some, with
          the host's, and the time of that is in Heddle's figures; peers' first answers of each thread are
          compared with PyTorch's on the CPU.

--rows measures some of the rows. None begins after --limit seconds: it is named in `left_out`, as are
settings with which a peer fails that works with others.
--double: a small part, Heddle on the CUDA double beside PyTorch on the CPU: answers, and no figures.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "models"))
import figure_plot
import figure_table
import ratios
import roofline
import torch
from figure_rows import ROWS, Table
from figure_sides import Sides

ROOT = Path(__file__).resolve().parents[2]
ON_DOUBLE = ("callers", "one", "offline")


def measured(options, write) -> dict:
    sides = Sides(options)
    table = Table(sides)
    figures = {"card": {}, "torch": torch.__version__, "left_out": sides.left_out, "mistakes": sides.mistakes}
    begin = time.monotonic()

    def note() -> None:
        figures["figures"] = [each.as_json() for each in table.figures]
        figures["rates"], figures["tried"], figures["calls"] = table.rates, sides.tried, table.calls
        figures["card_busy"] = {name: told.as_json() for name, told in table.busy.items()}
        write(figures)

    if not options.double:
        figures["card"] = sides.child("peer", "card", "mlp", "cuda").ask("{}")
    wake_us = sides.child(str(options.program), "--model", str(ROOT / "build/models/torch/mlp.onnx"),
                          "--device", "host").ask("wake")["wake_us"]  # fmt: skip
    figures["wake_us"] = wake_us
    for name in options.rows:
        if time.monotonic() - begin > options.limit:
            figures["left_out"].append(f"{name}: no time was left")
            continue
        try:
            if name == "device" and options.torch_device is None:
                figures["left_out"].append("device: heddle-torch was not carried")
                continue
            ROWS[name](table)
            if not options.double:
                cases = {
                    case: told
                    for case, told in table.calls.items()
                    if case not in figures.get("roofline", {})
                }
                told = roofline.of_cases(sides, cases, figures["card"], wake_us)
                figures["roofline"] = figures.get("roofline", {}) | told
        except Exception as error:  # the other rows are measured all the same
            figures["mistakes"].append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        finally:
            note()
            sides.end()  # the next row's begin anew: nothing of these runs beside them
    note()
    return figures


def main() -> int:
    parser = ratios.parser(__doc__ or "")
    parser.set_defaults(rounds=3, seconds=0.3)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bench/cuda_callers")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), help="of them only")
    parser.add_argument("--limit", type=float, default=480, help="seconds after which no row begins")
    parser.add_argument("--picture", type=Path, help="rows/s over callers")
    parser.add_argument("--torch-device", type=Path, help="where heddle-torch's entry points are")
    parser.add_argument("--double", action="store_true", help="a small part, on the CUDA double")
    options = parser.parse_args()
    options.rows = options.rows or list(ON_DOUBLE if options.double else ROWS)
    figures = measured(options, lambda told: ratios.write(options.json, told))
    print(figure_table.text(figures), flush=True)
    if options.picture and figure_plot.SERIES in figures["rates"]:
        try:
            figure_plot.draw(figures, options.picture)
        except ImportError:  # FIGURES.json has all that it shows
            print("there is no matplotlib here: bench/cuda/figure_plot.py draws the picture elsewhere")
    sys.stdout.flush()
    return 1 if figures["mistakes"] else 0


if __name__ == "__main__":
    sys.exit(main())
