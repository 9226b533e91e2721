"""A call: arrays in, arrays of the same kind out, inputs by place or name, and clear refusals."""

import sys
import types

import ml_dtypes
import numpy as np
import pytest
from conftest import build_affine

import heddle


def test_numpy_in_gives_numpy_out(affine):
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    y = affine(x)
    assert type(y) is np.ndarray
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_torch_in_gives_torch_out(affine):
    torch = pytest.importorskip("torch")
    x = torch.arange(16, dtype=torch.float32).reshape(2, 8)
    y = affine(x)
    assert isinstance(y, torch.Tensor)
    assert torch.equal(y, 2 * x + 1)


def test_bf16_goes_in_and_comes_out_as_an_array_of_ml_dtypes():
    bfloat16 = ml_dtypes.bfloat16
    graph = heddle.GraphBuilder("negate")
    graph.output(graph.add("Neg", graph.input("x", "bf16", ["batch", 5])), "y")
    model = graph.build()
    wide = np.arange(40, dtype=np.float32).reshape(4, 10).astype(bfloat16)
    for x in (wide[:, :5], wide[:, ::2], wide[1:1, :5]):
        y = model(x)
        assert y.dtype == bfloat16
        np.testing.assert_array_equal(y, -x)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 8), ml_dtypes.float8_e4m3fn),
        np.zeros((2, 8), ml_dtypes.int4),
        np.zeros((2, 8), "datetime64[D]"),
        np.zeros((2, 8), complex),
        np.full((2, 8), "word"),
        np.full((2, 8), None),
    ],
    ids=lambda array: str(array.dtype),
)
def test_a_dtype_that_heddle_lacks_is_refused_by_name(affine, array):
    with pytest.raises(heddle.UnsupportedError, match=r"input 'x' has dtype .*; Heddle takes f32, f16"):
        affine(array)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_integers_keep_their_highest_bit(dtype):
    graph = heddle.GraphBuilder()
    x = graph.input("x", f"u{np.dtype(dtype).itemsize * 8}", ["n"])
    one = graph.constant(np.ones(1, dtype))
    graph.output(graph.add("Max", graph.add("Div", x, graph.add("Add", one, one)), one), "y")
    model = graph.build()
    values = np.array([0, 5, np.iinfo(dtype).max, np.iinfo(dtype).max // 2 + 1], dtype)
    y = model(values)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.maximum(values // 2, 1))


def test_an_argument_that_cannot_be_converted_is_refused(affine):
    with pytest.raises(heddle.InvalidError, match="an argument, or an element of one, is of the wrong type"):
        affine.compile([[1.5, 8]])


def test_an_object_with_only_dlpack_is_taken(affine):
    class OnlyDlpack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = np.ones((1, 8), np.float32)
    np.testing.assert_array_equal(np.from_dlpack(affine(OnlyDlpack(x))), 2 * x + 1)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::2],
        lambda a: a[:, ::-1][:, :8],
        lambda a: a[::3, :8],
        lambda a: np.asfortranarray(a[:, :8]),
        lambda a: np.broadcast_to(a[:1, :8], (5, 8)),
        lambda a: a.T[:8, :8].T,
    ],
)
def test_strided_inputs_give_the_values_of_their_copies(affine, view):
    x = view(np.random.default_rng(0).standard_normal((9, 16)).astype(np.float32))
    np.testing.assert_array_equal(affine(x), 2 * np.ascontiguousarray(x) + 1)


def test_a_zero_size_batch_gives_a_zero_size_result(affine):
    assert affine(np.zeros((0, 8), np.float32)).shape == (0, 8)


# Results of 4 KiB or less are copies, larger ones hold the memory that the model wrote.
ROWS = (4, 128, 129, 1000)


@pytest.mark.parametrize("rows", ROWS)
def test_results_do_not_change_when_the_model_runs_again(affine, rows):
    first = affine(np.zeros((rows, 8), np.float32))
    for i in range(20):
        affine(np.full((rows, 8), i, np.float32))
    np.testing.assert_array_equal(first, np.ones((rows, 8), np.float32))
    first[:] = 7  # it is the caller's
    np.testing.assert_array_equal(affine(np.ones((rows, 8), np.float32)), np.full((rows, 8), 3))


