"""Rows per second over the number of callers, from the JSON of many_cores_bench.py: calls joined, calls not
joined, the ceiling, and Python's threads beside ONNX Runtime's.

usage: python bench/models/callers_plot.py FIGURES.json PICTURE.png
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path


def series(rates: dict[str, list[float]], ending: str) -> tuple[list[int], list[float]]:
    """Of the lines "<callers><ending>": callers in order, medians of the rounds."""
    found = {
        int(name.split()[0]): statistics.median(values)
        for name, values in rates.items()
        if name.removeprefix(name.split()[0]) == ending
    }
    return sorted(found), [found[n] for n in sorted(found)]


def panel(axes, name: str, rates: dict[str, list[float]], joined: str) -> None:
    axes.plot(*series(rates, joined), marker="o", label="joined into batches")
    alone = series(rates, " callers, not joined")
    if alone[0]:
        axes.plot(*alone, marker="s", linestyle="--", label="not joined")
    offline = [statistics.median(v) for key, v in rates.items() if " x " in key]
    if offline:
        axes.axhline(max(offline), color="gray", linestyle=":", label="best of cores x batches")
    if "onnxruntime" in rates:
        peer = statistics.median(rates["onnxruntime"])
        axes.axhline(peer, color="#c2703d", linestyle=":", label="ONNX Runtime, 16 threads")
    axes.set(xscale="log", yscale="log", title=name, xlabel="callers of one row", ylabel="rows per second")
    axes.legend(fontsize=8)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figures = json.loads(Path(sys.argv[1]).read_text())
    panels = [(f"C++, {name}", rates, " callers") for name, rates in figures.get("C++ callers", {}).items()]
    panels += [
        (f"Python, {name}", rates, " threads") for name, rates in figures.get("Python callers", {}).items()
    ]
    if not panels:
        print(f"{sys.argv[1]} has no figures of callers: run many_cores_bench.py --parts joined python")
        return 1
    picture, all_axes = pyplot.subplots(
        1, len(panels), figsize=(5 * len(panels), 4), constrained_layout=True, squeeze=False
    )
    for axes, (name, rates, joined) in zip(all_axes[0], panels, strict=True):
        panel(axes, name, rates, joined)
    picture.savefig(sys.argv[2], dpi=80)
    return 0


if __name__ == "__main__":
    sys.exit(main())
