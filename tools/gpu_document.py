"""Writes what tools/gpu_check.sh found into docs/cuda.md, between its two marks.

usage: gpu_document.py RESULT.json... [DOCUMENT.md]

Of several results, a phase's is that of the last one that has it. All are of one commit.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results: tools/gpu_document.py -->", "<!-- end of results -->"
COMPILED = ("eager", "compiled")  # the best of these is what a call's time is held against
LEFT_OUT = ("right", "mistakes", "facts", "ended", "said something")

Json = dict[str, Any]


def number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def words(findings: object) -> str:
    """Findings in one cell: names and numbers, nested ones in brackets."""
    if isinstance(findings, dict):
        told = [f"{key} {words(value)}" for key, value in findings.items() if key not in LEFT_OUT]
        return "; ".join(told).replace("_", " ")
    if isinstance(findings, list):
        return "(" + ", ".join(map(words, findings)) + ")"
    return number(findings)


def of_phase(phase: Json) -> str:
    if phase["status"] == "not run":
        return f"needs {phase['needs']}"
    findings = phase.get("findings", {})
    mistakes = findings.get("mistakes") or []
    told = [f"**{mistake}**" for mistake in mistakes[:3]]
    if phase["phase"] not in ("facts", "setup", "export") and not phase["phase"].startswith(
        ("bench", "figure")
    ):
        told.append(words(findings))
    return " ".join(told).replace("|", "/").replace("\n", " ")[:600]


def phase_table(result: Json) -> list[str]:
    rows = ["| phase | status | seconds | found |", "| --- | --- | --- | --- |"]
    for phase in result["phases"]:
        status = phase["status"] if phase["status"] == "ok" else f"**{phase['status']}**"
        rows.append(f"| {phase['phase']} | {status} | {phase.get('seconds', '')} | {of_phase(phase)} |")
    return rows


def ratio(work: Json, peer: str) -> float | None:
    """Heddle's time / the peer's, the median of the rounds; None: one of them was left out."""
    seconds = work["seconds"]
    if "heddle" not in seconds or peer not in seconds:
        return None
    return statistics.median(a / b for a, b in zip(seconds["heddle"], seconds[peer], strict=True))


def against_best(work: Json) -> float | None:
    """Of the ratios to the peers of COMPILED, the largest: that to the fastest peer."""
    ratios = [ratio(work, peer) for peer in COMPILED]
    return max((each for each in ratios if each is not None), default=None)


def row(work: Json, ratios: list[float | None]) -> str:
    extents = ", ".join(f"{name} {count}" for name, count in work["extents"].items())
    extents += f", {work.get('dtype', 'f32')}"
    heddle = work["seconds"].get("heddle")
    microseconds = f"{statistics.median(heddle) * 1e6:,.0f}" if heddle else "-"
    told = " | ".join("-" if each is None else f"{each:.2f}" for each in ratios)
    return f"| {work['model']} | {extents} | {microseconds} | {told} |"


def table(works: list[Json], columns: dict[str, Callable[[Json], float | None]]) -> list[str]:
    head = ["| model | extents, type | Heddle, us | " + " | ".join(columns) + " |"]
    head.append("| --- " * (3 + len(columns)) + "|")
    return head + [row(work, [column(work) for column in columns.values()]) for work in works]


def bench_table(works: list[Json]) -> list[str]:
    return table(works, {"/ eager": partial(ratio, peer="eager"),
                         "/ its CUDA graph replayed": partial(ratio, peer="graph")})  # fmt: skip


def compiled_table(works: list[Json]) -> list[str]:
    each = {f"/ {peer}": partial(ratio, peer=peer) for peer in COMPILED}
    rows = table(works, each | {"/ the best of the two": against_best})
    known = [each for each in map(against_best, works) if each is not None]
    return [*rows, "", f"Mean of the last column: {statistics.mean(known):.2f}."] if known else rows


def figure_lines(figure: Json) -> list[str]:
    """The tables of bench/cuda/figure.py."""
    sys.path.insert(0, str(ROOT / "bench" / "cuda"))
    import figure_table  # here: it is no part of tools

    told = f"""
