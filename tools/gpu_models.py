"""MiniLM for a machine without network, small enough to be carried there: what tools/gpu_pack.sh packs.

usage: gpu_models.py pack MODEL.onnx PACKED | unpack PACKED MODEL.onnx

Packed, a weight is rounded to f16, and the table of words has its first rows only. Unpacked, the graph is the
same and all in f32; the words beyond those rows repeat them, so that each index has a row of real weights.
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


def unpack(model: onnx.ModelProto) -> None:
    for each in model.graph.initializer:
        if each.data_type != TensorProto.FLOAT16:
            continue
        array = numpy_helper.to_array(each).astype(np.float32)
        if each.name == TABLE:
            array = array[np.arange(WORDS) % len(array)]
        each.CopyFrom(numpy_helper.from_array(array, each.name))


def main() -> int:
    if len(sys.argv) != 4 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    model = onnx.load(sys.argv[2])
    (pack if sys.argv[1] == "pack" else unpack)(model)
    path = Path(sys.argv[3])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    onnx.save(model, part)
    part.replace(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
