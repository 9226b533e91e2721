"""PyTorch's own way to test a device, instantiate_device_type_tests, over this one.

Its generic tests run by device type, with its OpInfos, their decorators and their skips: what an OpInfo says
of TestCommon.test_noncontiguous_samples holds here.
"""

import itertools

import opinfo_cases
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
