"""DataLoader workers that are spawned: each is a process with a device of its own."""

import threading

import torch
from threads import Tally, run_threads
from torch.utils.data import DataLoader, Dataset

COUNT, ROWS = 48, 4


class Squares(Dataset):
    """Computed on the device by the worker; what it gives away lies on the CPU."""

    def __init__(self, device):
        self.device = device

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        return torch.full((3,), float(i), device=self.device).square().cpu(), i


def test_spawned_workers_compute_on_the_device_beside_eight_threads_of_their_parent(device):
    torch.ones(2, device=device).sum().item()
    batches = iter(
        DataLoader(Squares(device), batch_size=ROWS, num_workers=2, multiprocessing_context="spawn")
    )
    turn, tally, seen = threading.Lock(), Tally(), []

    def body(_):
        while True:
            with turn:  # an iterator is no thread's but its own
                batch, places = next(batches, (None, None))
            if batch is None:
                return
            wanted = (places[:, None] ** 2).expand(-1, 3) + 1.0
            assert torch.equal((batch.to(device) + 1).cpu(), wanted)
            tally.add()
            seen.extend(places.tolist())

    run_threads(8, body)
    assert tally["done"] == COUNT // ROWS
    assert sorted(seen) == list(range(COUNT))
