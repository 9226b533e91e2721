"""Every ONNX operator that Heddle reads, against onnx.reference, which shares no line with Heddle."""

import collections
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_case import Case
from onnx_cases import all_cases

import heddle
from heddle import _heddle

OLDEST, NEWEST, OPERATORS = _heddle.onnx_support()
CASES = collections.defaultdict(list)
for case in all_cases():
    CASES[case.op].append(case)

# Of one result against a larger one: f16 results are rounded once or twice, sums of f16 a few times.
TOLERANCE = {np.dtype(np.float16): 4e-3, np.dtype(np.float32): 2e-5, np.dtype(np.float64): 1e-10}

# Whatever the dtype, onnx.reference computes these in f32, or with f32 attributes.
REFERENCE_IN_F32 = {
    "Attention",
    "Erf",
    "Gelu",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "LRN",
    "LeakyRelu",
}

# Whose sums onnx.reference rounds to f16 at every step.
SUMS_IN_F16 = {"ConvTranspose", "DeformConv"}


def tolerance_of(op: str, dtype: np.dtype) -> float:
    if op == "Attention" and dtype == np.float16:
        return 1e-2  # onnx.reference rounds scores and weights to f16; Heddle and ONNX Runtime do not
    if op in SUMS_IN_F16 and dtype == np.float16:
        return 2e-2
    return max(TOLERANCE[dtype], 1e-6 if op in REFERENCE_IN_F32 else 0)


def write_model(case: Case, fixed: set[int], symbolic: bool) -> onnx.ModelProto:
    """The node alone. `symbolic`: first extents above 1 are symbols, one for each number."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    present = {i: np.asarray(x) for i, x in enumerate(case.inputs) if x is not None}
    inputs = []
    for i in sorted(present.keys() - fixed):
        shape: list[int | str] = list(present[i].shape)
        if symbolic and shape and present[i].shape[0] > 1:
            shape[0] = f"n{shape[0]}"
        kind = helper.np_dtype_to_tensor_dtype(present[i].dtype)
        inputs.append(helper.make_tensor_value_info(names[i], kind, shape))
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, name="node", **case.attributes)
    infos = [onnx.ValueInfoProto(name=name) for name in outputs]
    constants = [numpy_helper.from_array(present[i], names[i]) for i in sorted(present.keys() & fixed)]
    graph = helper.make_graph([node], case.op, inputs, infos, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset or NEWEST)])


def expected_values(case: Case) -> list[np.ndarray]:
    """The evaluator's values, in the standard's dtypes where it infers them: numpy widens some integers."""
    if case.expected:
        return list(case.expected)
    model = write_model(case, set(case.fixed), symbolic=False)
    kinds = [y.type.tensor_type.elem_type for y in onnx.shape_inference.infer_shapes(model).graph.output]
    feeds = {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None and i not in case.fixed}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of numpy, about infinities and NaN that are meant
        values = ReferenceEvaluator(model).run(None, feeds)
    dtypes = [helper.tensor_dtype_to_np_dtype(kind) if kind else None for kind in kinds]
    return [np.asarray(y, dtype) for y, dtype in zip(values, dtypes, strict=True)]


def difference(op: str, got: np.ndarray, want: np.ndarray) -> str | None:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    if want.dtype not in TOLERANCE:
        return None if np.array_equal(got, want) else f"is {got.tolist()}, not {want.tolist()}"
    tolerance = tolerance_of(op, want.dtype)
    if np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    return f"is {got.tolist()}, not {want.tolist()}"


def failures_of(case: Case, want: list[np.ndarray], form: str) -> list[str]:
    present = {i for i, x in enumerate(case.inputs) if x is not None}
    fixed = present if form == "constant" else set(case.fixed)
    try:
        model = heddle.load(write_model(case, fixed, form == "symbolic").SerializeToString())
        got = model(*(np.asarray(case.inputs[i]) for i in sorted(present - fixed)))
    except heddle.Error as error:
        return [f"{case.label()} ({form}): {error}"]
    got = got if isinstance(got, tuple) else (got,)
    wrong = [difference(case.op, np.asarray(a), b) for a, b in zip(got, want, strict=True)]
    return [f"{case.label()} ({form}): output {i} {text}" for i, text in enumerate(wrong) if text]


@pytest.mark.parametrize("op", OPERATORS)
def test_an_operator_gives_the_reference_evaluators_values(op):
    """With shapes known, with symbols, and with all inputs constant, so that the operator is folded."""
    assert CASES[op], f"tests/python/onnx_cases.py has no case of {op}"
    failures = []
    for case in CASES[op]:
        want = expected_values(case)
        for form in ("static", "symbolic", "constant"):
            failures += failures_of(case, want, form)
    assert not failures, f"{len(failures)} of {3 * len(CASES[op])}:\n" + "\n".join(failures[:10])


def test_every_case_is_of_an_operator_that_is_read():
    assert sorted(op for op, cases in CASES.items() if cases) == sorted(OPERATORS)


def test_the_readers_newest_opset_is_that_of_the_onnx_package():
    package = onnx.defs.onnx_opset_version()
    assert package == NEWEST, (
        f"onnx {onnx.__version__} knows opset {package}, Heddle reads up to {NEWEST}: look at what the newer "
        "opsets changed, then raise kNewestOpset in src/onnx/reader.h"
    )
