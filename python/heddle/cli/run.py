"""heddle run: one call of a model, arrays from files and into files."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from .. import load
from ..errors import InvalidError
from .ports import make_inputs, parse_dims, read_inputs


def add_parser(commands) -> None:
    parser = commands.add_parser("run", help="run a model once, npz / npy in and out")
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "inputs", nargs="*", help="FILE.npz, or NAME=FILE.npy; none: made-up inputs of --dims"
    )
    parser.add_argument(
        "--dims",
        nargs="*",
        default=[],
        metavar="NAME=N",
        help="numbers for symbolic dimensions of made-up inputs",
    )
    parser.add_argument(
        "--output", type=Path, help="FILE.npz for all outputs, or FILE.npy where there is one"
    )
    parser.add_argument("--device", default="")
    parser.add_argument("--json", action="store_true", help="print a description of the outputs as JSON")
    parser.set_defaults(execute=execute)


def save(path: Path, outputs: dict[str, np.ndarray]) -> None:
    if path.suffix == ".npz":
        np.savez(path, **outputs)  # type: ignore[arg-type]  # its own keywords are no arrays
    elif path.suffix == ".npy" and len(outputs) == 1:
        np.save(path, next(iter(outputs.values())))
    else:
        raise InvalidError(
            f"--output takes a .npz file ({len(outputs)} outputs), or a .npy file for one output, "
            f"not '{path}'"
        )


def execute(options) -> int:
    model = load(options.model, options.device)
    arrays = read_inputs(model, options.inputs) if options.inputs else None
    made_up = make_inputs(model, parse_dims(options.dims)) if arrays is None else []
    begin = time.perf_counter()
    results = model(*made_up) if arrays is None else model(**arrays)
    seconds = time.perf_counter() - begin
    results = results if isinstance(results, tuple) else (results,)
    outputs = {port.name: result for port, result in zip(model.outputs, results, strict=True)}
    if options.output:
        save(options.output, outputs)
    rows = [
        {
            "name": name,
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "mean": float(array.mean()) if array.size else None,
            "min": float(array.min()) if array.size else None,
            "max": float(array.max()) if array.size else None,
        }
        for name, array in outputs.items()
    ]
    if options.json:
        print(json.dumps({"seconds": seconds, "outputs": rows}, indent=1))
        return 0
    for row in rows:
        print(
            f"{row['name']}: {row['dtype']}{row['shape']}  mean {row['mean']}"
            f"  min {row['min']}  max {row['max']}"
        )
    print(f"{seconds * 1e3:.2f} ms, compilation of the shape included")
    return 0
