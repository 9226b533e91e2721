"""Question  do two callers on two cores get twice what one caller gets on one core?
Read as   calls per second of two threads, over those of one thread in a process pinned to one core, per
          model; the bar is 1.9. The two processes measure in turn, round by round. The processor time a call
          takes in each is printed beside it: where two cores are not twice one, it says whether the calls got
          dearer (shared cache and memory) or the cores stood idle. "mlp_weights" is no model: its call reads
          as many bytes as the MLP's weights have, and shows what the machine's shared cache lets two have.
Checked   each process compares its answers with the reference before it measures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from ratios import arguments, calls_per_second, in_turn, ratio, show, spread, write

import heddle

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "models"))
import minilm  # noqa: E402
import real_files  # noqa: E402

WEIGHTS_ONLY = "mlp_weights"
MODELS = ("mlp", WEIGHTS_ONLY, "conv1d", "encoder", "minilm")


def load(name: str):
    """The model, one input for it, and what PyTorch or ONNX Runtime give for that input."""
    if name == WEIGHTS_ONLY:
        weights = np.ones(load("mlp")[0].weight_bytes // 4, np.float32)
        return lambda _: np.max(weights, keepdims=True), (weights,), np.ones(1, np.float32)
    if name == "minilm":
        import onnxruntime

        path = ROOT / "build" / "models" / "minilm.onnx"
        path = path if path.exists() else minilm.build(path)
        ids = np.arange(1000, 1032)[None]
        inputs = (ids, np.ones_like(ids), np.zeros_like(ids))
        ort = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        expected = ort.run(None, dict(zip((p.name for p in ort.get_inputs()), inputs, strict=True)))[0]
        return heddle.load(path), inputs, expected
    folder = real_files.exports()
    with np.load(folder / f"{name}.npz") as saved:
        x, y = saved["input_0"], saved["output_0"]
    return heddle.load(folder / f"{name}.onnx"), (x[:1],), y[:1]


def serve(name: str, callers: int) -> None:
    """The child: reads seconds, writes calls per second and processor time per call, until its input ends."""
    model, inputs, expected = load(name)
    got = model(*inputs)
    got = got[0] if isinstance(got, tuple) else got
    error = np.abs(got - expected).max() / max(1.0, np.abs(expected).max())
    if not error < 1e-4:
        raise SystemExit(f"{name}: the answer differs by {error}")
    print("ready", flush=True)
    for line in sys.stdin:
        cpu = time.process_time()
        begin = time.perf_counter()
        rate = calls_per_second(lambda: model(*inputs), callers, float(line))
        calls = rate * (time.perf_counter() - begin)
        print(rate, (time.process_time() - cpu) / calls * 1e6, flush=True)


class Child:
    def __init__(self, name: str, callers: int, cores: set[int]):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, str(callers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self.cpu_us: list[float] = []
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit(f"the process for {name} did not start")

    def measure(self, seconds: float) -> float:
        print(seconds, file=self.process.stdin, flush=True)
        rate, cpu = self.process.stdout.readline().split()
        self.cpu_us.append(float(cpu))
        return float(rate)

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def main() -> int:
    if "--serve" in sys.argv:
        serve(sys.argv[-2], int(sys.argv[-1]))
        return 0
    options = arguments(__doc__)
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("this question needs two cores")
    figures = {}
    for name in MODELS:
        one = Child(name, 1, {cores[0]})
        two = Child(name, 2, set(cores))
        measure = {
            "one": lambda c=one: c.measure(options.seconds),
            "two": lambda c=two: c.measure(options.seconds),
        }
        rates = in_turn(measure, options.rounds)
        one.end()
        two.end()
        print(f"\n{name}")
        show("one caller on one core", spread(rates["one"]), "calls/s")
        show("two callers on two cores", spread(rates["two"]), "calls/s")
        show("processor time a call, one", spread(one.cpu_us), "us")
        show("processor time a call, two", spread(two.cpu_us), "us")
        show("two / one", ratio(rates["two"], rates["one"]), "x", "bar: 1.9")
        figures[name] = {
            "calls_per_s": rates,
            "cpu_us": {"one": one.cpu_us, "two": two.cpu_us},
            "ratio": ratio(rates["two"], rates["one"]),
        }
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
