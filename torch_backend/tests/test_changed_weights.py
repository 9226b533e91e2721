"""torch.compile(module, backend="heddle") has weights in its model, and a call sees whether one changed."""

import copy
import gc
import sys

import pytest
import torch
from compile_nets import assert_same
from heddle.torch import dynamo
from threads import count_right
from torch import nn

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

WIDTH = 8


def stack(layers):
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers))).eval()


def compiled(module):
    return torch.compile(module, backend="heddle")


def call(module, x):
    with torch.no_grad():
        return module(x)


# ---- what a call costs


def names_called_by(call):
    """Of the functions that it calls in Python and from Python, one after the other."""
    names = []

    def note(frame, event, function):
        if event == "call":
            names.append(frame.f_code.co_name)
        elif event == "c_call":
            names.append(function.__name__)

    gc.disable()  # what it calls back would be among them
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return names


@pytest.mark.parametrize("where", ["cpu", "heddle"])
def test_a_call_looks_at_no_weight_from_python(where):
    def names(layers):
        fast = compiled(stack(layers).to(where))
        x = torch.randn(2, WIDTH, device=where)
        for _ in range(3):
            call(fast, x)
        return names_called_by(lambda: call(fast, x))

    few, many = names(4), names(64)
    assert few.count("are_still") == 1
    assert many == few


# ---- what it sees


def by_optimizer(weight):
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    weight.grad = None


NEW = torch.linspace(-1, 1, WIDTH * WIDTH).view(WIDTH, WIDTH)
CHANGES = {
    "in place": lambda linear: linear.weight.mul_(2),
    "an element": lambda linear: linear.weight.__setitem__((0, 0), 9.0),
    "of a view": lambda linear: linear.weight.view(-1)[3:].add_(1),
    "copied": lambda linear: linear.weight.copy_(NEW),
    "filled by nn.init": lambda linear: nn.init.constant_(linear.weight, 0.5),
    "out=": lambda linear: torch.neg(linear.weight.detach(), out=linear.weight),
    "by an optimizer": lambda linear: by_optimizer(linear.weight),
    "another parameter": lambda linear: setattr(linear, "weight", nn.Parameter(linear.weight * 2)),
    "other data": lambda linear: setattr(linear.weight, "data", linear.weight.data * 2),
    # The second lies where the first did, if nothing else took that memory.
    "other data twice": lambda linear: [setattr(linear.weight, "data", linear.weight.data * 2) for _ in "ab"],
    "half and back": lambda linear: linear.half().float(),
    "the same data, transposed": lambda linear: setattr(linear.weight, "data", linear.weight.data.t()),
    "set_": lambda linear: linear.weight.set_(linear.weight.detach() * 2),
    "loaded": lambda linear: linear.load_state_dict({"weight": NEW, "bias": NEW[0]}),
    "loaded by assignment": lambda linear: linear.load_state_dict(
        {"weight": linear.weight * 2, "bias": linear.bias * 3}, assign=True
    ),
}
THROUGH_DATA = {  # PyTorch counts no version for these; the device's memory counts its writes
    "in place, through data": lambda linear: linear.weight.data.mul_(2),
    "an element, through data": lambda linear: linear.weight.data.__setitem__((0, 0), 9.0),
    "transposed, through data": lambda linear: linear.weight.data.t().add_(1),
    "copied, through data": lambda linear: linear.weight.data.copy_(NEW),
    "out=, through data": lambda linear: torch.neg(linear.weight.data, out=linear.weight.data),
    "drawn, through data": lambda linear: linear.weight.data.normal_(),
    "by PyTorch's own kernel": lambda linear: torch.cummax(
        linear.weight.data, 0, out=(linear.weight.data, torch.empty(0, dtype=torch.int64, device="heddle"))
    ),
}
KINDS = [(where, name) for where in ("cpu", "heddle") for name in CHANGES]
KINDS += [("heddle", name) for name in THROUGH_DATA]


@pytest.mark.parametrize(("where", "name"), KINDS)
def test_the_next_call_sees_a_change(where, name, built):
    change = (CHANGES | THROUGH_DATA)[name]
    module = stack(2).to(where)
    fast = compiled(module)
    x = torch.randn(3, WIDTH, device=where)
    before = call(fast, x)
    assert_same(call(fast, x), before)
    assert len(built) == 1
    with torch.no_grad():
        change(module[0])
    wanted = call(copy.deepcopy(module).cpu(), x.cpu())
    assert_same(call(fast, x).cpu(), wanted)
    assert_same(call(fast, x).cpu(), wanted)
    assert len(built) == 2
    assert not torch.allclose(before.cpu(), wanted)


@pytest.mark.parametrize(("where", "name"), KINDS)
def test_eight_threads_see_a_change(where, name):
    change = (CHANGES | THROUGH_DATA)[name]
    module = stack(2).to(where)
    fast = compiled(module)
    x = torch.randn(8, 3, WIDTH)
    call(fast, x[0].to(where))
    with torch.no_grad():
        change(module[1])
    plain = copy.deepcopy(module).cpu()
    done = count_right(
        8, 3, lambda thread, _: call(fast, x[thread].to(where)), lambda thread, _: call(plain, x[thread])
    )
    assert done == 24


@pytest.mark.parametrize("where", ["cpu", "heddle"])
def test_one_changed_weight_of_many(where):
    module = stack(16).to(where)
    fast = compiled(module)
    x = torch.randn(3, WIDTH, device=where)
    call(fast, x)
    for layer in module:
        with torch.no_grad():
            layer.bias.add_(1)
        assert_same(call(fast, x), call(module, x))


def test_reading_a_weight_changes_nothing(built, device):
    module = stack(2).to(device)
    fast = compiled(module)
    x = torch.randn(3, WIDTH, device=device)
    call(fast, x)
    with torch.no_grad():
        copy.deepcopy(module)
        module[0].weight.cpu().mul_(2)
        (module[0].weight.detach().t() @ module[0].weight).sum().item()
        module.state_dict()["0.weight"].clone().zero_()
    call(module, x)
    call(fast, x)
    assert len(built) == 1


def test_a_write_through_data_that_keeps_coming_makes_the_weight_an_input(built, device):
    module = nn.Linear(WIDTH, WIDTH).eval().to(device)
    fast = compiled(module)
    x = torch.randn(3, WIDTH, device=device)
    for _ in range(8):
        module.weight.data.mul_(1.5)
        assert_same(call(fast, x), call(module, x))
    assert len(built) == 2 + dynamo.CHANGES_OF_A_WEIGHT