Callers of one row, host memory to host memory, beside PyTorch {figure["torch"]} on the same card in the same
run, rows/s of Heddle / the peer's, median of the rounds (`make bench-cuda`):
"""
    lines = [*told.split("\n"), *figure_table.figures(figure)]
    told = """
What bounds a row of each case, in microseconds, beside what was measured. `lanes filled` is the time of such
a batch alone on one lane, host to host, times the batches a second: above 1 where lanes overlap:
"""
    lines += [*told.split("\n"), *figure_table.bounds(figure.get("roofline", {}))]
    probe = figure_table.probe(figure)
    if probe:
        told = """
Rows/s of the MLP beside the probe, in turn in the same run, thousands, medians of the rounds (the row `probe`
of `make bench-cuda`); of its one lane and its two for 16 callers the better counts:
"""
        lines += [*told.split("\n"), *probe]
    busy = figure_table.busy(figure.get("card_busy", {}))
    if busy:
        told = """
The share of time that the card is busy, by the driver (the row `busy` of `make bench-cuda`):
"""
        lines += [*told.split("\n"), *busy]
    left_out = [f"- {' '.join(each.split())[:200]}" for each in figure["left_out"]]
    return [*lines, "", *left_out] if left_out else lines


def works_of(phases: Json, *names: str) -> list[Json]:
    return [work for name in names for work in phases.get(name, {}).get("findings", {}).get("works", [])]


def merged(results: list[Json]) -> Json:
    phases = {phase["phase"]: phase for result in results for phase in result["phases"]}
    commits = {result["commit"] for result in results}
    if len(commits) > 1:
        sys.exit(f"the results are of several commits: {', '.join(sorted(commits))}")
    return results[0] | {"phases": list(phases.values())}


def text(result: Json) -> str:
    phases = {phase["phase"]: phase for phase in result["phases"]}
    found = phases.get("facts", {}).get("findings", {})
    facts = {"driver": found.get("driver", "")} | found.get("facts", {})
    machine = ", ".join(f"{name} {value}" for name, value in facts.items() if "algorithms" not in name)
    lines = [f"On {result['date']}, commit {commit_of(result)}; {machine}.", "", *phase_table(result)]
    bench = phases.get("bench", {}).get("findings")
    if bench:
        told = f"""
One call, its end awaited, f32 without TF32, or weights and tensors of both in bf16: time of Heddle /
PyTorch {bench["torch"]}'s on the same GPU, median of the rounds (`bench/models/gpu_bench.py`):
"""
        lines += [*told.split("\n"), *bench_table(works_of(phases, "bench", "bench_bf16"))]
    kinds = ("", "_resnet", "_bf16", "_resnet_bf16")
    compiled = works_of(phases, *(f"bench_compiled{kind}" for kind in kinds))
    if compiled:
        told = """
The same beside `torch.compile(mode="max-autotune")` (`gpu_bench.py --compiled --batches`):
"""
        lines += [*told.split("\n"), *compiled_table(compiled)]
    figure = phases.get("figure", {}).get("findings", {})
    if figure.get("figures"):
        lines += figure_lines(figure)
    return "\n".join(lines)


def commit_of(result: Json) -> str:
    """Its begin, and what gpu_pack.sh adds to it where files had changed since."""
    commit, _, more = result["commit"].partition(" ")
    return f"{commit[:12]} {more}".strip()


def main() -> int:
    paths = [Path(word) for word in sys.argv[1:]]
    sources = [path for path in paths if path.suffix == ".json"]
    documents = [path for path in paths if path.suffix != ".json"] or [ROOT / "docs" / "cuda.md"]
    if not sources or len(documents) > 1:
        sys.exit(__doc__)
    document = documents[0]
    before = document.read_text(encoding="utf-8")
    if before.count(BEGIN) != 1 or before.count(END) != 1:
        sys.exit(f"{document} does not have the lines '{BEGIN}' and '{END}' once each")
    head, _, rest = before.partition(BEGIN)
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sources]
    for path, result in zip(sources, results, strict=True):
        if result["double"]:
            sys.exit(f"{path} is of the double, and not of a GPU")
    told = text(merged(results))
    document.write_text(f"{head}{BEGIN}\n{told}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
