"""Question  what does a further length of a known model cost before its first call?
Read as   milliseconds of Model.compile() of MiniLM for lengths it has not seen, one after the other; median,
          and the slowest of ten; bars: 5 ms in f32, 10 ms in bf16.
Checked   a call of a compiled length gives what ONNX Runtime gives: within 1e-4 of the scale in f32, 2e-2 in
          bf16.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from peers import Work, onnxruntime_call
from ratios import arguments, show, spread, write

import heddle

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "models"))
BARS = {"f32": (5, 1e-4), "bf16": (10, 2e-2)}
LENGTHS = range(33, 93)


def main() -> int:
    options = arguments(__doc__)
    import minilm

    path = ROOT / "build" / "models" / "minilm.onnx"
    path = path if path.exists() else minilm.build(path)
    reference = onnxruntime_call(Work("minilm", path, None), 1)
    figures: dict[str, list[float]] = {}
    for precision, (bar, tolerance) in BARS.items():
        try:
            model = heddle.load(path, precision=precision)
        except heddle.UnsupportedError as why:
            print(f"\n{precision}: left out, {why}")
            continue
        milliseconds = []
        for length in (32, *LENGTHS):
            ids = np.arange(1000, 1000 + length)[None]
            inputs = (ids, np.ones_like(ids), np.zeros_like(ids))
            begin = time.perf_counter()
            model.compile([x.shape for x in inputs])
            milliseconds.append((time.perf_counter() - begin) * 1e3)
        outputs = model(*inputs)
        want = reference(inputs)
        error = np.abs(outputs[0] - want).max() / np.abs(want).max()
        if not error < tolerance:
            raise SystemExit(f"{precision}: the answer differs by {error}")
        figures[precision] = milliseconds[1:]
        print(f"\n{precision}: error {error:.1e} of the scale")
        show("a further length", spread(milliseconds[1:]), "ms", f"bar: {bar}")
        show("slowest of each ten", spread([max(milliseconds[i : i + 10]) for i in range(1, 61, 10)]), "ms")
    write(options.json, {"compile_ms": figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
