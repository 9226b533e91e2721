"""What PyTorch refuses, the device refuses, before and after a good call of the same shapes."""

import itertools
import re
import threading
import warnings
from pathlib import Path

import heddle.torch
import pytest
import torch

pytest.importorskip("expecttest", reason="torch.testing._internal needs it")

import opinfo_cases
from opinfo_cases import op_infos
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

aten = torch.ops.aten
BINARY = [
    "add", "sub", "mul", "div", "atan2", "maximum", "fmod", "copysign", "eq", "lt", "logical_and", "hypot",
]  # fmt: skip
WITH_IN_PLACE = [name for name in BINARY if hasattr(torch.Tensor, name + "_")]
_extents = itertools.count(1000)


def new_shape():
    """One that no test had before: a cold call."""
    return (next(_extents), 2)


def values(shape, device="cpu"):
    return (torch.arange(shape[0] * shape[1], dtype=torch.float32).reshape(shape) % 7 + 1).to(device)


def in_both_orders(good, bad, error=RuntimeError, match=None):
    """`good` checks its own values."""
    for first_good in (True, False):
        shape = new_shape()
        if first_good:
            good(shape)
        for _ in range(2):
            with pytest.raises(error, match=match):
                bad(shape)
            good(shape)


# ---- devices


@pytest.mark.parametrize("name", BINARY)
def test_tensors_of_two_devices_are_refused_cold_and_warm(name, device):
    op = getattr(torch, name)

    def good(shape):
        x, y = values(shape), values(shape).flip(0)
        torch.testing.assert_close(op(x.to(device), y.to(device)).cpu(), op(x, y))

    same_device = "Expected all tensors to be on the same device"
    in_both_orders(good, lambda shape: op(values(shape, device), values(shape)), match=same_device)
    in_both_orders(good, lambda shape: op(values(shape), values(shape, device)), match=same_device)


@pytest.mark.parametrize("name", WITH_IN_PLACE)
def test_an_in_place_call_of_two_devices_is_refused_cold_and_warm(name, device):
    def call(x, y):
        return getattr(x, name + "_")(y)

    def good(shape):
        x, y = values(shape), values(shape).flip(0)
        torch.testing.assert_close(call(x.to(device), y.to(device)).cpu(), call(x, y))

    in_both_orders(good, lambda shape: call(values(shape, device), values(shape)))
    in_both_orders(good, lambda shape: call(values(shape), values(shape, device)))
    in_both_orders(good, lambda shape: call(torch.tensor(2.0), values(shape, device)[0, 0]))


@pytest.mark.parametrize("name", BINARY)
def test_an_out_tensor_of_another_device_is_refused_cold_and_warm(name, device):
    op = getattr(torch, name)

    def call(x, y, where):
        return op(x, y, out=torch.empty(x.shape, dtype=op(x, y).dtype, device=where))

    def good(shape):
        x, y = values(shape), values(shape).flip(0)
        torch.testing.assert_close(call(x.to(device), y.to(device), device).cpu(), op(x, y))

    in_both_orders(good, lambda shape: call(values(shape, device), values(shape, device), "cpu"))
    in_both_orders(good, lambda shape: op(values(shape, device), values(shape), out=values(shape, device)))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: torch.mm(x, y.t()),
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.stack([x, y]),
        lambda x, y: torch.nn.functional.linear(x, y),
        lambda x, y: torch.gather(x, 0, y.long() % 2),
        lambda x, y: torch.where(x > 2, x, y),
        lambda x, y: torch.addcmul(x, x, y),
        lambda x, y: torch.nn.functional.embedding(y.long() % 2, x),
        lambda x, y: torch.nn.functional.layer_norm(x, (2,), y[0]),
        lambda x, y: x.index_add(0, torch.arange(x.shape[0], device=x.device), y),
        torch.equal,
    ],
    ids=[
        "mm",
        "cat",
        "stack",
        "linear",
        "gather",
        "where",
        "addcmul",
        "embedding",
        "layer_norm",
        "index_add",
        "equal",
    ],
)
def test_other_operators_refuse_two_devices_cold_and_warm(call, device):
    def good(shape):
        expected = call(values(shape), values(shape))
        got = call(values(shape, device), values(shape, device))
        assert expected == got if isinstance(expected, bool) else torch.allclose(got.cpu(), expected)

    in_both_orders(good, lambda shape: call(values(shape, device), values(shape)))


@pytest.mark.parametrize("name", [n for n in BINARY if n != "logical_and"])
def test_a_cpu_tensor_without_dimensions_is_a_number(name, device):
    op, x, number = getattr(torch, name), values((5, 2)), torch.tensor(3.0)
    torch.testing.assert_close(op(x.to(device), number).cpu(), op(x, number))
    torch.testing.assert_close(op(number, x.to(device)).cpu(), op(number, x))


