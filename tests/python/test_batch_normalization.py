"""ResNet-18 as PyTorch's older exporter writes it when it folds nothing: every normalisation is a node."""

import warnings

import numpy as np
import onnx
import pytest

import heddle


@pytest.fixture(scope="module")
def unfolded(tmp_path_factory):
    """The file, whose 20 BatchNormalizations stand each behind a Conv."""
    import torch
    from models.torch_nets import ResNet18

    torch.manual_seed(7)
    path = tmp_path_factory.mktemp("resnet") / "resnet18.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the older exporter is what is asked for
        torch.onnx.export(
            ResNet18().eval(),
            (torch.randn(2, 3, 64, 64),),
            path,
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,  # EVAL makes the exporter fuse them itself
            do_constant_folding=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )
    operators = [node.op_type for node in onnx.load(path).graph.node]
    assert operators.count("BatchNormalization") == 20
    return path


def test_batch_normalization_is_folded_into_the_convolutions_of_an_unfolded_export(unfolded):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = heddle.load(unfolded)
    graph = model.graph()
    assert graph.count("= BatchNormalization(") == 0
    assert graph.count("= Conv(") == 20
    session = onnxruntime.InferenceSession(str(unfolded), providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 64, 64)).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        np.testing.assert_allclose(model(x), want, rtol=0, atol=1e-4 * np.abs(want).max())
