"""Right under threads: values compared with the CPU, every operation counted."""

import copy
import queue
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from threads import Tally, count_right, run_threads
from torch import nn

import heddle

THREADS = (8, 16, 64)


def on_cpu_and_device(module, device):
    module = module.eval()
    return module, copy.deepcopy(module).to(device)


def inputs(threads, times, *shape):
    return torch.randn(threads, times, *shape)


# The shapes of network of the predecessor's tests.
MODULES = {
    "linear": (lambda: nn.Linear(16, 8), (4, 16)),
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)), (4, 16)),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 4, 3)),
        (2, 4, 20),
    ),
    "attention": (lambda: SelfAttention(16, 4), (2, 6, 16)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 6, 16)),
}


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def count_module_right(name, device, threads, times):
    make, shape = MODULES[name]
    reference, module = on_cpu_and_device(make(), device)
    x = torch.randn(16, *shape)
    with torch.inference_mode():
        right = [reference(each) for each in x]

    def work(t, i):
        with torch.inference_mode():
            return module(x[(t + i) % 16].to(device))

    return count_right(threads, times, work, lambda t, i: right[(t + i) % 16])


def test_the_smoke_test_of_the_predecessor(device):
    sums = []

    def body(_):
        sums.append(torch.randn(100, device=device).sum().item())

    run_threads(4, body)
    assert len(sums) == 4
    assert all(abs(each) < 100 for each in sums)
    assert len(set(sums)) == 4  # each stream has numbers of its own


@pytest.mark.parametrize("name", MODULES)
def test_eight_threads_share_a_module(name, device):
    assert count_module_right(name, device, 8, 50) == 400


@pytest.mark.parametrize("name", ["linear", "mlp", "encoder"])
def test_thirty_one_threads_a_hundred_times(name, device):
    assert count_module_right(name, device, 31, 100) == 3100


@pytest.mark.parametrize("threads", THREADS)
def test_any_number_of_threads_share_a_module(threads, device):
    assert count_module_right("mlp", device, threads, 10) == threads * 10


@pytest.mark.parametrize("warm", [False, True])
def test_threads_meet_a_module_cold_or_warm_at_a_barrier(warm, device):
    width = 24 if warm else 25  # shapes of its own, so that the cold one is cold
    reference, module = on_cpu_and_device(nn.Linear(width, 3), device)
    x = torch.randn(16, width)
    with torch.no_grad():
        expected = reference(x)
        if warm:
            module(x[:1].to(device))
    barrier = threading.Barrier(16)

    def work(t, _):
        mine = x[t : t + 1].to(device)
        barrier.wait()
        with torch.no_grad():
            return module(mine)

    assert count_right(16, 3, work, lambda t, _: expected[t : t + 1]) == 48


def test_sixteen_threads_that_meet_a_module_cold_compile_it_once():
    module = nn.Linear(26, 3).eval().to("heddle")  # a shape of its own, so that it is cold
    x = torch.randn(16, 26).to("heddle")
    default = heddle.Device(torch.heddle.device_names()[0])
    before = default.stats()["compiles"]
    barrier = threading.Barrier(16)

    def body(t):
        mine = x[t : t + 1]
        barrier.wait()
        with torch.no_grad():
            return module(mine)

    rows = run_threads(16, body)
    assert default.stats()["compiles"] - before == 1
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([row.cpu() for row in rows]), module.cpu()(x.cpu()))


def test_different_modules_at_once(device):
    names = list(MODULES)
    pairs = {name: on_cpu_and_device(MODULES[name][0](), device) for name in names}
    x = {name: torch.randn(*MODULES[name][1]) for name in names}

    def run(module, t, to):
        with torch.inference_mode():
            return module(x[names[t % len(names)]].to(to))

    done = count_right(
        2 * len(names),
        20,
        lambda t, _: run(pairs[names[t % len(names)]][1], t, device),
        lambda t, _: run(pairs[names[t % len(names)]][0], t, "cpu"),
    )
    assert done == 40 * len(names)


def test_mixed_operators_on_eight_threads(device):
    operators = [
        lambda x: x.relu().sum(0),
        lambda x: torch.mm(x, x.t()).softmax(-1),
        lambda x: torch.cat((x, x * 2), 1)[:, ::3],
        lambda x: x.masked_fill(x > 0, -1.0).cumsum(1),
        lambda x: torch.where(x > 0, x, x.exp()).mean((0, 1)),
        lambda x: (x > 0).nonzero().float(),
        lambda x: x.add_(1).mul_(2).clamp_(-1, 1),
        lambda x: x.sort(dim=1).values.flip(0),
        lambda x: nn.functional.linear(x, x[:3], x[0, :3]),
        lambda x: nn.functional.layer_norm(x, (6,), x[0], x[1]),
        lambda x: torch.bmm(x.expand(3, 6, 6), x.t().expand(3, 6, 6)),
        lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None] * 2, x[None] + 1),
    ]
    x = inputs(8, 40, 6, 6)
    done = count_right(
        8,
        40,
        lambda t, i: operators[(t + i) % len(operators)](x[t, i].to(device)),
        lambda t, i: operators[(t + i) % len(operators)](x[t, i].clone()),
    )
    assert done == 320


