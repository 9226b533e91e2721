"""What mixtures of experts count and multiply with: histc of whole numbers, grouped_mm."""

import os
import re

import pytest
import torch
from heddle.torch import dynamo
from threads import count_right
from torch.nn import functional as F

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
BOUNDS = ((9, 0, 8), (4, 0, 3), (7,), (5, 2, 6), (3, 20, 30), (2, 4, 4), (4, -1, 3))


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_are_counted_as_the_cpu_counts_their_floats(dtype, device):
    x = torch.randint(0, 9, (4, 30)).to(dtype)
    for bounds in BOUNDS:
        got = torch.histc(x.to(device), *bounds)
        assert got.dtype == dtype
        assert torch.equal(got.cpu().double(), torch.histc(x.double(), *bounds))


@pytest.mark.parametrize("dtype", WHOLE)
def test_bounds_beyond_the_values_type_and_between_whole_numbers(dtype, device):
    for value in (0, torch.iinfo(dtype).max if dtype.itemsize < 4 else 9):
        x = torch.full((5,), value, dtype=dtype)
        assert torch.equal(torch.histc(x.to(device), 4).cpu().double(), torch.histc(x.double(), 4))
    x = torch.arange(5).to(dtype)
    assert torch.equal(
        torch.histc(x.to(device), 4, 0.2, 3.9).cpu().double(), torch.histc(x.double(), 4, 0, 3)
    )


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("shape", [(120,), (3, 40), (0,), ()])
def test_floats_fall_into_the_cpus_bins(dtype, shape, device):
    x = torch.randn(shape).to(dtype)
    for bounds in ((10, -2.0, 3.0), (7,), (100, -1, 1), (5, 2, 2), (1, 0, 1)):
        assert torch.equal(torch.histc(x.to(device), *bounds).cpu(), torch.histc(x, *bounds))


def test_what_is_no_number_or_outside_is_not_counted(device):
    x = torch.tensor([1.0, float("nan"), 2.0, float("inf"), -1.0])
    assert torch.histc(x.to(device), 4, 0, 3).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("bounds", "named"),
    [((4,), "not finite"), ((4, 3, 0), "max must be larger"), ((0, 0, 1), "bins must be")],
)
def test_bounds_that_are_none_are_refused_and_the_next_call_is_right(bounds, named, device):
    x = torch.tensor([1.0, float("nan"), 2.0], device=device)
    with pytest.raises(RuntimeError, match=named):
        torch.histc(x, *bounds)
    assert torch.histc(x, 2, 0, 3).tolist() == [1, 1]


def test_new_bounds_are_no_new_graph(device):
    import heddle.torch

    x = torch.randn(50, device=device)
    torch.histc(x, 10, -2, 3)
    before = heddle.torch._C.cache_stats()
    for high in range(4, 30):
        torch.histc(x, 10, -2, high)
    assert heddle.torch._C.cache_stats() == before


def test_a_compiled_graph_counts_between_bounds_and_refuses_those_of_the_values(device):
    def counted(x):
        return torch.histc(x, 4, 0, 3)

    x = torch.randint(0, 4, (30,), dtype=torch.int32)
    with torch.no_grad():
        torch._dynamo.reset()
        got = torch.compile(counted, backend="heddle")(x.to(device))
        assert torch.equal(got.cpu(), torch.bincount(x, minlength=4).int())
        with pytest.raises(Exception, match="bounds that the values decide"):
            torch.compile(lambda x: torch.histc(x, 4), backend="heddle")(x.float())


