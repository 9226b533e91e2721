"""Real files: PyTorch's exports and MiniLM, against PyTorch and ONNX Runtime, from one thread and many."""

import numpy as np
import pytest
from conftest import run_threads

import heddle

TOLERANCE = 1e-4


def relative(a, b) -> float:
    return float(np.abs(a - b).max() / max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("name", ["mlp", "conv1d", "encoder", "resnet18"])
def test_an_export_of_torch_gives_torchs_values_for_every_batch(exported, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = heddle.load(exported / f"{name}.onnx")
    with np.load(exported / f"{name}.npz") as saved:
        x, expected = saved[saved.files[0]], saved[saved.files[-1]]
    assert relative(model(x), expected) < TOLERANCE
    session = onnxruntime.InferenceSession(str(exported / f"{name}.onnx"))
    for batch in (1, 2, 3):
        x = np.random.default_rng(batch).standard_normal((batch, *x.shape[1:])).astype(np.float32)
        (want,) = session.run(None, {session.get_inputs()[0].name: x})
        assert relative(model(x), want) < TOLERANCE


def test_minilm_gives_onnx_runtimes_vectors_for_ragged_batches(minilm):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(minilm))
    model = heddle.load(minilm)
    random = np.random.default_rng(0)
    for batch, length in ((1, 1), (1, 7), (3, 32), (2, 128), (5, 19)):
        ids = random.integers(0, 30522, (batch, length))
        mask = (np.arange(length) < random.integers(1, length + 1, (batch, 1))).astype(np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        for got, want in zip(model(**inputs), session.run(None, inputs), strict=True):
            assert relative(got, want) < TOLERANCE


def test_minilm_from_sixteen_threads_gives_the_vectors_of_one(minilm):
    model = heddle.load(minilm)
    random = np.random.default_rng(1)
    inputs = []
    for length in (4, 9, 16, 33):
        ids = random.integers(0, 30522, (1, length))
        inputs.append((ids, np.ones_like(ids), np.zeros_like(ids)))
    expected = [model(*x) for x in inputs]

    def body(thread):
        right = 0
        for i in range(8):
            k = (thread + i) % len(inputs)
            right += all(relative(a, b) < 1e-5 for a, b in zip(model(*inputs[k]), expected[k], strict=True))
        return right

    assert sum(run_threads(16, body)) == 128
    assert model.batchable, model.why_not_batchable
