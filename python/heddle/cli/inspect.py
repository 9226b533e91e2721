"""heddle inspect: ports, batchability and the optimised graph of a model."""

from __future__ import annotations

import json
from pathlib import Path

from .. import load


def add_parser(commands) -> None:
    parser = commands.add_parser("inspect", help="show a model's inputs, outputs and optimised graph")
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="host")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(execute=execute)


def execute(options) -> int:
    model = load(options.model, options.device)
    if options.json:
        ports = {
            side: [{"name": p.name, "dtype": p.dtype, "shape": list(p.shape)} for p in getattr(model, side)]
            for side in ("inputs", "outputs")
        }
        more = {
            "batchable": model.batchable,
            "why_not": model.why_not_batchable,
            "weight_bytes": model.weight_bytes,
        }
        print(json.dumps({**ports, **more, "graph": model.graph().splitlines()}, indent=1))
        return 0
    for side in ("inputs", "outputs"):
        for port in getattr(model, side):
            print(f"{side[:-1]:6s} {port!r}")
    print(f"weights {model.weight_bytes / 1e6:.1f} MB")
    print("batchable" if model.batchable else f"not batchable: {model.why_not_batchable}")
    print(model.graph())
    return 0