def test_operators_without_tensor_iterator_refuse_a_cpu_tensor_without_dimensions(device):
    x = values((4, 4), device)
    for bad in (
        lambda: torch.addmm(torch.tensor(1.0), x, x),
        lambda: torch.gather(x[0, 0], 0, torch.tensor(0)),
        lambda: torch.stack([x[0, 0], torch.tensor(1.0)]),
        lambda: x.masked_fill(torch.tensor(True), 1.0),
        lambda: torch.logaddexp(x, torch.tensor(1.0)),
        lambda: torch.addcmul(x, torch.tensor(1.0), torch.tensor(2.0)),
    ):
        with pytest.raises(RuntimeError):
            bad()


# Tensors beside the first one that are no numbers, or that may lie anywhere: PyTorch's kernel moves them.
NO_NUMBERS = {
    "_unsafe_index_put", "index.Tensor", "index_fill.int_Scalar", "masked_fill.Scalar", "select_scatter",
    "slice_scatter",
}  # fmt: skip
BY_THEIR_OWN_CODE = {"_index_put_impl", "fill.Tensor"}  # _index_put_impl_ and fill_.Tensor have NoCheck


def test_the_operators_that_take_numbers_are_those_without_pytorchs_device_check():
    import torchgen
    import yaml

    yaml_file = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    functions = {f["func"].split("(")[0]: f for f in yaml.safe_load(yaml_file.read_text())}
    expected = set(BY_THEIR_OWN_CODE)
    for name in (full.removeprefix("aten::") for full in heddle.torch._C.operators()):
        function = functions.get(name, {"func": "()"})
        delegate = functions.get(function.get("structured_delegate", ""), {})
        tensors = len(re.findall(r"\bTensor\b", function["func"].rpartition("->")[0]))
        if tensors >= 2 and "NoCheck" in (function.get("device_check"), delegate.get("device_check")):
            expected.add(name)
    on_cpu = {
        full.removeprefix("aten::") for full in heddle.torch._C.operators_on_cpu()
    }  # have PyTorch's code
    expected = {n for n in expected if n in BY_THEIR_OWN_CODE or _is_entry(n)} - NO_NUMBERS - on_cpu
    source = (Path(__file__).parents[1] / "csrc" / "checks.cpp").read_text()
    listed = re.findall(
        r'\{"aten::([^"]+)"', source.partition("kTakesCpuScalars[] = {")[2].partition("};")[0]
    )
    assert set(listed) == expected


def _is_entry(name):
    base, _, overload = name.partition(".")
    return not getattr(getattr(aten, base), overload or "default")._schema.is_mutable


# ---- memory that is written to twice


def _samples(info):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in itertools.islice(info.sample_inputs("cpu", torch.float32, requires_grad=False), 6):
            x = sample.input
            if isinstance(x, torch.Tensor) and x.ndim and x.shape[0] > 1 and x.is_contiguous():
                yield x, sample.args, sample.kwargs


def _answer(call, tree):
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(*tree)
        except Exception as error:
            return error


FLOAT32 = sorted({c.name for c in opinfo_cases.read_scope() if c.dtype == torch.float32})
IN_PLACE = [name for name in FLOAT32 if op_infos()[name].get_inplace() is not None]
# Not all: some kernels of PyTorch's CPU write to such memory unchecked.
OUT = [
    name
    for name in FLOAT32
    if isinstance(op_infos()[name], UnaryUfuncInfo | BinaryUfuncInfo) and op_infos()[name].supports_out
] + ["addcdiv", "addcmul", "gather", "index_select", "lerp", "masked_select", "take"]
# PyTorch's CPU writes to one element twice, with a warning or without; what it leaves depends on the order.
UNCHECKED = {"addmv", "baddbmm", "index_fill", "index_put", "masked_fill", "tril", "triu"}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_on_elements_that_share_memory_is_refused_where_the_cpu_refuses(name, device):
    info, tried, not_here = op_infos()[name], 0, 0
    op = info.get_inplace()
    for x, args, kwargs in _samples(info):
        good = _answer(lambda *t: op(t[0], *t[1], **t[2]), opinfo_cases.to_device((x, args, kwargs), device))
        bad, expanded = x[:1].clone().expand(x.shape), x[:1].clone().expand(x.shape)
        expected = _answer(lambda *t: op(t[0], *t[1], **t[2]), (bad, args, kwargs))
        if isinstance(expected, NotImplementedError) or isinstance(good, NotImplementedError):
            not_here += any(words in str(good) for words in opinfo_cases.NOT_HERE)
            continue
        for _ in range(2):
            moved = opinfo_cases.to_device((expanded, args, kwargs), device)
            got = _answer(lambda *t: op(t[0], *t[1], **t[2]), moved)
            if name in UNCHECKED or isinstance(expected, Exception):
                assert isinstance(got, RuntimeError | IndexError), f"{got} instead of {expected!r}"
            else:
                assert not isinstance(got, Exception), got
            tried += 1
    assert tried or not_here or not list(_samples(info))


