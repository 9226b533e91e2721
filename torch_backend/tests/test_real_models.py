"""Real models, tiny: the CPU's values, from 1 and from 8 threads, eager and compiled."""

import copy
import functools

import pytest
import torch
from real_models import REAL
from recompiled import needed, recompilations
from threads import count_right

THREADS, ROUNDS = 8, 2
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


def tensors(results):
    """The results' tensors: of a list, a dict or one of transformers' classes, which are dicts."""
    if isinstance(results, torch.Tensor):
        yield results
    elif isinstance(results, dict | list | tuple):
        for each in results.values() if isinstance(results, dict) else results:
            yield from tensors(each)


def said(module, arguments):
    """All numbers of a call's results, in one tensor of the CPU."""
    with torch.inference_mode():
        found = list(tensors(module(**arguments)))
    assert found
    return torch.cat([each.cpu().flatten().double() for each in found])


@functools.cache
def reference(name):
    return REAL[name].module()


@functools.cache
def given(name, number):
    return REAL[name].call(number)  # draws, so that no thread may be the first to ask


@functools.cache
def wanted(name, number):
    return said(reference(name), given(name, number))


def on_device(arguments, device):
    # PyTorch packs by lengths of the CPU only.
    return {name: x if name == "lengths" else x.to(device) for name, x in arguments.items()}


def compare(name, module, device, threads, rounds):
    def number(thread, i):
        return thread * rounds + i

    done = count_right(
        threads,
        rounds,
        lambda *which: said(module, on_device(given(name, number(*which)), device)),
        lambda *which: wanted(name, number(*which)),
        **TOLERANCE,
    )
    assert done == threads * rounds


@pytest.mark.parametrize("name", REAL)
def test_eager_from_one_and_from_eight_threads(name, device):
    module = copy.deepcopy(reference(name)).to(device)
    compare(name, module, device, 1, 1)
    compare(name, module, device, THREADS, ROUNDS)


@pytest.mark.parametrize("name", [name for name, real in REAL.items() if real.compiled])
def test_compiled_from_one_and_from_eight_threads(name, device, built, fresh_dynamo):
    module = torch.compile(copy.deepcopy(reference(name)).to(device), backend="heddle")
    compare(name, module, device, 1, 2)
    graphs = len(built)
    assert (graphs > 0) == REAL[name].traced
    with recompilations() as reasons:
        compare(name, module, device, THREADS, ROUNDS)
    assert needed(reasons) == []
    assert len(built) == graphs or reasons  # threads find what one has built, unless dynamo missed it
