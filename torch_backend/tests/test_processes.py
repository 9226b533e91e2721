"""Memory of the device and other processes: refused where it is given away; copies on the CPU go."""

import copy
import pickle
import threading

import pytest
import torch
from threads import Tally, run_threads
from torch.multiprocessing import reductions

mp = torch.multiprocessing.get_context("spawn")
WORDS = "memory of device heddle cannot be given to another process: send x.cpu()"
refused = pytest.raises(NotImplementedError, match=f"^{WORDS[:-2]}")


def holders(x):
    return {
        "tensor": x,
        "view": x[1:],
        "parameter": torch.nn.Parameter(x),
        "storage": x.untyped_storage(),
        "tuple": (1, x),
        "list in a dict": {"a": [torch.ones(2), x]},
    }


HOLDERS = tuple(holders(torch.ones(2)))


class Hidden:
    """An object that put() does not look into."""

    def __init__(self, x):
        self.x = x


def give_back(asked, answers):
    """In a spawned process: the sum of each tensor that comes, and in words what else came."""
    while True:
        try:
            got = asked.get()
        except NotImplementedError as error:
            answers.put(str(error))
            continue
        if got is None:
            return
        answers.put(float(got.sum()))


@pytest.mark.parametrize("queue", [mp.Queue, mp.JoinableQueue, mp.SimpleQueue])
@pytest.mark.parametrize("what", HOLDERS)
def test_put_refuses_memory_of_the_device(queue, what, device):
    made = queue()
    with refused:
        made.put(holders(torch.ones(3, device=device))[what])
    assert made.empty()


@pytest.mark.parametrize("what", HOLDERS)
def test_a_pipe_refuses_memory_of_the_device(what, device):
    here, there = mp.Pipe()
    with refused:
        here.send(holders(torch.ones(3, device=device))[what])
    assert not there.poll()


@pytest.mark.parametrize("reduce", ["reduce_tensor", "reduce_storage", "reduce_typed_storage"])
def test_reducers_refuse_memory_of_the_device_and_take_the_cpu_s(reduce, device):
    def given(x):
        kinds = {"reduce_storage": x.untyped_storage, "reduce_typed_storage": x._typed_storage}
        return kinds[reduce]() if reduce in kinds else x

    with refused:
        getattr(reductions, reduce)(given(torch.ones(3, device=device)))
    assert len(getattr(reductions, reduce)(given(torch.ones(3)))) == 2


def test_memory_of_the_device_is_not_shared(device):
    x = torch.ones(3, device=device)
    for share in (
        x.share_memory_,
        x.untyped_storage().share_memory_,
        torch.nn.Linear(2, 2).to(device).share_memory,
    ):
        with refused:
            share()
    assert torch.ones(3).share_memory_().is_shared()


def test_copies_and_pickles_of_this_process_go_on(device):
    x = torch.arange(3.0, device=device)
    assert torch.equal(copy.deepcopy(x).cpu(), x.cpu())
    assert torch.equal(pickle.loads(pickle.dumps(x)).cpu(), x.cpu())


def test_a_spawned_process_gets_copies_and_hears_of_what_the_queue_could_not_send(device):
    asked, answers = mp.Queue(), mp.Queue()
    process = mp.Process(target=give_back, args=(asked, answers))
    process.start()
    tally = Tally()

    def body(t):
        x = torch.full((4,), float(t), device=device)
        with refused:
            asked.put(x)
        asked.put(Hidden(x))  # found by the queue's own thread
        asked.put(x.cpu())
        tally.add()

    run_threads(8, body)
    got = [answers.get(timeout=120) for _ in range(16)]
    asked.put(None)
    process.join(120)
    assert process.exitcode == 0
    assert tally["done"] == 8
    assert got.count(WORDS) == 8
    assert sorted(each for each in got if each != WORDS) == [4.0 * t for t in range(8)]


def test_a_process_is_not_started_with_memory_of_the_device(device):
    process = mp.Process(target=give_back, args=(torch.ones(2, device=device), None))
    with refused:
        process.start()


def test_put_takes_what_holds_itself_and_what_another_thread_changes():
    queue, endless, changing = mp.Queue(), [], {0: 0}
    endless.append(endless)
    over = threading.Event()

    def change():
        while not over.is_set():
            changing.clear()
            changing.update(dict.fromkeys(range(100)))

    def put(_):
        for _ in range(200):
            queue.put(endless)
        over.set()

    run_threads(2, lambda t: put(t) if t else change())
    for _ in range(200):
        got = queue.get(timeout=120)
        assert got[0] is got
