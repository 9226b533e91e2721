"""Calls of several threads that share batches: the values of calls alone, and each caller's own errors."""

import threading

import numpy as np
import pytest
from conftest import build_affine, build_mlp, run_threads
from held import run_held

import heddle

SENTENCES = (3, 5, 8, 9, 12, 17, 23, 31, 40, 64)


def build_lookup() -> heddle.Model:
    """Rows of 4 indices into a table of 10 rows: an index out of range is the data's mistake."""
    graph = heddle.GraphBuilder("lookup")
    ids = graph.input("ids", "i64", ["batch", 4])
    table = graph.constant(np.arange(10 * 256, dtype=np.float32).reshape(10, 256))
    rows = graph.add("Gather", table, ids, axis=0)
    # Whole numbers below 2^24: a sum has one value in whatever order.
    weight = graph.constant(np.random.default_rng(0).integers(-2, 3, (256, 256)).astype(np.float32))
    graph.output(graph.add("MatMul", rows, weight), "y")
    return graph.build()


def batches_of_several(model: heddle.Model) -> int:
    stats = model.coalescing_stats()
    return sum(runs for rows, runs in stats["rows"].items() if rows > 1)


def run_joined(model: heddle.Model, calls: int, body) -> None:
    """body() on threads enough that calls have to join; each of its `calls` has to be right."""
    right = run_held(
        12, lambda threads: run_threads(threads, body), lambda: model.coalescing_stats()["waiting"]
    )
    assert right == [calls] * len(right)


def test_threads_share_batches_and_get_the_values_of_calls_alone():
    model = build_mlp()
    random = np.random.default_rng(1)
    inputs = [random.standard_normal((1 + i % 3, 512)).astype(np.float32) for i in range(24)]
    expected = [model(x) for x in inputs]

    def body(thread):
        right = 0
        for i in range(40):
            k = (thread * 7 + i) % len(inputs)
            right += np.allclose(model(inputs[k]), expected[k], rtol=1e-5, atol=1e-4)
        return right

    run_joined(model, 40, body)
    stats = model.coalescing_stats()
    assert stats["calls"] == (heddle.Device().in_flight + 12) * 40 + len(inputs)
    assert sum(stats["rows"].values()) == stats["batches"] < stats["calls"]
    assert stats["waiting"] == 0
    assert 1 <= stats["lanes"] <= heddle.Device().threads


def test_a_lone_caller_is_never_batched():
    model = build_mlp()
    x = np.zeros((1, 512), np.float32)
    for _ in range(20):
        model(x)
    assert model.coalescing_stats()["rows"] == {1: 20}


@pytest.mark.parametrize("ragged", [None, {}], ids=["padded", "equal lengths"])
def test_sentences_of_different_length_share_batches(minilm, ragged):
    model = heddle.load(minilm, ragged=ragged)
    alone = heddle.load(minilm, coalesce=False)
    random = np.random.default_rng(2)
    inputs = []
    for length in SENTENCES:
        ids = random.integers(1000, 20000, (1, length))
        inputs.append((ids, np.ones_like(ids), np.zeros_like(ids)))
    first = [alone(*x) for x in inputs]
    expected = [y[0] if isinstance(y, tuple) else y for y in first]

    def body(thread):
        right = 0
        for i in range(12):
            k = (thread * 3 + i) % len(inputs)
            y = model(*inputs[k])
            y = y[0] if isinstance(y, tuple) else y
            right += y.shape == expected[k].shape and np.allclose(y, expected[k], rtol=1e-4, atol=1e-4)
        return right

    run_joined(model, 12, body)
    assert batches_of_several(model) > 0
    assert ("padded" in model.explain_coalescing()) == (ragged is None)


def test_rows_that_an_output_spreads_over_several_entries_are_put_together_again():
    graph = heddle.GraphBuilder("spread")
    x = graph.input("x", "f32", ["batch", 48])
    apart = graph.add("Reshape", x, graph.constant(np.array([-1, 8])))
    graph.output(graph.add("Softmax", apart, axis=-1), "y")
    model = graph.build()
    inputs = np.random.default_rng(5).standard_normal((12, 1, 48)).astype(np.float32)
    expected = [model(x) for x in inputs]
    assert expected[0].shape == (6, 8)

    def body(thread):
        return sum(np.allclose(model(inputs[thread]), expected[thread], atol=1e-6) for _ in range(100))

    assert sum(run_threads(12, body)) == 12 * 100


def test_a_model_that_reads_its_last_token_is_not_padded():
    """Its names are those of an encoder, its mask has no part in what comes out."""
    graph = heddle.GraphBuilder("last token")
    ids = graph.input("input_ids", "i64", ["batch", "seq"])
    graph.input("attention_mask", "i64", ["batch", "seq"])
    random = np.random.default_rng(6)
    rows = graph.add("Gather", graph.constant(random.standard_normal((50, 512)).astype(np.float32)), ids)
    last = graph.add("Gather", rows, graph.constant(np.array(-1)), axis=1)
    weight = graph.constant((random.standard_normal((512, 512)) / 20).astype(np.float32))
    for _ in range(8):
        last = graph.add("Tanh", graph.add("MatMul", last, weight))
    graph.output(last, "y")
    model = graph.build()
    sentences = [random.integers(1, 50, (1, length)) for length in (3, 5, 6, 7, 9, 11)]
    expected = [model(x, np.ones_like(x)) for x in sentences]

    def body(thread):
        right = 0
        for i in range(200):
            k = (thread + i) % len(sentences)
            y = model(sentences[k], np.ones_like(sentences[k]))
            right += np.allclose(y, expected[k], rtol=1e-4, atol=1e-4)
        return right

    run_joined(model, 200, body)
    assert "changed a row's result" in model.explain_coalescing()
    assert sum(run_threads(12, body)) == 12 * 200