def _memory_shared_by(x, result, device):
    """label, input and out: elements that are one, a part of the input, the input itself."""
    yield "one element", x.to(device), torch.zeros(1, dtype=result.dtype, device=device).expand(result.shape)
    if (result.shape, result.dtype) == (x.shape, x.dtype):
        memory = torch.cat([x.flatten(), x.flatten()[:1]]).to(device)
        yield "a part", memory[:-1].view(x.shape), memory[1:].view(x.shape)
        whole = x.clone().to(device)
        yield "all", whole, whole


def _with_out(info, rest, x, out):
    args, kwargs = rest
    return _answer(lambda: info.op(x, *args, **kwargs, out=out), ())


@pytest.mark.parametrize("name", OUT)
def test_out_that_shares_memory_is_refused_where_the_cpu_refuses(name, device):
    info = op_infos()[name]
    for x, *rest in itertools.islice(_samples(info), 2):
        result = _answer(info.op, (x, *rest[0])) if not rest[1] else None
        if not isinstance(result, torch.Tensor) or result.numel() < 2 or result.is_complex():
            continue
        moved = opinfo_cases.to_device(rest, device)
        if isinstance(_with_out(info, moved, x.to(device), result.to(device)), NotImplementedError):
            continue
        on_cpu, on_device = (_memory_shared_by(x, result, where) for where in ("cpu", device))
        for (label, given, out), (_, mine, target) in zip(on_cpu, on_device, strict=True):
            expected, got = _with_out(info, rest, given, out), _with_out(info, moved, mine, target)
            if isinstance(expected, Exception) and not isinstance(expected, NotImplementedError):
                assert isinstance(got, RuntimeError), f"{label}: {got} instead of {expected!r}"
            elif label == "all" and not isinstance(got, RuntimeError):
                torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_writing_to_elements_that_share_memory_is_refused_cold_and_warm(device):
    def good(shape):
        assert bool((torch.zeros(shape, device=device).add_(1) == 1).all())

    def one_row(shape):
        return torch.zeros(shape[1], device=device).expand(shape)

    def halves(shape):
        memory = torch.ones(shape[0] + 1, shape[1], device=device)
        return memory[:-1], memory[1:]

    def multiply(a, b):
        return a.mul_(b)

    def exponential(a, b):
        return torch.exp(a, out=b)

    twice = "more than one element of the written-to tensor"
    in_both_orders(good, lambda shape: one_row(shape).add_(1), match=twice)
    in_both_orders(good, lambda shape: torch.add(values(shape, device), 1, out=one_row(shape)), match=twice)
    in_both_orders(good, lambda shape: one_row(shape).copy_(values(shape)), match=twice)
    in_both_orders(good, lambda shape: one_row(shape).uniform_(), match=twice)
    part = "some elements of the input tensor and the written-to tensor"
    in_both_orders(good, lambda shape: multiply(*halves(shape)), match=part)
    in_both_orders(good, lambda shape: exponential(*halves(shape)), match=part)
    assert bool((one_row((4, 3)).fill_(2) == 2).all())  # the same value, however often


# ---- what decides a result and is no argument


DEFAULT_DTYPE = {
    "sqrt": lambda where: torch.sqrt(torch.arange(3, device=where)),
    "mul": lambda where: torch.arange(3, device=where) * 2.1,
    "add.Scalar": lambda where: aten.add.Scalar(torch.arange(3, device=where), 0.1),
    "div": lambda where: torch.arange(3, device=where) / 3,
    "full": lambda where: torch.full((3,), 0.1, device=where),
    "arange": lambda where: torch.arange(0, 1, 0.3, device=where),
    "zeros": lambda where: torch.zeros(3, device=where),
    "sum": lambda where: torch.softmax(torch.arange(3.0, device=where), 0),
    "lt": lambda where: (torch.arange(9, device=where) - 4) * 1e-9 < 1e-9,
}


@pytest.mark.parametrize("name", list(DEFAULT_DTYPE))
def test_the_default_dtype_counts_at_every_call(name, device):
    call = DEFAULT_DTYPE[name]
    try:
        for dtype in (torch.float32, torch.float64, torch.float32, torch.float16, torch.float64):
            torch.set_default_dtype(dtype)
            torch.testing.assert_close(
                call(device).cpu(), call("cpu"), rtol=1e-3 if dtype == torch.float16 else 1e-6, atol=0
            )
    finally:
        torch.set_default_dtype(torch.float32)


