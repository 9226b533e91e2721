"""Question  does the promise hold for as many cores as there are: a lone caller has the machine, callers with
          batches fill it, and plain threads, from C++ and from Python, get more the more of them call?
Peers     ONNX Runtime and PyTorch with several numbers of their own threads, the best counts; for callers of
          batches with one thread each; for Python's callers ONNX Runtime, called from 16 threads.
Read as   rows per second, and Heddle's over the best peer's, round by round. The ceiling of the callers is
          the best of (as many callers as cores) x (batches of 1, 4, 16 and 64 rows) without coalescing.
          Every measurement has a process of its own: threads that some peers leave behind, spinning, would
          be in the way of the next one. `calls` are identity calls, which cost nothing but themselves.
Checked   the C++ program compares every answer with that of a call alone; here the first answers of every
          setting are compared with ONNX Runtime's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from peers import CORES, Arrays, Call, Work, heddle_call, onnxruntime_call, torch_call
from peers_bench import TOLERANCE, works
from ratios import call_rates, in_turn, parser, ratio, show, spread, write

ROOT = Path(__file__).resolve().parent.parent.parent
BENCHES = Path(os.environ.get("HEDDLE_BENCHES", ROOT / "build" / "release" / "bench"))
BATCHES = {"mlp": 64, "conv1d": 64, "encoder": 64, "resnet18": 8, "minilm": 8}
ROWS = {"mlp": (512,), "conv1d": (64, 100), "encoder": (32, 256), "resnet18": (3, 224, 224)}  # of the input
CALLERS = (1, 4, 16, 64, 256, 1024)
PYTHON_CALLERS = (16, 64, 256)
CEILING_ROWS = (1, 4, 16, 64)
WORK_BETWEEN_US = (0, 10, 30, 100)


def inputs_for(work: str, rows: int) -> Arrays:
    random = np.random.default_rng(rows)
    if work == "minilm":
        ids = random.integers(1000, 20000, (rows, 32))
        return ids, np.ones_like(ids), np.zeros_like(ids)
    return (random.standard_normal((rows, *ROWS[work]), dtype=np.float32),)


def opened(work: Work, setting: str) -> Call:
    """`heddle`, `heddle-alone` (not coalesced), or a peer with its number of threads: `onnxruntime-4`."""
    peer, _, detail = setting.partition("-")
    if peer == "heddle":
        return heddle_call(work, "f32", coalesce=detail != "alone")
    return (
        onnxruntime_call(work, int(detail)) if peer == "onnxruntime" else torch_call(work, int(detail), "f32")
    )


def checked(work: Work, setting: str, rows: int) -> tuple[Call, Arrays]:
    call, inputs = opened(work, setting), inputs_for(work.name, rows)
    want = onnxruntime_call(work, 1)(inputs)
    error = np.abs(call(inputs) - want).max() / max(1.0, np.abs(want).max())
    if not error < TOLERANCE["f32"]:
        raise SystemExit(f"{work.name}, {setting}: the answer differs by {error:.2e}")
    return call, inputs


def busy(us: float) -> None:
    end = time.perf_counter() + us / 1e6
    while time.perf_counter() < end:
        pass


def one(options) -> dict:
    """One measurement, in this process."""
    if options.work == "identity":
        return {"rows_per_s": identity_rate(options.callers, options.seconds)}
    work = works([options.work])[options.work]
    call, inputs = checked(work, options.side, options.rows)

    def step() -> None:
        call(inputs)
        if options.between:
            busy(options.between)

    call_rates(step, options.callers, options.seconds / 2)
    per_s, per_cpu_s = call_rates(step, options.callers, options.seconds)
    return {"rows_per_s": per_s * options.rows, "rows_per_cpu_s": per_cpu_s * options.rows}


def identity_rate(threads: int, seconds: float) -> float:
    """Calls are counted in strides: a look at the clock would cost as much as the call."""
    import heddle

    graph = heddle.GraphBuilder("identity")
    graph.output(graph.add("Identity", graph.input("x", "f32", ["n", 8])), "y")
    model = graph.build()
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    counts = [0] * threads
    over = threading.Event()

    def loop(me: int) -> None:
        while not over.is_set():
            for _ in range(100):
                model(x)
            counts[me] += 100

    for _ in range(100):
        if not np.array_equal(model(x), x):
            raise SystemExit("the identity graph did not give its input")
    callers = [threading.Thread(target=loop, args=(i,)) for i in range(threads)]
    begin = time.perf_counter()
    for caller in callers:
        caller.start()
    time.sleep(seconds)
    over.set()
    for caller in callers:
        caller.join()
    return sum(counts) / (time.perf_counter() - begin)


def peers_of(work: Work, onnxruntime: Iterable[int], torch: Iterable[int]) -> list[str]:
    """The settings, by numbers of threads; PyTorch where there is a module."""
    names = [f"onnxruntime-{threads}" for threads in onnxruntime]
    return names + [f"torch-{threads}" for threads in torch] if work.module else names


class Runner:
    def __init__(self, options) -> None:
        self.options = options
        self.figures: dict = {"cores": CORES}

    def python(self, work: str, side: str, callers: int, rows: int, between: int = 0) -> float:
        asked = ("--work", work, "--side", side, "--callers", callers, "--rows", rows, "--between", between)
        return self.child(sys.executable, __file__, *asked)["rows_per_s"]

    def cpp(self, work: Work, callers: int, rows: int, coalesce: bool, precision: str) -> float:
        asked = ("--model", work.path, "--callers", callers, "--rows", rows, "--precision", precision)
        joined = ("--coalesce", "on" if coalesce else "off")
        return self.child(BENCHES / "coalescing_callers_bench", *asked, *joined)["rows_per_s"]

    def child(self, *command: object) -> dict:
        words = [str(word) for word in (*command, "--seconds", self.options.seconds)]
        return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)

    def against(self, name: str, work: str, callers: int, rows: int, peers: list[str]) -> None:
        tried = {peer: self.python(work, peer, callers, rows) for peer in peers}
        best = max(tried, key=tried.__getitem__)
        sides = {side: lambda side=side: self.python(work, side, callers, rows) for side in ("heddle", best)}
        rates = in_turn(sides, self.options.rounds)
        times = ratio(rates["heddle"], rates[best])
        show(f"{name}: {work}, {callers} x {rows} rows: heddle", spread(rates["heddle"]), "rows/s")
        show(f"  over {best}", times, "x")
        self.figures.setdefault(name, {})[work] = {"rates": rates, "tried": tried, "ratio": times}

    def alone(self, work: Work) -> None:
        threads = sorted({1, 2, 4, 8, 16, CORES} & set(range(1, CORES + 1)))
        peers = peers_of(work, threads, {1, CORES})
        self.against("one caller, one row", work.name, 1, 1, peers)
        self.against("one caller, a batch", work.name, 1, BATCHES[work.name], peers)

    def batches(self, work: Work) -> None:
        peers = peers_of(work, {1}, {1})
        self.against("a caller a core, batches", work.name, CORES, BATCHES[work.name], peers)

    def joined(self, work: Work, precision: str = "f32") -> None:
        def rates(callers: int, rows: int, coalesce: bool) -> float:
            return self.cpp(work, callers, rows, coalesce, precision)

        sides = {f"{n} callers": lambda n=n: rates(n, 1, True) for n in CALLERS}
        sides |= {f"{n} callers, not joined": lambda n=n: rates(n, 1, False) for n in (16, 64)}
        sides |= {
            f"{CORES} x {rows} rows": lambda rows=rows: rates(CORES, rows, False) for rows in CEILING_ROWS
        }
        every = in_turn(sides, self.options.rounds)
        best = max(spread(values)[1] for values in every.values())
        for name, values in every.items():
            show(f"{work.name} {precision}, C++: {name}", spread(values), "rows/s")
            show("  of the best", spread([value / best for value in values]), "x")
        self.figures.setdefault("C++ callers", {})[f"{work.name} {precision}"] = every

    def from_python(self, work: str) -> None:
        for between in WORK_BETWEEN_US:
            callers = PYTHON_CALLERS if between == 0 else (64,)
            sides = {
                f"{n} threads": lambda n=n, b=between: self.python(work, "heddle", n, 1, b) for n in callers
            }
            sides["onnxruntime"] = lambda b=between: self.python(work, "onnxruntime-1", 16, 1, b)
            rates = in_turn(sides, self.options.rounds)
            for name in rates:
                show(f"{work}, Python, {between} us between: {name}", spread(rates[name]), "rows/s")
                if name != "onnxruntime":
                    show("  over onnxruntime", ratio(rates[name], rates["onnxruntime"]), "x")
            self.figures.setdefault("Python callers", {})[f"{work}, {between} us between"] = rates

    def calls(self) -> None:
        sides = {f"{n} threads": lambda n=n: self.python("identity", "heddle", n, 1) for n in (1, 2, 16)}
        rates = in_turn(sides, self.options.rounds)
        for name in rates:
            show(f"identity, Python: {name}", spread(rates[name]), "calls/s")
        show("  16 threads / 1", ratio(rates["16 threads"], rates["1 threads"]), "x", "bar: 0.9")
        self.figures["identity, Python"] = rates


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--models", nargs="+", default=list(BATCHES))
    command.add_argument("--parts", nargs="+", default=["calls", "alone", "full", "joined", "python"])
    for name, default in (("work", ""), ("side", "heddle")):
        command.add_argument(f"--{name}", default=default, help="one measurement, as JSON")
    for name in ("callers", "rows", "between"):
        command.add_argument(f"--{name}", type=int, default=0)
    options = command.parse_args()
    if options.work:
        print(json.dumps(one(options)), flush=True)
        os._exit(0)  # some peers' threads never end
    runner = Runner(options)
    known = works(options.models)
    if "calls" in options.parts:
        runner.calls()
    for work in options.models:
        if "alone" in options.parts:
            runner.alone(known[work])
        if "full" in options.parts:
            runner.batches(known[work])
        write(options.json, runner.figures)
    if "joined" in options.parts:
        for work in set(options.models) & {"mlp", "encoder"}:
            runner.joined(known[work])
        if "mlp" in options.models:
            runner.joined(known["mlp"], "bf16")
    if "python" in options.parts and "mlp" in options.models:
        runner.from_python("mlp")
    write(options.json, runner.figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
