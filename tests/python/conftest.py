"""Models for the tests: built by hand, written from the package's weights, or exported by PyTorch.

Those that take long to make are kept in build/models.
"""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import heddle
from heddle.cli.together import run_together

# Nothing depends on this machine's times, and nothing is written to the user's folders.
os.environ.setdefault("HEDDLE_TUNE", "off")

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "build" / "models"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2 with its own weights."""
    path = MODELS / "minilm.onnx"
    if not path.exists():
        subprocess.run([sys.executable, ROOT / "tools" / "models" / "minilm.py", "--out", path], check=True)
    return path


@pytest.fixture(scope="session")
def exported() -> Path:
    """The folder of torch.onnx exports: NAME.onnx with NAME.npz of inputs and PyTorch's outputs."""
    import real_files  # here: programs that tests start import this file without its folder

    return real_files.exports()


def build_affine(width: int = 8, device: heddle.Device | None = None) -> heddle.Model:
    """y = 2 x + 1 over f32[batch, width]."""
    graph = heddle.GraphBuilder("affine")
    x = graph.input("x", "f32", ["batch", width])
    doubled = graph.add("Mul", x, graph.constant(np.array(2, np.float32)))
    graph.output(graph.add("Add", doubled, graph.constant(np.array(1, np.float32))), "y")
    return graph.build(device or heddle.Device())


def build_mlp(device: heddle.Device | None = None) -> heddle.Model:
    """512-1024-1024-512 with ReLU and seeded weights."""
    random = np.random.default_rng(7)
    graph = heddle.GraphBuilder("mlp")
    x = graph.input("x", "f32", ["batch", 512])
    sizes = (512, 1024, 1024, 512)
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        weight = (random.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in)).astype(np.float32)
        bias = random.standard_normal(fan_out).astype(np.float32)
        x = graph.add("Add", graph.add("MatMul", x, graph.constant(weight)), graph.constant(bias))
        x = graph.add("Relu", x) if i < 2 else x
    graph.output(x, "y")
    return graph.build(device or heddle.Device())


def build_slow_to_compile() -> heddle.Model:
    """f32[batch, 16] -> f32[batch, 273]: the mean of x, through products of 771 different shapes.

    A batch's first call compiles for a second or so. Calls do not share batches, whose shapes would be more.
    """
    graph = heddle.GraphBuilder("slow to compile")
    x = graph.input("x", "f32", ["batch", 16])
    width = 16
    for i in range(771):
        wider = 17 + (width - 17 + (7, 11, 13)[i // 257]) % 257
        weight = np.full((width, wider), 1 / width, np.float32)
        x = graph.add("MatMul", x, graph.constant(weight))
        width = wider
    graph.output(x, "y")
    return graph.build(coalesce=False)


@pytest.fixture
def affine() -> heddle.Model:
    return build_affine()


@pytest.fixture
def mlp() -> heddle.Model:
    return build_mlp()


def run_threads(count: int, body) -> list:
    """body(i) on `count` threads released at once; results in order. The first exception is raised here."""
    return run_together(count, lambda i, _: body(i))[0]
