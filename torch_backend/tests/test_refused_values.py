"""Numbers, indices and targets that PyTorch's CPU refuses by their values: the device refuses the same."""

import re
import warnings

import pytest
import torch

from heddle import errors


def answer(call, *given):
    """The result or the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(*given)
        except Exception as error:
            return error


WHOLE = [torch.int8, torch.uint8, torch.int16, torch.int32]
FITS = {  # a number that PyTorch's CPU converts to the result's dtype
    "fill_": lambda x, n: x.clone().fill_(n),
    "setitem": lambda x, n: x.clone().__setitem__(0, n),
    "full": lambda x, n: torch.full((3,), n, dtype=x.dtype, device=x.device),
    "full_out": lambda x, n: torch.full((3,), n, out=x.clone()),
    "full_like": lambda x, n: torch.full_like(x, n),
    "new_full": lambda x, n: x.new_full((3,), n),
    "scalar_tensor": lambda x, n: torch.scalar_tensor(n, dtype=x.dtype, device=x.device),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "masked_fill_by_tensor": lambda x, n: x.masked_fill(x > 0, torch.tensor(n)),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([1], device=x.device), n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "pad": lambda x, n: torch.nn.functional.pad(x, (1, 1), value=n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([1], device=x.device), n),
    "scatter_reduce": lambda x, n: x.scatter(0, torch.tensor([1], device=x.device), n, reduce="add"),
    "clamp": lambda x, n: x.clamp(0, n),
    "clamp_from": lambda x, n: x.clamp(n, 3),
    "clamp_": lambda x, n: x.clone().clamp_(max=n),
    "clamp_min": lambda x, n: x.clamp_min(n),
    "clamp_max": lambda x, n: x.clamp_max(n),
    "hardtanh": lambda x, n: torch.nn.functional.hardtanh(x, 0, n),
    "threshold": lambda x, n: torch.nn.functional.threshold(x, n, 1),
    "threshold_value": lambda x, n: torch.nn.functional.threshold(x, 1, n),
    "pow": lambda x, n: x**n,
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "alpha_of_sub": lambda x, n: torch.sub(x, x, alpha=n),
    "alpha_of_index_add": lambda x, n: x.index_add(
        0, torch.tensor([0], device=x.device), x[:1].clone(), alpha=n
    ),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "addmm": lambda x, n: torch.addmm(x[:1], x[None], x[:, None], beta=n),
    "addmv": lambda x, n: torch.addmv(x[:1], x[None], x, alpha=n),
    "baddbmm": lambda x, n: torch.baddbmm(x[:1], x[None, None], x[None, :, None], alpha=n),
    "addr": lambda x, n: torch.addr(x, x, x, alpha=n),
    "linspace": lambda x, n: torch.linspace(0, n, 3, dtype=x.dtype, device=x.device),
    "add": lambda x, n: x + n,  # wraps
    "eq": lambda x, n: x == n,
}


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("name", list(FITS))
def test_a_whole_number_that_does_not_fit_is_refused_where_the_cpu_refuses(name, dtype, device):
    x, bounds = torch.tensor([3, 1, 2], dtype=dtype), torch.iinfo(dtype)
    numbers = [2, bounds.max, bounds.max + 1, 3, bounds.min, bounds.min - 1, 3 * bounds.max, 5, 2**40]
    refused = 0
    for number in numbers:
        expected = answer(FITS[name], x, number)
        got = answer(FITS[name], x.to(device), number)
        if isinstance(expected, Exception):
            refused += 1
            assert type(got) is type(expected), f"{number}: {got} instead of {expected!r}"
            assert str(got).split("\n")[0] == str(expected).split("\n")[0]
        elif expected is not None and name != "linspace":  # beyond its dtype a sequence has no value
            assert torch.equal(got.cpu(), expected), number
    assert refused or name in ("add", "eq")


@pytest.mark.parametrize("dtype", [*WHOLE, torch.int64], ids=str)
def test_limits_beyond_all_whole_numbers_are_refused_as_the_cpu_refuses_them(dtype, device):
    x = torch.tensor([3, 1, 2], dtype=dtype)
    for limits in ((0, 1e300), (1e300, 2e300)):
        expected, got = (answer(torch.nn.functional.hardtanh, each, *limits) for each in (x, x.to(device)))
        assert isinstance(expected, RuntimeError)
        assert str(got).split("\n")[0] == str(expected).split("\n")[0]


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("name", ["clamp", "clamp_from", "clamp_min", "clamp_max", "hardtanh"])
def test_a_graph_refuses_a_bound_that_does_not_fit_in_the_words_of_the_cpu(name, dtype, device):
    x, held = torch.tensor([3, 1, 2], dtype=dtype), torch.iinfo(dtype)
    refused = 0
    for number in (2, held.max, held.max + 1, held.min, held.min - 1, 2**40, -(2**40)):
        expected = answer(FITS[name], x, number)
        compiled = torch.compile(lambda x, number=number: FITS[name](x, number), backend="heddle")
        with torch.no_grad():
            got = answer(compiled, x.to(device))
        if isinstance(expected, Exception):
            refused += 1
            assert isinstance(got, Exception), f"{number}: {got} instead of {expected!r}"
            assert str(expected).split("\n")[0] in str(got)
        else:
            assert torch.equal(got.cpu(), expected), number
    assert refused


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_graph_has_a_model_for_each_bound_of_whole_numbers_and_refuses_what_does_not_fit(device):
    x = torch.tensor([-100, 3, 100], dtype=torch.int8)
    fast = torch.compile(lambda x, most: x.clamp(max=most), backend="heddle", dynamic=True)
    with torch.no_grad():
        for most in (5, 7, -3, 127, 5):
            assert torch.equal(fast(x.to(device), most).cpu(), x.clamp(max=most))
        expected = answer(torch.clamp_max, x, -200)
        with pytest.raises(errors.InvalidError, match=re.escape(str(expected).split("\n")[0])):
            fast(x.to(device), -200)
        assert torch.equal(fast(x.to(device), 9).cpu(), x.clamp(max=9))


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_bound_of_whole_numbers_that_follows_from_an_extent_is_computed(device):
    index = torch.arange(-9, 12, dtype=torch.int32)
    inside = torch.compile(
        lambda x, index: index.clamp(min=-x.shape[0], max=x.shape[0] - 1), backend="heddle", dynamic=True
    )
    with torch.no_grad():
        for rows in (5, 7, 3):
            got = inside(torch.ones(rows, 3, device=device), index.to(device))
            assert torch.equal(got.cpu(), index.clamp(-rows, rows - 1))


HALVES = [torch.float16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "name", ["fill_", "full", "masked_fill", "clamp", "threshold_value", "alpha", "addmm"]
)
def test_a_float_that_does_not_fit_is_refused_where_the_cpu_refuses(name, dtype, device):
    x = torch.tensor([3, 1, 2], dtype=dtype)
    for number in (2.5, 1e5, 1e39, -1e300, 3.5, float("inf")):
        expected, got = answer(FITS[name], x, number), answer(FITS[name], x.to(device), number)
        if isinstance(expected, Exception):
            assert type(got) is type(expected), f"{number}: {got} instead of {expected!r}"
        else:
            torch.testing.assert_close(got.cpu(), expected, equal_nan=True)


INDEXED = {
    "scatter": lambda x, i: x.scatter(0, i, x),
    "scatter.value": lambda x, i: x.scatter(0, i, 5.0),
    "scatter_.value": lambda x, i: x.clone().scatter_(0, i, 5.0),
    "scatter.reduce": lambda x, i: x.scatter(0, i, x, reduce="add"),
    "scatter.value_reduce": lambda x, i: x.scatter(0, i, 5.0, reduce="multiply"),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, x, "amax"),
    "gather": lambda x, i: x.gather(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[: len(i)]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[: len(i)]),
    "index_fill": lambda x, i: x.index_fill(0, i, 5.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[: len(i)], "amax"),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_select_i32": lambda x, i: x.index_select(0, i.int()),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x[: len(i)]),
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put((i,), x[: len(i)]),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x[:, None]),
    "one_hot": lambda x, i: torch.nn.functional.one_hot(i, 3),
}


@pytest.mark.parametrize("name", list(INDEXED))
def test_an_index_outside_is_refused_where_the_cpu_refuses(name, device):
    x = torch.tensor([1.0, 2.0, 3.0])
    for numbers in ([0, 2], [0, -1], [1, 0], [-3, 1], [-4, 0], [3, 0], [2, 1], [0, 2**40], [0, -(2**40)]):
        if name.endswith("i32") and max(map(abs, numbers)) >= 2**31:
            continue
        index = torch.tensor(numbers)
        expected = answer(INDEXED[name], x, index)
        got = answer(lambda i=index: INDEXED[name](x.to(device), i.to(device)).cpu())
        if isinstance(expected, Exception) and torch.heddle.device_names()[0] == "host":
            assert type(got) is type(expected), f"{numbers}: {got} instead of {expected!r}"
            if " is outside [" in str(got):
                wrong = min(numbers) if min(numbers) < 0 else max(numbers)
                assert f"index {wrong} is outside [" in str(got)
        elif isinstance(expected, Exception):  # known when the results are, of a run that names no index
            assert isinstance(got, RuntimeError | IndexError), f"{numbers}: {got} instead of {expected!r}"
        else:
            assert torch.equal(got, expected), numbers


def test_out_of_a_sequence_is_written_as_on_the_cpu(device):
    calls = {
        "end": lambda out: torch.arange(5, out=out),
        "start": lambda out: torch.arange(2, 7, out=out),
        "step": lambda out: torch.arange(9, 0, -2, out=out),
        "linspace": lambda out: torch.linspace(-1, 3, 5, out=out),
        "eye": lambda out: torch.eye(5, 1, out=out),
    }
    for name, call in calls.items():
        whole = (
            () if name == "linspace" else (torch.int64, torch.uint8)
        )  # cut off from f64, which Metal lacks
        for dtype in (torch.float32, torch.float16, *whole):
            for shape in ((0,), (5,), (2,)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expected = call(torch.empty(shape, dtype=dtype))
                    out = torch.empty(shape, dtype=dtype, device=device)
                    got = call(out)
                assert got is out, name
                torch.testing.assert_close(got.cpu(), expected, msg=lambda m, n=name: f"{n}: {m}")
    strided = torch.zeros(10, device=device)
    torch.arange(5, out=strided[::2])
    assert strided.cpu().tolist() == [0, 0, 1, 0, 2, 0, 3, 0, 4, 0]


def test_a_target_that_reaches_into_an_input_when_it_is_resized_is_refused(device):
    memory = torch.tensor([0, 1, 0], device=device)
    x = torch.arange(3, device=device)
    for _ in range(2):
        error = answer(lambda: torch.gather(x, 0, memory[1:], out=memory[:1]))
        assert isinstance(error, RuntimeError)
        assert "single memory location" in str(error)
