"""What a thread that has the device to itself keeps off."""

import threading

import pytest
import torch

import heddle


def rounds(x: torch.Tensor, device: str, count: int) -> list[list[float]]:
    return [x.to(device).cpu().tolist() for _ in range(count)]


@pytest.mark.parametrize("direction", ["to the device", "from the device", "on the device"])
def test_other_threads_copies_wait_for_the_end_of_a_hold_and_its_holder_copies(direction, device):
    x = torch.arange(8.0)
    there = x.to(device)
    target = torch.zeros(8, device=device)
    begins, results = threading.Event(), []

    def copies() -> None:
        begins.set()
        for _ in range(3):
            if direction == "to the device":
                results.append(x.to(device))
            elif direction == "from the device":
                results.append(there.cpu())
            else:
                results.append(target.copy_(there))

    thread = threading.Thread(target=copies)
    with heddle.exclusive():
        thread.start()
        begins.wait()
        assert rounds(x, device, 100) == [x.tolist()] * 100  # the other thread has had every chance
        assert results == []
    thread.join()
    assert [each.cpu().tolist() for each in results] == [x.tolist()] * 3


def test_no_copy_runs_during_a_hold_whatever_four_threads_do(device):
    x = torch.arange(8.0)
    stop, right, holds = threading.Event(), [], []

    def copies() -> None:
        while not stop.is_set():
            right.append(rounds(x, device, 1) == [x.tolist()])

    threads = [threading.Thread(target=copies) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        with heddle.exclusive():
            before = len(right)
            assert rounds(x, device, 2) == [x.tolist()] * 2
            holds.append(len(right) - before)
    stop.set()
    for thread in threads:
        thread.join()
    # What had ended before the hold began may be counted within it, once a thread.
    assert max(holds) <= len(threads)
    assert right
    assert all(right)
