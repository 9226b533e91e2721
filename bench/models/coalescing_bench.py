"""Question  what do plain threads that call model(x) with one row get, against the best that peers make of
          the same calls: single rows from as many threads as they like, `batched` over ONNX Runtime,
          OpenVINO's BATCH device? C++ callers of Heddle stand against peers called from Python; the same load
          from Python stands beside them.
Read as   rows per second of Heddle's callers over the peer's, round by round, peers at their best setting.
          C++ callers run in a process of their own (bench/api/coalescing_callers_bench.cpp), in turn with
          the peers. MiniLM gets sentences of 4 to 60 tokens, the next one at each call.
          Every measurement has a process of its own: the threads that some peers leave behind, spinning,
          would be in the way of the next one.
Checked   the C++ program compares every answer with that of a call alone; here the first answers of every
          setting are compared with ONNX Runtime's.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers import Arrays, Call, Setting, Work, heddle_call, onnxruntime_call, settings, with_own_request
from peers_bench import works
from ratios import calls_per_second, in_turn, parser, ratio, show, spread, write

ROOT = Path(__file__).resolve().parent.parent.parent
CALLERS = ROOT / "build" / "release" / "bench" / "coalescing_callers_bench"
SENTENCES = 64
WARM_SECONDS = 2.0


def child(*command: object) -> dict:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


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
    Case("mlp", 64, "f32", False, 16, "onnxruntime", 2.5),
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
    """Each call takes the next of the inputs, on any thread."""
    turn = itertools.count()
    return calls_per_second(lambda: call(inputs[next(turn) % len(inputs)]), callers, seconds)


def right(work: Work, name: str, call: Call, inputs: list[Arrays], precision: str) -> Call:
    reference = onnxruntime_call(work, 1)
    for x in inputs[:8]:
        y = reference(x)
        error = np.abs(call(x) - y).max() / max(1.0, np.abs(y).max())
        if not error < (1e-4 if precision == "f32" else 5e-2):
            raise SystemExit(f"{work.name}, {name}: the answer differs by {error:.2e}")
    return call


def sides(case: Case) -> dict[str, Callable[[Work], Call]]:
    every = settings(case.precision, case.peer_callers)
    tried = batching_peers().get(case.peers) or [s for s in every[1:] if s.peer.startswith(case.peers)]
    return {"heddle": lambda w: heddle_call(w, case.precision, True)} | {s.name: s.open for s in tried}


def one_side(case: Case, work: Work, side: str, seconds: float) -> float | None:
    """In this process; None: the peer has nothing for this model."""
    inputs = inputs_for(case.work)
    try:
        call = right(work, side, sides(case)[side](work), inputs, case.precision)
    except LookupError:
        return None
    callers = case.callers if side == "heddle" else case.peer_callers
    rate(call, inputs, callers, WARM_SECONDS)  # sentences that share a batch are shapes of their own
    return rate(call, inputs, callers, seconds)


def measure(case: Case, work: Work, options) -> dict:
    print(f"\n{case.name}, against {case.peers or 'the best peer'}", flush=True)

    def of(side: str, seconds: float = options.seconds) -> float | None:
        if side == "heddle" and case.cpp:
            asked = ("--callers", case.callers, "--precision", case.precision, "--seconds", seconds)
            return child(CALLERS, "--model", work.path, *asked)["rows_per_s"]
        here = (sys.executable, __file__, "--case", CASES.index(case), "--side", side, "--seconds", seconds)
        return child(*here)["rows_per_s"]

    quick = {name: of(name, options.seconds / 2) for name in sides(case) if name != "heddle"}
    for name in [name for name, value in quick.items() if value is None]:
        print(f"  {name}: left out, it has nothing for {case.work}")
        del quick[name]
    best = max(quick, key=quick.__getitem__)
    rates = in_turn({"heddle": lambda: of("heddle"), best: lambda: of(best)}, options.rounds)
    for name, values in rates.items():
        show(name, spread(values), "rows/s")
    figure = ratio(rates["heddle"], rates[best])
    show(f"heddle / {best}", figure, "x", f"bar: {case.bar:g}")
    return {"rows_per_s": rates, "tried": quick, "best_peer": best, "ratio": figure, "bar": case.bar}


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--models", nargs="+", default=sorted({case.work for case in CASES}))
    command.add_argument("--case", type=int, help="one measurement, as JSON: the case's number")
    command.add_argument("--side", default="heddle", help="whose, with --case")
    options = command.parse_args()
    if not CALLERS.exists():
        raise SystemExit(f"{CALLERS} is missing: run `make bench ONLY=coalescing`, which builds it")
    known = works()
    if options.case is not None:
        case = CASES[options.case]
        found = one_side(case, known[case.work], options.side, options.seconds)
        print(json.dumps({"rows_per_s": found}), flush=True)
        os._exit(0)  # some peers' threads never end
    figures = {}
    for case in CASES:
        if case.work in options.models:
            figures[f"{case.name} / {case.peers or 'best'}"] = measure(case, known[case.work], options)
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
