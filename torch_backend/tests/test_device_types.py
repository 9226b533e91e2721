"""PyTorch's own way to test a device, instantiate_device_type_tests, over this one.

Its generic tests run by device type, with its OpInfos, their decorators and their skips: what an OpInfo says
of TestCommon.test_noncontiguous_samples holds here.
"""

import itertools
import warnings

import opinfo_cases
import pytest
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase
from torch.utils import _pytree

MOST = 2  # samples
IN_SCOPE = {case.name for case in opinfo_cases.read_scope() if case.dtype is torch.float32}
LEFT_OUT = opinfo_cases.UNINITIALISED | opinfo_cases.DRAWN | {
    "nn.functional.batch_norm",  # its first samples train, which is refused by name
    "linalg.pinv",  # one variant is too slow for PyTorch's own runs
    "as_strided", "as_strided_copy", "view_as_complex",  # OpInfo expects them to fail: they name a layout
}  # fmt: skip


OPS = [op for name, op in opinfo_cases.op_infos().items() if name in IN_SCOPE and op.name not in LEFT_OUT]


# With nothing along the first axis, the device answers otherwise than the CPU, and why.
_INDEX = "an index of no element: where the result is empty, nothing of the device looks at it"
_OTHER_ERROR = "the error is of another type: the runtime's, of an index that is out of range"
OTHERWISE_WHEN_EMPTY = {
    "index_put": _INDEX,
    "masked.median": _OTHER_ERROR,
    "nn.functional.embedding": _OTHER_ERROR,
    "nn.functional.max_pool1d": "the places of the greatest are refused for a batch of none",
    "nn.functional.max_pool2d": "the places of the greatest are refused for a batch of none",
    "scatter": _INDEX,
    "scatter_add": _INDEX,
    "scatter_reduce.amax": _INDEX,
    "scatter_reduce.amin": _INDEX,
    "scatter_reduce.mean": _INDEX,
    "scatter_reduce.prod": _INDEX,
    "scatter_reduce.sum": _INDEX,
}


def emptied(sample):
    """The sample with nothing along the first axis of its first tensor, and of those that are as long."""
    tensors = [x for x in _pytree.tree_leaves(sample) if isinstance(x, torch.Tensor)]
    long = next((x.shape[0] for x in tensors if x.ndim and x.shape[0]), None)

    def shortened(x):
        if isinstance(x, torch.Tensor) and x.ndim and x.shape[0] == long:
            return x.narrow(0, 0, 0)
        return x

    return None if long is None else _pytree.tree_map(shortened, sample)


def differs_when_empty(case, device):
    """What the device makes of the first sample that can be emptied, against the CPU; None where none can."""
    info = opinfo_cases.op_infos()[case.name]
    samples = (emptied(tuple(each)) for _, *each in opinfo_cases.samples_of(case)[:3])
    sample = next((each for each in samples if each is not None), None)
    if sample is None:
        return None
    call = opinfo_cases.called_on
    expected, actual = (call(info, sample, where) for where in ("cpu", device))
    if isinstance(expected, Exception):
        return "" if isinstance(actual, type(expected)) else f"{actual!r}, while the CPU says {expected!r}"
    return opinfo_cases.difference_on(info, case, sample, expected, actual, device)


def on_cpu(tree):
    return _pytree.tree_map(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, tree)


class TestCommon(TestCase):
    @ops(OPS, allowed_dtypes=(torch.float32, torch.int64))
    def test_noncontiguous_samples(self, device, dtype, op):
        for sample in itertools.islice(op.sample_inputs(device, dtype), MOST):
            other = sample.noncontiguous()
            results = []
            for each in (sample, other):
                torch.manual_seed(3)
                results.append(on_cpu(op(each.input, *each.args, **each.kwargs)))
            # The assertion that has the tolerances of the OpInfo's decorators.
            self.assertEqual(*results)  # noqa: PT009


instantiate_device_type_tests(TestCommon, globals(), only_for=("privateuse1",))


def names_of_tests():
    return [name for name in dir(globals()["TestCommonPRIVATEUSE1"]) if name.startswith("test_")]


for name in names_of_tests():  # an OpInfo says of some that they are no tests for it
    of_device = globals()["TestCommonPRIVATEUSE1"]
    if getattr(getattr(of_device, name), "__unittest_skip__", False):
        delattr(of_device, name)
del of_device  # or pytest takes it for another class of tests


def test_each_operator_in_scope_has_a_test_of_this_device():
    names = names_of_tests()
    assert sum("_heddle_float32" in name for name in names) >= 520
    assert sum("_heddle_int64" in name for name in names) >= 240


EMPTIED = [case for case in opinfo_cases.read_scope() if case.dtype is torch.float32]


@pytest.mark.parametrize("case", [case for case in EMPTIED if case.name not in OTHERWISE_WHEN_EMPTY], ids=str)
def test_of_a_first_axis_without_elements_it_makes_what_the_cpu_makes(case, device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not differs_when_empty(case, device)


def test_what_is_named_for_a_difference_when_empty_has_one_and_most_operators_are_compared(device):
    cases = {case.name: case for case in EMPTIED}
    assert all(differs_when_empty(cases[name], device) for name in OTHERWISE_WHEN_EMPTY)
    assert sum(differs_when_empty(case, "cpu") is not None for case in EMPTIED) > 580
