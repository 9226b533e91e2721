"""tools/models/as_bf16.py: a model of f32 as one of bf16."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import heddle

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "models"))
import as_bf16

rng = np.random.default_rng(7)


def model() -> onnx.ModelProto:
    """y = f32(i64(x @ w)) + c, with a weight, a constant and two casts."""
    weight = numpy_helper.from_array(rng.standard_normal((4, 3)).astype(np.float32), "w")
    added = numpy_helper.from_array(np.array([0.5, 1.5, 2.5], np.float32), "c")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Cast", ["p"], ["i"], to=TensorProto.INT64),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["c"], value=added),
        helper.make_node("Add", ["f", "c"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])
             for name, width in (("x", 4), ("y", 3))]  # fmt: skip
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_weights_constants_ports_and_casts_are_bf16_and_values_are_those_of_bf16():
    wide = model()
    narrow = as_bf16.as_bf16(wide)
    assert narrow.graph.initializer[0].data_type == TensorProto.BFLOAT16
    assert wide.graph.initializer[0].data_type == TensorProto.FLOAT
    x = (4 * rng.standard_normal((5, 4))).astype(ml_dtypes.bfloat16)
    y = heddle.load(narrow.SerializeToString())(x)
    assert y.dtype == ml_dtypes.bfloat16
    w = numpy_helper.to_array(wide.graph.initializer[0]).astype(ml_dtypes.bfloat16).astype(np.float32)
    product = (x.astype(np.float32) @ w).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(y.astype(np.float32), np.trunc(product) + np.array([0.5, 1.5, 2.5]))


def test_finite_values_stay_finite_and_others_stay_what_they_are():
    info = np.finfo(np.float32)
    wide = np.array([info.min, info.max, 3.39e38, -np.inf, np.inf, np.nan, 1.0], np.float32)
    narrow = numpy_helper.to_array(as_bf16.narrowed(numpy_helper.from_array(wide, "w"))).astype(np.float32)
    greatest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert np.array_equal(
        narrow, [-greatest, greatest, greatest, -np.inf, np.inf, np.nan, 1.0], equal_nan=True
    )


def test_a_mask_of_the_least_f32_hides_elements_and_makes_no_nan():
    least = numpy_helper.from_array(np.array(np.finfo(np.float32).min), "least")
    nodes = [
        helper.make_node("Mul", ["hidden", "least"], ["added"]),
        helper.make_node("Add", ["x", "added"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "hidden", "y")
    ]
    graph = helper.make_graph(nodes, "g", ports[:2], ports[2:], [least])
    wide = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    hidden = np.array([[0, 0, 1, 1], [0, 0, 0, 0]])
    x = np.zeros((2, 4))
    narrow = heddle.load(as_bf16.as_bf16(wide).SerializeToString())
    y = narrow(x.astype(ml_dtypes.bfloat16), hidden.astype(ml_dtypes.bfloat16))
    assert y.astype(np.float32).tolist() == [[0.5, 0.5, 0, 0], [0.25] * 4]


def test_a_constant_without_a_type_is_refused_by_name():
    wide = model()
    wide.graph.node.append(helper.make_node("Constant", [], ["k"], name="three", value_float=3.0))
    with pytest.raises(ValueError, match="three"):
        as_bf16.as_bf16(wide)
