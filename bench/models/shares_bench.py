"""Question  how near is each model to the peak of the processor, and what does bf16 cost in accuracy?
Read as   billions of operations (of matrix products and convolutions alone) a second of processor time, per
          core, two callers at once with the batches of peers_bench.py; and their share of what a product of
          1024 x 1024 reaches in the same precision in the same run, which bench/host/peak_bench.cpp compares
          with the processor's own peak. Processor time, so that a busy neighbour changes little.
          Then the largest error of the output, of its scale, in f32 and in bf16.
Checked   the errors are against ONNX Runtime in f32: within 1e-4 in f32, within 5e-2 in bf16.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
from peers import Arrays, Work, heddle_call, onnxruntime_call
from peers_bench import CASES, TOLERANCE, Case, inputs_for, works
from ratios import call_rates, in_turn, parser, ratio, show, spread, write

import heddle

CALLERS = 2
SIZE = 1024
CASES_AND_SMALL = (*CASES, Case("mobilenet", 64))


def operations(work: Work, inputs: Arrays) -> float:
    """Of one call: ONNX Runtime says which products it runs, with their shapes."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(str(work.path), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(zip((port.name for port in session.get_inputs()), inputs, strict=True)))
        events = json.loads(Path(session.end_profiling()).read_text())
    total = 0.0
    for event in events:
        args = event.get("args", {})
        if "output_type_shape" not in args:
            continue
        shapes = [next(iter(entry.values())) for entry in args["input_type_shape"]]
        made = math.prod(next(iter(args["output_type_shape"][0].values())))
        if args["op_name"] in ("MatMul", "Gemm"):
            total += 2.0 * made * shapes[0][-1]
        elif args["op_name"] == "Conv":
            total += 2.0 * made * math.prod(shapes[1][1:])
    return total


def large_product(precision: str):
    """A call, and its operations."""
    graph = heddle.GraphBuilder("peak")
    w = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    graph.output(graph.add("MatMul", graph.input("x", "f32", [SIZE, SIZE]), graph.constant(w)), "y")
    model = graph.build(heddle.Device.open(), precision=precision)
    x = np.ones((SIZE, SIZE), np.float32)
    error = np.abs(model(x) - x @ w).max() / np.abs(x @ w).max()
    if not error < TOLERANCE[precision]:
        raise SystemExit(f"the large product in {precision} differs by {error}")
    return (lambda: model(x)), 2.0 * SIZE**3


def rate(call, each: float, seconds: float) -> float:
    """Billions of operations a second of processor time."""
    return call_rates(call, CALLERS, seconds)[1] * each / 1e9


def main() -> int:
    options = parser(__doc__).parse_args()
    known = works()
    subjects, errors = {}, {}
    for case in CASES_AND_SMALL:
        work = known[case.work]
        inputs = inputs_for(case, case.batch)
        want, each = onnxruntime_call(work, 1)(inputs), operations(work, inputs)
        for precision in TOLERANCE:
            try:
                call = heddle_call(work, precision)
            except heddle.UnsupportedError as why:
                print(f"{precision}: left out, {why}")
                continue
            error = float(np.abs(call(inputs) - want).max() / np.abs(want).max())
            if not error < TOLERANCE[precision]:
                raise SystemExit(f"{case.name} in {precision}: the answer differs by {error}")
            errors[f"{case.name} {precision}"] = error
            subjects[f"{case.name} {precision}"] = (lambda c=call, x=inputs: c(x)), each
    for precision in {name.split()[-1] for name in subjects}:
        subjects[f"product {precision}"] = large_product(precision)
    rates = in_turn(
        {
            name: lambda call=call, each=each: rate(call, each, options.seconds)
            for name, (call, each) in subjects.items()
        },
        options.rounds,
    )
    for precision in TOLERANCE:
        for name, values in rates.items():
            if not name.endswith(f" {precision}"):
                continue
            show(name, spread(values), "Gop/s")
            if name in errors:
                show("  of the large product", ratio(values, rates[f"product {precision}"]), "x")
                print(f"    error {errors[name]:.1e} of the scale")
    write(options.json, {"gop_per_cpu_s": rates, "errors": errors})
    return 0


if __name__ == "__main__":
    sys.exit(main())
