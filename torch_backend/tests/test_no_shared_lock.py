"""No lock is shared by calls: two threads are inside a call at the same time, which is shown without a clock.

The result of each call needs more memory than the limit leaves. The allocator then runs the memory pressure
callback in the calling thread, in the middle of the call. There each thread waits for the other one. Once
both are there, memory is freed and both calls end. With a lock around calls the second thread never gets
there.
"""

import subprocess
import sys

import pytest

PROGRAM = """import threading
import heddle, torch
from torch import nn

LIMIT_S = 20  # reached only where the threads do not meet
ROWS, WIDTH = 1024, 2048  # a result of 8 MiB
torch.manual_seed(1)

def linear():
    return nn.Linear(8, WIDTH).eval().requires_grad_(False)

def compiled(module):
    return heddle.torch.compile(module, torch.zeros(ROWS, 8), coalesce=False)

def dynamo(module):
    return torch.compile(module.to("heddle"), backend="heddle", options={"coalesce": False})

def there(module):
    return module.to("heddle")

one, two = linear(), linear()
rows = [torch.randn(ROWS, 8), torch.randn(ROWS, 8)]
wide = [torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)]
of_one, of_both = [one(rows[0]), one(rows[1])], [one(rows[0]), two(rows[1])]
CASES = {
    "one compiled module": (lambda: [compiled(one)] * 2, rows, of_one),
    "two compiled modules": (lambda: [compiled(one), compiled(two)], rows, of_both),
    "one module": (lambda: [there(one)] * 2, rows, of_one),
    "two modules": (lambda: [there(one), there(two)], rows, of_both),
    "two operators": (lambda: [torch.relu, lambda x: x * 3], wide, [wide[0].relu(), wide[1] * 3]),
    "two operators of the CPU": (lambda: [torch.lgamma, torch.special.i0e], wide,
                                 [wide[0].lgamma(), torch.special.i0e(wide[1])]),
    "torch.compile": (lambda: [dynamo(one)] * 2, rows, of_one),
}
ballast, inside, met = [], None, set()

def free_memory():
    ballast.clear()
    torch.heddle.empty_cache()

def wait_for_the_other(_):
    inside.wait(LIMIT_S)
    met.add(threading.get_ident())

heddle.Device(torch.heddle.device_names()[0]).on_memory_pressure(wait_for_the_other)

def run(make, inputs, expected):
    global inside
    torch.heddle.set_per_process_memory_fraction(1.0)
    calls, x = make(), [each.to("heddle") for each in inputs]
    # Compiled from here on. The results stay, so that what is allocated does not depend on when they go.
    warm = [call(each) for call, each in zip(calls, x, strict=True)]
    ballast.append(torch.empty(128 << 20, dtype=torch.uint8, device="heddle"))
    inside = threading.Barrier(2, action=free_memory)
    met.clear()
    torch.heddle.synchronize()
    torch.heddle.empty_cache()
    limit = torch.heddle.memory_allocated() + (4 << 20)
    torch.heddle.set_per_process_memory_fraction(limit / torch.heddle.recommended_max_memory())
    right = [False, False]

    def work(i):
        with torch.inference_mode():
            result = calls[i](x[i])
        right[i] = torch.allclose(result.cpu(), expected[i], atol=1e-5)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(met), right

for name, case in CASES.items():
    threads_inside, right = run(*case)
    print(name, threads_inside, right, sep=": ", flush=True)
    if threads_inside < 2:
        break  # the others would wait as long
"""
CASES = (
    "one compiled module",
    "two compiled modules",
    "one module",
    "two modules",
    "two operators",
    "two operators of the CPU",
    "torch.compile",
)


@pytest.fixture(scope="module")
def outcome():
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("case", CASES)
def test_two_threads_are_inside_a_call_at_once(case, outcome):
    assert f"{case}: 2: [True, True]" in outcome.stdout.splitlines(), outcome.stdout + outcome.stderr


# One thread is in its callback and needs the GIL to get out. The other one, whose callback has ended, waits
# for that in the middle of an allocation.
TWO_STORAGES = """import sys, threading
import heddle, torch

BYTES = 8 << 20
ballast = [torch.empty(2 * BYTES, dtype=torch.uint8, device="heddle")]
torch.heddle.synchronize()
limit = torch.heddle.memory_allocated() + BYTES // 2
torch.heddle.set_per_process_memory_fraction(limit / torch.heddle.recommended_max_memory())
sys.setswitchinterval(100)  # a thread that does not let go of the GIL keeps it
first_is_inside, second_was_there = threading.Event(), threading.Event()

def make_room(_):
    if first_is_inside.is_set():
        return second_was_there.set()
    first_is_inside.set()
    second_was_there.wait()
    ballast.clear()
    torch.heddle.empty_cache()

heddle.Device(torch.heddle.device_names()[0]).on_memory_pressure(make_room)
storages = [None, None]

def work(i):
    if i == 1:
        first_is_inside.wait()
    storages[i] = torch.UntypedStorage(BYTES, device="heddle")

threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print([storage.nbytes() for storage in storages])
"""


def test_a_storage_waits_for_another_threads_callback_without_the_gil():
    done = subprocess.run(
        [sys.executable, "-c", TWO_STORAGES], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.split("\n")[0] == "[8388608, 8388608]", done.stdout + done.stderr
