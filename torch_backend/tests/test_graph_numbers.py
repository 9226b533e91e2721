"""Graphs of torch.compile(backend="heddle") that take numbers: a model for each value where one has to be."""

import pytest
import torch
from compile_nets import assert_same
from heddle.torch import dynamo
from threads import count_right
from torch import nn

from heddle import errors

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiled(module):
    return torch.compile(module, backend="heddle", dynamic=True)


class Ramp(nn.Module):
    """An extent of a result, and of what is between, is a number of the caller's."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(1, 4)

    def forward(self, x, count: int):
        steps = torch.arange(2 * count, device=x.device).unsqueeze(1)
        return x + self.line(steps.to(x.dtype)), count + 1


def test_eight_threads_get_an_extent_that_a_number_decides():
    module = Ramp().eval()
    fast = torch.compile(module, backend="heddle")
    xs = torch.randn(8, 4)
    with torch.no_grad():
        for count in (3, 5, 2, 3):  # the second value makes it a number of the graph
            assert_same(fast(xs[0], count), module(xs[0], count))

    def call(call_module):
        def one(thread, i):
            with torch.no_grad():
                made, after = call_module(xs[thread], 2 + (thread + i) % 12)
            return torch.cat([made.flatten(), torch.tensor([float(after)])])

        return one

    assert count_right(8, 12, call(fast), call(module)) == 96


def test_models_of_numbers_go_where_there_are_many(built):
    module = Ramp().eval()
    fast = compiled(module)
    x = torch.randn(4)
    with torch.no_grad():
        for count in (*range(2, 22), 21, 21, 20):
            assert_same(fast(x, count), module(x, count))
    whole = {id(each): each for each in built}
    assert max(len(each._models.built) for each in whole.values()) == dynamo.VALUES_OF_NUMBERS
    assert len(built) == 1 + 20  # one with the number as an input, which found out


def test_of_many_models_that_which_was_used_least_lately_goes(built):
    fast = compiled(Ramp().eval())
    x = torch.randn(4)
    with torch.no_grad():
        for count in range(2, 2 + dynamo.VALUES_OF_NUMBERS):
            fast(x, count)
        fast(x, 2)
        fast(x, 30)  # takes the place of 3's
        before = len(built)
        fast(x, 2)
        assert len(built) == before
        fast(x, 3)
        assert len(built) == before + 1


def test_a_write_to_a_weight_counts_once_however_many_models_there_are(built):
    module = Ramp().eval()
    fast = compiled(module)
    x = torch.randn(4)
    counts = range(2, 2 + 2 * dynamo.CHANGES_OF_A_WEIGHT)
    with torch.no_grad():
        for _ in range(1 + dynamo.CHANGES_OF_A_WEIGHT):
            for count in counts:
                assert_same(fast(x, count), module(x, count))
            assert {len(each.weights) for each in built[-1]._models.built.values()} == {2}
            module.line.weight.mul_(2)
        for count in counts:  # the third write
            assert_same(fast(x, count), module(x, count))
        assert {len(each.weights) for each in built[-1]._models.built.values()} == {1}  # the bias


class Refusing:
    """A model that refuses some calls, as a device does that has no kernel for a shape."""

    def __init__(self, model):
        self._model = model

    def __call__(self, inputs):
        if 7 in inputs[0].shape:
            raise errors.UnsupportedError("seven of them are too many for this device")
        return self._model(inputs)


def test_a_refused_call_leaves_the_model_that_takes_any_number(built, monkeypatch):
    made = dynamo.Built
    monkeypatch.setattr(dynamo, "Built", lambda model, *rest: made(Refusing(model), *rest))

    def scaled(x, n: int):
        return x * n

    fast = compiled(scaled)
    with torch.no_grad():
        assert_same(fast(torch.ones(3, 2), 4), torch.full((3, 2), 4.0))
        model = built[0]._models.built[()]
        for _ in range(2):
            with pytest.raises(errors.UnsupportedError, match="seven of them"):
                fast(torch.ones(7, 2), 5)
        before = len(built)
        for n in range(2, 12):
            assert_same(fast(torch.ones(3, 2), n), torch.full((3, 2), float(n)))
    assert len(built) == before
    assert built[0]._models.built == {(): model}


def test_a_refused_value_leaves_the_models_of_others(built):
    def counted(x, high: int):
        return torch.histc(x, 4, 2, high)

    fast = compiled(counted)
    x = torch.tensor([2.0, 3.0, 5.0])
    with torch.no_grad():
        for _ in range(2):
            for high, wanted in ((6, [1, 1, 0, 1]), (5, [1, 1, 0, 1]), (4, [1, 0, 1, 0])):
                assert fast(x, high).tolist() == wanted
            with pytest.raises(errors.UnsupportedError, match="bounds that the values decide"):
                fast(x, 2)
