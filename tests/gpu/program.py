"""What the programs of this folder share: their arguments, their models, the line of JSON that they print.

tools/gpu_check.py runs each in a process of its own. Without --double it needs a GPU; with it, it runs a
small part on the CUDA double, which LD_LIBRARY_PATH and HEDDLE_CUDA_IMAGE lead to.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import numpy as np

import heddle

os.environ.setdefault("HEDDLE_TUNE", "off")

TOLERANCE = 2e-4  # of the greatest value: f32 sums in other orders


def arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--double", action="store_true", help="a small part, on the CUDA double")
    return parser.parse_args()


def finish(findings: dict[str, object], mistakes: list[str]) -> None:
    """Prints the one line that gpu_check.py reads, and ends the program."""
    print(json.dumps(findings | {"mistakes": mistakes[:20], "right": not mistakes}), flush=True)
    sys.exit(1 if mistakes else 0)


def error(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, of the greatest wanted value; infinite for other shapes and for NaN."""
    if got.shape != wanted.shape:
        return float("inf")
    difference = float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30))
    return difference if difference == difference else float("inf")


def mistakes_of(errors: list[float], calls: int) -> list[str]:
    """Of calls, each with its error: which were wrong, NaN among them, and whether some were lost."""
    mistakes = [f"a call was wrong by {wrong:.2e}" for wrong in errors if not wrong <= TOLERANCE]
    if len(errors) != calls:
        mistakes.append(f"{len(errors)} calls of {calls}")
    return mistakes


Device = str | heddle.Device | None  # None: options name devices


def mlp(device: Device, width: int, **options: Any) -> heddle.Model:
    """f32[batch, width] -> f32[batch, width] through two layers of twice the width."""
    random = np.random.default_rng(7)
    graph = heddle.GraphBuilder("mlp")
    x = graph.input("x", "f32", ["batch", width])
    for fan_in, fan_out in ((width, 2 * width), (2 * width, 2 * width), (2 * width, width)):
        weight = (random.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in)).astype(np.float32)
        bias = random.standard_normal(fan_out).astype(np.float32)
        x = graph.add("Relu", graph.add("Add", graph.add("MatMul", x, graph.constant(weight)),
                                        graph.constant(bias)))  # fmt: skip
    graph.output(x, "y")
    return graph.build(device, **options)


def encoder(device: Device, width: int, **options: Any) -> heddle.Model:
    """f32[batch, length, width] through two layers of 4 heads and 4 times the width inside."""
    random = np.random.default_rng(13)
    graph = heddle.GraphBuilder("encoder")
    x = graph.input("x", "f32", ["batch", "length", width])

    def drawn(*shape: int):
        return graph.constant((random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def linear(value, fan_in: int, fan_out: int):
        return graph.add("Add", graph.add("MatMul", value, drawn(fan_in, fan_out)), drawn(fan_out))

    def heads(value):
        split = graph.constant(np.array([0, 0, 4, width // 4]))
        return graph.add("Transpose", graph.add("Reshape", value, split), perm=[0, 2, 1, 3])

    def norm(value):
        return graph.add("LayerNormalization", value, drawn(width), drawn(width), axis=-1, epsilon=1e-5)

    for _ in range(2):
        q, k, v = (heads(linear(x, width, width)) for _ in range(3))
        scores = graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 1, 3, 2]))
        scale = graph.constant(np.array((width // 4) ** -0.5, np.float32))
        shares = graph.add("Softmax", graph.add("Mul", scores, scale), axis=-1)
        mixed = graph.add("Transpose", graph.add("MatMul", shares, v), perm=[0, 2, 1, 3])
        mixed = graph.add("Reshape", mixed, graph.constant(np.array([0, 0, width])))
        x = norm(graph.add("Add", x, linear(mixed, width, width)))
        x = norm(
            graph.add("Add", x, linear(graph.add("Gelu", linear(x, width, 4 * width)), 4 * width, width))
        )
    graph.output(x, "y")
    return graph.build(device, **options)


def mixer(device: str | heddle.Device, width: int) -> heddle.Model:
    """f32[batch, length, width], whose rows attend to each other: each extent is a shape of its own."""
    random = np.random.default_rng(11)
    graph = heddle.GraphBuilder("mixer")
    x = graph.input("x", "f32", ["batch", "length", width])

    def linear(value, name_seed: int):
        weight = np.random.default_rng(name_seed).standard_normal((width, width)) / np.sqrt(width)
        return graph.add("MatMul", value, graph.constant(weight.astype(np.float32)))

    keys = graph.add("Transpose", linear(x, 1), perm=[0, 2, 1])
    scores = graph.add("Softmax", graph.add("MatMul", linear(x, 2), keys), axis=-1)
    mixed = graph.add("Add", graph.add("MatMul", scores, linear(x, 3)), x)
    scale = graph.constant(random.standard_normal(width).astype(np.float32))
    bias = graph.constant(random.standard_normal(width).astype(np.float32))
    graph.output(graph.add("LayerNormalization", mixed, scale, bias, axis=-1, epsilon=1e-5), "y")
    return graph.build(device)
