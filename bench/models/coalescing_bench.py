"""Question  what do plain threads that call model(x) with one row get, against the best that peers make of
          the same calls: single rows from as many threads as they like, `batched` over ONNX Runtime,
          OpenVINO's BATCH device?
Read as   rows per second of Heddle's callers over the peer's, round by round, peers at their best setting.
          C++ callers run in a process of their own (bench/api/coalescing_callers_bench.cpp), in turn with
          the peers. MiniLM gets sentences of 4 to 60 tokens, the next one at each call.
Checked   the C++ program compares every answer with that of a call alone; here the first answers of every
          setting are compared with ONNX Runtime's.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers import Arrays, Call, Setting, Work, heddle_call, onnxruntime_call, settings, with_own_request
from peers_bench import works
from ratios import calls_per_second, in_turn, parser, ratio, show, spread, write

ROOT = Path(__file__).resolve().parent.parent.parent
CALLERS = ROOT / "build" / "release" / "bench" / "coalescing_callers_bench"
SENTENCES = 64
WARM_SECONDS = 3.0


def cpp_callers(work: Work, callers: int, precision: str, seconds: float) -> float:
    done = subprocess.run(
        [
            *(CALLERS, "--model", work.path, "--callers", str(callers)),
            *("--precision", precision, "--seconds", str(seconds)),
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)["rows_per_s"]


def batched_call(work: Work, size: int, window: float) -> Call:
    import batched

    session = onnxruntime_call(work, os.cpu_count() or 1)

    def rows(items: list[np.ndarray]) -> list[np.ndarray]:
        y = session((np.concatenate(items),))
        return [y[i : i + 1] for i in range(len(items))]

    made = batched.dynamically(rows, batch_size=size, timeout_ms=window)
    return lambda inputs: made([inputs[0]])[0]


def auto_batch_call(work: Work, size: int, window: int) -> Call:
    import openvino

    core = openvino.Core()
    read = core.read_model(str(work.path))
    port = read.input(0)
    read.reshape({port.any_name: [1, *(int(str(d)) for d in list(port.partial_shape)[1:])]})
    model = core.compile_model(
        read, f"BATCH:CPU({size})", {"AUTO_BATCH_TIMEOUT": str(window), "INFERENCE_PRECISION_HINT": "f32"}
    )
    return with_own_request(model)


def batching_peers() -> dict[str, list[Setting]]:
    return {
        "batched over onnxruntime": [
            Setting(
                "batched",
                f"size {size}, window {window} ms",
                lambda w, s=size, t=window: batched_call(w, s, t),
            )
            for size in (32, 64)
            for window in (0.0, 0.2, 1.0)
        ],
        "openvino BATCH device": [
            Setting(
                "auto batch",
                f"size {size}, window {window} ms",
                lambda w, s=size, t=window: auto_batch_call(w, s, t),
            )
            for size in (8, 16, 32)
            for window in (1, 5)
        ],
    }


@dataclass(frozen=True)
class Case:
    work: str
    callers: int
    precision: str
    cpp: bool  # the callers are C++ threads
    peer_callers: int
    peers: str  # "onnxruntime", "openvino": their settings; "": all of them
    bar: float

    @property
    def name(self) -> str:
        return f"{self.work} {self.precision}, {self.callers} {'C++' if self.cpp else 'Python'} callers"


CASES = (
    Case("mlp", 64, "f32", True, 16, "onnxruntime", 8),
    Case("mlp", 64, "bf16", True, 16, "openvino", 25),
    Case("mlp", 64, "f32", False, 64, "batched over onnxruntime", 1.5),
    Case("mlp", 64, "f32", False, 64, "openvino BATCH device", 4),
    Case("encoder", 16, "f32", True, 16, "", 1.4),
    Case("minilm", 16, "f32", False, 16, "", 1.1),
)


def inputs_for(work: str) -> list[Arrays]:
    """What each of the threads calls with, one row each."""
    if work != "minilm":
        import export_torch

        return [export_torch.arrays(work, {"batch": 1}, seed=i) for i in range(SENTENCES)]
    random = np.random.default_rng(11)
    every = []
    for length in random.integers(4, 61, SENTENCES):
        ids = random.integers(1000, 20000, (1, length))
        every.append((ids, np.ones_like(ids), np.zeros_like(ids)))
    return every


def rate(call: Call, inputs: list[Arrays], callers: int, seconds: float) -> float:
    """Each call takes the next of the inputs, whoever makes it."""
    turn = itertools.count()
    return calls_per_second(lambda: call(inputs[next(turn) % len(inputs)]), callers, seconds)


def right(
    work: Work, name: str, call: Call, inputs: list[Arrays], want: list[np.ndarray], precision: str
) -> Call:
    for x, y in zip(inputs[:8], want, strict=False):
        error = np.abs(call(x) - y).max() / max(1.0, np.abs(y).max())
        if not error < (1e-4 if precision == "f32" else 5e-2):
            raise SystemExit(f"{work.name}, {name}: the answer differs by {error:.2e}")
    return call


def measure(case: Case, work: Work, options) -> dict:
    print(f"\n{case.name}, against {case.peers or 'the best peer'}", flush=True)
    inputs = inputs_for(case.work)
    reference = onnxruntime_call(work, 1)
    want = [reference(x) for x in inputs[:8]]
    every = settings(case.precision, case.peer_callers)
    tried = batching_peers().get(case.peers) or [s for s in every[1:] if s.peer.startswith(case.peers)]
    calls: dict[str, Call] = {}
    for setting in tried:
        try:
            calls[setting.name] = right(work, setting.name, setting.open(work), inputs, want, case.precision)
        except LookupError as why:
            print(f"  {setting.name}: left out, {why}")
    quick = {name: rate(call, inputs, case.peer_callers, options.seconds / 2) for name, call in calls.items()}
    best = max(quick, key=quick.__getitem__)
    call = right(work, "heddle", heddle_call(work, case.precision, True), inputs, want, case.precision)

    def ours() -> float:
        if case.cpp:
            return cpp_callers(work, case.callers, case.precision, options.seconds)
        return rate(call, inputs, case.callers, options.seconds)

    def theirs() -> float:
        return rate(calls[best], inputs, case.peer_callers, options.seconds)

    if not case.cpp:
        rate(call, inputs, case.callers, WARM_SECONDS)  # sentences that share a batch are shapes of their own
    rates = in_turn({"heddle": ours, best: theirs}, options.rounds)
    for name, values in rates.items():
        show(name, spread(values), "rows/s")
    figure = ratio(rates["heddle"], rates[best])
    show(f"heddle / {best}", figure, "x", f"bar: {case.bar:g}")
    return {"rows_per_s": rates, "tried": quick, "best_peer": best, "ratio": figure, "bar": case.bar}


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--models", nargs="+", default=sorted({case.work for case in CASES}))
    options = command.parse_args()
    if not CALLERS.exists():
        raise SystemExit(f"{CALLERS} is missing: run `make bench ONLY=coalescing`, which builds it")
    known = works()
    figures = {}
    for case in CASES:
        if case.work in options.models:
            figures[f"{case.name} / {case.peers or 'best'}"] = measure(case, known[case.work], options)
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
