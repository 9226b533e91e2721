"""Where the time of a call goes: spans of the tracer, summed by operator and by step."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from .. import profiler


def spans_of_calls(model, inputs, calls: int) -> list[dict[str, Any]]:
    """The complete spans of so many calls, one after another, after one that is not recorded."""
    model(*inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profiler.profile(str(path)):
            for _ in range(calls):
                model(*inputs)
        events = json.loads(path.read_text())
    return [e for e in (events["traceEvents"] if isinstance(events, dict) else events) if e["ph"] == "X"]


def nest(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The spans with `depth`, how many others of their thread enclose them, and `inner`, the time of those
    right inside."""
    nested: list[dict[str, Any]] = []
    open_spans: list[dict[str, Any]] = []
    for span in sorted(spans, key=lambda s: (s["tid"], s["ts"], -s["dur"])):
        while open_spans and not encloses(open_spans[-1], span):
            open_spans.pop()
        nested.append(span | {"depth": len(open_spans), "inner": 0.0})
        if open_spans:
            open_spans[-1]["inner"] += span["dur"]
        open_spans.append(nested[-1])
    return nested


def encloses(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    return outer["tid"] == inner["tid"] and inner["ts"] < outer["ts"] + outer["dur"]


def profile(model, inputs, calls: int = 20) -> dict[str, Any]:
    """Milliseconds of a call, means over `calls`: whole, in steps by operator, and by step.

    `other_ms` is what lies between the steps: checks, copies in and out, the wait for a stream. Steps
    inside a step (of a loop's body) have `depth` 1 and more, and numbers of their own; `ms` is a step without
    those inside it, `with_inner_ms` with them.
    """
    whole: list[float] = []
    by_step: dict[tuple[int, int, str], list[dict[str, Any]]] = defaultdict(list)
    spans = spans_of_calls(model, inputs, calls)
    for span in nest([span for span in spans if span["cat"] == "host"]):
        by_step[span["depth"], span["args"]["id"], span["name"]].append(span)
    for span in spans:
        if span["cat"] == "api" and span["name"] == "call":
            whole.append(span["dur"] / 1e3)
    steps: list[dict[str, Any]] = [
        {
            "step": number,
            "op": op,
            "depth": depth,
            "runs": len(runs) / calls,
            "ms": sum(run["dur"] - run["inner"] for run in runs) / calls / 1e3,
            "with_inner_ms": sum(run["dur"] for run in runs) / calls / 1e3,
        }
        for (depth, number, op), runs in sorted(by_step.items())
    ]
    operators: dict[str, dict[str, Any]] = {}
    for step in steps:
        total = operators.setdefault(step["op"], {"op": step["op"], "runs": 0.0, "ms": 0.0})
        total["runs"] += step["runs"]
        total["ms"] += step["ms"]
    call_ms = statistics.fmean(whole)
    return {
        "calls": calls,
        "call_ms": call_ms,
        "other_ms": max(0.0, call_ms - sum(step["ms"] for step in steps)),
        "operators": sorted(operators.values(), key=lambda row: -row["ms"]),
        "steps": sorted(steps, key=lambda row: -row["ms"]),
    }


def print_profile(report: dict[str, Any], slowest: int = 10) -> None:
    def line(label: str, runs: str, ms: float) -> None:
        print(f"  {label:28s} {runs:>8s} {ms:10.4f} ms {100 * ms / report['call_ms']:6.1f} %")

    print(f"a call takes {report['call_ms']:.4f} ms (mean of {report['calls']})")
    for row in report["operators"]:
        line(row["op"], f"{row['runs']:g} x", row["ms"])
    line("between the steps", "", report["other_ms"])
    print(f"the slowest of {len(report['steps'])} steps")
    for row in report["steps"][:slowest]:
        line(f"{row['op']} (step {row['step']})", f"{row['runs']:g} x", row["ms"])
