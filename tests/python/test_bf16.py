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


def depthwise(batch: int, channels: int, size: int):
    x = rng.standard_normal((batch, channels, size, size)).astype(np.float32)
    w = rng.standard_normal((channels, 1, 3, 3)).astype(np.float32)
    graph = heddle.GraphBuilder("depthwise")
    image = graph.input("x", "f32", ["batch", channels, size, size])
    graph.output(graph.add("Conv", image, graph.constant(w), group=channels), "y")

    def windows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        patches = np.lib.stride_tricks.sliding_window_view(a, (3, 3), axis=(2, 3))
        return np.einsum("bchwij,cij->bchw", patches, b[:, 0])

    return graph, x, windows(rounded(x), rounded(w)), windows(x.astype(np.float64), w.astype(np.float64))


CASES = {
    "one row": lambda: linear(1, 768, 1000),
    "few rows": lambda: linear(3, 70, 33),
    "rows for two threads": lambda: linear(64, 384, 1536),
    "an odd k": lambda: linear(5, 37, 16),
    "a convolution": lambda: convolution(1, 16, 20),
    "a batch of convolutions of few channels": lambda: convolution(4, 3, 9),
    "a depthwise convolution": lambda: depthwise(2, 32, 12),
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


def attended(q, k, v, mask, heads, store):
    """Attention in f64, with the shares that each key has and the result stored as `store` says."""
    split = lambda a: np.stack(np.split(a, heads, axis=-1), axis=1)  # noqa: E731
    q, k, v = map(split, (q, k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]) + mask
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    out = store(shares / shares.sum(-1, keepdims=True)) @ v
    return np.concatenate(np.split(out, heads, axis=1), axis=-1)[:, 0]


@needs_bf16
@pytest.mark.parametrize("projected", [False, True], ids=["of inputs", "of products"])
@pytest.mark.parametrize(("batch", "queries", "keys"), [(2, 16, 16), (3, 40, 33), (1, 300, 700)])
def test_attention_rounds_its_operands_and_shares_to_bf16(projected, batch, queries, keys):
    heads, width = 4, 64
    graph = heddle.GraphBuilder("attention")
    lengths = {"q": queries, "k": keys, "v": keys}
    arrays = {
        name: rng.standard_normal((batch, length, width)).astype(np.float32)
        for name, length in lengths.items()
    }
    weights = {name: (rng.standard_normal((width, width)) / 8).astype(np.float32) for name in lengths}
    values = [graph.input(name, "f32", ["batch", length, width]) for name, length in lengths.items()]
    exact = [arrays[name].astype(np.float64) for name in lengths]
    coarse = [rounded(arrays[name]) for name in lengths]
    if projected:
        values = [
            graph.add("MatMul", value, graph.constant(weights[name]))
            for name, value in zip(lengths, values, strict=True)
        ]
        exact = [a @ weights[name] for name, a in zip(lengths, exact, strict=True)]
        coarse = [rounded(a @ rounded(weights[name])) for name, a in zip(lengths, coarse, strict=True)]
    mask = np.where(rng.random((batch, 1, queries, keys)) < 0.2, -np.inf, 0).astype(np.float32)
    values.append(graph.input("mask", "f32", ["batch", 1, queries, keys]))
    graph.output(graph.add("Attention", *values, num_heads=heads), "y")
    got = graph.build(heddle.Device.open(), precision="bf16")(*arrays.values(), mask)
    want = attended(*exact, mask, heads, lambda shares: shares)
    scale = np.abs(want).max()
    assert np.abs(got - attended(*coarse, mask, heads, rounded)).max() <= 2e-3 * scale
    assert 1e-4 * scale < np.abs(got - want).max() <= 2e-2 * scale


@needs_bf16
@pytest.mark.parametrize("length", [16, 33, 128])
def test_a_sequence_has_the_same_bits_in_every_batch(length):
    graph = heddle.GraphBuilder("attention")
    w = [(rng.standard_normal(shape) / 8).astype(np.float32) for shape in ((64, 192), (64, 64))]
    x = graph.input("x", "f32", ["batch", length, 64])
    qkv = graph.add("MatMul", x, graph.constant(w[0]))
    mixed = graph.add("Attention", qkv, num_heads=4, packed=1)
    graph.output(graph.add("MatMul", mixed, graph.constant(w[1])), "y")
    model = graph.build(heddle.Device.open(), precision="bf16")
    rows = rng.standard_normal((7, length, 64)).astype(np.float32)
    together = model(rows)
    for i in range(len(rows)):
        np.testing.assert_array_equal(model(rows[i : i + 1])[0], together[i])


@needs_bf16
def test_attention_to_nothing_gives_zeros():
    graph = heddle.GraphBuilder("attention")
    x = rng.standard_normal((1, 16, 96)).astype(np.float32)
    values = [graph.input("x", "f32", [1, 16, 96]), None, None, graph.input("mask", "bool", [16, 16])]
    graph.output(graph.add("Attention", *values, num_heads=2, packed=1), "y")
    mask = np.ones((16, 16), bool)
    mask[5] = False
    got = graph.build(heddle.Device.open(), precision="bf16")(x, mask)
    assert not got[0, 5].any()
    assert np.isfinite(got).all()
    assert got[0, 4].any()


def network(precision: str) -> heddle.Model:
    """Convolutions with a residual and a pool between them, then linear layers."""
    weights = np.random.default_rng(1)
    graph = heddle.GraphBuilder("network")

    def weight(*shape: int):
        return graph.constant(
            (weights.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        )

    x = graph.input("x", "f32", ["batch", 3, 20, 20])
    x = graph.add("Conv", x, weight(32, 3, 3, 3), pads=[1, 1, 1, 1])
    x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = graph.add("Relu", graph.add("Conv", x, weight(32, 32, 3, 3), pads=[1, 1, 1, 1]))
    y = graph.add("Conv", y, weight(32, 1, 3, 3), pads=[1, 1, 1, 1], group=32)
    x = graph.add("Relu", graph.add("Add", y, x))
    x = graph.add("Flatten", graph.add("Conv", x, weight(4, 32, 1, 1)))
    x = graph.add("Relu", graph.add("MatMul", x, weight(400, 100)))
    graph.output(graph.add("MatMul", x, weight(100, 10)), "y")
    return graph.build(heddle.Device.open(), precision=precision)


@needs_bf16
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_values_between_products_are_stored_in_bf16_and_stay_near(batch):
    x = rng.standard_normal((batch, 3, 20, 20)).astype(np.float32)
    exact, got = network("f32")(x), network("bf16")(x)
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert 1e-4 < error < 2e-2


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
