"""heddle.torch.compile: values against eager PyTorch on the CPU, arguments, results, refusals, callers."""

import heddle.torch
import pytest
import torch
from compile_nets import NETS, Bert, mlp
from held import run_held
from threads import count_right
from torch import nn

from heddle import errors

CALLS = ((3, 12), (1, 12), (8, 12), (2, 20))  # rows, length


def compiled(name: str):
    net = NETS[name]
    module = net.module()
    return net, module, heddle.torch.compile(module, net.call(3), net.shapes)


def assert_same(got, wanted, tolerance=1e-4):
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)  # structure, dtype and values


@pytest.mark.parametrize("name", NETS)
def test_gives_what_the_module_gives_for_any_number_of_rows(name):
    net, module, model = compiled(name)
    for rows, length in CALLS:
        arguments = net.call(rows, length)
        with torch.no_grad():
            assert_same(model(*arguments), module(*arguments))
    assert model.batchable == net.joins, model.explain_coalescing()


class Broadcasting(nn.Module):
    """Its code would take one row of `y` for all of `x`; nothing in it says that they are as many."""

    def forward(self, x, y):
        return x * y.expand_as(x)


def test_inputs_with_as_many_rows_share_them():
    example = torch.randn(3, 4), torch.randn(3, 4)
    model = heddle.torch.compile(Broadcasting().eval(), example)
    x, y = torch.randn(2, 5, 4)
    assert_same(model(x, y), x * y)
    assert model.batchable, model.explain_coalescing()
    with pytest.raises(errors.InvalidError):
        model(x, y[:1])


def test_zero_rows_give_empty_results():
    _, _, model = compiled("mlp")
    assert model(torch.zeros(0, 32)).shape == (0, 8)


@pytest.mark.parametrize("name", ["mlp", "decode"])
def test_device_tensors_in_and_out(name, device):
    net, module, model = compiled(name)
    arguments = net.call(5)
    there = torch.utils._pytree.tree_map(lambda each: each.to(device), arguments)
    results = model(*there)
    assert {each.device.type for each in torch.utils._pytree.tree_leaves(results)} == {device}
    with torch.no_grad():
        assert_same(torch.utils._pytree.tree_map(lambda each: each.cpu(), results), module(*arguments))


def test_a_module_on_the_device_can_be_compiled(device):
    net = NETS["encoder"]
    module = net.module()
    model = heddle.torch.compile(
        net.module().to(device), tuple(each.to(device) for each in net.call(3)), net.shapes
    )
    with torch.no_grad():
        assert_same(model(*net.call(4)), module(*net.call(4)))


# ---- arguments and results


def test_arguments_by_name_and_left_out():
    net, module, model = compiled("bert")
    ids, mask = net.call(4)
    with torch.no_grad():
        wanted = module(ids, mask)
    assert_same(model(ids, mask), wanted)
    assert_same(model(attention_mask=mask, input_ids=ids), wanted)
    assert_same(model(ids, attention_mask=mask, token_type_ids=None), wanted)
    with pytest.raises(TypeError, match="another structure"):
        model(ids, mask, torch.zeros_like(ids))
    with pytest.raises(TypeError, match="attention_mask"):
        model(ids)


def test_examples_by_name():
    module = Bert().eval()
    ids, mask = NETS["bert"].call(3)
    model = heddle.torch.compile(module, {"attention_mask": mask, "input_ids": ids})
    with torch.no_grad():
        assert_same(model(ids, mask), module(ids, mask))


