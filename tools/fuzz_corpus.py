"""Make the first inputs of the fuzz target onnx: small models, one for each way that a file can be built.

usage: fuzz_corpus.py

Writes tests/fuzz/corpus/onnx and the dictionary of operators' names. Beside the models below, it has those of
ONNX's own tests of operators that reach code which the others do not: libFuzzer chooses them, with the target
of the preset asan (tools/fuzz.py --build). The other targets' inputs are bytes that a run has found (--keep).
"""

import sys
import tempfile
import warnings
from pathlib import Path

import fuzz
import numpy as np
import onnx.defs
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

FUZZ = fuzz.SOURCES
LONGEST = 4096  # bytes; the target takes no more
FLOAT = TensorProto.FLOAT


def weights(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def whole(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def graph(
    nodes: list[NodeProto], shape: list[int | str], constants: list[TensorProto], of: int = FLOAT
) -> GraphProto:
    x = helper.make_tensor_value_info("x", of, shape)
    y = helper.make_tensor_value_info("y", FLOAT, None)
    return helper.make_graph(nodes, "g", [x], [y], constants)


def model(made: GraphProto, opset: int = 18) -> ModelProto:
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def chain(
    shape: list[int | str],
    *nodes: tuple[str, list[str], dict[str, object]],
    constants: list[TensorProto] | None = None,
) -> ModelProto:
    """Nodes after each other: the first input of each is the one before."""
    made, last = [], "x"
    for i, (op, others, attributes) in enumerate(nodes):
        name = "y" if i + 1 == len(nodes) else f"v{i}"
        made.append(helper.make_node(op, [last, *others], [name], f"n{i}", **attributes))
        last = name
    return model(graph(made, shape, constants or []))


def branch(op: str) -> GraphProto:
    out = helper.make_tensor_value_info("b", FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x"], ["b"])], "branch", [], [out])


def choosing() -> ModelProto:
    flag = numpy_helper.from_array(np.array(True), "flag")
    node = helper.make_node("If", ["flag"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))
    return model(graph([node], [2], [flag]))


def looping() -> ModelProto:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "s"], ["t"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("s", FLOAT, [2])],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []),
         helper.make_tensor_value_info("t", FLOAT, [2])],
    )  # fmt: skip
    count = numpy_helper.from_array(np.array(3, np.int64), "count")
    return model(graph([helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)], [2], [count]))


def with_function() -> ModelProto:
    function = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    node = helper.make_node("Twice", ["x"], ["y"], domain="own")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    made = graph([node], ["n", 2], [])
    return helper.make_model(made, functions=[function], ir_version=8, opset_imports=opsets)


def outside() -> ModelProto:
    tensor = weights("w", 2)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w"), ("offset", "0"), ("length", "8")):
        tensor.external_data.add(key=key, value=value)
    return chain(["n", 2], ("Add", ["w"], {}), constants=[tensor])


