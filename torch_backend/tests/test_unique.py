"""unique and unique_consecutive: values, order, inverse and counts are the CPU's, whoever finds them."""

import pytest
import torch
from torch import nan

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8,
          torch.bool]  # fmt: skip
SHAPES = [(0,), (2, 0), (), (1,), (2,), (9,), (64,), (65,), (3, 5), (2, 3, 4), (1000,)]
CALLS = [torch.unique, torch.unique_consecutive]


def assert_same(call, x, device):
    for inverse in (False, True):
        for counts in (False, True):
            expected = call(x, return_inverse=inverse, return_counts=counts)
            got = call(x.to(device), return_inverse=inverse, return_counts=counts)
            pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
            for ours, theirs in pairs:
                assert ours.device.type == device
                assert ours.dtype == theirs.dtype
                torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_are_those_of_the_cpu(call, dtype, device):
    for shape in SHAPES:
        assert_same(call, torch.randint(0, 7, shape).to(dtype), device)
    if dtype.is_floating_point:
        x = torch.tensor([nan, 1, -torch.inf, nan, 1, torch.inf, nan, -3]).to(dtype)
        assert_same(call, x, device)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_rows_are_those_of_the_cpu(call, dtype, device):
    for shape in ((1,), (12,), (8, 1), (8, 2), (2, 8), (30, 3), (3, 30, 2), (40, 5), (1, 4), (0, 3)):
        x = torch.randint(0, 2, shape).to(dtype)
        for dim in range(-1, len(shape)):
            if 0 in shape and shape[dim] != 0:
                for where in ("cpu", device):
                    with pytest.raises(RuntimeError, match="0 sized dimensions, and they aren't selected"):
                        call(x.to(where), dim=dim)
                continue
            assert_same(lambda x, dim=dim, **told: call(x, dim=dim, **told), x, device)


def test_what_has_no_unique_rows_is_refused_as_the_cpu_refuses_it(device):
    for x, dim in ((torch.ones(2, 2), 5), (torch.tensor(3.0), 0), (torch.empty(0, 0), 0)):
        for call in CALLS:
            with pytest.raises((IndexError, RuntimeError)) as theirs:
                call(x, dim=dim)
            with pytest.raises(type(theirs.value)) as ours:
                call(x.to(device), dim=dim)
            assert str(ours.value).split("\n")[0] == str(theirs.value).split("\n")[0]
