"""What a thread finds in its own table of calls is what the shared cache gives, and is forgotten with it."""

import threading

import heddle.torch
import torch
from threads import count_right

PLACES = 512  # of a thread's table


def count():
    return heddle.torch._C.cache_stats()["count"]


def rows(n, device):
    return torch.arange(float(n), device=device)


def test_a_call_that_was_forgotten_is_made_again(device):
    x = rows(5, device)
    torch.relu(x)
    heddle.torch._C.clear_cache()
    assert count() == 0
    assert torch.relu(x).tolist() == list(range(5))
    assert count() == 1


def test_what_one_thread_forgets_the_others_make_again(device):
    x, warm, cleared = rows(6, device), threading.Event(), threading.Event()
    counts = []

    def other():
        torch.relu(x)
        warm.set()
        cleared.wait()
        torch.relu(x)
        counts.append(count())

    thread = threading.Thread(target=other)
    thread.start()
    warm.wait()
    heddle.torch._C.clear_cache()
    cleared.set()
    thread.join()
    assert counts == [1]


def test_more_calls_than_a_thread_has_places_for_give_their_own_values(device):
    for _ in range(2):
        for n in range(1, PLACES + PLACES // 4):
            assert (rows(n, device) + 1).sum().item() == n * (n + 1) / 2


def test_threads_that_make_the_same_calls_make_them_once(device):
    cpu = [torch.randn(3, n) for n in range(2, 12)]
    inputs = [x.to(device) for x in cpu]
    heddle.torch._C.clear_cache()
    done = count_right(
        8,
        50,
        lambda thread, i: torch.tanh(inputs[(thread + i) % 10]),
        lambda thread, i: torch.tanh(cpu[(thread + i) % 10]),
    )
    assert done == 8 * 50
    assert count() == len(inputs)