INF = float("inf")
REFUSED = (
    ((4, 0, INF), "range of [0, inf] is not finite"),
    ((4, -INF, 2), "range of [-inf, 2] is not finite"),
    ((4, 3, 0), "max must be larger than min"),
    ((4, 0.5, -0.5), "max must be larger than min"),
    ((0, 0, 1), "bins must be"),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
@pytest.mark.parametrize(("bounds", "named"), REFUSED)
def test_a_compiled_graph_refuses_bounds_in_the_words_of_an_eager_call(bounds, named, dtype, device):
    x = torch.arange(5).to(dtype)
    torch._dynamo.reset()
    with torch.no_grad():
        if dtype == torch.float32 or bounds != (4, 0.5, -0.5):  # which are 0 and 0 among whole numbers
            with pytest.raises(RuntimeError, match=re.escape(named)):
                torch.histc(x.to(device), *bounds)
        with pytest.raises(Exception, match=re.escape(named)):
            torch.compile(lambda x: torch.histc(x, *bounds), backend="heddle")(x.to(device))


def test_a_compiled_graph_does_not_count_whole_numbers_between_bounds_that_are_one(device):
    x = torch.arange(5)
    assert torch.histc(x.to(device), 2, 0.2, 0.9).tolist() == [2, 3]  # from 0 to 0: those of the values
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="bounds that the values decide"):
        torch.compile(lambda x: torch.histc(x, 2, 0.2, 0.9), backend="heddle")(x.to(device))


def products(*shapes, dtype=torch.float32):
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


# Rows, columns or what is summed over end at each of these; one group is empty.
ENDS = torch.tensor([3, 3, 8, 16], dtype=torch.int32)
FORMS = {
    "groups of rows": ((16, 8), (4, 8, 16), ENDS),
    "fewer rows than groups": ((2, 8), (4, 8, 16), torch.tensor([0, 1, 1, 2], dtype=torch.int32)),
    "groups of columns": ((4, 16, 8), (8, 16), ENDS),
    "groups of what is summed over": ((8, 16), (16, 24), ENDS),
    "a product each": ((4, 8, 16), (4, 16, 8), None),
}


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("form", FORMS)
def test_eight_threads_get_the_cpus_products_of_groups(form, how, device):
    a, b, ends = FORMS[form]
    torch._dynamo.reset()
    compiled = how == "compiled"  # PyTorch traces it in bfloat16 only
    given = [products(a, b, dtype=torch.bfloat16 if compiled else torch.float32) for _ in range(8)]
    there = [[each.to(device) for each in pair] for pair in given]
    offs = None if ends is None else ends.to(device)
    multiply = torch.compile(F.grouped_mm, backend="heddle") if compiled else F.grouped_mm

    def call(thread, _):
        with torch.no_grad():
            return multiply(*there[thread], offs=offs)

    call(0, 0)
    near = 2e-2 if compiled else 1e-4
    done = count_right(8, 3, call, lambda thread, _: F.grouped_mm(*given[thread], offs=ends), near, near)
    assert done == 24


@pytest.mark.parametrize("transposed", [False, True])
def test_a_compiled_graph_multiplies_each_row_with_its_own_matrix(transposed, monkeypatch):
    """On the host; where the driver has no such product, every row meets every matrix."""
    graphs = []
    run = dynamo.Built.run
    monkeypatch.setattr(
        dynamo.Built, "run", lambda built, given: graphs.append(built.model.graph()) or run(built, given)
    )
    a, b = products((16, 8), (4, 24, 8) if transposed else (4, 8, 24), dtype=torch.bfloat16)

    def multiply(a, b, ends):
        return F.grouped_mm(a, b.transpose(1, 2) if transposed else b, offs=ends)

    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(multiply, backend="heddle")(a, b, ENDS)
        torch.testing.assert_close(got, multiply(a, b, ENDS))
    is_host = os.environ.get("HEDDLE_DEVICE", "host") in ("host", "sim")
    assert ("GroupedMatMul" in graphs[0]) == is_host
    assert not (is_host and "Transpose" in graphs[0])


def test_rows_past_the_last_group_are_zeros_in_a_compiled_graph():
    a, b = products((6, 8), (2, 8, 16), dtype=torch.bfloat16)
    with torch.no_grad():
        for rows in (1, 6):
            torch._dynamo.reset()
            ends = torch.tensor([0, rows - 1], dtype=torch.int32)
            got = torch.compile(F.grouped_mm, backend="heddle", dynamic=False)(a[:rows], b, offs=ends)
            torch.testing.assert_close(got[: rows - 1], a[: rows - 1] @ b[1])
            assert not got[rows - 1 :].any()
