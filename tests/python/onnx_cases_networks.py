"""Cases of recurrent, quantised and deformable layers, of attention with a state, and of control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx_case import FLOATS, Case, Numbers, ints


def recurrent(n: Numbers) -> Iterator[Case]:
    steps, batch, size, hidden = 4, 3, 5, 2
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for dtype in (np.float32, np.float64):
            for direction in ("forward", "reverse", "bidirectional"):
                d = 2 if direction == "bidirectional" else 1
                weights = n((d, gates * hidden, size), dtype), n((d, gates * hidden, hidden), dtype)
                bias, state = n((d, 2 * gates * hidden), dtype), n((d, batch, hidden), dtype)
                x = n((steps, batch, size), dtype)
                how: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
                outputs = 3 if op == "LSTM" else 2
                yield Case(op, (x, *weights), how, fixed=(1, 2), outputs=outputs)
                # onnx.reference knows no lengths, and no state of several directions.
                if direction != "bidirectional":
                    yield Case(op, (x, *weights, bias, None, state), how, fixed=(1, 2, 3), outputs=outputs)
    x, w, r, b = n((4, 3, 5)), n((1, 6, 5)), n((1, 6, 2)), n((1, 12))
    yield Case("GRU", (x, w, r, b), {"hidden_size": 2, "linear_before_reset": 1}, fixed=(1, 2, 3), outputs=2)
    w, r, b = n((1, 8, 5)), n((1, 8, 2)), n((1, 16))
    state, cell, peepholes = n((1, 3, 2)), n((1, 3, 2)), n((1, 6))
    full = (x, w, r, b, None, state, cell, peepholes)
    yield Case("LSTM", full, {"hidden_size": 2}, fixed=(1, 2, 3, 7), outputs=3)


def quantised(n: Numbers) -> Iterator[Case]:
    x = n((2, 3, 4), np.float32, -9, 9)
    for dtype in (np.int8, np.uint8):
        zero = np.array(3, dtype)
        yield Case("QuantizeLinear", (x, np.float32(0.1), zero))
        scales, zeros = n((3,), np.float32, 0.1, 0.5), n((3,), dtype)
        yield Case("QuantizeLinear", (x, scales, zeros), {"axis": 1})
        q = n((2, 3, 4), dtype, -100, 100)
        yield Case("DequantizeLinear", (q, np.float32(0.1), zero))
        yield Case("DequantizeLinear", (q, scales, zeros), {"axis": 1})
        blocks = n((2, 3, 2), np.float32, 0.1, 0.5)
        yield Case("DequantizeLinear", (q, blocks), {"axis": 2, "block_size": 2}, fixed=(1,))
        yield Case("MatMulInteger", (n((3, 4), dtype, -100, 100), n((4, 2), dtype, -100, 100)))
        one = n((1,), dtype)
        yield Case("MatMulInteger", (n((2, 3, 4), dtype, -100, 100), n((4, 2), dtype, -100, 100), one, one))
        # onnx.reference takes zero points of ConvInteger's weight apart from the standard's types.
        image, kernel = n((2, 3, 5, 6), np.uint8, 0, 200), n((4, 3, 3, 2), np.uint8, 0, 200)
        yield Case("ConvInteger", (image, kernel, np.array(7, np.uint8)), {"pads": [1, 0, 1, 1]}, fixed=(1,))
        a, b = n((3, 4), dtype, -100, 100), n((4, 2), dtype, -100, 100)
        scale = [np.float32(s) for s in (0.1, 0.2, 1.5)]
        yield Case("QLinearMatMul", (a, scale[0], zero, b, scale[1], zero, scale[2], zero))
    yield Case("DequantizeLinear", (n((2, 3), np.int32, -900, 900), np.float32(0.1)))
    yield Case("DynamicQuantizeLinear", (x,), outputs=3)
    yield Case("DynamicQuantizeLinear", (n((3, 4), np.float32, 2, 9),), outputs=3)
    u8 = [np.array(value, np.uint8) for value in (120, 130, 110)]
    factors = [np.float32(value) for value in (0.02, 0.03, 0.05)]
    image, kernel = n((2, 3, 5, 6), np.uint8, 0, 255), n((4, 3, 3, 2), np.uint8, 0, 255)
    operands = (image, factors[0], u8[0], kernel, factors[1], u8[1], factors[2], u8[2])
    yield Case("QLinearConv", operands, {"pads": [1, 0, 1, 1]}, fixed=(3, 4, 5))


def layers(n: Numbers) -> Iterator[Case]:
    for dtype in FLOATS:
        image = n((2, 4, 5, 6), dtype)
        yield Case("ConvTranspose", (image, n((4, 3, 3, 2), dtype), n((3,), dtype)), fixed=(1, 2))
        strided = {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}
        yield Case("ConvTranspose", (image, n((4, 3, 3, 3), dtype)), strided, fixed=(1,))
        for p in (1, 2):
            yield Case("LpPool", (image,), {"kernel_shape": [2, 3], "strides": [2, 1], "p": p})
            norm = (np.abs(image.astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
            yield Case("GlobalLpPool", (image,), {"p": p}, expected=(norm.astype(dtype),))
        offsets, mask = n((2, 2 * 2 * 3 * 2, 4, 4), dtype, -1.5, 1.5), n((2, 2 * 3 * 2, 4, 4), dtype, 0, 1)
        how = {"offset_group": 2, "pads": [1, 0, 0, 0], "dilations": [1, 2]}
        operands = image, n((6, 4, 3, 2), dtype), offsets, n((6,), dtype), mask
        if dtype != np.float64:  # onnx.reference samples in f32
            yield Case("DeformConv", operands, how, fixed=(1,))
        x, kernel, bias = n((2, 3, 5), dtype), n((3, 1, 4), dtype), n((3,), dtype)
        if dtype != np.float64:
            yield Case("CausalConvWithState", (x, kernel, bias, n((2, 3, 3), dtype)), {}, (1, 2), 2)
            yield Case("CausalConvWithState", (x, kernel), {"activation": "silu"}, (1,), 2)
    yield Case("DeformConv", (n((1, 2, 4, 4)), n((4, 1, 2, 2)), n((1, 8, 3, 3))), {"group": 2}, fixed=(1,))
    places = np.array([[[[5, 7], [13, 15]]]], np.int64)
    yield Case("MaxUnpool", (n((1, 1, 2, 2)), places), {"kernel_shape": [2, 2], "strides": [2, 2]})


def tokens(n: Numbers) -> Iterator[Case]:
    for dtype in (np.float32, np.float16):
        angles = n((10, 4), np.float32, 0, 6)
        cosine, sine = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
        places = n((2, 3), np.int64, 0, 9)
        x = n((2, 4, 3, 8), dtype)
        for interleaved in (0, 1):
            yield Case("RotaryEmbedding", (x, cosine, sine, places), {"interleaved": interleaved})
        partial = {"num_heads": 4, "rotary_embedding_dim": 4}
        yield Case("RotaryEmbedding", (n((2, 3, 32), dtype), cosine[:, :2], sine[:, :2], places), partial)
        yield Case("RotaryEmbedding", (x, cosine[places], sine[places]))
        q, k, v = n((2, 3, 24), dtype, -1, 1), n((2, 3, 12), dtype, -1, 1), n((2, 3, 8), dtype, -1, 1)
        heads: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}
        past, decay, beta = n((2, 2, 6, 4), dtype), n((2, 3, 12), dtype, -2, 0), n((2, 3, 2), dtype, 0, 1)
        for rule, factors in {
            "linear": (),
            "gated": (decay,),
            "delta": (None, beta),
            "gated_delta": (decay, beta),
        }.items():
            yield Case(
                "LinearAttention", (q, k, v, past, *factors), {**heads, "update_rule": rule}, outputs=2
            )


def graph(nodes: list, inputs: dict[str, tuple], outputs: dict[str, tuple], constants=()) -> Any:
    def ports(values: dict[str, tuple]) -> list:
        return [helper.make_tensor_value_info(name, *value) for name, value in values.items()]

    return helper.make_graph(nodes, "body", ports(inputs), ports(outputs), list(constants))


def control(n: Numbers) -> Iterator[Case]:
    row = TensorProto.FLOAT, [3]
    flag, counter = (TensorProto.BOOL, []), (TensorProto.INT64, [])
    outer = helper.make_node(
        "Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.FLOAT, [3], [1, 2, 3])
    )
    branch = {
        name: graph([outer, helper.make_node(op, ["c", "c"], ["y"])], {}, {"y": row})
        for name, op in (("then_branch", "Add"), ("else_branch", "Mul"))
    }
    for chosen in (True, False):
        yield Case("If", (np.array(chosen),), branch)
    nodes = [
        helper.make_node("Identity", ["go"], ["still"]),
        helper.make_node("Add", ["a", "a"], ["b"]),
        helper.make_node("Tanh", ["b"], ["seen"]),
    ]
    outputs = {"still": flag, "b": row, "seen": row}
    body = graph(nodes, {"i": counter, "go": flag, "a": row}, outputs)
    yield Case(
        "Loop", (ints(3).reshape(()), np.array(True), n((3,))), {"body": body}, fixed=(0, 1), outputs=2
    )
    nodes = [
        helper.make_node("Add", ["state", "x"], ["next"]),
        helper.make_node("Mul", ["next", "x"], ["y"]),
    ]
    body = graph(nodes, {"state": row, "x": row}, {"next": row, "y": row})
    yield Case("Scan", (n((3,)), n((4, 3))), {"body": body, "num_scan_inputs": 1}, outputs=2)


def losses(n: Numbers) -> Iterator[Case]:
    scores, targets = n((4, 5, 3)), n((4, 3), np.int64, 0, 4)
    weights = n((5,), np.float32, 0.1, 1)
    for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        for reduction in ("none", "sum", "mean"):
            how: dict[str, Any] = {"reduction": reduction}
            yield Case(op, (scores, targets), how)
            yield Case(op, (scores, targets, weights), {**how, "ignore_index": 2})
    yield Case("SoftmaxCrossEntropyLoss", (scores, targets), outputs=2)


def network_families() -> tuple[Callable[[Numbers], Iterator[Case]], ...]:
    return recurrent, quantised, layers, tokens, control, losses
