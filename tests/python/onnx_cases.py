"""Small calls of every ONNX operator that Heddle reads, over dtypes, ranks, broadcasting and zero extents."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx_case import BROADCASTS, FLOATS, INTEGERS, SHAPES, Case, Numbers, ints
from onnx_cases_networks import network_families
from onnx_cases_placement import placement_families


def unary(n: Numbers) -> Iterator[Case]:
    smooth = (
        "Ceil Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Mish Round Sigmoid Sin Softplus "
        "Softsign Swish Tanh"
    )
    for op in smooth.split():
        for dtype in FLOATS:
            # onnx.reference fails on a Softsign of rank 0.
            for shape in SHAPES[op == "Softsign" :]:
                yield Case(op, (n(shape, dtype),))
    for op in ("Log", "Sqrt", "Reciprocal"):
        for dtype in FLOATS:
            for shape in SHAPES:
                yield Case(op, (n(shape, dtype, 0.25, 4),))
    for op, dtypes in {
        "Abs": FLOATS + INTEGERS,
        "Identity": (*FLOATS, *INTEGERS, np.bool_),
        "Neg": (*FLOATS, np.int8, np.int16, np.int32, np.int64),
        "Relu": (*FLOATS, np.int8, np.int16, np.int32, np.int64),
        "Sign": FLOATS + INTEGERS,
        "Not": (np.bool_,),
    }.items():
        for dtype in dtypes:
            for shape in SHAPES:
                yield Case(op, (n(shape, dtype),))
    special = np.array([0, -0.0, 1.5, -2.5, 0.5, np.inf, -np.inf, np.nan], np.float32)
    for op in ("IsNaN", "Round", "Ceil", "Floor", "Sign", "Abs", "Relu", "Neg"):
        yield Case(op, (special,))
    for one_sided in ({}, {"detect_negative": 0}, {"detect_positive": 0}):
        yield Case("IsInf", (special,), one_sided)
    yield Case("Gelu", (n((2, 3)),), {"approximate": "tanh"})
    yield Case("Elu", (n((2, 3)),), {"alpha": 0.5})
    yield Case("LeakyRelu", (n((2, 3)),), {"alpha": 0.2})
    yield Case("HardSigmoid", (n((2, 3)),), {"alpha": 0.3, "beta": 0.4})
    yield Case("Swish", (n((2, 3)),), {"alpha": 0.7})
    for dtype in FLOATS:
        yield Case("PRelu", (n((2, 3, 4), dtype), n((3, 1), dtype)))
    yield Case("Dropout", (n((2, 3)),))


def binary(n: Numbers) -> Iterator[Case]:
    for a, b in BROADCASTS:
        for op in ("Add", "Sub", "Mul"):
            for dtype in FLOATS + INTEGERS:
                low = 0 if op == "Sub" else -3
                yield Case(op, (n(a, dtype, 4, 7) if op == "Sub" else n(a, dtype), n(b, dtype, low)))
        for dtype in FLOATS + INTEGERS:
            yield Case("Div", (n(a, dtype, 0, 9), n(b, dtype, 1, 3)))
            yield Case("Min", (n(a, dtype), n(b, dtype)))
            yield Case("Max", (n(a, dtype), n(b, dtype)))
        for dtype in (np.int8, np.int32, np.int64):
            yield Case("Mod", (n(a, dtype, -7, 7), n(b, dtype, 1, 3)))
        for dtype in (np.float32, np.float64):
            yield Case("Mod", (n(a, dtype, -7, 7), n(b, dtype, 1, 3)), {"fmod": 1})
            yield Case("Pow", (n(a, dtype, 0.25, 2), n(b, dtype)))
        for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
            for dtype in (*FLOATS, *INTEGERS):
                whole = n(a, dtype, -1, 1).astype(dtype), n(b, dtype, -1, 1).astype(dtype)
                yield Case(op, tuple(np.round(x) for x in whole))
        for op in ("And", "Or", "Xor"):
            yield Case(op, (n(a, np.bool_), n(b, np.bool_)))
        for dtype in (*FLOATS, *INTEGERS, np.bool_):
            yield Case("Where", (n(b, np.bool_), n(a, dtype), n(b, dtype)))
        for op in ("Sum", "Mean"):
            yield Case(op, (n(np.broadcast_shapes(a, b)), n(a), n(b)))
    yield Case("Pow", (n((3,), np.float32, 1, 2), n((3,), np.int64, 0, 3)))
    yield Case("Pow", (n((3,), np.int32, 1, 3), n((3,), np.int32, 0, 3)))
    yield Case("Sum", (n((3,)), n((2, 1)), n(())))
    yield Case("Max", (n((2, 1)), n((3,)), n(())))
    yield Case("Clip", (n((2, 3)), np.float32(-1), np.float32(1)))
    yield Case("Clip", (n((2, 0)), None, np.float32(1)))
    yield Case("Clip", (n((3,), np.int32), np.int32(-1), np.int32(2)))


def conversions(n: Numbers) -> Iterator[Case]:
    from onnx import helper

    dtypes = (*FLOATS, *INTEGERS, np.bool_)
    for source in dtypes:
        for target in dtypes:
            x = n((2, 3), source, 0, 3)
            yield Case("Cast", (x,), {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))})
    yield Case("Cast", (n((0, 3)),), {"to": helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))})
    yield Case("CastLike", (n((2, 3)), n((1,), np.int32)))
    value = helper.make_tensor("value", 7, [1], [5])
    yield Case("ConstantOfShape", (ints(2, 3),), {"value": value}, fixed=(0,))
    yield Case("ConstantOfShape", (ints(0, 3),), fixed=(0,))
    yield Case("Constant", (), {"value_floats": [1.0, 2.5]})
    yield Case("Constant", (), {"value_int": 7})
    yield Case("Constant", (), {"value": helper.make_tensor("value", 1, [2, 1], [1, 2])})


def movement(n: Numbers) -> Iterator[Case]:
    for dtype in (np.float32, np.float16, np.int8, np.int64, np.bool_):
        x = n((2, 3, 4), dtype)
        yield Case("Concat", (x, n((2, 0, 4), dtype), n((2, 1, 4), dtype)), {"axis": -2})
        yield Case("Expand", (n((3, 1), dtype), ints(2, 1, 4)), fixed=(1,))
        yield Case("Flatten", (x,), {"axis": 2})
        yield Case("Gather", (x, ints(2, 0, -1).reshape(3, 1)), {"axis": 1})
        yield Case("GatherElements", (x, n((2, 2, 4), np.int64, 0, 2)), {"axis": 1})
        yield Case("GatherND", (x, ints(0, 2, 1, -1).reshape(2, 2)))
        yield Case("GatherND", (x, ints(2, 0).reshape(2, 1)), {"batch_dims": 1})
        yield Case("Reshape", (x, ints(0, -1, 2)), fixed=(1,))
        yield Case("Slice", (x, ints(3, 0), ints(-9, 2), ints(2, 1), ints(-2, 1)), fixed=(1, 2, 3, 4))
        yield Case("Slice", (x, ints(1), ints(1), ints(1)), fixed=(1, 2, 3))
        yield Case("Split", (x, ints(1, 3)), {"axis": 2}, fixed=(1,), outputs=2)
        yield Case("Split", (n((5, 2), dtype),), {"num_outputs": 2}, outputs=2)
        yield Case("Squeeze", (n((1, 3, 1), dtype), ints(-1)), fixed=(1,))
        yield Case("Squeeze", (n((1, 3, 1), dtype),))
        yield Case("Unsqueeze", (n((3,), dtype), ints(0, -1)), fixed=(1,))
        yield Case("Tile", (n((2, 3), dtype), ints(2, 1)), fixed=(1,))
        yield Case("Tile", (n((2, 3), dtype), ints(0, 2)), fixed=(1,))
        yield Case("Transpose", (x,), {"perm": [1, 2, 0]})
        yield Case("Transpose", (n((2, 0), dtype),))
        for upper in (0, 1):
            yield Case("Trilu", (x, ints(1).reshape(())), {"upper": upper}, fixed=(1,))
    for dtype in (np.float32, np.float64, np.int32):
        pads = ints(1, 0, 3, 2)
        yield Case("Pad", (n((3, 4), dtype), pads, np.array(5, dtype)), fixed=(1, 2))
        for mode in ("reflect", "edge"):
            yield Case("Pad", (n((3, 4), dtype), ints(1, 2, 2, 1)), {"mode": mode}, fixed=(1,))
    for shape in ((), (2, 3), (0, 3)):
        yield Case("Shape", (n(shape),))
        yield Case("Size", (n(shape),))
    yield Case("Shape", (n((2, 3, 4)),), {"start": 1, "end": -1})
    for dtype in (np.float32, np.int32, np.int64):
        bounds = np.array(1, dtype), np.array(8, dtype), np.array(3, dtype)
        yield Case("Range", bounds, fixed=(0, 1, 2))
    depth, values = np.array(4, np.int64), np.array([2, 5], np.float32)
    for axis in (-1, 0):
        yield Case("OneHot", (ints(1, -1, 3), depth, values), {"axis": axis}, fixed=(1,))
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        for flags in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
            yield Case("CumSum", (n((2, 3), dtype), np.array(1, np.int64)), flags, fixed=(1,))


def reductions(n: Numbers) -> Iterator[Case]:
    names = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    for op in (f"Reduce{name}" for name in names):
        low = 0.5 if op == "ReduceLogSum" else -3
        for dtype in (*FLOATS, np.int32, np.int64):
            if np.issubdtype(dtype, np.integer) and op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
                continue  # integer logarithms and roots: the reference evaluator and the standard disagree
            x = n((2, 3, 4), dtype, low)
            yield Case(op, (x, ints(1)), fixed=(1,))
            yield Case(op, (x, ints(-1, 0)), {"keepdims": 0}, fixed=(1,))
            yield Case(op, (x,), {"keepdims": 0})
            yield Case(op, (x,), {"noop_with_empty_axes": 1})
        yield Case(op, (n((0, 3), np.float32, low), ints(1)), fixed=(1,))
    for op in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare"):
        yield Case(op, (n((2, 0)), ints(1)), fixed=(1,))
    for op in ("ArgMax", "ArgMin"):
        for dtype in (*FLOATS, np.int8, np.int32, np.int64):
            yield Case(op, (n((2, 3, 4), dtype),), {"axis": 1})
            yield Case(op, (n((2, 3, 4), dtype),), {"axis": -1, "keepdims": 0, "select_last_index": 1})
    for dtype in (*FLOATS, np.int32, np.int64):
        yield Case("TopK", (n.distinct((3, 5), dtype), ints(2)), fixed=(1,), outputs=2)
        smallest = {"axis": 0, "largest": 0}
        yield Case("TopK", (n.distinct((3, 5), dtype), ints(3)), smallest, fixed=(1,), outputs=2)


def products(n: Numbers) -> Iterator[Case]:
    pairs = (((3, 4), (4, 2)), ((4,), (4, 2)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 2)))
    for dtype in (*FLOATS, np.int32, np.int64):
        for a, b in pairs:
            yield Case("MatMul", (n(a, dtype), n(b, dtype)))
        yield Case("MatMul", (n((2, 0), dtype), n((0, 3), dtype)))
        yield Case("MatMul", (n((2, 4), dtype), n((4, 3), dtype)), fixed=(1,))
    for dtype in FLOATS:
        yield Case("Gemm", (n((3, 4), dtype), n((4, 2), dtype), n((2,), dtype)))
        yield Case("Gemm", (n((3, 4), dtype), n((2, 4), dtype), n((2,), dtype)), {"transB": 1}, fixed=(1, 2))
        scaled = {"transA": 1, "alpha": 0.5, "beta": 2.0}
        yield Case("Gemm", (n((4, 3), dtype), n((4, 2), dtype), n((3, 1), dtype)), scaled)
        for softmax in ("Softmax", "LogSoftmax"):
            for axis in (-1, 0, 1):
                yield Case(softmax, (n((2, 3, 4), dtype),), {"axis": axis})
            yield Case(softmax, (n((0, 3), dtype),))


def windows(n: Numbers) -> Iterator[Case]:
    for dtype in FLOATS:
        image = n((2, 4, 6, 5), dtype)
        for fixed in ((), (1, 2)):
            yield Case("Conv", (image, n((6, 4, 3, 3), dtype), n((6,), dtype)), {"pads": [1, 0, 1, 2]}, fixed)
        grouped = {"group": 2, "strides": [2, 1], "dilations": [1, 2]}
        yield Case("Conv", (image, n((6, 2, 3, 2), dtype)), grouped, fixed=(1,))
        yield Case(
            "Conv", (image, n((4, 1, 3, 3), dtype)), {"group": 4, "auto_pad": "SAME_UPPER"}, fixed=(1,)
        )
        yield Case("Conv", (n((2, 3, 8), dtype), n((5, 3, 3), dtype)), {}, fixed=(1,))
        for op in ("AveragePool", "MaxPool"):
            yield Case(op, (image,), {"kernel_shape": [2, 3], "strides": [2, 1]})
            yield Case(op, (image,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]})
        padded = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}
        yield Case("AveragePool", (image,), padded)
        yield Case("GlobalAveragePool", (image,))
        yield Case("GlobalMaxPool", (image,))
    yield Case("MaxPool", (n((1, 2, 7)),), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1})


def normalizations(n: Numbers) -> Iterator[Case]:
    for dtype in FLOATS:
        image = n((2, 4, 3, 5), dtype)
        scale, bias, mean = n((4,), dtype), n((4,), dtype), n((4,), dtype)
        variance = n((4,), dtype, 0.5, 2)
        for fixed in ((), (1, 2, 3, 4)):
            yield Case("BatchNormalization", (image, scale, bias, mean, variance), {"epsilon": 1e-3}, fixed)
        yield Case("InstanceNormalization", (image, scale, bias))
        yield Case("GroupNormalization", (image, scale, bias), {"num_groups": 2})
        rows = n((2, 3, 8), dtype)
        yield Case("LayerNormalization", (rows, n((8,), dtype), n((8,), dtype)))
        yield Case("LayerNormalization", (rows, n((3, 8), dtype)), {"axis": 1, "epsilon": 1e-3})
        yield Case("RMSNormalization", (rows, n((8,), dtype)))
    for groups in (2, 4):
        factors = n((groups,)), n((groups,))
        yield Case("GroupNormalization", (n((2, 4, 3)), *factors), {"num_groups": groups}, opset=18)


def attentions(n: Numbers) -> Iterator[Case]:
    for dtype in (np.float32, np.float64, np.float16):
        q, k, v = n((2, 4, 3, 8), dtype), n((2, 2, 5, 8), dtype), n((2, 2, 5, 6), dtype)
        yield Case("Attention", (q, k, v))
        yield Case("Attention", (q, k, v, n((3, 5), dtype)), {"scale": 0.5})
        yield Case("Attention", (q, k, v, np.tri(3, 5, dtype=np.bool_)))
        square = n((2, 2, 5, 8), dtype), k, v
        yield Case("Attention", square, {"is_causal": 1})
        heads = {"q_num_heads": 4, "kv_num_heads": 2}
        yield Case("Attention", (n((2, 3, 32), dtype), n((2, 5, 16), dtype), n((2, 5, 12), dtype)), heads)


def all_cases() -> list[Case]:
    n = Numbers()
    families = (
        unary,
        binary,
        conversions,
        movement,
        reductions,
        products,
        windows,
        normalizations,
        attentions,
        *placement_families(),
        *network_families(),
    )
    return [case for family in families for case in family(n)]
