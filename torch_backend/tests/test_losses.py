"""Losses that look targets up, and an encoder that is told which of its tokens are padding."""

import copy

import heddle.torch
import pytest
import torch
from torch import nn
from torch.nn import functional as F


def logits(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


TARGETS = torch.tensor([2, 0, 4, -100, 1, 4])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_classes_is_the_cpus(reduction, weighted, smoothing):
    def loss(x, target, weight):
        return F.cross_entropy(
            x,
            target,
            weight=weight if weighted else None,
            reduction=reduction,
            label_smoothing=smoothing,
        )

    plain = (logits(6, 5), TARGETS)
    for x, target in (plain, (logits(3, 5, 2, 1), TARGETS.reshape(3, 2, 1)), (logits(5), TARGETS[0])):
        got = loss(x.to("heddle"), target.to("heddle"), WEIGHT.to("heddle"))
        torch.testing.assert_close(got.cpu(), loss(x, target, WEIGHT))


def test_cross_entropy_of_probabilities_and_another_ignored_class():
    x, y = logits(6, 5), logits(6, 5).softmax(1)
    torch.testing.assert_close(F.cross_entropy(x.to("heddle"), y.to("heddle")).cpu(), F.cross_entropy(x, y))
    target = torch.tensor([2, 0, 4, 3, 1, 4])
    got = F.cross_entropy(x.to("heddle"), target.to("heddle"), ignore_index=4)
    torch.testing.assert_close(got.cpu(), F.cross_entropy(x, target, ignore_index=4))


def test_all_targets_ignored_is_nan_as_on_the_cpu():
    ignored = torch.full((6,), -100).to("heddle")
    assert F.cross_entropy(logits(6, 5).to("heddle"), ignored).isnan().item()
    assert F.cross_entropy(logits(6, 5).to("heddle"), ignored, reduction="sum").item() == 0


@pytest.mark.parametrize("target", [5, -1])
def test_a_target_that_is_no_class_is_refused_and_the_next_call_is_right(target):
    x = logits(2, 5).to("heddle")
    for targets in ([0, target], [target, 0]):
        with pytest.raises((IndexError, RuntimeError), match="outside"):  # the latter where it is read later
            F.cross_entropy(x, torch.tensor(targets).to("heddle")).item()
        good = torch.tensor([0, 4])
        torch.testing.assert_close(
            F.cross_entropy(x, good.to("heddle")).cpu(), F.cross_entropy(logits(2, 5), good)
        )


def test_a_compiled_loss_is_the_eager_one():
    class Loss(nn.Module):
        def forward(self, x, target):
            return F.cross_entropy(x, target, reduction="none"), F.binary_cross_entropy(
                x.sigmoid(), x.softmax(1)
            )

    x = logits(6, 5)
    with torch.inference_mode():
        want = Loss()(x, TARGETS)
        got = torch.compile(Loss(), backend="heddle")(x.to("heddle"), TARGETS.to("heddle"))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.cpu(), w)


@pytest.fixture(scope="module")
def padded():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval().requires_grad_(False)
    x, mask = torch.randn(3, 7, 32), torch.arange(7) >= torch.tensor([7, 5, 3])[:, None]
    plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    plain.load_state_dict(encoder.state_dict())
    with torch.inference_mode():
        return encoder, x, mask, plain(x, src_key_padding_mask=mask)


@pytest.mark.parametrize("how", ["eager", "torch.compile", "heddle.torch.compile"])
def test_a_stock_encoder_with_a_padding_mask_computes_padded(how, padded):
    encoder, x, mask, want = padded
    with torch.inference_mode():
        if how == "heddle.torch.compile":
            compiled = heddle.torch.compile(encoder, (x, None, mask))
            got = compiled(x, None, mask)
        else:
            module = copy.deepcopy(encoder).to("heddle")
            if how == "torch.compile":
                module = torch.compile(module, backend="heddle")
            got = module(x.to("heddle"), src_key_padding_mask=mask.to("heddle"))
    assert got.shape == want.shape
    assert not got.is_nested
    torch.testing.assert_close(got.cpu()[~mask], want[~mask], rtol=1e-4, atol=1e-5)
