"""Question  what does a warm call cost from Python, when the model does nothing?
Read as   microseconds a call of an identity graph over f32[1, 8], numpy in and a fresh numpy array out; the
          bar is 4. ONNX Runtime's own call of the same graph is measured in the same rounds, for scale.
Checked   the result is the input, and is not the input's memory.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from ratios import arguments, in_turn, ratio, show, spread, write

import heddle

CALLS = 20_000


def identity_file() -> bytes:
    node = helper.make_node("Identity", ["x"], ["y"])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy"]
    graph = helper.make_graph([node], "identity", ports[:1], ports[1:])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()


def microseconds(call) -> float:
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS * 1e6


def main() -> int:
    options = arguments(__doc__)
    model = heddle.load(identity_file())
    ort = onnxruntime.InferenceSession(identity_file(), providers=["CPUExecutionProvider"])
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    y = model(x)
    if not np.array_equal(x, y) or np.shares_memory(x, y):
        raise SystemExit("the identity graph did not give a fresh copy of its input")
    peers = {
        "heddle": lambda: microseconds(lambda: model(x)),
        "onnxruntime": lambda: microseconds(lambda: ort.run(None, {"x": x})),
    }
    costs = in_turn(peers, options.rounds)
    for name, values in costs.items():
        show(name, spread(values), "us a call", "bar: 4" if name == "heddle" else "")
    show("heddle / onnxruntime", ratio(costs["heddle"], costs["onnxruntime"]), "x")
    write(options.json, {"us_a_call": costs, "ratio": ratio(costs["heddle"], costs["onnxruntime"])})
    return 0


if __name__ == "__main__":
    sys.exit(main())
