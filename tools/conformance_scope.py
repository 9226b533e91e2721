"""What of ONNX's node tests is out of scope, and why.

What stands here must be refused by Heddle, not run wrongly.
A test that passes counts as passed, whatever stands here.
And which expected values are no better than a wider tolerance than their test's.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import AttributeProto, TensorProto

OPSET_MIN = 7

DTYPES = {
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.DOUBLE,
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
    TensorProto.BOOL,
}

DATA_SHAPE = "the output's shape depends on data"
RANDOM = "random output"
TEXT = "strings and text features"
SEQUENCE = "sequences and optional values"
TRAINING = "training"

# Absolute tolerances above the test's own.
WIDER = {
    "test_dft_inverse": (2e-6, "the expected values are sums in f32, up to 1.5e-6 off those in double"),
    "test_dft_inverse_opset19": (2e-6, "as test_dft_inverse"),
    "test_attention_4d_causal_fp16_expanded": (
        1e-3,
        "the expected values are rounded to f16 at every step, and up to 4.9e-4 off a result in double, "
        "Heddle's up to 4.0e-4",
    ),
}

OPERATORS = {
    "Bernoulli": RANDOM,
    "Multinomial": RANDOM,
    "RandomNormal": RANDOM,
    "RandomNormalLike": RANDOM,
    "RandomUniform": RANDOM,
    "RandomUniformLike": RANDOM,
    "Compress": DATA_SHAPE,
    "NonMaxSuppression": DATA_SHAPE,
    "NonZero": DATA_SHAPE,
    "Unique": DATA_SHAPE,
    "ImageDecoder": "compressed image files",
    "ConcatFromSequence": SEQUENCE,
    "Optional": SEQUENCE,
    "OptionalGetElement": SEQUENCE,
    "OptionalHasElement": SEQUENCE,
    "SequenceAt": SEQUENCE,
    "SequenceConstruct": SEQUENCE,
    "SequenceEmpty": SEQUENCE,
    "SequenceErase": SEQUENCE,
    "SequenceInsert": SEQUENCE,
    "SequenceLength": SEQUENCE,
    "SequenceMap": SEQUENCE,
    "SplitToSequence": SEQUENCE,
    "RegexFullMatch": TEXT,
    "StringConcat": TEXT,
    "StringNormalizer": TEXT,
    "StringSplit": TEXT,
    "TfIdfVectorizer": TEXT,
}


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def value_types(graph: onnx.GraphProto) -> Iterator[onnx.TypeProto]:
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.type


def element_types(graph: onnx.GraphProto) -> Iterator[int]:
    """Of ports, initializers, and what attributes ask for."""
    yield from (t.tensor_type.elem_type for t in value_types(graph) if t.HasField("tensor_type"))
    yield from (tensor.data_type for tensor in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t.data_type
            elif attribute.name in ("to", "dtype", "output_dtype") and attribute.i:
                yield attribute.i


def trains(node: onnx.NodeProto) -> bool:
    """Whether the node is in training mode. The tests give Dropout's mode as an input only to turn it on."""
    if node.op_type == "Dropout":
        return len(node.input) > 2
    return any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)


def older_scan(model: onnx.ModelProto) -> bool:
    """The first form of Scan has a batch axis and lengths."""
    versions = [opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    return any(node.op_type == "Scan" for node in model.graph.node) and min(versions, default=9) < 9


def why_out_of_scope(model: onnx.ModelProto, operator: str) -> str | None:
    """The reason why a test of `operator` need not pass; None when it must."""
    for opset in model.opset_import:
        if opset.domain == "ai.onnx.preview" and operator == "ai.onnx.preview.FlexAttention":
            continue
        if opset.domain not in ("", "ai.onnx"):
            return f"domain {opset.domain}"
        if opset.version < OPSET_MIN:
            return f"opsets before {OPSET_MIN}"
    if reason := OPERATORS.get(operator):
        return reason
    if any(trains(node) for graph in graphs(model.graph) for node in graph.node):
        return TRAINING
    if older_scan(model):
        return "Scan of opset 8"
    for graph in graphs(model.graph):
        for node in graph.node:
            if reason := OPERATORS.get(node.op_type):
                return reason
        for kind in value_types(graph):
            if kind.WhichOneof("value") not in ("tensor_type", None):
                return SEQUENCE
        for elements in element_types(graph):
            if elements not in DTYPES and elements != TensorProto.UNDEFINED:
                return f"element type {TensorProto.DataType.Name(elements).lower()}"
    return None
