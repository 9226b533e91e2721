"""The predecessor's programs: eight threads of networks like ResNet, BERT and GPT, streams, a Linear."""

import copy
import threading

import heddle.torch
import pytest
import torch
from compile_nets import NETS
from threads import count_right, run_threads
from torch import nn

LIKE = {"ResNet": "resnet", "BERT": "bert", "GPT": "prefill"}
THREADS, TIMES, LENGTHS = 8, 6, (12, 9)


def numbers_of(result):
    return result["logits"] if isinstance(result, dict) else result


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_eight_threads_run_networks_like_resnet_bert_and_gpt_at_once(compiled, device):
    nets = [NETS[name] for name in LIKE.values()]
    modules = [net.module().requires_grad_(False) for net in nets]
    there = [
        heddle.torch.compile(module, net.call(2), net.shapes)
        if compiled
        else copy.deepcopy(module).to(device)
        for net, module in zip(nets, modules, strict=True)
    ]

    def arguments(thread, time):  # each thread begins with another network
        which = (thread + time) % len(nets)
        return which, [each[:1] if thread % 2 else each for each in calls[which][time % len(LENGTHS)]]

    calls = [[net.call(2, length) for length in LENGTHS] for net in nets]

    def expected(thread, time):
        which, given = arguments(thread, time)
        return numbers_of(modules[which](*given))

    def work(thread, time):
        which, given = arguments(thread, time)
        return numbers_of(there[which](*(each.to(device) for each in given)))

    assert count_right(THREADS, TIMES, work, expected, rtol=1e-3, atol=1e-3) == THREADS * TIMES


def test_two_threads_have_streams_of_their_own_and_right_values(device):
    x = torch.randn(2, 16, 16)
    both = threading.Barrier(2)

    def body(thread):
        mine = x[thread].to(device)
        stream = torch.heddle.current_stream()
        both.wait(60)
        return stream, (mine @ mine).cpu()

    (first, left), (second, right) = run_threads(2, body)
    assert first != second
    torch.testing.assert_close(torch.stack([left, right]), x @ x)


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_a_linear_is_called_fifty_times_by_each_thread(threads, device):
    reference = nn.Linear(256, 128).requires_grad_(False)
    module = copy.deepcopy(reference).to(device)
    x = torch.randn(threads, 50, 4, 256)
    done = count_right(
        threads, 50, lambda t, i: module(x[t, i].to(device)), lambda t, i: reference(x[t, i]), atol=1e-3
    )
    assert done == threads * 50