# ---- tensors that cross threads


def test_producers_and_consumers_hand_tensors_over_without_synchronising(device):
    ways = queue.Queue(maxsize=8)
    tally = Tally()
    x = torch.randn(4, 50, 8, 8)

    def produce(t):
        for i in range(50):
            made = x[t, i].to(device)
            ways.put((t, i, torch.mm(made, made).relu_()))

    def consume():
        for _ in range(50):
            t, i, y = ways.get(timeout=60)
            got = (y + 1).sum(0)
            torch.testing.assert_close(
                got.cpu(), (x[t, i] @ x[t, i]).relu().add(1).sum(0), rtol=1e-4, atol=1e-4
            )
            tally.add()

    run_threads(8, lambda t: produce(t) if t < 4 else consume())
    assert tally["done"] == 200


def test_one_tensor_is_changed_in_place_by_turns(device):
    x = torch.zeros(64, device=device)
    lock = threading.Lock()

    def body(_):
        for _ in range(50):
            with lock:
                x.add_(1)

    run_threads(8, body)
    assert torch.equal(x.cpu(), torch.full((64,), 400.0))


def test_a_tensor_is_freed_by_another_thread_while_in_use(device):
    big = torch.randn(128, 128)
    expected = big
    for _ in range(4):
        expected = (expected @ big) / 16

    def work(t, i):
        held = [big.to(device)]
        y = held[0]
        for _ in range(4):
            y = torch.mm(y, held[0]) / 16
        thread = threading.Thread(target=held.clear)
        thread.start()
        other = torch.full((128, 128), float("nan"), device=device)  # may get the memory
        thread.join()
        del other
        return y

    assert count_right(4, 10, work, lambda t, i: expected, rtol=1e-3, atol=1e-2) == 40


def test_values_are_right_while_tensors_are_recorded_on_streams_and_freed(device):
    """test_on_the_double.py shows what record_stream is for."""

    def once(_):
        streams = [torch.heddle.Stream() for _ in range(3)]
        x = torch.ones(100, 100, device=device)
        results = []
        for stream in streams:
            with torch.heddle.stream(stream):
                results.append(x * 2)
            x.record_stream(stream)
        del x
        torch.full((100, 100), float("nan"), device=device)
        assert all(torch.equal(y.cpu(), torch.full((100, 100), 2.0)) for y in results)
        return len(results)

    assert sum(run_threads(8, lambda _: sum(once(i) for i in range(10)))) == 240


def test_memory_of_the_cpu_is_not_recorded():
    with pytest.raises(NotImplementedError, match="record_stream"):
        torch.ones(8).record_stream(torch.heddle.Stream())


def test_a_storm_of_synchronise_meanwhile(device):
    reference, module = on_cpu_and_device(nn.Linear(16, 16), device)
    x = inputs(4, 50, 4, 16)
    with torch.no_grad():
        expected = reference(x)
    tally = Tally()

    def body(t):
        for i in range(50):
            if t >= 4:
                (torch.heddle.synchronize, torch.accelerator.synchronize)[t % 2]()
                tally.add("synchronised")
                continue
            with torch.no_grad():
                torch.testing.assert_close(
                    module(x[t, i].to(device)).cpu(), expected[t, i], rtol=1e-4, atol=1e-4
                )
            tally.add()

    run_threads(8, body)
    assert (tally["done"], tally["synchronised"]) == (200, 200)


# ---- random numbers, settings


DRAWS = """import threading, torch
def draw():
    there = threading.Barrier(31)
    numbers = {}
    def work():
        stream = torch.heddle.current_stream().stream_id
        there.wait()
        numbers[stream] = torch.cat([torch.randn(50, device="heddle").cpu() for _ in range(10)])
        there.wait()
    threads = [threading.Thread(target=work) for _ in range(31)]
    torch.heddle.manual_seed(77)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return numbers
first, second = draw(), draw()
assert sorted(first) == sorted(second) == list(range(1, 32)), sorted(first)
assert all(torch.equal(first[stream], second[stream]) for stream in first)
print(len({tuple(numbers.tolist()) for numbers in first.values()}))
"""


def test_random_numbers_of_a_seed_and_a_stream_repeat_under_thirty_one_threads(device):
    done = run_program(DRAWS)
    assert (done.returncode, done.stdout) == (0, "31\n"), done.stderr


