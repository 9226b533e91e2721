"""Operators of which onnx.reference knows only some forms, against ONNX Runtime: every attribute in turn.

Shapes and attributes are drawn with a fixed seed. Each call runs with the shapes in the file and with symbols
for the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_case import Case, Numbers, ints

import heddle

OPSET = 24  # of the ONNX Runtime that is installed
TOLERANCE = 3e-5  # of the largest result
ROUNDED_ONE_OFF = {"QLinearConv", "QLinearMatMul", "QuantizeLinear", "DynamicQuantizeLinear"}  # of integers


def conv_transpose(n: Numbers) -> Iterator[Case]:
    for axes, group, strides, dilations in itertools.product((1, 2, 3), (1, 2), (1, 2, 3), (1, 2)):
        x = n((2, 4, *n.random.integers(2, 6, axes)))
        w = n((4, 3, *n.random.integers(1, 4, axes)))
        how: dict[str, Any] = {"group": group, "strides": [strides] * axes, "dilations": [dilations] * axes}
        reach = [(k - 1) * dilations for k in w.shape[2:]]
        pads = [int(n.random.integers(0, r // 2 + 1)) for r in reach * 2]
        yield Case("ConvTranspose", (x, w, n((3 * group,))), {**how, "pads": pads}, fixed=(1, 2))
        extra = [int(n.random.integers(0, strides)) for _ in range(axes)]
        yield Case("ConvTranspose", (x, w), {**how, "output_padding": extra}, fixed=(1,))
        if dilations == 1 and min(w.shape[2:]) >= strides:
            for padding in ("SAME_UPPER", "SAME_LOWER", "VALID"):
                yield Case("ConvTranspose", (x, w), {**how, "auto_pad": padding}, fixed=(1,))


def resize(n: Numbers) -> Iterator[Case]:
    coordinates = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric")
    for mode, place in itertools.product(("nearest", "linear", "cubic"), coordinates):
        x = n((2, 3, 5, 7))
        how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": place}
        # Of an extent that is rounded, ONNX Runtime takes the whole number for the corners, the standard not.
        for scales in ((1, 1, 2, 3), (1, 1, 0.6, 1.7))[: 1 if place == "align_corners" else 2]:
            yield Case("Resize", (x, None, np.array(scales, np.float32)), how, fixed=(2,))
        for sizes in ((2, 3, 9, 4), (2, 3, 5, 14)):
            yield Case("Resize", (x, None, None, ints(*sizes)), how, fixed=(3,))
        if mode == "nearest":
            for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                rounded = {**how, "nearest_mode": rounding}
                yield Case("Resize", (x, None, None, ints(2, 3, 8, 3)), rounded, fixed=(3,))
        if mode == "cubic":
            for extra in ({"cubic_coeff_a": -0.5}, {"exclude_outside": 1}):
                yield Case("Resize", (x, None, None, ints(2, 3, 8, 3)), {**how, **extra}, fixed=(3,))
    for mode in ("linear", "cubic"):
        for exclude in (0, 1):
            how = {"mode": mode, "antialias": 1, "exclude_outside": exclude}
            yield Case("Resize", (n((2, 3, 9, 7)), None, None, ints(2, 3, 4, 3)), how, fixed=(3,))
    for policy in ("not_larger", "not_smaller"):
        how = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "linear"}
        yield Case("Resize", (n((2, 3, 5, 7)), None, None, ints(10, 9)), how, fixed=(3,))
    for mode in ("nearest", "linear"):
        crop = np.array([0, 0, 0.2, -0.1, 1, 1, 0.7, 1.2], np.float32)
        how = {
            "mode": mode,
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 9.0,
        }
        yield Case("Resize", (n((2, 3, 5, 7)), crop, None, ints(2, 3, 4, 6)), how, fixed=(1, 3))
    for shape, sizes in (((2, 3, 7), (2, 3, 12)), ((2, 2, 3, 4, 5), (2, 2, 5, 3, 8))):
        for mode in ("nearest", "linear"):
            yield Case("Resize", (n(shape), None, None, ints(*sizes)), {"mode": mode}, fixed=(3,))


def recurrent(n: Numbers) -> Iterator[Case]:
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        outputs = 3 if op == "LSTM" else 2
        for direction, layout, lengths in itertools.product(
            ("forward", "reverse", "bidirectional"), (0,), (False, True)
        ):
            d = 2 if direction == "bidirectional" else 1
            steps, batch, size, hidden = (int(k) for k in n.random.integers(2, 7, 4))
            x = n((steps, batch, size))
            w, r, b = (
                n((d, gates * hidden, size)),
                n((d, gates * hidden, hidden)),
                n((d, 2 * gates * hidden)),
            )
            state = [n((d, batch, hidden)) for _ in range(outputs - 1)]
            given = n((batch,), np.int32, 1, steps) if lengths else None
            how: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "layout": layout}
            forms: list[tuple[dict, tuple]] = [({}, (x, w, r)), ({}, (x, w, r, b, given, *state))]
            if op == "GRU":
                forms.append(({"linear_before_reset": 1}, (x, w, r, b, given, *state)))
            if op == "LSTM":
                forms.append(({}, (x, w, r, b, given, *state, n((d, 3 * hidden)))))
            if op != "LSTM":  # whose cell ONNX Runtime does not clip
                forms.append(({"clip": 0.7}, (x, w, r, b, given)))
            words = {"RNN": ["Relu"], "GRU": ["HardSigmoid", "Softsign"], "LSTM": ["Sigmoid", "Tanh", "Relu"]}
            forms.append(({"activations": words[op] * d}, (x, w, r, b, given)))
            for extra, operands in forms:
                fixed = tuple(i for i in (1, 2, 3, 7) if i < len(operands))
                yield Case(op, operands, {**how, **extra}, fixed, outputs)


def quantised(n: Numbers) -> Iterator[Case]:
    def scales(shape=()) -> np.ndarray:
        return n(shape, np.float32, 0.02, 0.2)

    for x_type, w_type in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)):
        low, high = (0, 200) if x_type == np.uint8 else (-100, 100)
        # Without VNNI ONNX Runtime adds two products of u8 and i8 in 16 bits, where they have to fit.
        w_low, w_high = (0, 200) if w_type == np.uint8 else (-64, 64)
        for group, strides in itertools.product((1, 2), (1, 2)):
            x, w = n((2, 4, 6, 5), x_type, low, high), n((6, 4 // group, 3, 2), w_type, w_low, w_high)
            how = {"group": group, "strides": [strides] * 2, "pads": [1, 0, 1, 1]}
            zero, w_zero = n((), x_type, 0, 9), np.array(0 if w_type == np.int8 else 100, w_type)
            b = n((6,), np.int32, -500, 500)
            y = np.float32(4.0), zero
            yield Case(
                "QLinearConv", (x, scales(), zero, w, scales(), w_zero, *y, b), how, (3, 4, 5, 6, 7, 8)
            )
            many = scales((6,)), np.full((6,), w_zero)
            yield Case("QLinearConv", (x, scales(), zero, w, *many, *y), how, (3, 4, 5, 6, 7))
            if x_type == np.uint8:
                yield Case("ConvInteger", (x, w, zero, w_zero), how, (1, 3))
        for a_shape, b_shape in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5))):
            a, b = n(a_shape, x_type, low, high), n(b_shape, w_type, w_low, w_high)
            zeros = n((), x_type, 0, 9), n((), w_type, 0, 9)
            operands = a, scales(), zeros[0], b, scales(), zeros[1], np.float32(2.0), n((), x_type, 0, 9)
            yield Case("QLinearMatMul", operands)
            yield Case("MatMulInteger", (a, b, *zeros))
    for dtype in (np.uint8, np.int8):
        q, x = n((2, 4, 6), dtype, -100, 200 if dtype == np.uint8 else 100), n((2, 4, 6), np.float32, -9, 9)
        for axis, extent in ((0, 2), (1, 4), (-1, 6)):
            factors = scales((extent,)), n((extent,), dtype, 0, 9)
            yield Case("DequantizeLinear", (q, *factors), {"axis": axis}, fixed=(1, 2))
            yield Case("QuantizeLinear", (x, *factors), {"axis": axis}, fixed=(1, 2))
        blocked = scales((2, 4, 2)), n((2, 4, 2), dtype, 0, 9)
        yield Case("DequantizeLinear", (q, *blocked), {"axis": 2, "block_size": 3}, fixed=(0, 1, 2))
        yield Case("QuantizeLinear", (x, *blocked), {"axis": 2, "block_size": 3}, fixed=(0, 1, 2))
    for low, high in ((-3, 3), (1, 5), (-5, -1), (0, 0)):
        yield Case("DynamicQuantizeLinear", (n((3, 4), np.float32, low, high),), outputs=3)


def grid_sample(n: Numbers) -> Iterator[Case]:
    choices = itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1))
    for mode, padding, corners in choices:
        how = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        yield Case("GridSample", (n((2, 3, 4, 5)), n((2, 3, 6, 2), np.float32, -1.4, 1.4)), how)
        if mode != "cubic":
            yield Case("GridSample", (n((2, 3, 4, 5, 3)), n((2, 3, 2, 4, 3), np.float32, -1.4, 1.4)), how)


def scatters(n: Numbers) -> Iterator[Case]:
    for dtype, reduction in itertools.product((np.float32, np.int64), ("add", "mul", "max", "min")):
        for axis in (0, 1, 2):
            extents = [4, 5, 3]
            indices = n((3, 4, 2), np.int64, -extents[axis], extents[axis] - 1)
            operands = n(tuple(extents), dtype), indices, n((3, 4, 2), dtype)
            yield Case("ScatterElements", operands, {"axis": axis, "reduction": reduction})
        for depth in (1, 2, 3):
            indices = np.stack([n((6,), np.int64, -e, e - 1) for e in (4, 5, 3)[:depth]], -1)
            operands = n((4, 5, 3), dtype), indices, n((6, *(4, 5, 3)[depth:]), dtype)
            yield Case("ScatterND", operands, {"reduction": reduction})


def einsum(n: Numbers) -> Iterator[Case]:
    forms = (
        "ij,jk->ik",
        "ij,kj->ik",
        "bij,bjk->bik",
        "bhid,bhjd->bhij",
        "bhij,bhjd->bihd",
        "...ij,...jk->...ik",
        "ij->ji",
        "bij->b",
        "bii->bi",
        "i,j->ij",
        "ij,ij->",
        "bnd,de,bne->bn",
        "abc,cd,def->abef",
        "ij,jk,kl->il",
    )
    extents = dict(zip("abcdefhijkln", (2, 3, 4, 5, 2, 3, 4, 3, 5, 2, 4, 3), strict=True)) | {"i": 3}
    for equation in forms:
        terms = equation.split("->")[0].split(",")
        shapes = [tuple(extents[c] for c in term.replace("...", "ab")) for term in terms]
        yield Case("Einsum", tuple(n(shape) for shape in shapes), {"equation": equation})


def attention(n: Numbers) -> Iterator[Case]:
    for heads, group in ((4, 1), (4, 2), (6, 3)):
        q = n((2, heads, 5, 8))
        k, v = (n((2, heads // group, 7, 8)) for _ in range(2))
        masks = (
            None,
            n((5, 7)),
            n((2, 1, 5, 7)),
            np.tri(5, 7, dtype=np.bool_),
        )
        for mask, causal in itertools.product(masks, (0, 1)):
            yield Case("Attention", (q, k, v, mask)[: 3 if mask is None else 4], {"is_causal": causal})
        yield Case("Attention", (q, k, v), {"softcap": 2.0, "scale": 0.3})
        past = tuple(n((2, heads // group, 3, 8)) for _ in range(2))
        yield Case("Attention", (q, k, v, None, *past), outputs=3)
        flat = n((2, 5, heads * 8)), *(n((2, 7, heads // group * 8)) for _ in range(2))
        yield Case("Attention", flat, {"q_num_heads": heads, "kv_num_heads": heads // group})


def rotary(n: Numbers) -> Iterator[Case]:
    for interleaved, partial, flat in itertools.product((0, 1), (0, 4), (0, 1)):
        angles = n((10, (partial or 8) // 2), np.float32, 0, 6)
        places = n((2, 3), np.int64, 0, 9)
        x = n((2, 3, 32)) if flat else n((2, 4, 3, 8))
        how = {"interleaved": interleaved, "rotary_embedding_dim": partial}
        if flat or partial:
            how["num_heads"] = 4
        yield Case("RotaryEmbedding", (x, np.cos(angles), np.sin(angles), places), how)


def older(n: Numbers) -> Iterator[Case]:
    """Forms that opset 11 and later ones changed."""
    x, image = n((2, 3, 4)), n((2, 4, 6, 5))
    for opset in (7, 8, 9, 10):
        yield Case("Clip", (x,), {"min": -1.0, "max": 0.5}, opset=opset)
        yield Case("Clip", (x,), {"max": 0.5}, opset=opset)
        for mode in ("constant", "edge", "reflect"):
            how = {"pads": [0, 1, 2, 0, 0, 1], "mode": mode, "value": 7.0}
            yield Case("Pad", (x,), how, opset=opset)
        for op in ("Softmax", "LogSoftmax", "Hardmax"):
            yield Case(op, (x,), {}, opset=opset)
            yield Case(op, (x,), {"axis": 2}, opset=opset)
        yield Case("ReduceSum", (x,), {"axes": [0, 2]}, opset=opset)
        yield Case("ReduceMean", (x,), {"axes": [1], "keepdims": 0}, opset=opset)
        yield Case("Squeeze", (n((2, 1, 3)),), {"axes": [1]}, opset=opset)
        yield Case("Unsqueeze", (x,), {"axes": [0, 2]}, opset=opset)
        yield Case("Split", (x,), {"axis": 2, "split": [1, 3]}, opset=opset, outputs=2)
        yield Case("Dropout", (x,), {"ratio": 0.3}, opset=opset)
        yield Case("Gemm", (n((3, 4)), n((2, 4)), n((2,))), {"transB": 1, "alpha": 0.5}, opset=opset)
        yield Case("AveragePool", (image,), {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}, opset=opset)
        yield Case("Conv", (image, n((3, 4, 3, 3))), {"pads": [1, 1, 1, 1]}, fixed=(1,), opset=opset)
        if opset >= 8:
            yield Case("MaxPool", (image,), {"kernel_shape": [2, 3], "strides": [2, 1]}, opset=opset)
            yield Case("Max", (x, n((4,))), opset=opset)
        if opset in (7, 8):
            yield Case("Upsample", (image,), {"scales": [1.0, 1.0, 2.0, 3.0]}, opset=opset)
        factors = tuple(n((4,), np.float32, 0.5, 2) for _ in range(4))
        yield Case("BatchNormalization", (image, *factors), fixed=(1, 2, 3, 4), opset=opset)
        yield Case("PRelu", (x, n((3, 1))), opset=opset)
        for op in ("Greater", "Less"):
            yield Case(op, (x, n((4,))), opset=opset)
        yield Case("Cast", (x,), {"to": TensorProto.INT32}, opset=opset)
    scales = np.array([1, 1, 2, 3], np.float32)
    yield Case("Upsample", (image, scales), fixed=(1,), opset=9)
    yield Case("Resize", (image, scales), {"mode": "linear"}, fixed=(1,), opset=10)
    yield Case("TopK", (n.distinct((3, 5)).astype(np.float32), ints(2)), fixed=(1,), outputs=2, opset=10)
    yield Case("Slice", (x, ints(1), ints(3), ints(2)), fixed=(1, 2, 3), opset=10)


FAMILIES: tuple[Callable[[Numbers], Iterator[Case]], ...] = (
    conv_transpose, resize, recurrent, quantised, grid_sample, scatters, einsum, attention, rotary, older,
)  # fmt: skip


def write_model(case: Case, symbolic: bool) -> onnx.ModelProto:
    """The node alone. `symbolic`: the first extent of its first input is one, wherever it stands first."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    present = [(i, np.asarray(x)) for i, x in enumerate(case.inputs) if x is not None]
    first = present[0][1].shape[:1]
    inputs, constants = [], []
    for i, x in present:
        if i in case.fixed:
            constants.append(numpy_helper.from_array(x, names[i]))
            continue
        shape: list[int | str] = list(x.shape)
        if symbolic and x.shape[:1] == first and first:
            shape[0] = "n"
        inputs.append(
            helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(x.dtype), shape)
        )
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, name="node", **case.attributes)
    graph = helper.make_graph(
        [node], case.op, inputs, [onnx.ValueInfoProto(name=name) for name in outputs], constants
    )
    opset = [helper.make_opsetid("", case.opset or OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def runtime_values(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def difference(op: str, got: np.ndarray, want: np.ndarray) -> str | None:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    if want.size == 0:
        return None
    integers = np.issubdtype(want.dtype, np.integer)
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return "differs where NaN or an infinity is wanted"
    if not finite.any():
        return None
    got, want = got[finite], want[finite]
    off = np.abs(got - want).max()
    if integers:
        allowed = 1.0 if op in ROUNDED_ONE_OFF else 0.0
    else:
        allowed = TOLERANCE * max(1.0, np.abs(want).max())
    return None if off <= allowed else f"is off by {off:.3g}, which may be {allowed:.3g}"


def test_the_comparison_tells_nan_from_infinity_and_measures_the_rest():
    special = [np.nan, np.inf, -np.inf, 2.0]
    for a, b in itertools.product(special, special):
        same = a == b or (np.isnan(a) and np.isnan(b))
        assert (difference("", np.array([1.0, a]), np.array([1.0, b])) is None) == same, (a, b)
    assert difference("", np.array([np.inf, 1.0]), np.array([np.inf, 2.0])) is not None
    assert difference("", np.array([1, 2]), np.array([1, 3])) is not None


def failures_of(case: Case) -> list[str]:
    feeds = {
        f"x{i}": np.asarray(x) for i, x in enumerate(case.inputs) if x is not None and i not in case.fixed
    }
    want = runtime_values(write_model(case, symbolic=False), feeds)
    failures = []
    for symbolic in (False, True):
        form = f"{case.label()} ({'symbolic' if symbolic else 'static'})"
        try:
            got = heddle.load(write_model(case, symbolic).SerializeToString())(*feeds.values())
        except heddle.Error as error:
            failures.append(f"{form}: {error}")
            continue
        got = got if isinstance(got, tuple) else (got,)
        wrong = [difference(case.op, a, b) for a, b in zip(got, want, strict=True)]
        failures += [f"{form}: output {i} {text}" for i, text in enumerate(wrong) if text]
    return failures


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_family_of_operators_gives_onnx_runtimes_values(family):
    cases = list(family(Numbers()))
    failures = [failure for case in cases for failure in failures_of(case)]
    assert not failures, f"{len(failures)} of {2 * len(cases)}:\n" + "\n".join(failures[:10])


def port(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def flag(name: str, dtype: int = TensorProto.BOOL) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, [])


def branch(name: str, *ops: str) -> onnx.GraphProto:
    """`ops` one after the other, on the outer x and w."""
    values = ["x", *(f"{name}{i}" for i in range(len(ops)))]
    nodes = [helper.make_node(op, [values[i], "w"], [values[i + 1]]) for i, op in enumerate(ops)]
    return helper.make_graph(nodes, name, [], [port(values[-1], "n", 3)])


def looped(op: str) -> onnx.GraphProto:
    """The state changes by `op` with w and the number of the turn; each turn gives a scan output."""
    nodes = [
        helper.make_node("Cast", ["turn"], ["number"], to=TensorProto.FLOAT),
        helper.make_node(op, ["state", "w"], ["moved"]),
        helper.make_node("Add", ["moved", "number"], ["next"]),
        helper.make_node("Identity", ["go"], ["on"]),
        helper.make_node("Neg", ["next"], ["seen"]),
    ]
    inputs = [flag("turn", TensorProto.INT64), flag("go"), port("state", "n", 3)]
    return helper.make_graph(nodes, "body", inputs, [flag("on"), port("next", "n", 3), port("seen", "n", 3)])


def scanned() -> onnx.GraphProto:
    nodes = [
        helper.make_node("Mul", ["state", "w"], ["kept"]),
        helper.make_node("Add", ["kept", "row"], ["next"]),
        helper.make_node("Tanh", ["next"], ["y"]),
    ]
    return helper.make_graph(
        nodes, "body", [port("state", 3), port("row", 3)], [port("next", 3), port("y", 3)]
    )


def control_models(n: Numbers) -> Iterator[tuple[str, onnx.ModelProto, dict[str, np.ndarray]]]:
    weight = numpy_helper.from_array(n((3,)), "w")

    def model(nodes: list, inputs: list, outputs: list[str], **constants: Any) -> onnx.ModelProto:
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        tensors = [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
        graph = helper.make_graph(nodes, "control", inputs, infos, [weight, *tensors])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    x, rows = port("x", "n", 3), {"x": n((2, 3))}
    branches = {"then_branch": branch("t", "Add", "Mul"), "else_branch": branch("e", "Sub")}
    chosen = helper.make_node("If", ["c"], ["y"], **branches)
    total = helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0)
    for value in (False, True):
        yield f"If {value}", model([chosen], [x, flag("c")], ["y"]), {**rows, "c": np.array(value)}
        compared = helper.make_node("Greater" if value else "Less", ["s", "zero"], ["c"])
        yield f"If by data {value}", model([total, compared, chosen], [x], ["y"], zero=np.float32(0)), rows
    for turns, op in itertools.product((1, 2, 5), ("Add", "Mul")):  # of none, its extents named n are 0
        node = helper.make_node("Loop", ["turns", "go", "x"], ["last", "all"], body=looped(op))
        yield f"Loop {op} {turns}", model([node], [x], ["last", "all"], turns=turns, go=True), rows
    for backward, axis in itertools.product((0, 1), (0, 1)):
        how = {"scan_input_directions": [backward], "scan_output_directions": [backward]}
        operands: dict[str, Any] = {
            "body": scanned(),
            "num_scan_inputs": 1,
            "scan_output_axes": [axis],
            **how,
        }
        node = helper.make_node("Scan", ["w", "x"], ["last", "all"], **operands)
        yield f"Scan {backward} {axis}", model([node], [port("x", 4, 3)], ["last", "all"]), {"x": n((4, 3))}


def test_control_flow_gives_onnx_runtimes_values():
    failures, count = [], 0
    for name, model, feeds in control_models(Numbers()):
        count += 1
        want = runtime_values(model, feeds)
        got = heddle.load(model.SerializeToString())(**feeds)
        got = got if isinstance(got, tuple) else (got,)
        wrong = [difference("", a, b) for a, b in zip(got, want, strict=True)]
        failures += [f"{name}: output {i} {text}" for i, text in enumerate(wrong) if text]
    assert count == 14
    assert not failures, "\n".join(failures)
