"""OpInfo's error samples of every OpInfo in scope: refused by the device as well, cold and warm."""

import itertools
import re
import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="torch.testing._internal needs it")

import opinfo_cases
from opinfo_cases import op_infos
from torch.utils import _pytree

NAMES = sorted(
    name
    for name in {case.name for case in (*opinfo_cases.read_scope(), *opinfo_cases.read_later())}
    if op_infos()[name].error_inputs_func is not None
)

# (OpInfo, error sample): why the device's answer is another one.
EXCEPTIONS = {
    ("clamp_max", 0): "torch._refs refuses it, PyTorch's operator takes it",
    ("clamp_min", 0): "torch._refs refuses it, PyTorch's operator takes it",
    (
        "narrow_copy",
        1,
    ): "an internal assertion of PyTorch's CPU kernel; other devices raise narrow's IndexError",
}

# (OpInfo, error sample): why the device's error has other words.
_OF_OUT = "what out= cannot hold is refused in the words of PyTorch's Meta kernels"
_OF_INDEX = "an index is the data's mistake: the runtime's words name it and the range"
OTHER_WORDS = {
    ("amax", 5): _OF_OUT,
    ("amin", 5): _OF_OUT,
    ("gather", 4): _OF_INDEX,
    ("scatter", 3): _OF_INDEX,
    ("scatter_add", 3): _OF_INDEX,
    ("multinomial", 6): "there is no greatest number of categories",
    ("narrow_copy", 6): "the words of narrow(), which other devices than the CPU have",
}


def _moved(tree, device):
    """Copies on the device. Tensors that share memory share it there, too, and one tensor stays one."""
    storages, tensors = {}, {}

    def move(x):
        if not isinstance(x, torch.Tensor):
            return torch.device(device) if isinstance(x, torch.device) and x.type == "cpu" else x
        if x.layout != torch.strided or x.is_meta:
            return x
        key = x.untyped_storage().data_ptr(), x.dtype
        if key not in storages or not key[0]:
            elements = x.untyped_storage().nbytes() // x.element_size()
            storages[key] = x.detach().as_strided((elements,), (1,), 0).to(device, copy=True)
        if id(x) not in tensors:
            tensors[id(x)] = storages[key].as_strided(x.shape, x.stride(), x.storage_offset())
        return tensors[id(x)]

    return _pytree.tree_map(move, tree)


def _called(info, sample, device):
    """The error, or None."""
    try:
        x, args, kwargs = _moved(tuple(sample), "cpu" if device == "cpu" else device)
        if info.name in opinfo_cases.ON_CPU:
            args, kwargs = _moved((sample[1], sample[2]), "cpu")
        result = info.op(x, *args, **kwargs)
        for each in _pytree.tree_leaves(result):
            if isinstance(each, torch.Tensor):
                each.cpu()  # where a device works beside its callers, what the data shows is told here
    except Exception as error:
        return error
    return TypeError("NotImplemented") if result is NotImplemented else None


def _run_samples_that_succeed(info, device):
    dtype = next(d for d in (*opinfo_cases.DTYPES, torch.float64) if d in info.dtypes)
    for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), 3):
        _called(info, (sample.input, sample.args, sample.kwargs), device)


@pytest.mark.parametrize("name", NAMES)
def test_an_error_sample_raises_the_error_that_pytorch_names(name, device):
    info = op_infos()[name]
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        errors = list(info.error_inputs("cpu"))
        for when in ("cold", "warm"):
            for i, expected in enumerate(errors):
                sample = expected.sample_input.input, expected.sample_input.args, expected.sample_input.kwargs
                if (name, i) in EXCEPTIONS:
                    continue
                error = _called(info, sample, device)
                if not isinstance(error, expected.error_type) or (
                    (name, i) not in OTHER_WORDS and not re.search(expected.error_regex, str(error))
                ):
                    wanted = f"{expected.error_type.__name__}: {expected.error_regex}"
                    wrong.append(f"{when} {i}: {error!r} instead of {wanted}")
            _run_samples_that_succeed(info, device)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "i"), list(EXCEPTIONS), ids=str)
def test_an_exception_is_refused_unless_the_cpu_takes_it(name, i, device):
    sample = list(op_infos()[name].error_inputs("cpu"))[i].sample_input
    sample = sample.input, sample.args, sample.kwargs
    refused = [_called(op_infos()[name], sample, where) is not None for where in ("cpu", device)]
    assert refused[0] == refused[1]
