"""heddle inspect: ports, batchability, the optimised graph of a model, and where a call's time goes."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from .. import load
from .drawing import draw
from .ports import make_inputs, parse_dims
from .profile import print_profile, profile


def add_parser(commands) -> None:
    parser = commands.add_parser("inspect", help="show a model's inputs, outputs and optimised graph")
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="host")
    parser.add_argument("--precision", default="f32")
    parser.add_argument(
        "--dims", nargs="*", metavar="NAME=N", help="measure a call with these extents, step by step"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the optimised graph")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(execute=execute)


def execute(options) -> int:
    model = load(options.model, options.device, options.precision)
    measured = None
    if options.dims is not None:
        measured = profile(model, make_inputs(model, parse_dims(options.dims)))
    if options.svg is not None:
        options.svg.write_text(draw(model.graph(), options.model.name), encoding="utf-8")
    operators = Counter(re.findall(r" = (\w+)\(", model.graph()))
    if options.json:
        ports = {
            side: [{"name": p.name, "dtype": p.dtype, "shape": list(p.shape)} for p in getattr(model, side)]
            for side in ("inputs", "outputs")
        }
        more = {
            "batchable": model.batchable,
            "why_not": model.why_not_batchable,
            "weight_bytes": model.weight_bytes,
            "operators": dict(operators.most_common()),
            "profile": measured,
        }
        print(json.dumps({**ports, **more, "graph": model.graph().splitlines()}, indent=1))
        return 0
    for side in ("inputs", "outputs"):
        for port in getattr(model, side):
            print(f"{side[:-1]:6s} {port!r}")
    print(f"weights {model.weight_bytes / 1e6:.1f} MB")
    print("batchable" if model.batchable else f"not batchable: {model.why_not_batchable}")
    print("operators " + ", ".join(f"{op} x{count}" for op, count in operators.most_common()))
    print(model.graph())
    if measured:
        print_profile(measured)
    return 0