def models() -> dict[str, ModelProto]:
    return {
        "relu": chain(["n", 3], ("Relu", [], {})),
        "gemm": chain(["n", 4], ("Gemm", ["w", "b"], {"transB": 1, "alpha": 0.5}), ("Tanh", [], {}),
                      constants=[weights("w", 3, 4), weights("b", 3)]),
        "conv": chain(["n", 2, 6, 6], ("Conv", ["w"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
                      ("MaxPool", [], {"kernel_shape": [2, 2]}), constants=[weights("w", 3, 2, 3, 3)]),
        "turned": chain([1, 2, 4], ("ConvTranspose", ["w"], {"strides": [2]}),
                        constants=[weights("w", 2, 1, 3)]),
        "shape": chain(["n", 6], ("Reshape", ["s"], {}), ("Transpose", [], {"perm": [0, 2, 1]}),
                       constants=[whole("s", 0, 2, -1)]),
        "slice": chain(["n", 6], ("Slice", ["a", "b", "c"], {}), ("Pad", ["p"], {"mode": "edge"}),
                       constants=[whole("a", 1), whole("b", 9), whole("c", 1), whole("p", 0, 1, 0, 2)]),
        "far_step": chain([3, 4], ("Slice", ["a", "b", "c", "d"], {}),
                          constants=[whole("a", 0), whole("b", 3), whole("c", 0), whole("d", 2**62 + 1)]),
        "softmax": chain(["n", 5], ("Softmax", [], {"axis": -1}), ("ReduceSum", ["a"], {"keepdims": 0}),
                         constants=[whole("a", 1)]),
        "norm": chain(["n", 4], ("LayerNormalization", ["w"], {"epsilon": 0.1}), constants=[weights("w", 4)]),
        "einsum": chain([2, 3], ("Einsum", ["w"], {"equation": "ij,jk->ik"}), constants=[weights("w", 3, 2)]),
        "resize": chain([1, 1, 2, 2], ("Resize", ["", "s"], {"mode": "linear"}),
                        constants=[numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s")]),
        "lstm": chain([2, 1, 3], ("LSTM", ["w", "r"], {"hidden_size": 2}),
                      constants=[weights("w", 1, 8, 3), weights("r", 1, 8, 2)]),
        "quantize": chain(["n", 2], ("QuantizeLinear", ["s"], {}), ("DequantizeLinear", ["s"], {}),
                          constants=[numpy_helper.from_array(np.array(0.5, np.float32), "s")]),
        "expand": chain(["n", 1], ("Expand", ["e"], {}), ("Tile", ["t"], {}),
                        constants=[whole("e", 1, 3), whole("t", 1, 2)]),
        "topk": chain(["n", 5], ("ArgMax", [], {"axis": 1}), ("Cast", [], {"to": FLOAT})),
        "attention": chain([1, 2, 4], ("Attention", ["w", "w"], {"q_num_heads": 2, "kv_num_heads": 2}),
                           constants=[weights("w", 1, 2, 4)]),
        "if": choosing(),
        "loop": looping(),
        "function": with_function(),
        "external": outside(),
    }  # fmt: skip


def with_known_shapes(test: ModelProto, given: list[object]) -> ModelProto:
    """Axes and shapes, which such tests pass at the call, as the file's: a reader wants to know them."""
    made = ModelProto()
    made.CopyFrom(test)
    inputs = list(made.graph.input)
    del made.graph.input[:]
    for i, (port, value) in enumerate(zip(inputs, given, strict=False)):
        if i > 0 and isinstance(value, np.ndarray) and value.dtype.kind in "iub" and value.size <= 64:
            made.graph.initializer.append(numpy_helper.from_array(value, port.name))
        else:
            made.graph.input.append(port)
    return made


def tests_of_operators() -> dict[str, bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the operators' own references
        cases = [case for case in collect_testcases(None) if case.data_sets]
    made = {case.name: with_known_shapes(case.model, case.data_sets[0][0]) for case in cases}
    files = {name: model.SerializeToString() for name, model in made.items()}
    return {name: data for name, data in files.items() if len(data) <= LONGEST}


def reaching_more(files: dict[str, bytes], folder: Path) -> dict[str, bytes]:
    """Those that reach code which the files of `folder` and the others of these do not."""
    with tempfile.TemporaryDirectory() as all_of_them, tempfile.TemporaryDirectory() as chosen:
        for name, data in files.items():
            (Path(all_of_them) / name).write_bytes(data)
        # Blocks alone: how often each ran would choose three times as many.
        words = fuzz.command("onnx", "-set_cover_merge=1", "-use_counters=0", "-use_cmp=0", chosen,
                             str(folder), all_of_them)  # fmt: skip
        done = fuzz.call(words)
        if done.returncode != 0:
            raise RuntimeError(f"libFuzzer chose none: {done.stderr[-2000:]}")
        kept = {path.read_bytes() for path in Path(chosen).iterdir()}
    return {name: data for name, data in files.items() if data in kept}


def main() -> int:
    folder = FUZZ / "corpus" / "onnx"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, made in models().items():
        (folder / name).write_bytes(made.SerializeToString())
    for name, data in reaching_more(tests_of_operators(), folder).items():
        (folder / name).write_bytes(data)
    operators = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    words = [*sorted(operators), "ai.onnx", "axis", "axes", "perm", "to", "mode", "location"]
    (FUZZ / "dictionaries" / "onnx.dict").write_text("".join(f'"{word}"\n' for word in words), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
