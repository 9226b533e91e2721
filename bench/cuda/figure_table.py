"""The tables of bench/cuda/figure.py, for people and for docs/cuda.md.

usage: python bench/cuda/figure_table.py FIGURES.json
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path

import figure_probe


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
    head = ["case", "batch", *[name.replace("_", "-") for name in names], "bound", "measured", "lanes filled"]
    rows = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name, case in cases.items():
        told = [f"{case[each]:.3f}" for each in names]
        more = [case["bound"].replace("_", "-"), f"{case['measured']:.3f}", f"{case['lanes_filled']:.2f}"]
        rows.append("| " + " | ".join([name, f"{case['batch']:.1f}", *told, *more]) + " |")
    return rows


def probe(measured: dict) -> list[str]:
    """Heddle and the probe in the same run, thousands of rows/s; nothing where that row was left out."""
    pattern = re.compile(r"mlp, (.+) beside the probe")
    cases = {found[1]: rates for name, rates in measured["rates"].items() if (found := pattern.match(name))}
    if not cases:
        return []
    columns = []
    for name, rates in cases.items():
        medians = {side: statistics.median(values) for side, values in rates.items()}
        heddle = medians.pop("heddle")
        best = max(medians, key=medians.__getitem__)
        ratio = statistics.median(a / b for a, b in zip(rates["heddle"], rates[best], strict=True))
        told = f"{ratio:.2f}" if ratio >= figure_probe.BAR else f"**{ratio:.2f}**"
        columns.append((name, f"{heddle / 1e3:,.0f}", f"{medians[best] / 1e3:,.0f}", told))
    heads = ("MLP", "Heddle", "the probe", f"Heddle / the probe; bar {figure_probe.BAR:g}")
    rows = [" | ".join((head, *cells)) for head, cells in zip(heads, zip(*columns, strict=True), strict=True)]
    return [f"| {rows[0]} |", "| --- " * (1 + len(columns)) + "|", *(f"| {row} |" for row in rows[1:])]


def busy(cases: dict[str, dict]) -> list[str]:
    """Nothing where that row was left out."""
    if not cases:
        return []
    rows = ["| case | rows/s, thousands | the card is busy | samples |", "| --- | --- | --- | --- |"]
    for name, case in cases.items():
        rows.append(f"| {name} | {case['rows_per_s'] / 1e3:,.1f} | {case['busy']:.0%} | {case['samples']} |")
    return rows


def text(measured: dict) -> str:
    tables = [*figures(measured), "", *bounds(measured.get("roofline", {})), "", *probe(measured), ""]
    tables += [*busy(measured.get("card_busy", {})), ""]
    return "\n".join(["", *tables, *measured["left_out"], *measured["mistakes"]])


if __name__ == "__main__":
    print(text(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
