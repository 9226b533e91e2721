"""Threads that stay in C++: a scripted function runs all its operators without the GIL, whose hand-overs
order what threads do, and so hide from the thread sanitizer what nothing else orders."""

import pytest
import torch
from threads import count_right, run_threads

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.jit")


@torch.jit.script
def chained(x: torch.Tensor, weight: torch.Tensor, steps: int) -> torch.Tensor:
    total = torch.zeros_like(x)
    for step in range(steps):
        y = torch.mm(x, weight).relu() / 8
        total.add_(y.t().contiguous().t())
        total = torch.cat((total[1:], total[:1]))
        if y.sum().item() < -1:  # never: it waits for the value
            total = total * step
        x = torch.where(y > 0.5, y, x * 0.5)
    return total


@torch.jit.script
def handed_over(x: torch.Tensor, weight: torch.Tensor, steps: int) -> torch.Tensor:
    """Other threads use and free what this one made, and the reverse."""
    waiting = [torch.jit.fork(chained, x, weight, 1)]
    for step in range(steps):
        waiting.append(torch.jit.fork(chained, x + step, weight, 2))
    total = torch.zeros_like(x)
    for each in waiting:
        total += torch.jit.wait(each)
    return total


@torch.jit.script
def drawn(device: torch.device, steps: int) -> int:
    outside = 0
    for _ in range(steps):
        numbers = torch.rand(32, device=device)
        outside += int(((numbers < 0) | (numbers >= 1)).sum().item())
    return outside


def on_both(device, function, threads, steps):
    """A function of a thread's number, and what it is to give."""
    weight, x = torch.randn(16, 16), torch.randn(threads, 8, 16)
    shared = weight.to(device)

    def work(thread, _):
        with torch.no_grad():
            return function(x[thread].to(device), shared, steps)

    def expected(thread, _):
        with torch.no_grad():
            return function(x[thread], weight, steps)

    return work, expected


@pytest.mark.parametrize("function", [chained, handed_over])
def test_scripted_functions_on_eight_threads(function, device):
    assert count_right(8, 5, *on_both(device, function, 8, 10), rtol=1e-3, atol=1e-3) == 40


def test_a_scripted_function_draws_random_numbers_while_others_draw_and_one_seeds(device):
    def body(thread):
        if thread < 8:
            return drawn(torch.device(device), 50)
        for seed in range(200):
            torch.manual_seed(seed)
        return 0

    assert run_threads(9, body) == [0] * 9
