"""tools/gpu_models.py: models that are carried to a machine without network."""

import numpy as np
from gpu_models import describe, pack, unpack
from onnx import TensorProto, helper, numpy_helper


def test_a_model_is_carried_as_f16_and_comes_out_as_f32_with_its_shape() -> None:

    random = np.random.default_rng(0)
    weights = {
        "embeddings.word_embeddings.weight": random.standard_normal((30522, 4), dtype=np.float32),
        "weight": random.standard_normal((32, 32), dtype=np.float32),
        "small": np.array([1 / 3], np.float32),
    }
    graph = helper.make_graph(
        [], "g", [], [], [numpy_helper.from_array(w, name) for name, w in weights.items()]
    )
    model = helper.make_model(graph)
    before = len(model.SerializeToString())
    pack(model)
    assert len(model.SerializeToString()) < before / 8
    unpack(model)
    got = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    assert all(each.data_type == TensorProto.FLOAT for each in model.graph.initializer)
    table = "embeddings.word_embeddings.weight"
    assert np.array_equal(got["small"], weights["small"])
    assert np.array_equal(got["weight"], weights["weight"].astype(np.float16).astype(np.float32))
    assert np.array_equal(got[table][2048 + 5], weights[table][5].astype(np.float16).astype(np.float32))
    assert got[table].shape == weights[table].shape


def test_a_weight_that_is_described_comes_back_with_its_mean_and_deviation() -> None:
    random = np.random.default_rng(0)
    weights = {
        "weight": (3 + 0.5 * random.standard_normal((64, 128))).astype(np.float32),
        "ones": np.ones((512,), np.float32),
        "small": np.array([1 / 3], np.float32),
    }
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(w, n) for n, w in weights.items()])
    model = helper.make_model(graph)
    describe(model)
    assert len(model.SerializeToString()) < 300
    again = type(model).FromString(model.SerializeToString())
    unpack(model)
    unpack(again)
    assert model == again
    got = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    assert np.array_equal(got["small"], weights["small"])
    assert np.array_equal(got["ones"], weights["ones"])
    assert got["weight"].shape == (64, 128)
    assert abs(got["weight"].mean() - 3) < 0.05
    assert abs(got["weight"].std() - 0.5) < 0.05
