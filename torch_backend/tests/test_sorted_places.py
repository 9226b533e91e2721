"""searchsorted, bucketize and repeat_interleave with a tensor: their places, and the memory they take."""

import os

import pytest
import torch
from torch import nan

# By the host, where the values lie.
ADDRESSED = os.environ.get("HEDDLE_DEVICE", "host").startswith(("host", "metal"))

REALS = [torch.float32, torch.float16, torch.bfloat16]
DTYPES = [*REALS, torch.int64, torch.int32, torch.int8, torch.uint8]


def sequences(dtype):
    """Sorted ones of every short length with equals, and NaNs at the end of reals; alone and as rows."""
    for length in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 100):
        for rows in ((), (3,), (2, 2)):
            made = torch.randint(0, length // 2 + 1, (*rows, length)).to(dtype).sort(-1).values
            yield made
            if dtype in REALS and length > 2:
                made = made.clone()
                made[..., -(length // 3) :] = nan
                yield made


def sought_in(sequence, count):
    """Below, among and above; of reals NaN and the infinities as well."""
    length = sequence.shape[-1]
    rows = sequence.shape[:-1]
    values = torch.randint(0, length + 2, (*rows, count)).to(sequence.dtype)
    if sequence.dtype in REALS:
        values = values - 0.5 * (torch.arange(count) % 2).to(sequence.dtype)
        for place, special in enumerate((nan, torch.inf, -torch.inf)):
            values[..., place : place + 1] = special
    return values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_places_are_those_of_the_cpu_with_equals_and_nans(dtype, device):
    compared = 0
    for sequence in sequences(dtype):
        on_device = sequence.to(device)
        for count in (0, 1, 20):
            values = sought_in(sequence, count)
            for right, out_int32 in ((False, False), (True, False), (True, True)):
                options = {"right": right, "out_int32": out_int32}
                expected = torch.searchsorted(sequence, values, **options)
                got = torch.searchsorted(on_device, values.to(device), **options)
                assert got.dtype == expected.dtype
                assert torch.equal(got.cpu(), expected), (sequence, values, options)
                if sequence.dim() == 1:
                    got = torch.bucketize(values.to(device), on_device, **options)
                    assert torch.equal(got.cpu(), expected), (sequence, values, options)
                compared += 1
    assert compared > 300


@pytest.mark.skipif(not ADDRESSED, reason="a GPU is not waited for where the caller gives the size")
@pytest.mark.parametrize(("repeats", "size"), [([1, 2], 2), ([1, 2], 4), ([3, -1, 2], 4), ([3, -1], None)])
def test_repeats_that_do_not_make_the_size_are_refused(repeats, size, device):
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match=r"does not match required size|can not be negative"):
            torch.repeat_interleave(torch.tensor(repeats, device=place), output_size=size)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("rows", [(), (3,), (2, 2)], ids=str)
def test_an_order_beside_the_sequence_is_followed(rows, side, device):
    for length in (1, 2, 7, 64, 65):
        sequence = torch.randint(0, length, (*rows, length)).float()
        values = torch.randint(-1, length + 1, (*rows, 30)).float()
        order = sequence.argsort(-1)
        expected = torch.searchsorted(sequence, values, sorter=order, side=side)
        got = torch.searchsorted(sequence.to(device), values.to(device), sorter=order.to(device), side=side)
        assert torch.equal(got.cpu(), expected), (sequence, values)


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("right", [False, True])
def test_a_graph_finds_the_places_in_a_sequence_of_any_length(right, device):
    def found(sequence, values):
        return torch.searchsorted(sequence, values, right=right)

    fast = torch.compile(found, backend="heddle", dynamic=True)
    with torch.no_grad():
        for length, count in ((0, 4), (1, 4), (5, 4), (6, 9), (200, 3), (3, 70)):
            for rows in ((), (2,)):
                sequence = torch.randint(0, length + 1, (*rows, length)).float().sort(-1).values
                sequence[..., length - length // 3 :] = nan
                values = torch.randint(0, length + 2, (*rows, count)).float()
                got = fast(sequence.to(device), values.to(device))
                assert torch.equal(got.cpu(), found(sequence, values)), (sequence, values)


def test_a_new_number_of_values_is_no_new_graph(device):
    sequence = torch.arange(9, dtype=torch.int16, device=device)  # a dtype of no other test
    values = torch.arange(20, dtype=torch.int16, device=device)
    for count in (3, 4, 5):
        torch.searchsorted(sequence, values[:count])
    before = torch.heddle._C.cache_stats()["graphs"]
    for count in range(6, 20):
        torch.searchsorted(sequence, values[:count])
    assert torch.heddle._C.cache_stats()["graphs"] == before


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_repeats_are_those_of_the_cpu(dtype, device):
    for repeats in ([3], [0], [0, 0], [1, 2], [0, 2, 0, 0, 1, 0], [2, 0], [5, 1, 0, 7], [1] * 40, [0, 90]):
        given = torch.tensor(repeats, dtype=dtype)
        x = torch.arange(2.0 * len(repeats)).view(len(repeats), 2)
        for size in (None, sum(repeats)):
            expected = torch.repeat_interleave(given, output_size=size)
            got = torch.repeat_interleave(given.to(device), output_size=size)
            assert got.dtype == dtype
            assert torch.equal(got.cpu(), expected), repeats
            expected = torch.repeat_interleave(x, given, dim=0, output_size=size)
            got = torch.repeat_interleave(x.to(device), given.to(device), dim=0, output_size=size)
            assert torch.equal(got.cpu(), expected), repeats


def test_new_repeats_are_no_new_graph(device):
    repeats = (torch.arange(40) % 3 + 1).to(device)
    for count in (3, 4, 5):
        torch.repeat_interleave(repeats[:count])
    before = torch.heddle._C.cache_stats()["graphs"]
    for count in range(6, 40):
        torch.repeat_interleave(repeats[:count])
    assert torch.heddle._C.cache_stats()["graphs"] == before


def bytes_at_most(call):
    torch.heddle.synchronize()
    torch.heddle.empty_cache()
    torch.heddle.reset_peak_memory_stats()
    before = torch.heddle.memory_allocated()
    result = call()
    torch.heddle.synchronize()
    return result, torch.heddle.max_memory_allocated() - before


COUNT = 20_000  # a byte for each pair would be 400 MB


def test_memory_for_places_grows_with_the_values(device):
    sequence, values = torch.randn(COUNT).sort().values, torch.randn(COUNT)
    expected = torch.searchsorted(sequence, values)
    sequence, values = sequence.to(device), values.to(device)
    got, peak = bytes_at_most(lambda: torch.searchsorted(sequence, values))
    assert torch.equal(got.cpu(), expected)
    assert peak < 128 * COUNT


def test_memory_for_repeats_grows_with_their_sum(device):
    repeats = torch.randint(0, 3, (COUNT,))
    x = torch.randn(COUNT)
    expected = torch.repeat_interleave(x, repeats)
    x, repeats = x.to(device), repeats.to(device)
    got, peak = bytes_at_most(lambda: torch.repeat_interleave(x, repeats))
    assert torch.equal(got.cpu(), expected)
    assert peak < 128 * COUNT
