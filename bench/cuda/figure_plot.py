"""Rows per second over the number of callers, from the JSON of bench/cuda/figure.py.

usage: python bench/cuda/figure_plot.py FIGURES.json PICTURE    (a .png, or a .svg as docs/ has it)
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path

SERIES = "mlp, callers of one row"


def points(rates: dict[str, list[float]], pattern: str) -> tuple[list[int], list[float]]:
    """Of the sides whose name is this pattern: its number in order, medians of the rounds."""
    named = ((re.fullmatch(pattern, name), values) for name, values in rates.items())
    found = {int(name[1]): statistics.median(values) for name, values in named if name}
    return sorted(found), [found[n] for n in sorted(found)]


def draw(figures: dict, picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": SERIES}  # text stays text, names the same
    tried = {name: [rate] for name, rate in figures["tried"].items()}
    drawn, axes = pyplot.subplots(figsize=(6, 4.5), constrained_layout=True)
    axes.plot(*points(figures["rates"][SERIES], r"heddle, (\d+) callers"), marker="o", label="Heddle, C++")
    for kind in ("eager", "compiled", "graph"):
        line = points(tried, rf"mlp, {kind}, (\d+) threads x 1 rows")
        if line[0]:
            axes.plot(*line, marker="s", linestyle="--", label=f"PyTorch, {kind}")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set(yscale="log", xlabel="callers of one row", ylabel="rows per second")
    axes.set_title(f"MLP 512-1024-1024-512, f32, {figures['card'].get('name', 'the double')}", fontsize=10)
    axes.legend(fontsize=8)
    drawn.savefig(picture, dpi=80, metadata={"Date": None} if picture.suffix == ".svg" else None)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    figures = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if SERIES not in figures["rates"]:
        print(f"{sys.argv[1]} has no figures of callers: figure.py --rows callers measures them")
        return 1
    draw(figures, Path(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
