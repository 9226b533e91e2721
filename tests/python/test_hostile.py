"""Hostile files and sizes from Python: an exception of ours each time, in bounded memory."""

import random

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import heddle

LIMIT = 64 << 20


def limited_device() -> heddle.Device:
    device = heddle.Device.open("host")
    device.set_memory_fraction(LIMIT / device.stats()["recommended_max_memory"])
    return device


def padded(pads: list[int]) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "pads"], ["y"], name="big")],
        "padded",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(pads, np.int64), "pads")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("pad", [1 << 30, 1 << 40])
def test_a_shape_beyond_the_limit_is_exhausted_by_node_bytes_and_limit(pad: int) -> None:
    device = limited_device()
    model = heddle.load(padded([0, pad]), device=device)
    with pytest.raises(heddle.ExhaustedError, match=r"'big'.*bytes.*memory limit") as refused:
        model(np.ones(4, np.float32))
    assert isinstance(refused.value, MemoryError)
    assert f"{4 * (pad + 4)} bytes" in str(refused.value)
    small = heddle.load(padded([0, 2]), device=device)
    np.testing.assert_array_equal(small(np.ones(1, np.float32)), [1, 0, 0])


def test_changed_files_give_values_or_an_error_of_ours() -> None:
    whole = padded([1, 2])
    device = limited_device()
    refused = 0
    for seed in range(300):
        chance = random.Random(seed)
        spoilt = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        try:
            model = heddle.load(bytes(spoilt), device=device)
            model(np.ones(3, np.float32))
        except heddle.Error:
            refused += 1
    assert 100 < refused < 300
