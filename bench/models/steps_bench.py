"""Question  which steps of a model does a lone caller wait for: how long does each take whole, on one
          thread, and divided among all threads, and how is it divided?
Subject   an ONNX file, or `resnet18`, which is built here (tools/models/graph_nets.py) and needs torch only.
Read as   JSON: for each step what it makes, how it is carried out and divided on so many threads (`path`),
          its milliseconds on one thread (`whole_ms`) and on all (`divided_ms`), and `speedup`. Means over
          --calls calls of the tracer's spans. `between_ms` is what lies between the steps; `balance` the
          work over what the threads could do while the busiest is at its pieces.
Checked   the answers of both devices agree.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path

import numpy as np

import heddle
from heddle.cli.ports import make_inputs, parse_dims, shape_of, with_batch
from heddle.cli.profile import profile

ROOT = Path(__file__).resolve().parent.parent.parent


def load(name: str, threads: int, exact: bool):
    device = heddle.Device.open(threads=threads)
    if name != "resnet18":
        return heddle.load(name, device, coalesce=False, exact=exact)
    sys.path.insert(0, str(ROOT / "tools" / "models"))
    import graph_nets
    import torch
    import torch_nets

    torch.manual_seed(1)
    return graph_nets.resnet18(torch_nets.ResNet18().eval()).build(device, coalesce=False, exact=exact)


def balance_of(path: str) -> float | None:
    found = re.search(r"(\d+) % of \d+ busy", path)
    return int(found[1]) / 100 if found else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="resnet18", help="an ONNX file, or resnet18")
    parser.add_argument("--json", type=Path, help="write the figures there, and print a table")
    parser.add_argument("--dims", nargs="*", metavar="NAME=N", default=[], help="a batch left out is 1")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--exact", action="store_true")
    options = parser.parse_args()
    measured, plans, answers = [], [], []
    for threads in (1, options.threads):
        model = load(options.model, threads, options.exact)
        dims = with_batch(model, parse_dims(options.dims))
        inputs = make_inputs(model, dims)
        answers.append(model(*inputs))
        rates = heddle.measure_rates(model.device, "f32")
        plans.append(model.plan([shape_of(port, dims) for port in model.inputs], rates))
        measured.append(profile(model, inputs, options.calls))
    for one, other in zip(*answers, strict=True):
        if not np.allclose(one, other, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(one).max(initial=0)))):
            raise SystemExit("the answers of one thread and of all threads differ")
    times = [{row["step"]: row["with_inner_ms"] for row in m["steps"] if row["depth"] == 0} for m in measured]
    steps = []
    for node in plans[1]["nodes"]:
        if node["step"] is None:
            continue
        whole, divided = (each[node["step"]] for each in times)
        row = {key: node[key] for key in ("step", "op", "outputs", "flops", "bytes", "path")}
        speedup = whole / divided if divided else None
        steps.append(
            {
                **row,
                "balance": balance_of(node["path"]),
                "whole_ms": whole,
                "divided_ms": divided,
                "speedup": speedup,
            }
        )
    report = {
        "model": options.model,
        "threads": options.threads,
        "call_ms": {"whole": measured[0]["call_ms"], "divided": measured[1]["call_ms"]},
        "between_ms": {"whole": measured[0]["other_ms"], "divided": measured[1]["other_ms"]},
        "steps": steps,
    }
    if options.json is None:
        print(json.dumps(report, indent=1))
        return 0
    options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    for step in steps:
        figures = f"{step['whole_ms']:9.4f} {step['divided_ms']:9.4f} ms"
        print(f"{step['step']:4d} {step['op']:24s} {figures}  {step['path']}")
    print(f"a call: {report['call_ms']['whole']:.3f} ms whole, {report['call_ms']['divided']:.3f} ms divided")
    return 0


if __name__ == "__main__":
    sys.exit(main())
