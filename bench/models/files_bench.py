"""Question  is one caller of a real file served as fast as by ONNX Runtime at its best?
Read as   per file, the time of a call under Heddle over that under ONNX Runtime with the number of threads
          that suits it best, round by round: median and quartiles. At the end the geometric mean of the
          medians and the worst file. Bars: mean <= 1.0, worst <= 1.5.
Checked   before anything is timed, Heddle's outputs are compared with ONNX Runtime's for the timed inputs:
          within 1e-4 of each output's scale.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from peers import CORES
from ratios import calls_per_second, in_turn, parser, ratio, show, spread, write

import heddle

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "models"))
import real_files

TOLERANCE = 1e-4


def sessions(file: real_files.File) -> dict[str, object]:
    import onnxruntime

    opened = {}
    for threads in range(1, CORES + 1):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        opened[f"onnxruntime, {threads} threads"] = onnxruntime.InferenceSession(
            str(file.path()), options, providers=["CPUExecutionProvider"]
        )
    return opened


def check(file: real_files.File, got: object, want: list[np.ndarray]) -> None:
    for i, (a, b) in enumerate(zip(got if isinstance(got, tuple) else (got,), want, strict=True)):
        error = np.abs(a - b).max() / np.abs(b).max()
        if not error < TOLERANCE:
            raise SystemExit(f"{file.name}: output {i} differs by {error:.2e} of its scale")


def measure(file: real_files.File, rounds: int, seconds: float) -> dict:
    inputs = file.inputs(file.timed)
    peers = sessions(file)
    model = heddle.load(file.path())
    check(file, model(**inputs), next(iter(peers.values())).run(None, inputs))
    calls = {"heddle": lambda: model(**inputs)}
    for name, session in peers.items():
        calls[name] = lambda session=session: session.run(None, inputs)
    times = in_turn(
        {name: lambda call=call: 1e3 / calls_per_second(call, 1, seconds) for name, call in calls.items()},
        rounds,
    )
    best = min(peers, key=lambda name: spread(times[name])[1])
    figure = ratio(times["heddle"], times[best])
    print(f"\n{file.name} {file.timed}")
    for name, values in times.items():
        show(name, spread(values), "ms")
    show(f"heddle / {best}", figure, "x")
    return {"ms": times, "best_peer": best, "ratio": figure}


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--files", nargs="+", default=[file.name for file in real_files.FILES])
    options = command.parse_args()
    figures = {
        file.name: measure(file, options.rounds, options.seconds)
        for file in real_files.FILES
        if file.name in options.files
    }
    print()
    for name, figure in figures.items():
        show(name, figure["ratio"], "x", figure["best_peer"])
    middle = {name: figure["ratio"][1] for name, figure in figures.items()}
    mean = math.exp(sum(map(math.log, middle.values())) / len(middle))
    worst = max(middle, key=lambda name: middle[name])
    print(f"\n  geometric mean {mean:.3f} (bar: <= 1.0), worst {middle[worst]:.3f}, {worst} (bar: <= 1.5)")
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
