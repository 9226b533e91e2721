"""The tables of bench/cuda/figure.py, for people and for docs/cuda.md.

usage: python bench/cuda/figure_table.py FIGURES.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def figures(measured: dict) -> list[str]:
    rows = ["| figure | median (quartiles) | bar | met |", "| --- | --- | --- | --- |"]
    for each in measured["figures"]:
        low, median, high = each["quartiles"]
        bar = "" if each["bar"] is None else f"{'>=' if each['at_least'] else '<='} {each['bar']:g}"
        met = {True: "yes", False: "**no**", None: ""}[each["met"]]
        rows.append(f"| {each['row']} | {median:.3g} ({low:.3g} .. {high:.3g}) | {bar} | {met} |")
    return rows


def bounds(cases: dict[str, dict]) -> list[str]:
    names = ["launch", "copy", "memory", "arithmetic", "wake_up"]
    head = ["case", "batch", *[name.replace("_", "-") for name in names], "bound", "measured", "card busy"]
    rows = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name, case in cases.items():
        told = [f"{case[each]:.3f}" for each in names]
        more = [case["bound"].replace("_", "-"), f"{case['measured']:.3f}", f"{case['card_busy']:.2f}"]
        rows.append("| " + " | ".join([name, f"{case['batch']:.1f}", *told, *more]) + " |")
    return rows


def text(measured: dict) -> str:
    tables = [*figures(measured), "", *bounds(measured.get("roofline", {})), ""]
    return "\n".join(["", *tables, *measured["left_out"], *measured["mistakes"]])


if __name__ == "__main__":
    print(text(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
