"""Models for a machine without network, small enough to be carried there: what tools/gpu_pack.sh packs.

usage: gpu_models.py pack MODEL.onnx PACKED | describe MODEL.onnx PACKED | unpack PACKED MODEL.onnx

Packed, a weight is rounded to f16, and the table of words has its first rows only. Unpacked, the graph is the
same and all in f32; the words beyond those rows repeat them, so that each index has a row of real weights.
Described, a weight is its mean and its deviation: unpacked, it is drawn anew from a seed of its own. That is
for models whose weights are random anyway.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

TABLE = "embeddings.word_embeddings.weight"
ROWS, WORDS = 2048, 30522
LEAST = 256  # elements; smaller constants keep their bits
NORMAL = "normal"  # begins the doc_string of a weight that is described


def pack(model: onnx.ModelProto) -> None:
    for each in model.graph.initializer:
        array = numpy_helper.to_array(each)
        if each.data_type != TensorProto.FLOAT or array.size < LEAST:
            continue
        if each.name == TABLE:
            if array.shape[0] != WORDS:
                raise SystemExit(f"{TABLE} has {array.shape[0]} rows, {WORDS} are known")
            array = array[:ROWS]
        each.CopyFrom(numpy_helper.from_array(array.astype(np.float16), each.name))


def describe(model: onnx.ModelProto) -> None:
    for each in model.graph.initializer:
        array = numpy_helper.to_array(each)
        if each.data_type != TensorProto.FLOAT or array.size < LEAST:
            continue
        told = f"{NORMAL} {array.mean(dtype=np.float64)} {array.std(dtype=np.float64)}"
        each.CopyFrom(TensorProto(name=each.name, data_type=each.data_type, dims=each.dims, doc_string=told))


def draw(model: onnx.ModelProto) -> None:
    for number, each in enumerate(model.graph.initializer):
        if each.doc_string.startswith(NORMAL):
            mean, deviation = map(np.float32, each.doc_string.split()[1:])
            drawn = np.random.default_rng(number).standard_normal(tuple(each.dims), np.float32)
            each.CopyFrom(numpy_helper.from_array(mean + deviation * drawn, each.name))


def unpack(model: onnx.ModelProto) -> None:
    draw(model)
    for each in model.graph.initializer:
        if each.data_type != TensorProto.FLOAT16:
            continue
        array = numpy_helper.to_array(each).astype(np.float32)
        if each.name == TABLE:
            array = array[np.arange(WORDS) % len(array)]
        each.CopyFrom(numpy_helper.from_array(array, each.name))


def main() -> int:
    change = {"pack": pack, "describe": describe, "unpack": unpack}.get(sys.argv[1] if sys.argv[1:] else "")
    if len(sys.argv) != 4 or change is None:
        sys.exit(__doc__)
    model = onnx.load(sys.argv[2])
    change(model)
    path = Path(sys.argv[3])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    onnx.save(model, part)
    part.replace(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