def test_an_index_out_of_range_fails_its_own_call_only():
    model = build_lookup()
    good = np.arange(4)[None]
    bad = np.array([[1, 2, 99, 3]])
    expected = model(good)

    def body(thread):
        right = 0
        for i in range(60):
            if (thread + i) % 5 != 0:
                right += np.array_equal(model(good), expected)
                continue
            with pytest.raises(heddle.InvalidError, match="99"):
                model(bad)
            right += 1
        return right

    assert sum(run_threads(16, body)) == 16 * 60


def test_a_wrong_input_is_refused_before_it_reaches_a_batch():
    model = build_affine()
    model(np.zeros((1, 8), np.float32))
    before = model.coalescing_stats()
    with pytest.raises(heddle.InvalidError, match="shape"):
        model(np.zeros((1, 9), np.float32))
    with pytest.raises(heddle.InvalidError, match="f32"):
        model(np.zeros((1, 8)))
    assert model.coalescing_stats() == before


def test_the_deadline_of_one_caller_does_not_disturb_the_others():
    model = build_mlp()
    x = np.ones((1, 512), np.float32)
    expected = model(x)

    def body(thread):
        answered = 0
        for i in range(60):
            try:
                y = model(x, timeout=1e-5 if (thread + i) % 4 == 0 else None)
            except heddle.DeadlineError:
                assert (thread + i) % 4 == 0
                answered += 1
                continue
            answered += np.allclose(y, expected, rtol=1e-5, atol=1e-4)
        return answered

    assert sum(run_threads(16, body)) == 16 * 60
    assert model.coalescing_stats()["waiting"] == 0


def test_no_more_callers_wait_than_may():
    graph = heddle.GraphBuilder("wide")
    x = graph.input("x", "f32", ["batch", 512])
    weight = graph.constant(np.ones((512, 512), np.float32))
    for _ in range(8):
        x = graph.add("MatMul", x, weight)
    graph.output(x, "y")
    model = graph.build(max_waiting=1)
    x = np.zeros((1, 512), np.float32)

    def body(_):
        refused = 0
        for _ in range(50):
            try:
                model(x)
            except heddle.ExhaustedError:
                refused += 1
        return refused

    def waiting():
        stats = model.coalescing_stats()
        return stats["waiting"] + stats["exhausted"]

    assert (
        sum(run_held(12, lambda threads: run_threads(threads, body), waiting))
        == model.coalescing_stats()["exhausted"]
        >= 11
    )


def test_close_answers_those_who_wait():
    model = build_mlp()
    x = np.zeros((1, 512), np.float32)
    model(x)
    closed = threading.Event()

    def body(thread):
        if thread == 0:
            closed.wait(0.05)
            model.close()
            return 1
        while True:
            try:
                model(x)
            except heddle.UnavailableError:
                return 1

    assert sum(run_threads(12, body)) == 12


@pytest.mark.parametrize("name", ["mlp", "conv1d", "encoder", "resnet18"])
def test_exact_rows_have_the_same_bits_whatever_they_are_batched_with(exported, name):
    model = heddle.load(exported / f"{name}.onnx", exact=True)
    with np.load(exported / f"{name}.npz") as saved:
        rows = np.concatenate([saved["input_0"]] * 4)[:4]
    random = np.random.default_rng(4)
    rows = (rows + random.standard_normal(rows.shape) * 0.1).astype(np.float32)
    expected = [model(rows[i : i + 1]) for i in range(len(rows))]
    calls = 30 if name != "resnet18" else 4

    def body(thread):
        right = 0
        for i in range(calls):
            k = (thread + i) % len(rows)
            right += np.array_equal(model(rows[k : k + 1]), expected[k])
        return right

    run_joined(model, calls, body)
    assert batches_of_several(model) > 0


def test_the_verdict_is_explained():
    assert build_affine().explain_coalescing().startswith("on: ")
    graph = heddle.GraphBuilder("mean")
    x = graph.input("x", "f32", ["batch", 4])
    graph.output(graph.add("ReduceMean", x, graph.constant(np.array([0])), keepdims=1), "y")
    model = graph.build()
    assert model.coalescing_stats() is None
    assert "ReduceMean" in model.explain_coalescing()
    graph = heddle.GraphBuilder("off")
    x = graph.input("x", "f32", ["batch", 4])
    graph.output(graph.add("Relu", x), "y")
    assert "coalesce=False" in graph.build(coalesce=False).explain_coalescing()


def test_a_ragged_axis_that_cannot_be_is_refused_by_name(minilm):
    for ragged, word in (
        ({"words": 1}, "words"),
        ({"input_ids": 0}, "input_ids"),
        ({"input_ids": (1, 0)}, "attention_mask"),
        ([("input_ids", 1)], "dict"),
    ):
        with pytest.raises(heddle.InvalidError, match=word):
            heddle.load(minilm, ragged=ragged)
