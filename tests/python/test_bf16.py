"""precision="bf16": products of constant weights round their operands to bf16 and add up in f32."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import heddle

rng = np.random.default_rng(0)


def rounded(a: np.ndarray) -> np.ndarray:
    return a.astype(ml_dtypes.bfloat16).astype(np.float64)


def multiplies_bf16() -> bool:
    with open("/proc/cpuinfo", encoding="ascii") as info:
        flags = next(line for line in info if line.startswith("flags"))
    return "avx512_bf16" in flags.split()


needs_bf16 = pytest.mark.skipif(not multiplies_bf16(), reason="this processor has no bf16 instructions")


def linear(batch: int, k: int, n: int):
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((batch, k), (k, n)))
    graph = heddle.GraphBuilder("linear")
    graph.output(graph.add("MatMul", graph.input("x", "f32", ["batch", k]), graph.constant(w)), "y")
    return graph, x, rounded(x) @ rounded(w), x.astype(np.float64) @ w


def convolution(batch: int, channels: int, size: int):
    x = rng.standard_normal((batch, channels, size, size)).astype(np.float32)
    w = rng.standard_normal((24, channels, 3, 3)).astype(np.float32)
    graph = heddle.GraphBuilder("conv")
    graph.output(
        graph.add("Conv", graph.input("x", "f32", ["batch", channels, size, size]), graph.constant(w)), "y"
    )

    def windows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        patches = np.lib.stride_tricks.sliding_window_view(a, (3, 3), axis=(2, 3))
        return np.einsum("bchwij,ocij->bohw", patches, b)

    return graph, x, windows(rounded(x), rounded(w)), windows(x.astype(np.float64), w.astype(np.float64))


CASES = {
    "one row": lambda: linear(1, 768, 1000),
    "few rows": lambda: linear(3, 70, 33),
    "rows for two threads": lambda: linear(64, 384, 1536),
    "an odd k": lambda: linear(5, 37, 16),
    "a convolution": lambda: convolution(1, 16, 20),
    "a batch of convolutions of few channels": lambda: convolution(4, 3, 9),
}


@needs_bf16
@pytest.mark.parametrize("case", CASES)
def test_operands_are_rounded_to_bf16_and_sums_are_f32(case):
    graph, x, of_rounded, exact = CASES[case]()
    got = graph.build(heddle.Device.open(), precision="bf16")(x)
    scale = np.abs(exact).max()
    assert got.dtype == np.float32
    assert np.abs(got - of_rounded).max() <= 1e-5 * scale
    assert np.abs(got - exact).max() > 1e-4 * scale  # or nothing was rounded


@needs_bf16
def test_one_thread_and_many_get_the_same_bits():
    graph, x, _, _ = CASES["rows for two threads"]()
    model = graph.build(heddle.Device.open(), precision="bf16")
    expected = [model(x[i : i + 1 + i % 7]) for i in range(32)]
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(model, x[i : i + 1 + i % 7]) for i in range(32) for _ in range(5)]
    for i, call in enumerate(calls):
        np.testing.assert_array_equal(call.result(), expected[i // 5])


def test_a_processor_without_bf16_refuses_by_name():
    code = (
        "import heddle, numpy as np\n"
        "g = heddle.GraphBuilder('g'); x = g.input('x', 'f32', [2, 2])\n"
        "g.output(g.add('MatMul', x, g.constant(np.eye(2, dtype=np.float32))), 'y')\n"
        "try:\n    g.build(heddle.Device.open(), precision='bf16')\n"
        "except heddle.UnsupportedError as error:\n    print(error)\n"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "precision 'bf16' needs a processor with AVX512-BF16" in done.stdout
