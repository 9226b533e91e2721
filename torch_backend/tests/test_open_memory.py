"""Tensors whose elements are left open are memory alone: the device is given no work for them."""

import heddle.torch
import pytest
import torch

MAKERS = {
    "empty_like": torch.empty_like,
    "empty_like, channels last": lambda x: torch.empty_like(x, memory_format=torch.channels_last),
    "empty_like, float16": lambda x: torch.empty_like(x, dtype=torch.float16),
    "new_empty": lambda x: x.new_empty((2, 5)),
    "new_empty_strided": lambda x: x.new_empty_strided((2, 5), (1, 2)),
}
COPIES = {
    "contiguous": lambda x: x.transpose(1, 2).contiguous(),
    "clone": lambda x: x.clone(),
    "clone of a part": lambda x: x[:, 1:].clone(),
    "reshape": lambda x: x.transpose(1, 2).reshape(-1),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
}


def calls():
    return heddle.torch._C.cache_stats()["count"]


@pytest.mark.parametrize("name", MAKERS)
def test_memory_is_laid_out_as_on_the_cpu_without_a_call(name, device):
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    there = x.to(device)
    heddle.torch._C.clear_cache()
    made, wanted = MAKERS[name](there), MAKERS[name](x)
    assert calls() == 0
    assert made.device == there.device
    assert (made.shape, made.stride(), made.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_computes_nothing_beside_itself(name, device):
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    there = x.to(device)
    heddle.torch._C.clear_cache()
    made, wanted = COPIES[name](there), COPIES[name](x)
    assert calls() == 0
    assert made.stride() == wanted.stride()
    assert torch.equal(made.cpu(), wanted)
