"""Cases of bits, blocks and images, of writing by index, and of signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from onnx import TensorProto
from onnx_case import FLOATS, INTEGERS, Case, Numbers, ints


def scalar(value: float, dtype=np.int64) -> np.ndarray:
    return np.array(value, dtype)


def curves(n: Numbers) -> Iterator[Case]:
    """Trigonometry, and activations with attributes."""
    for dtype in FLOATS:
        for shape in ((), (2, 0, 3), (2, 3, 4)):
            for op in ("Acos", "Asin", "Atan", "Atanh", "Tan", "Sinh", "Cosh", "Asinh"):
                yield Case(op, (n(shape, dtype, -0.9, 0.9),))
            yield Case("Acosh", (n(shape, dtype, 1.1, 4),))
        x = n((2, 3, 4), dtype)
        yield Case("Celu", (x,), {"alpha": 0.5})
        yield Case("Selu", (x,))
        yield Case("Selu", (x,), {"alpha": 1.5, "gamma": 0.5})
        yield Case("ThresholdedRelu", (x,), {"alpha": 0.7})
        yield Case("Shrink", (x,), {"lambd": 1.0, "bias": 0.5})
        for axis in (-1, 0, 1):
            yield Case("Hardmax", (x,), {"axis": axis})
        for p in (1, 2):
            yield Case("LpNormalization", (n((2, 3, 4), dtype, 0.5, 3),), {"axis": 1, "p": p})
        # onnx.reference takes the extent of the batch for the number of channels.
        yield Case("LRN", (n((5, 5, 3, 4), dtype),), {"size": 3, "alpha": 0.1, "bias": 1.5, "beta": 0.6})
    yield Case("MeanVarianceNormalization", (n((2, 3, 4, 5)),), {"axes": [0, 2, 3]})
    for dtype in (np.float32, np.float64):
        yield Case("Det", (n((2, 3, 3), dtype),))
    for parts in (2, 4):
        yield Case("SwiGLU", (n((2, parts, 8)), n((2, parts, 8))))


def bits(n: Numbers) -> Iterator[Case]:
    for dtype in INTEGERS:
        x, y = n((2, 3), dtype, -9, 9), n((3,), dtype, -9, 9)
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield Case(op, (x, y))
        yield Case("BitwiseNot", (x,))
        for direction in ("LEFT", "RIGHT"):
            yield Case("BitShift", (x, n((3,), dtype, -2, 9)), {"direction": direction})
    yield Case("BitCast", (n((2, 3)),), {"to": TensorProto.INT32})
    yield Case("BitCast", (n((2, 3), np.int16),), {"to": TensorProto.FLOAT16})


def blocks(n: Numbers) -> Iterator[Case]:
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        for mode in ("DCR", "CRD"):
            yield Case("DepthToSpace", (n((2, 8, 2, 3), dtype),), {"blocksize": 2, "mode": mode})
        yield Case("SpaceToDepth", (n((2, 2, 4, 6), dtype),), {"blocksize": 2})
        for flags in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
            yield Case("CumProd", (n((2, 3), dtype), scalar(1)), flags, fixed=(1,))
        yield Case("ReverseSequence", (n((4, 3, 2), dtype), ints(4, 1, 3)), {"time_axis": 0, "batch_axis": 1})
        yield Case("ReverseSequence", (n((3, 4, 2), dtype), ints(2, 4, 1)), {"time_axis": 1, "batch_axis": 0})
        yield Case("EyeLike", (n((3, 4), dtype),), {"k": 1})
        yield Case("CenterCropPad", (n((4, 3, 5), dtype), ints(2, 8)), {"axes": [0, 2]}, fixed=(1,))
        columns = {"strides": [2, 1], "pads": [0, 1, 0, 1], "dilations": [1, 1]}
        yield Case("Col2Im", (n((2, 12, 12), dtype), ints(4, 5), ints(2, 2)), columns, fixed=(1, 2))


def einsum(n: Numbers) -> Iterator[Case]:
    forms = (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
        ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
        ("...ij,...jk", (2, 3, 4), (4, 5)),
        ("i,j->ij", (3,), (4,)),
        ("ij->j", (3, 4)),
        ("bii->bi", (2, 3, 3)),
        ("ij,ik,il->jkl", (2, 3), (2, 4), (2, 5)),
    )
    for equation, *shapes in forms:
        for dtype in (*FLOATS, np.int32):
            yield Case("Einsum", tuple(n(shape, dtype) for shape in shapes), {"equation": equation})


def scatters(n: Numbers) -> Iterator[Case]:
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        x = n((4, 5, 3), dtype)
        places = np.stack([n.random.permutation(5)[:2] for _ in range(3)], 1)[None].repeat(4, 0)
        yield Case("ScatterElements", (x, places, n((4, 2, 3), dtype)), {"axis": 1})
        update = n((4, 2, 3), dtype)
        want = x.copy()
        np.put_along_axis(want, places, update, 1)
        yield Case("Scatter", (x, places, update), {"axis": 1}, opset=11, expected=(want,))
        yield Case("ScatterND", (x, ints(2, 0).reshape(2, 1), n((2, 5, 3), dtype)))
        yield Case("ScatterND", (x, ints(2, 4, 0, -1).reshape(2, 2), n((2, 3), dtype)))
        for reduction in ("add", "mul", "max", "min"):
            how = {"reduction": reduction}
            yield Case(
                "ScatterElements", (x, n((4, 9, 3), np.int64, -5, 4), n((4, 9, 3), dtype)), {"axis": 1, **how}
            )
            yield Case("ScatterND", (x, ints(2, 0, 2).reshape(3, 1), n((3, 5, 3), dtype)), how)
        past, update = n((3, 2, 6, 4), dtype), n((3, 2, 2, 4), dtype)
        yield Case("TensorScatter", (past, update, ints(0, 3, 1)))
        yield Case("TensorScatter", (past, update, ints(5, 3, 1)), {"mode": "circular"})


def images(n: Numbers) -> Iterator[Case]:
    image = n((2, 3, 4, 5))
    for mode in ("nearest", "linear", "cubic"):
        for coordinates in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
            how = {"mode": mode, "coordinate_transformation_mode": coordinates}
            yield Case("Resize", (image, None, None, ints(2, 3, 7, 9)), how, fixed=(3,))
        yield Case(
            "Resize", (image, None, np.array([1, 1, 0.5, 1.5], np.float32)), {"mode": mode}, fixed=(2,)
        )
    doubled = image.repeat(2, 2).repeat(3, 3)
    scales = np.array([1, 1, 2, 3], np.float32)
    yield Case("Upsample", (image, scales), fixed=(1,), opset=11, expected=(doubled,))
    for mode in ("linear", "cubic"):
        how = {"mode": mode, "antialias": 1}
        yield Case("Resize", (image, None, None, ints(2, 3, 2, 3)), how, fixed=(3,))
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            if (mode, padding) == ("cubic", "border"):
                continue  # test_against_onnxruntime.py has it: onnx.reference differs from all others
            for corners in (0, 1):
                how = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                yield Case("GridSample", (image, n((2, 3, 4, 2), np.float32, -1.3, 1.3)), how)
    for corners in (0, 1):
        yield Case("AffineGrid", (n((2, 2, 3)), ints(2, 3, 4, 5)), {"align_corners": corners}, fixed=(1,))
        yield Case("AffineGrid", (n((2, 3, 4)), ints(2, 3, 2, 4, 5)), {"align_corners": corners}, fixed=(1,))
    regions = np.array([[0, 0, 3, 3], [1, 0.5, 4, 2], [0.5, 1, 2, 3.5]], np.float32)
    for mode in ("avg", "max"):
        how = {"mode": mode, "output_height": 2, "output_width": 3, "sampling_ratio": 2}
        yield Case("RoiAlign", (image, regions, ints(0, 1, 1)), how)
    yield Case("RoiAlign", (image, regions, ints(0, 1, 1)), {"spatial_scale": 0.5, "sampling_ratio": 3})


def signals(n: Numbers) -> Iterator[Case]:
    for op in ("BlackmanWindow", "HammingWindow", "HannWindow"):
        for periodic in (0, 1):
            yield Case(op, (scalar(10),), {"periodic": periodic}, fixed=(0,))
    mel = scalar(4), scalar(32), scalar(8000), scalar(0, np.float32), scalar(4000, np.float32)
    yield Case("MelWeightMatrix", mel, fixed=(0, 1, 2, 3, 4))
    yield Case("DFT", (n((2, 8, 1)), None, scalar(1)), fixed=(2,))
    yield Case("DFT", (n((2, 8, 2)), None, scalar(1)), {"inverse": 1}, fixed=(2,))
    yield Case("DFT", (n((2, 8, 1)), None, scalar(1)), {"onesided": 1}, fixed=(2,))
    yield Case("DFT", (n((2, 8, 2)), scalar(5), scalar(1)), fixed=(1, 2))
    frames = scalar(3), n((8,)), scalar(8)
    yield Case("STFT", (n((2, 20, 1)), *frames), {"onesided": 1}, fixed=(1, 3))
    yield Case("STFT", (n((2, 20, 1)), *frames), {"onesided": 0}, fixed=(1, 3))


def placement_families() -> tuple[Callable[[Numbers], Iterator[Case]], ...]:
    return curves, bits, blocks, einsum, scatters, images, signals