@pytest.mark.parametrize("rows", ROWS)
def test_a_result_outlives_its_model(rows):
    model = build_affine()
    y = model(np.ones((rows, 8), np.float32))
    del model
    np.testing.assert_array_equal(y, np.full((rows, 8), 3, np.float32))


def test_a_result_without_axes_is_an_array_without_axes():
    graph = heddle.GraphBuilder()
    graph.output(graph.add("Neg", graph.input("x", "i32", [])), "y")
    y = graph.build()(np.array(5, np.int32))
    assert type(y) is np.ndarray
    assert y.shape == ()
    assert y == -5


def build_two_by_two() -> heddle.Model:
    graph = heddle.GraphBuilder()
    a = graph.input("a", "f32", ["n"])
    b = graph.input("b", "f32", ["n"])
    graph.output(graph.add("Sub", a, b), "difference")
    graph.output(graph.add("Add", a, b), "total")
    return graph.build()


def test_inputs_go_by_place_and_by_name_and_several_outputs_are_a_tuple():
    model = build_two_by_two()
    a, b = np.array([5, 6], np.float32), np.array([1, 2], np.float32)
    for difference, total in (model(a, b), model(b=b, a=a), model(a, b=b)):
        np.testing.assert_array_equal(difference, a - b)
        np.testing.assert_array_equal(total, a + b)


def test_ports_describe_the_model():
    model = build_two_by_two()
    assert [(p.name, p.dtype, p.shape) for p in model.inputs] == [("a", "f32", ("n",)), ("b", "f32", ("n",))]
    assert [p.name for p in model.outputs] == ["difference", "total"]


REFUSALS = [
    (lambda m: m(np.zeros((2, 8), np.float64)), heddle.InvalidError, ["'x'", "f32", "f64"]),
    (lambda m: m(np.zeros((2, 9), np.float32)), heddle.InvalidError, ["'x'", "8", "9"]),
    (lambda m: m(np.zeros(8, np.float32)), heddle.InvalidError, ["'x'", "[batch, 8]"]),
    (lambda m: m(), heddle.InvalidError, ["'x'", "missing"]),
    (lambda m: m(y=np.zeros((1, 8), np.float32)), heddle.InvalidError, ["'y'", "'x'"]),
    (
        lambda m: m(np.zeros((1, 8), np.float32), x=np.zeros((1, 8), np.float32)),
        heddle.InvalidError,
        ["'x'", "twice"],
    ),
    (lambda m: m(*[np.zeros((1, 8), np.float32)] * 2), heddle.InvalidError, ["2 arrays", "1 input"]),
    (lambda m: m([[1.0] * 8]), TypeError, ["'x'", "list", "numpy"]),
    (lambda m: m(np.zeros((1, 8), np.complex64)), heddle.UnsupportedError, ["'x'", "f32"]),
    (lambda m: m(np.zeros((1, 8), np.float32), timeout=-1), heddle.InvalidError, ["timeout"]),
    (lambda m: m.compile([(1, 9)]), heddle.InvalidError, ["'x'", "8", "9"]),
    (lambda m: m.compile([]), heddle.InvalidError, ["shape"]),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSALS)
def test_a_wrong_call_is_refused_in_words_and_the_model_goes_on(affine, call, kind, words):
    with pytest.raises(kind) as caught:
        call(affine)
    for word in words:
        assert word in str(caught.value)
    np.testing.assert_array_equal(affine(np.ones((1, 8), np.float32)), np.full((1, 8), 3, np.float32))


def test_an_index_out_of_range_is_refused_by_node_and_the_next_call_is_right():
    graph = heddle.GraphBuilder()
    table = graph.constant(np.arange(10, dtype=np.float32).reshape(5, 2))
    rows = graph.input("rows", "i64", ["n"])
    graph.output(graph.add("Gather", table, rows, axis=0), "y")
    model = graph.build()
    with pytest.raises(heddle.InvalidError, match="5"):
        model(np.array([0, 5]))
    np.testing.assert_array_equal(model(np.array([4, -5])), [[8, 9], [0, 1]])


