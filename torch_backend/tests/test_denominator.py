"""PyTorch's op_db is the denominator: every OpInfo is in a list of the scope or in opinfo_excluded.tsv.

So are the forward operators of its MPS backend: each has a kernel, or a line in mps_excluded.tsv.
"""

import itertools
import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="torch.testing._internal needs it")

import mps_coverage
import opinfo_cases
import opinfo_coverage
from torch.testing._internal.common_methods_invocations import op_db

SCOPE = {case.name for case in (*opinfo_cases.read_scope(), *opinfo_cases.read_later())}
EXCLUDED = opinfo_coverage.read_excluded()

# opinfo_cases moves strided tensors only; PyTorch's CPU has no samples of what only CUDA has.
NOT_MOVED = {"sparse.mm.reduce", "sparse.sampled_addmm"}
TRIED = sorted(n for n, why in EXCLUDED.items() if not why.startswith("CUDA only") and n not in NOT_MOVED)


def test_scope_and_exclusions_add_up_to_op_db():
    infos = opinfo_cases.op_infos()
    assert len(infos) == len(op_db)
    assert SCOPE | {name for name in EXCLUDED if opinfo_cases.IN_SCOPE or name in infos} == set(infos)
    assert not SCOPE & set(EXCLUDED)


def test_every_exclusion_has_a_reason():
    assert [name for name, reason in EXCLUDED.items() if len(reason) < 8 or "misc" in reason] == []


@pytest.mark.parametrize("name", TRIED)
def test_an_excluded_opinfo_is_refused(name, device):
    """One that the device runs belongs to the scope."""
    info = opinfo_cases.op_infos()[name]
    dtype = next((d for d in opinfo_cases.DTYPES if d in info.dtypes), None)
    if dtype is None:
        assert all(each.is_complex for each in info.dtypes)
        return
    raised = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), 3):
            try:
                x, args, kwargs = opinfo_cases.to_device((sample.input, sample.args, sample.kwargs), device)
                info.op(x, *args, **kwargs)
            except NotImplementedError as error:
                raised.append(error)
    assert raised


def test_the_reasons_name_devices_and_dtypes_that_hold():
    infos = opinfo_cases.op_infos()
    for name, reason in EXCLUDED.items():
        if reason.startswith("CUDA only") and "jiterator" not in name:
            assert not any(dtype in infos[name].dtypes for dtype in opinfo_cases.DTYPES), name
        if reason == "complex numbers" and not infos[name].dtypes & {torch.float32}:
            assert all(dtype.is_complex for dtype in infos[name].dtypes), name


def test_every_forward_operator_of_mps_has_a_kernel_or_a_reason():
    named = mps_coverage.of_this_pytorch()
    assert len(named) > 700
    without = {name for name in named if not mps_coverage.has_kernel(name)}
    assert sorted(without - set(mps_coverage.read_excluded())) == []


def test_what_has_a_kernel_needs_no_reason():
    """A later PyTorch may give MPS more operators, and an earlier one fewer: only its own count."""
    named = set(mps_coverage.of_this_pytorch())
    excluded = mps_coverage.read_excluded()
    assert [name for name in excluded if name in named and mps_coverage.has_kernel(name)] == []
    assert [name for name, reason in excluded.items() if len(reason) < 8] == []


def test_an_operator_is_of_mps_by_its_own_entry_or_by_its_delegate():
    definitions = """
- func: one(Tensor self) -> Tensor
  dispatch:
    CPU, MPS: one
- func: two(Tensor self) -> Tensor
  structured_delegate: two.out
- func: two.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: two_out
    MPS: two_out_mps
- func: three(Tensor self) -> Tensor
  dispatch:
    CPU, SparseMPS: three
- func: two_backward(Tensor self) -> Tensor
  dispatch:
    MPS: two_backward
"""
    assert mps_coverage.forward_operators(definitions) == ["one", "two", "two.out"]
