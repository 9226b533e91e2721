"""Every example of README.md, docs/ and heddle.h compiles and runs against this build."""

import os
import subprocess
import sys
from pathlib import Path

import examples
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
FOUND = examples.all_examples()


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that fragments find: y = relu(x w + b), four columns in and three out."""
    w = numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")
    b = numpy_helper.from_array(np.ones(3, dtype=np.float32), "b")
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    graph = helper.make_graph(nodes, "example", [x], [y], [w, b])
    path = tmp_path_factory.mktemp("examples") / "model.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("example", FOUND, ids=lambda example: example.name)
def test_example_runs(example: examples.Example, model_file: Path) -> None:
    folder = model_file.parent
    source = folder / (example.name + example.suffix)
    source.write_text(example.program, encoding="utf-8")
    if example.language == "python":
        run([sys.executable, str(source)], folder)
        return
    program = source.with_suffix("")
    assert (BUILD / "libheddle.so").exists(), "build the release preset first: make build PRESET=release"
    options = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", f"-L{BUILD}"]
    linked = ["-lheddle", f"-Wl,-rpath,{BUILD}", "-pthread"]
    run([os.environ.get("CXX", "g++"), *options, str(source), "-o", str(program), *linked], folder)
    run([str(program)], folder)


def test_the_public_header_has_an_example() -> None:
    assert any(example.name.startswith("include_heddle") for example in FOUND)