def test_autocast_and_inference_mode_are_a_thread_s_own(device):
    reference, module = on_cpu_and_device(nn.Linear(8, 4), device)
    x = torch.randn(4, 8)
    expected = reference(x).detach()
    barrier = threading.Barrier(8)
    tally = Tally()

    def body(t):
        with (
            torch.inference_mode(t % 2 == 0),
            torch.autocast(device, dtype=torch.bfloat16, enabled=t % 4 < 2),
        ):
            for _ in range(20):
                barrier.wait()
                y = module(x.to(device))
                assert y.dtype == (torch.bfloat16 if t % 4 < 2 else torch.float32)
                assert y.is_inference() == (t % 2 == 0)
                torch.testing.assert_close(y.detach().float().cpu(), expected, rtol=0.03, atol=0.03)
                tally.add()

    run_threads(8, body)
    assert tally["done"] == 160


def test_gradients_of_supported_operators_are_the_cpu_s(device):
    weight, x = torch.randn(8, 4), torch.randn(5, 8)

    def gradient(t, where):
        w = weight.to(where).requires_grad_()
        y = (torch.mm(x.to(where), w) * (t + 1)).exp().mean(0).sum()
        return torch.autograd.grad(y, w)[0]

    assert count_right(4, 5, lambda t, i: gradient(t, device), lambda t, i: gradient(t, "cpu")) == 20


def test_a_gradient_that_is_not_there_is_refused_by_name(device):
    x = torch.randn(3, device=device, requires_grad=True)
    y = x.relu().sum()
    with pytest.raises(NotImplementedError, match="threshold_backward"):
        y.backward()
    assert x.grad is None


# ---- processes


def run_program(code, timeout=120):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=timeout
    )


def test_torch_compile_from_eight_threads_at_once(device):
    reference = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    compiled = torch.compile(reference, backend="heddle")
    x = inputs(8, 5, 4, 8)

    def work(t, i):
        with torch.inference_mode():
            return compiled(x[t, i])

    def expected(t, i):
        with torch.inference_mode():
            return reference(x[t, i])

    assert count_right(8, 5, work, expected) == 40


FORKED = """import os, sys, torch
x = torch.ones(4, device="heddle")
child = os.fork()
if child == 0:
    torch.manual_seed(1)
    if not torch.heddle._is_in_bad_fork():
        os._exit(8)
    try:
        (x + 1).sum().item()
    except RuntimeError as error:
        print(error, flush=True)
        os._exit(7)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
for _ in range(100):
    x = x + 1
print(code, x.sum().item(), torch.heddle._is_in_bad_fork())
"""


def test_a_forked_child_is_refused_and_the_parent_goes_on(device):
    done = run_program(FORKED)
    assert done.stdout.splitlines()[-1] == "7 404.0 False", done.stdout + done.stderr
    assert "fork" in done.stdout


SPAWNED = """import multiprocessing, torch
def work(i):
    return (torch.arange(4.0, device="{0}") * i).sum().item()
if __name__ == "__main__":
    torch.ones(2, device="{0}").sum().item()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, range(4)))
"""


def test_spawned_children_have_devices_of_their_own(device, tmp_path):
    program = tmp_path / "spawned.py"
    program.write_text(SPAWNED.format(device))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "[0.0, 6.0, 12.0, 18.0]", done.stderr


BUSY = """import threading, torch
x = torch.randn(64, 64, device="{0}")
started = threading.Barrier(9)
def work():
    y = x
    first = True
    while True:
        y = torch.mm(y, x).clamp(-1, 1)
        if first:
            started.wait()
            first = False
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
started.wait()
print("exits", flush=True)
"""


def test_a_process_exits_while_eight_threads_work(device):
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(run_program, 5 * [BUSY.format(device)]):
            assert (done.returncode, done.stdout) == (0, "exits\n"), done.stderr


EXHAUSTED = """import threading, torch
torch.heddle.set_per_process_memory_fraction((256 << 20) / torch.heddle.recommended_max_memory())
x = torch.randn(8, 64, 64)
expected = (x @ x).relu()
counts = {"right": 0, "refused": 0}
lock = threading.Lock()
def count(what):
    with lock:
        counts[what] += 1
def work(t):
    for _ in range(50):
        if t == 7:
            try:
                torch.empty(1 << 29, device="heddle")
            except torch.OutOfMemoryError:
                count("refused")
        else:
            y = torch.bmm(x[t : t + 1].to("heddle"), x[t : t + 1].to("heddle")).relu()
            assert torch.allclose(y.cpu(), expected[t : t + 1], atol=1e-4)
            count("right")
threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(counts["right"], counts["refused"])
"""


def test_one_thread_runs_out_of_memory_and_seven_go_on(device):
    done = run_program(EXHAUSTED)
    assert done.stdout.strip() == "350 50", done.stderr


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.tensor([float(i * i)])


def test_data_loader_workers_beside(device):
    torch.ones(2, device=device).sum().item()
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    got = torch.cat([batch.to(device).sqrt().cpu() for batch in loader])
    assert torch.equal(got.flatten(), torch.arange(64.0))
