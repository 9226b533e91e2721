"""heddle inspect: a model's graph before and after optimisation, its memory, and where a call's time goes."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from .. import load, measure_rates
from ..errors import Error
from .drawing import Note, draw
from .ports import make_inputs, missing_dims, parse_dims, shape_of, with_batch
from .profile import profile


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "inspect", help="a model's graph before and after optimisation, its memory, and time per node"
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="")
    parser.add_argument("--precision", default="f32")
    parser.add_argument(
        "--dims",
        nargs="*",
        metavar="NAME=N",
        help="extents to plan and to measure a call with; a batch that is left out is 1",
    )
    parser.add_argument("--short", action="store_true", help="no graphs, and only the slowest nodes")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the optimised graph, with times")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.set_defaults(execute=execute)


def operators(graph: str) -> dict[str, int]:
    """How often each operator is in a graph's text, the most frequent first. Not in graphs inside nodes."""
    return dict(Counter(re.findall(r"^  %.* = (\w+)\(", graph, re.MULTILINE)).most_common())


def find_fusions(replacements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replacements that changed something, equal ones together, those that took in the most nodes first."""
    found: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
    for each in replacements:
        if each["nodes"] != each["sources"]:
            found[tuple(each["nodes"]), tuple(sorted(each["sources"]))] += 1
    rows = [
        {"times": times, "nodes": list(nodes), "sources": dict(Counter(sources).most_common())}
        for (nodes, sources), times in found.items()
    ]
    return sorted(rows, key=lambda row: -row["times"] * sum(row["sources"].values()))


def describe(model, options) -> dict[str, Any]:
    """What is known without running the model."""
    ports = {
        side: [{"name": p.name, "dtype": p.dtype, "shape": list(p.shape)} for p in getattr(model, side)]
        for side in ("inputs", "outputs")
    }
    replacements = model.replacements()
    source = operators(model.source_graph())
    return {
        "model": str(options.model),
        "device": model.device.description,
        **ports,
        "batchable": model.batchable,
        "why_not": model.why_not_batchable,
        "weight_bytes": model.weight_bytes,
        "source_operators": source,
        "source_graph": model.source_graph().splitlines(),
        "operators": operators(model.graph()),
        "graph": model.graph().splitlines(),
        "fusions": find_fusions(replacements),
        "replacements": replacements,
        "unchanged": sum(each["nodes"] == each["sources"] for each in replacements),
        "folded_away": sum(source.values()) - sum(len(each["sources"]) for each in replacements),
    }


def plan_call(model, dims: dict[str, int], precision: str) -> dict[str, Any]:
    """Memory and nodes of a call with these extents, each node with its estimated time."""
    rates = measure_rates(model.device, precision)
    names = ("flops_per_s", "cached_bytes_per_s", "memory_bytes_per_s", "cached_bytes", "step_s")
    plan = model.plan([shape_of(port, dims) for port in model.inputs], rates)
    return {**plan, "rates": {name: getattr(rates, name) for name in names}}


def measure(model, inputs, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Where a call's time goes; sets the measured time of each node."""
    measured = profile(model, inputs)
    seconds = {row["step"]: row["with_inner_ms"] / 1e3 for row in measured["steps"] if row["depth"] == 0}
    for node in nodes:
        node["measured_s"] = seconds.get(node["step"])
    return measured


def examine(model, options) -> dict[str, Any]:
    """The whole report. `plan` or `profile` is None where --dims is needed for it: see `not_measured`."""
    report = describe(model, options)
    dims = with_batch(model, parse_dims(options.dims or []))
    missing = missing_dims(model, dims)
    report |= {"dims": dims, "plan": None, "profile": None, "not_measured": None}
    try:
        inputs = make_inputs(model, dims)
        report["plan"] = plan_call(model, dims, options.precision)
        report["profile"] = measure(model, inputs, report["plan"]["nodes"])
    except Error as error:
        if options.dims is not None:
            raise
        wanted = f"give numbers to the free dimensions: --dims {' '.join(f'{name}=N' for name in missing)}"
        report["not_measured"] = wanted if missing else str(error)
    return report


def counted(operators: dict[str, int]) -> str:
    return ", ".join(f"{op} x{count}" if count > 1 else op for op, count in operators.items())


def print_graphs(report: dict[str, Any], short: bool) -> None:
    before, after = (sum(report[key].values()) for key in ("source_operators", "operators"))
    print(f"\nGRAPH BEFORE OPTIMISATION  {before} nodes: {counted(report['source_operators'])}")
    if not short:
        print("\n".join(report["source_graph"]))
    print(f"\nGRAPH AFTER OPTIMISATION  {after} nodes: {counted(report['operators'])}")
    if not short:
        print("\n".join(report["graph"]))
    print(f"\nFUSIONS  {before} nodes -> {after}")
    for row in report["fusions"]:
        print(
            f"  {row['times']:3d} x  {' + '.join(row['nodes'])}  from {counted(row['sources']) or 'nothing'}"
        )
    print(f"  {report['unchanged']} nodes stayed as they were, {report['folded_away']} were folded away")


def print_memory(plan: dict[str, Any]) -> None:
    if plan["launches"]:
        print(f"\nLAUNCHES  {plan['launches']}")
    if plan["weights"]:
        print(f"\nWEIGHTS  {plan['weights']}")
    arena, apart, slot = plan["arena_bytes"], plan["arena_bytes_apart"], plan["slot_bytes"]
    if arena is None or slot is None:
        print("\nMEMORY  of a call under way: the vendor's library places the values and does not say where")
        print(f"  {apart / 1e6:.3f} MB between the nodes, if no memory were used twice")
        return
    saved = f"{1 - arena / apart:.1%}" if apart else "0 %"
    print(f"\nMEMORY  of a call under way: {slot / 1e6:.3f} MB")
    print(f"  arena {arena / 1e6:.3f} MB; without reuse {apart / 1e6:.3f} MB: reuse saves {saved}")
    print(f"  scratch of the node that runs {(slot - arena) / 1e6:.3f} MB")


def milliseconds(seconds: float | None) -> str:
    return f"{seconds * 1e3:10.4f}" if seconds is not None else f"{'-':>10s}"


def print_row(head: str, row: dict[str, Any], call_s: float, tail: str = "") -> None:
    estimated, measured = row["estimated_s"], row["measured_s"]
    ratio = f"{measured / estimated:7.2f}" if estimated and measured is not None else f"{'-':>7s}"
    share = f"{measured / call_s:7.1%}" if measured is not None else f"{'-':>7s}"
    print(f"{head} {milliseconds(estimated)} {milliseconds(measured)} {ratio} {share}  {tail}".rstrip())


def sum_by_operator(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for node in nodes:
        row = rows.setdefault(
            node["op"], {"op": node["op"], "count": 0, "estimated_s": 0.0, "measured_s": 0.0}
        )
        row["count"] += 1
        for key in ("estimated_s", "measured_s"):
            row[key] = None if row[key] is None or node[key] is None else row[key] + node[key]
    return sorted(rows.values(), key=lambda row: -(row["measured_s"] or 0.0))


def print_rates(rates: dict[str, float]) -> None:
    print(
        "  estimated: the larger of flops and bytes at the best this device did just now, "
        f"{rates['flops_per_s'] / 1e9:.1f} GFLOP/s,\n"
        f"  {rates['cached_bytes_per_s'] / 1e9:.1f} GB/s in caches, "
        f"{rates['memory_bytes_per_s'] / 1e9:.1f} GB/s in memory, and {rates['step_s'] * 1e6:.2f} us a step"
    )


def print_paths(nodes: list[dict[str, Any]]) -> None:
    """How the device carries out each node, where it has several ways: kernels, pieces, reasons."""
    paths: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if node["path"]:
            paths.setdefault((node["op"], node["path"]), []).append(str(node["step"]))
    if paths:
        print("\n  how each node is carried out")
    for (op, path), steps in sorted(paths.items()):
        print(f"  {op} ({'step' if len(steps) == 1 else 'steps'} {', '.join(steps)}): {path}")


def print_times(report: dict[str, Any], short: bool, slowest: int = 10) -> None:
    call_s = report["profile"]["call_ms"] / 1e3
    nodes = [node for node in report["plan"]["nodes"] if node["step"] is not None]
    print(f"\nTIME  a call takes {call_s * 1e3:.4f} ms (mean of {report['profile']['calls']})")
    print_rates(report["plan"]["rates"])
    columns = f"{'estimated':>10s} {'measured':>10s} {'ratio':>7s} {'share':>7s}"
    print(f"  {'ms by operator':44s} {columns}")
    for row in sum_by_operator(nodes):
        print_row(f"  {row['op']:36s} {row['count']:5d} x", row, call_s)
    between = {"estimated_s": None, "measured_s": report["profile"]["other_ms"] / 1e3}
    print_row(f"  {'between the nodes':44s}", between, call_s)
    shown = sorted(nodes, key=lambda node: -(node["measured_s"] or 0.0))[:slowest] if short else nodes
    title = f"ms of the slowest of {len(nodes)} nodes" if short else "ms node by node"
    print(f"\n  {title:44s} {columns}  what it makes")
    for node in shown:
        label = f"{node['op']} (step {node['step']})"
        print_row(f"  {label:44s}", node, call_s, f"{node['name']} {', '.join(node['outputs'])}")
    print_paths(nodes)


def print_report(report: dict[str, Any], short: bool) -> None:
    print(f"{report['model']} on {report['device']}")
    for side in ("inputs", "outputs"):
        for port in report[side]:
            print(f"  {side[:-1]:6s} {port['name']}: {port['dtype']}[{', '.join(map(str, port['shape']))}]")
    print(f"  weights {report['weight_bytes'] / 1e6:.1f} MB")
    print("  batchable" if report["batchable"] else f"  not batchable: {report['why_not']}")
    print_graphs(report, short)
    dims = ", ".join(f"{name}={extent}" for name, extent in report["dims"].items())
    if report["plan"]:
        print(f"\nA CALL  with {dims or 'the shapes of the file'}")
        print_memory(report["plan"])
    if report["profile"]:
        print_times(report, short)
    if report["not_measured"]:
        print(f"\nnot measured: {report['not_measured']}")


def execute(options) -> int:
    model = load(options.model, options.device, options.precision, keep_source=True)
    report = examine(model, options)
    if options.svg is not None:
        nodes = report["plan"]["nodes"] if report["plan"] else []
        notes = {n["name"]: Note(", ".join(n["outputs"]), n.get("measured_s")) for n in nodes}
        options.svg.write_text(draw(model.graph(), options.model.name, notes), encoding="utf-8")
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report, options.short)
    return 0