def test_exceptions_are_also_of_the_kinds_python_users_expect():
    assert issubclass(heddle.InvalidError, ValueError)
    assert issubclass(heddle.ExhaustedError, MemoryError)
    assert issubclass(heddle.DeadlineError, TimeoutError)
    assert {kind.code for kind in heddle.errors.BY_CODE.values()} == set(heddle.errors.BY_CODE)


def test_every_dtype_passes_through_unchanged():
    for name, kind in {
        "f32": np.float32, "f16": np.float16, "f64": np.float64, "i8": np.int8, "u8": np.uint8,
        "i16": np.int16, "i32": np.int32, "i64": np.int64, "u16": np.uint16, "u32": np.uint32,
        "u64": np.uint64, "bool": np.bool_,
    }.items():  # fmt: skip
        graph = heddle.GraphBuilder()
        graph.output(graph.add("Identity", graph.input("x", name, ["n"])), "y")
        model = graph.build()
        for times in (1, 2000):
            x = np.array([0, 1, 1, 0, 1] * times).astype(kind)
            y = model(x)
            assert y.dtype == x.dtype
            np.testing.assert_array_equal(y, x)


def test_compile_ahead_makes_the_first_call_a_cache_hit():
    device = heddle.Device.open()
    model = build_affine(device=device)
    model.compile([(3, 8)])
    model.compile({"x": (4, 8)})
    assert device.stats()["compiles"] == 2
    model(np.zeros((3, 8), np.float32))
    model(np.zeros((4, 8), np.float32))
    assert device.stats()["compiles"] == 2


def test_a_closed_model_refuses_calls():
    model = build_affine()
    model.close()
    model.close()
    assert model.closed
    with pytest.raises(heddle.UnavailableError, match="closed"):
        model(np.zeros((1, 8), np.float32))


def test_batchable_is_told_with_its_reason():
    assert build_affine().batchable
    graph = heddle.GraphBuilder()
    x = graph.input("x", "f32", ["batch", 4])
    axes = graph.constant(np.array([0]))
    graph.output(graph.add("ReduceMean", x, axes, keepdims=0), "y")
    model = graph.build()
    assert not model.batchable
    assert "ReduceMean" in model.why_not_batchable


def test_a_plan_and_what_was_replaced_are_told_or_the_reason_why_not(affine):
    with pytest.raises(heddle.InvalidError, match="keep_source"):
        affine.source_graph()
    with pytest.raises(heddle.InvalidError, match="keep_source"):
        affine.replacements()
    rates = heddle.measure_rates()
    with pytest.raises(heddle.InvalidError, match="'x'"):
        affine.plan([(2, 8, 1)], rates)
    assert affine.plan({"x": (2, 8)}, rates) == affine.plan([(2, 8)], rates)

    graph = heddle.GraphBuilder("hidden")
    x = graph.input("x", "f32", ["batch", 4])
    graph.output(graph.add("Neg", graph.add("Abs", graph.add("Softmax", x))), "y")
    model = graph.build(keep_source=True)
    assert [(r["nodes"], r["sources"]) for r in model.replacements()] == [
        (["Softmax"], ["Softmax"]),
        (["Elementwise"], ["Abs", "Neg"]),
    ]
    plan = model.plan([(16, 4)], rates)
    assert [(node["name"], node["step"]) for node in plan["nodes"]] == [("value1", 1), ("y", 2)]
    assert plan["arena_bytes"] == plan["arena_bytes_apart"] == 16 * 4 * 4  # the Softmax's; y is the caller's


def test_results_go_to_the_library_of_an_array_that_says_it_has_a_buffer_and_lies_on_a_gpu():
    library = types.ModuleType("library_of_a_gpu")
    library.from_dlpack = lambda _: "an array of the library"

    class Array(np.ndarray):  # CuPy's have a buffer by their type, too
        __module__ = "library_of_a_gpu"
        __cuda_array_interface__ = None

    graph = heddle.GraphBuilder("doubled")
    x = graph.input("x", "f32", ["batch"])
    graph.output(graph.add("Add", x, x), "y")
    sys.modules[library.__name__] = library
    try:
        y = graph.build()(np.ones(3, np.float32).view(Array))
    finally:
        del sys.modules[library.__name__]
    assert y == "an array of the library"
