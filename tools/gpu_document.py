"""Writes what tools/gpu_check.sh found into docs/cuda.md, between its two marks.

usage: gpu_document.py RESULT.json [DOCUMENT]
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results: tools/gpu_document.py -->", "<!-- end of results -->"
PEERS = {"heddle / eager": "/ eager", "heddle / graph": "/ its CUDA graph replayed"}
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
    if phase["phase"] not in ("facts", "setup", "export") and not phase["phase"].startswith("bench"):
        told.append(words(findings))
    return " ".join(told).replace("|", "/").replace("\n", " ")[:600]


def phase_table(result: Json) -> list[str]:
    rows = ["| phase | status | seconds | found |", "| --- | --- | --- | --- |"]
    for phase in result["phases"]:
        status = phase["status"] if phase["status"] == "ok" else f"**{phase['status']}**"
        rows.append(f"| {phase['phase']} | {status} | {phase.get('seconds', '')} | {of_phase(phase)} |")
    return rows


def bench_table(works: list[Json]) -> list[str]:
    rows = ["| model | extents, type | Heddle, us | " + " | ".join(PEERS.values()) + " |", "| --- " * 5 + "|"]
    for work in works:
        extents = ", ".join(f"{name} {count}" for name, count in work["extents"].items())
        extents += f", {work.get('dtype', 'f32')}"
        microseconds = statistics.median(work["seconds"]["heddle"]) * 1e6
        ratios = [f"{statistics.median(ratios_of(work, name)):.2f}" for name in PEERS]
        rows.append(f"| {work['model']} | {extents} | {microseconds:,.0f} | {' | '.join(ratios)} |")
    return rows


def ratios_of(work: Json, name: str) -> list[float]:
    mine, peer = name.split(" / ")
    return [a / b for a, b in zip(work["seconds"][mine], work["seconds"][peer], strict=True)]


def text(result: Json) -> str:
    phases = {phase["phase"]: phase for phase in result["phases"]}
    found = phases.get("facts", {}).get("findings", {})
    facts = {"driver": found.get("driver", "")} | found.get("facts", {})
    machine = ", ".join(f"{name} {value}" for name, value in facts.items() if "algorithms" not in name)
    lines = [f"On {result['date']}, commit {result['commit'][:12]}; {machine}.", "", *phase_table(result)]
    bench = phases.get("bench", {}).get("findings")
    if bench:
        told = f"""
One call, its end awaited, f32 without TF32, or weights and tensors of both in bf16: time of Heddle /
PyTorch {bench["torch"]}'s on the same GPU, median of the rounds (`bench/models/gpu_bench.py`):
"""
        narrow = phases.get("bench_bf16", {}).get("findings", {}).get("works", [])
        lines += [*told.split("\n"), *bench_table(bench["works"] + narrow)]
    return "\n".join(lines)


def main() -> int:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    document = Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT / "docs" / "cuda.md"
    before = document.read_text(encoding="utf-8")
    if before.count(BEGIN) != 1 or before.count(END) != 1:
        sys.exit(f"{document} does not have the lines '{BEGIN}' and '{END}' once each")
    head, _, rest = before.partition(BEGIN)
    result = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if result["double"]:
        sys.exit(f"{sys.argv[1]} is of the double, and not of a GPU")
    document.write_text(f"{head}{BEGIN}\n{text(result)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
