"""Question  does memory grow when shapes never repeat for long?
Read as   resident memory after call 200,000 over that after call 20,000, in a process whose model gets ragged
          shapes under a budget for compiled shapes that holds a part of them only; the bar is 1.02.
Checked   every thousandth result against numpy, and that the cache evicts (otherwise the budget was not met).
"""

from __future__ import annotations

import sys

import numpy as np
from ratios import arguments, write
from tqdm import tqdm

import heddle

CALLS = 200_000
FIRST = 20_000


def resident_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def build(device: heddle.Device) -> tuple[heddle.Model, np.ndarray]:
    weight = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32) / 4
    graph = heddle.GraphBuilder("ragged")
    x = graph.input("x", "f32", ["batch", "length", 16])
    y = graph.add("Relu", graph.add("MatMul", x, graph.constant(weight)))
    graph.output(graph.add("Softmax", y, axis=-1), "y")
    return graph.build(device), weight


def reference(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    y = np.exp(np.maximum(x @ weight, 0))
    return y / y.sum(-1, keepdims=True)


def main() -> int:
    options = arguments(__doc__)
    device = heddle.Device.open(executable_bytes=1 << 20)
    model, weight = build(device)
    random = np.random.default_rng(1)
    data = random.standard_normal((8, 256, 16)).astype(np.float32)
    shapes = random.integers(1, (9, 257), (CALLS, 2))
    first = 0
    for i, (batch, length) in enumerate(tqdm(shapes, unit="call", leave=False), 1):
        x = data[:batch, :length]
        y = model(x)
        if i % 1000 == 0 and not np.allclose(y, reference(x, weight), atol=1e-5):
            raise SystemExit(f"call {i}: the answer is wrong")
        if i == FIRST:
            first = resident_bytes()
    last = resident_bytes()
    stats = device.stats()
    if stats["evictions"] == 0:
        raise SystemExit("nothing was evicted: the budget was not met, so the figure says nothing")
    print(
        f"  after call {FIRST}: {first / 1e6:.1f} MB; after call {CALLS}: {last / 1e6:.1f} MB;"
        f" {stats['evictions']} evictions"
    )
    print(f"  last / first {last / first:.4f}  bar: 1.02")
    write(
        options.json, {"first": first, "last": last, "ratio": last / first, "evictions": stats["evictions"]}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
