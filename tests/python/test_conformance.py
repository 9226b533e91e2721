"""The node tests of the onnx package: none fails, and docs/conformance.md says what this run found."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import heddle
import heddle.onnx_backend

ROOT = Path(__file__).resolve().parents[2]
PASSED_AT_LEAST = 1592
OPERATORS_AT_LEAST = 162  # with every official test passed


@pytest.fixture(scope="module")
def conformance(tmp_path_factory):
    """The figures of all tests, and the page. In a process of its own: the tests run in forked ones."""
    folder = tmp_path_factory.mktemp("conformance")
    report, page = folder / "report.json", folder / "conformance.md"
    command = [sys.executable, "tools/conformance.py", "--failed", "--json", report, "--document", page]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert report.exists(), run.stdout + run.stderr
    figures = json.loads(report.read_text(encoding="utf-8"))["figures"]
    return figures, page.read_text(encoding="utf-8"), run.stdout


def test_no_node_test_in_scope_fails(conformance):
    figures, _, output = conformance
    assert figures["failed"] == 0, output
    assert figures["passed"] >= PASSED_AT_LEAST
    assert figures["operators_passed"] >= OPERATORS_AT_LEAST


def test_the_page_holds_what_the_tests_gave(conformance):
    _, page, _ = conformance
    told = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert told == page, "docs/conformance.md is out of date: run make conformance"


def tiled() -> onnx.ModelProto:
    """A model whose second input decides its output's shape."""
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("times", TensorProto.INT64, [1]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    graph = helper.make_graph([helper.make_node("Tile", ["x", "times"], ["y"])], "tiled", ports, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_the_backend_binds_an_input_that_decides_a_shape():
    prepared = heddle.onnx_backend.prepare(tiled())
    x = np.array([1, 2], np.float32)
    for times in (1, 3, 2):
        (y,) = prepared.run([x, np.array([times])])
        np.testing.assert_array_equal(y, np.tile(x, times))
    assert prepared.bound == {"times"}


def test_the_backend_runs_a_node():
    node = helper.make_node("Add", ["a", "b"], ["y"])
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    for inputs in ([a, b], {"a": a, "b": b}):
        (y,) = heddle.onnx_backend.run_node(node, inputs)
        np.testing.assert_array_equal(y, a + b)


def test_the_backend_says_what_it_takes():
    assert heddle.onnx_backend.supports_device("CPU")
    assert not heddle.onnx_backend.supports_device("CUDA")
    assert heddle.onnx_backend.is_compatible(tiled())
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "nonzero", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    assert not heddle.onnx_backend.is_compatible(model)
    with pytest.raises(heddle.UnsupportedError, match="NonZero"):
        heddle.onnx_backend.prepare(model)
