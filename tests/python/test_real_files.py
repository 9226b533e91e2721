"""Real model files agree with ONNX Runtime, whatever their sizes, from one thread and from eight at once."""

import json

import numpy as np
import pytest
import real_files
from conftest import run_threads

import heddle

onnxruntime = pytest.importorskip("onnxruntime")

TOLERANCE = 1e-4
THREADS = 8
ROUNDS = 3
SILERO = [file for file in real_files.FILES if file.name.startswith("silero")]


def session_of(file: real_files.File):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(file.path()), options, providers=["CPUExecutionProvider"])


def as_tuple(outputs) -> tuple[np.ndarray, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def error(got, want) -> float:
    """The largest error relative to an output's scale. Infinite when a shape or type differs."""
    if len(got) != len(want) or any(
        a.shape != b.shape or a.dtype != b.dtype for a, b in zip(got, want, strict=True)
    ):
        return np.inf
    errors = [np.abs(a - b).max() / max(np.abs(b).max(), 1e-30) for a, b in zip(got, want, strict=True)]
    return float(max(errors)) if not np.isnan(errors).any() else np.inf


@pytest.mark.parametrize("file", real_files.FILES, ids=lambda file: file.name)
def test_a_file_gives_onnx_runtimes_values_from_one_thread_and_from_eight(file):
    session = session_of(file)
    inputs = [file.inputs(extents) for extents in file.sizes]
    assert len(inputs) >= 3
    expected = [session.run(None, x) for x in inputs]
    assert all(np.abs(y).max() > 0 for outputs in expected for y in outputs)
    model = heddle.load(file.path())
    for extents, x, want in zip(file.sizes, inputs, expected, strict=True):
        assert error(as_tuple(model(**x)), want) < TOLERANCE, extents

    def body(thread: int) -> int:
        right = 0
        for i in range(ROUNDS * len(inputs)):
            k = (thread + i) % len(inputs)
            right += error(as_tuple(model(**inputs[k])), expected[k]) < TOLERANCE
        return right

    def answered() -> int:
        """Calls in batches, if the file's calls share them."""
        stats = model.coalescing_stats()
        return stats["calls"] if stats else model.device.stats()["calls"]

    before = answered()
    assert sum(run_threads(THREADS, body)) == THREADS * ROUNDS * len(inputs)
    assert answered() - before == THREADS * ROUNDS * len(inputs)


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        ("resnet18-dynamo", 1),
        ("resnet18-script", 1),
        ("mobilenet-dynamo", 1),
        ("unet-dynamo", 2),
        ("unet-script", 2),
    ],
)
def test_channels_are_turned_at_the_ends_of_a_net_only(name, turns, tmp_path):
    """The image on the way in; U-Net's mask on the way out. No reorder stands between two convolutions."""
    (file,) = (file for file in real_files.FILES if file.name == name)
    model = heddle.load(file.path())
    inputs = file.inputs(file.sizes[0])
    model(**inputs)
    with heddle.profiler.profile(str(tmp_path / "trace.json")):
        model(**inputs)
    events = json.loads((tmp_path / "trace.json").read_text())
    names = [event["name"] for event in (events["traceEvents"] if isinstance(events, dict) else events)]
    assert names.count("Conv") >= 15
    assert names.count("reorder") == turns


@pytest.mark.parametrize("file", SILERO, ids=lambda file: file.name)
def test_the_state_of_silero_is_carried_over_twenty_chunks(file):
    """Both carry their own states, so that an error which grows from chunk to chunk shows."""
    session = session_of(file)
    model = heddle.load(file.path())
    first = file.inputs((2,))
    chunks = file.inputs((40,))["input"].reshape(20, 2, -1)
    states = [np.zeros_like(first["state"])] * 2
    seen = []
    for chunk in range(20):
        x = dict(first, input=chunks[chunk])
        want = session.run(None, dict(x, state=states[0]))
        got = as_tuple(model(**dict(x, state=states[1])))
        assert error(got, want) < TOLERANCE, chunk
        states = [want[1], got[1]]
        seen.append(want[1])
    assert not np.array_equal(seen[-1], seen[-2])