class Various(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x, y, scale=2.0, names=("a",)):
        rows = x.shape[0]
        return {
            "given": x,
            "view": x[:, :2],
            "twice": (y * scale, y * scale),
            "rows": rows,
            "cells": rows * x.shape[1],
            "nothing": None,
            "word": names[0],
            "table": self.table,
            "half": (x.half() + 1, x > 0, (y // 2).to(torch.int32)),
            "shapes": [x.new_zeros(rows, 2), torch.full((rows,), 7)],
        }


def test_results_that_are_arguments_views_numbers_or_nothing():
    module = Various().eval()
    model = heddle.torch.compile(module, (torch.randn(3, 4), torch.arange(3)))
    for rows in (3, 5, 1):
        x, y = torch.randn(rows, 4), torch.arange(rows)
        got, wanted = model(x, y), module(x, y)
        assert got.pop("word") == wanted.pop("word")
        assert got.pop("nothing") is wanted.pop("nothing") is None
        assert got["given"] is x
        assert got["rows"] == rows
        assert_same(got, wanted)
    with pytest.raises(TypeError, match="another structure"):
        model(x, y, 3.0)


def test_a_number_is_part_of_the_model():
    model = heddle.torch.compile(Various().eval(), (torch.randn(3, 4), torch.arange(3), 3.0))
    x, y = torch.randn(2, 4), torch.arange(2)
    assert_same(model(x, y, 3.0)["twice"][0], y * 3.0)
    with pytest.raises(TypeError, match=r"compiled with 3\.0 .* call has 4\.0"):
        model(x, y, 4.0)


class FixedRows(nn.Module):
    def forward(self, x):
        return x + torch.arange(3.0)[:, None]


class AtLeastFour(nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] >= 4 else x


def test_extents_that_the_code_depends_on():
    fixed = heddle.torch.compile(FixedRows().eval(), torch.zeros(3, 4))
    assert_same(fixed(torch.ones(3, 4)), torch.ones(3, 4) + torch.arange(3.0)[:, None])
    with pytest.raises(errors.InvalidError, match="3"):
        fixed(torch.ones(5, 4))
    ranged = heddle.torch.compile(AtLeastFour().eval(), torch.ones(6, 4))
    assert_same(ranged(torch.ones(4, 4)), torch.full((4, 4), 2.0))
    with pytest.raises(errors.InvalidError, match="dimension 0 of input 0 is 2"):
        ranged(torch.ones(2, 4))


def test_the_models_own_options():
    model = heddle.torch.compile(mlp().eval(), torch.zeros(3, 32), coalesce=False)
    assert model.coalescing_stats() is None
    assert model.graph().count("Linear(") == 3
    assert model.weight_bytes > 0
    model.compile(torch.zeros(7, 32))
    with model:
        model(torch.zeros(7, 32))
    with pytest.raises(errors.UnavailableError):
        model(torch.zeros(7, 32))


def test_weights_are_copies():
    module = nn.Linear(4, 4).eval()
    model = heddle.torch.compile(module, torch.zeros(2, 4))
    x = torch.randn(2, 4)
    before = model(x)
    with torch.no_grad():
        module.weight.zero_()
    assert torch.equal(model(x), before)


# ---- refusals


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return x + self.seen


class Overwriting(nn.Module):
    def forward(self, x):
        return x.add_(1)


class Unknown(nn.Module):
    def forward(self, x):
        y = torch.special.airy_ai(x)
        return torch.special.bessel_j0(x) + y


@pytest.mark.parametrize(
    ("module", "error", "named"),
    [
        (nn.Dropout(0.5), errors.InvalidError, r"training mode .*eval\(\)"),
        (Counting().eval(), NotImplementedError, "buffer 'seen'"),
        (Overwriting().eval(), NotImplementedError, "input 'x'"),
    ],
)
def test_refuses_what_it_cannot_keep(module, error, named):
    with pytest.raises(error, match=named):
        heddle.torch.compile(module, torch.zeros(3, 3))


def test_names_every_unknown_operator_and_its_line():
    with pytest.raises(NotImplementedError) as refusal:
        heddle.torch.compile(Unknown().eval(), torch.eye(3))
    told = str(refusal.value)
    assert "2 operator(s)" in told
    assert "aten::special_airy_ai" in told
    assert "aten::special_bessel_j0" in told
    assert told.count("test_compile.py") == 2
    assert "y = torch.special.airy_ai(x)" in told


def test_refuses_to_lose_gradients():
    model = heddle.torch.compile(nn.Linear(4, 4).eval(), torch.zeros(2, 4))
    x = torch.zeros(2, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires a gradient"):
        model(x)
    with torch.no_grad():
        assert not model(x).requires_grad


# ---- callers


def test_callers_of_single_rows_share_batches():
    torch.manual_seed(1)
    module = mlp(1024).eval()
    model = heddle.torch.compile(module, torch.zeros(3, 32), max_batch=16)

    def count(threads):
        rows = torch.randn(threads, 40, 1, 32)

        def expected(thread, i):
            with torch.no_grad():
                return module(rows[thread, i])

        return threads, count_right(threads, 40, lambda thread, i: model(rows[thread, i]), expected)

    threads, done = run_held(8, count, lambda: model.coalescing_stats()["waiting"])
    stats = model.coalescing_stats()
    assert done == threads * 40 == stats["calls"]
    assert sum(size * times for size, times in stats["rows"].items()) == done
    assert stats["batches"] < done


def test_callers_of_unequal_lengths_get_their_own_rows():
    net, module, model = compiled("bert")
    calls = [net.call(1, 5 + i % 7) for i in range(56)]

    def expected(thread, i):
        with torch.no_grad():
            return module(*calls[7 * thread + i])

    assert count_right(8, 7, lambda thread, i: model(*calls[7 * thread + i]), expected) == 56
