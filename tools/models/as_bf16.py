"""Rewrites an ONNX model of f32 as one of bf16: weights, inputs, outputs and casts.

usage: as_bf16.py FROM.onnx TO.onnx
"""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper


def narrowed(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Rounded. A finite value stays finite: masks hold the least f32, and 0 times -inf would be NaN."""
    if tensor.data_type != TensorProto.FLOAT:
        return tensor
    wide = numpy_helper.to_array(tensor)
    greatest = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    kept = np.where(np.isfinite(wide), np.clip(wide, -greatest, greatest), wide)
    return numpy_helper.from_array(kept.astype(ml_dtypes.bfloat16), tensor.name)


def narrow_node(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name == "value_float":
            raise ValueError(f"{node.name}: a constant of value_float has no type to change")
        if attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(narrowed(attribute.t))
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.BFLOAT16
        if attribute.type == onnx.AttributeProto.GRAPH:
            narrow_graph(attribute.g)


def narrow_graph(graph: onnx.GraphProto) -> None:
    for i, tensor in enumerate(graph.initializer):
        graph.initializer[i].CopyFrom(narrowed(tensor))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.BFLOAT16
    del graph.value_info[:]
    for node in graph.node:
        narrow_node(node)


def as_bf16(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    narrow_graph(made.graph)
    return made


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    onnx.save(as_bf16(onnx.load(source)), target)
