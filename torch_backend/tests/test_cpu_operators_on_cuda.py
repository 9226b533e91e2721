"""Operators that PyTorch's CPU computes on copies, where device heddle is a GPU: what is copied, and when.

conftest.py leaves this file out elsewhere. test_cpu_operators.py has their values, on every device. The
double of CUDA ends a process that reads memory which nothing has written.
"""

import warnings

import pytest
import torch
from threads import run_threads


def copies(work):
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profile:
        work()
    return sum(each.count for each in profile.key_averages() if each.key == "copy")


def test_what_the_cpu_computes_is_copied_there_and_back_and_counted():
    x, y = torch.rand(2, 6, 8) + 1
    there = x.to("heddle")
    other, out = y.to("heddle"), torch.empty(6, 8, device="heddle")
    before = dict(torch.heddle.cpu_operators())
    assert copies(lambda: torch.lgamma(there)) == 2
    assert copies(lambda: torch.special.zeta(there, other)) == 3
    assert copies(lambda: torch.lgamma(there, out=out)) == 2  # what it held does not go to the host
    assert copies(lambda: there.digamma_()) == 2
    assert copies(lambda: torch.lgamma(there[:0])) == 0
    counted = torch.heddle.cpu_operators()
    for name, times in (("lgamma", 2), ("special_zeta", 1), ("lgamma.out", 1), ("digamma_", 1)):
        assert counted[f"aten::{name}"] - before.get(f"aten::{name}", 0) == times
    assert torch.heddle.fallbacks() == {}
    torch.testing.assert_close(out.cpu(), x.lgamma())
    torch.testing.assert_close(there.cpu(), x.digamma())


def test_of_a_tensor_with_gaps_only_its_elements_are_copied_and_written():
    x = torch.rand(64, 6) + 1
    there = x.to("heddle")
    column = there[:, 2]
    unwritten = torch.empty(64, 6, device="heddle")
    unwritten[:, 3] = column
    torch.testing.assert_close(torch.lgamma(unwritten[:, 3]).cpu(), x[:, 2].lgamma())
    unwritten[:, 3].digamma_()
    torch.testing.assert_close(unwritten[:, 3].cpu(), x[:, 2].digamma())
    # Between the elements another stream writes meanwhile.
    stream = torch.Stream("heddle")
    for _ in range(20):
        with stream:
            there[:, 1] += 1
        column.lgamma_()
        column.exp_()
        x[:, 1] += 1
        x[:, 2] = x[:, 2].lgamma().exp()
    stream.synchronize()
    torch.testing.assert_close(there.cpu(), x)


def test_a_kernel_that_raises_leaves_the_devices_tensors_as_they_were():
    def half_done(*tensors, out=None):
        for each in (*tensors, *(() if out is None else (out,))):
            each.fill_(7)
        raise ValueError("half done")

    x = torch.rand(5) + 1
    there, out = x.to("heddle"), x.to("heddle")
    with torch.library._scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("lgamma_", "lgamma.out"):
            library.impl(name, half_done, "CPU")
        with pytest.raises(ValueError, match="half done"):
            there.lgamma_()
        with pytest.raises(ValueError, match="half done"):
            torch.lgamma(there, out=out)
    assert torch.equal(there.cpu(), x)
    assert torch.equal(out.cpu(), x)
    torch.testing.assert_close(torch.lgamma(there, out=out).cpu(), x.lgamma())


def test_a_failed_run_that_made_an_operand_is_told_where_the_cpu_reads_it():
    x = torch.randn(4).to("heddle")
    for outside in (9, -9):
        taken = torch.zeros(1, device="heddle")  # nothing else is written to it
        torch.index_select(x, 0, torch.tensor([outside]).to("heddle"), out=taken)
        with pytest.raises(RuntimeError, match=r"an index is outside \[-4, 3\]"):
            torch.lgamma(taken)
    assert torch.lgamma(x).isfinite().all()


def test_eight_threads_have_the_cpu_compute_on_copies_of_their_own():
    def work(x):
        found = torch.linalg.solve(x, x.mT)
        return torch.cummax(found, 1).values + torch.fft.fft(x).abs() + torch.bincount(x.long()[0])[0]

    def body(thread):
        generator = torch.Generator().manual_seed(thread)
        right = 0
        for _ in range(10):
            x = torch.rand(6, 6, generator=generator) + 6 * torch.eye(6)
            right += torch.allclose(work(x.to("heddle")).cpu(), work(x), rtol=1e-3, atol=1e-3)
        return right

    assert run_threads(8, body) == [10] * 8
