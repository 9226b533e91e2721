"""Question  is Heddle as fast as ONNX Runtime on MiniLM, for one caller and for sixteen?
Read as   Heddle's calls per second / ONNX Runtime's at its best thread setting for that number of callers,
          round by round: median and quartiles. The bar of the spine is 0.8. Best setting: every intra-op
          thread count up to the cores is tried, each measured as long as Heddle; the best median counts.
Checked   before anything is timed, both give the same vectors for the inputs used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from ratios import arguments, calls_per_second, in_turn, ratio, show, spread, write

import heddle

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "models"))
import minilm  # noqa: E402


def model_file() -> Path:
    path = ROOT / "build" / "models" / "minilm.onnx"
    return path if path.exists() else minilm.build(path)


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main() -> int:
    options = arguments(__doc__)
    path = model_file()
    cores = len(os.sched_getaffinity(0))
    model = heddle.load(path, coalesce=False)
    sessions = {n: session(path, n) for n in range(1, cores + 1)}
    figures = {}
    for tokens in (32, 128):
        ids = np.random.default_rng(tokens).integers(1000, 20000, (1, tokens))
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        for ort in sessions.values():
            for got, want in zip(model(**inputs), ort.run(None, inputs), strict=True):
                if not np.abs(got - want).max() < 1e-4:
                    raise SystemExit(f"{tokens} tokens: the answers differ by {np.abs(got - want).max()}")
        for callers in (1, 16):
            peers = {
                "heddle": lambda x=inputs, n=callers: calls_per_second(lambda: model(**x), n, options.seconds)
            }
            for n, ort in sessions.items():
                peers[f"onnxruntime, {n} threads"] = lambda x=inputs, o=ort, c=callers: calls_per_second(
                    lambda: o.run(None, x), c, options.seconds
                )
            rates = in_turn(peers, options.rounds)
            best = max((name for name in rates if name != "heddle"), key=lambda name: spread(rates[name])[1])
            print(f"\n{tokens} tokens, {callers} callers")
            for name, values in rates.items():
                show(name, spread(values), "calls/s")
            show(f"heddle / {best}", ratio(rates["heddle"], rates[best]), "x", "bar: 0.8")
            figures[f"{tokens} tokens, {callers} callers"] = {
                "calls_per_s": rates,
                "best_peer": best,
                "ratio": ratio(rates["heddle"], rates[best]),
            }
    write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