def test_minus_zero_is_another_number_than_zero(device):
    x = torch.ones(3, device=device)
    for number in (0.0, -0.0, 0.0):
        expected = torch.full((3,), 1.0 if str(number) == "0.0" else -1.0)
        assert torch.equal(torch.copysign(x, number).cpu(), expected)


def test_whole_numbers_that_no_double_holds_are_exact(device):
    n = 2**53
    for start in (n, n + 1):
        got = torch.arange(start, start + 3, device=device)
        assert got.cpu().tolist() == [start, start + 1, start + 2]


@pytest.mark.parametrize("name", ["empty_like", "zeros_like", "ones_like", "full_like", "rand_like"])
def test_a_tensor_like_another_is_made_on_the_device_that_is_named(name, device):
    more = (2.0,) if name == "full_like" else ()
    x = torch.ones(3, device=device)
    for _ in range(2):
        assert getattr(torch, name)(x, *more, device="cpu").device.type == "cpu"
        assert getattr(torch, name)(x, *more).device.type == x.device.type
        assert getattr(torch, name)(x, *more, device=device).device == x.device
    with pytest.raises(NotImplementedError):
        getattr(torch, name)(x, *more, layout=torch.sparse_coo)
    assert x.new_ones((2,), device="cpu").device.type == "cpu"


def test_negated_views_are_resolved(device):
    x = values((3, 2), device)
    assert torch.equal(torch._neg_view(x).cpu(), -values((3, 2)))
    assert torch.equal((torch._neg_view(x) + 1).cpu(), 1 - values((3, 2)))
    torch._neg_view(x).copy_(values((3, 2)))
    assert torch.equal(x.cpu(), -values((3, 2)))


# ---- values that an operator refuses


@pytest.mark.parametrize(
    ("call", "good", "bad", "error"),
    [
        (torch.nn.functional.softshrink, 0.5, -1.0, RuntimeError),
        (torch.nn.functional.softshrink, 0.5, float("nan"), RuntimeError),
        (torch.celu, 2.0, 0.0, RuntimeError),
        (lambda x, n: x.long() ** n, 2, -2, RuntimeError),
        (lambda x, n: torch.add(x.long(), x.long(), alpha=n), 2, 2.5, RuntimeError),
        (lambda x, n: torch.rsub(x > 0 if isinstance(n, bool) else x.long(), int(n)), 2, True, RuntimeError),
        (lambda x, n: x.masked_fill((x > 0).to(n), 1.0), torch.bool, torch.uint8, RuntimeError),
        (lambda x, n: torch.hypot(x, x.to(n)), torch.float32, torch.complex64, NotImplementedError),
        (lambda x, n: x.clone().uniform_(0, n), 1.0, -1.0, RuntimeError),
    ],
    ids=[
        "softshrink",
        "softshrink_nan",
        "celu",
        "pow",
        "alpha",
        "rsub",
        "mask",
        "complex",
        "uniform",
    ],
)
def test_a_value_that_is_refused_is_refused_cold_and_warm(call, good, bad, error, device):
    def check(shape):
        assert call(values(shape, device), good).shape == shape

    in_both_orders(check, lambda shape: call(values(shape, device), bad), error)


# ---- nothing is kept


def test_a_refused_call_leaves_no_model(device):
    x, y = values(new_shape(), device), values(new_shape(), device)
    before = heddle.torch._C.cache_stats()["count"]
    for _ in range(3):
        with pytest.raises(RuntimeError):
            torch.mul(x, y)
        with pytest.raises(RuntimeError):
            torch.mul(x, x.cpu())
    assert heddle.torch._C.cache_stats()["count"] == before


def test_a_graph_of_free_extents_leaves_refusals_to_pytorch(device):
    for extent in range(50, 54):  # of the first call, which is refused, two extents are others from here on
        x, y = (torch.ones(rows, 5, 7, extent, device=device) for rows in (3, 4))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="must match the size"):
                torch.sub(x, y)
            assert torch.equal(torch.sub(x, x).cpu(), torch.zeros(3, 5, 7, extent))


def test_every_thread_that_meets_a_refusal_gets_pytorchs_error(device):
    threads, rounds = 8, 20
    start = threading.Barrier(threads)
    errors, good = [], []

    def body(number):
        for i in range(rounds):
            x, y = torch.ones(3, 5000 + i, device=device), torch.ones(4, 5000 + i, device=device)
            start.wait()
            try:
                torch.add(x, y)
            except RuntimeError as error:
                errors.append(str(error))
            good.append(float(torch.add(x, x + number).sum()) == 3 * (5000 + i) * (2 + number))

    workers = [threading.Thread(target=body, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(errors) == threads * rounds
    assert all("must match the size" in error for error in errors)
    assert good == [True] * (threads * rounds)
