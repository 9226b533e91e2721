"""What only the Metal double shows: work is under way for as long as a test wants, and threads meet in it.

conftest.py leaves this file out where the process runs on another device. A pass that the double holds ends
as failed, and so does every wait for it. The programs are processes of their own, since streams stay failed.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import heddle

HELD_PASSES = """import ctypes, os, threading
import torch
double = ctypes.CDLL(None)
KERNEL_NEVER_ENDS = 7  # Fault of tests/metal_double/control.h
set_fault = double["_ZN6heddle12metal_double3setENS0_5FaultEb"]
is_on = double["_ZN6heddle12metal_double5is_onENS0_5FaultE"]
is_on.restype = ctypes.c_bool
end_stuck_kernels = double["_ZN6heddle12metal_double17end_stuck_kernelsEv"]

def end_the_pass(over):  # which may not have begun: the double ends those that run at the call
    while not over.wait(0.001):
        end_stuck_kernels()

def failure_of(wait):
    over = threading.Event()
    thread = threading.Thread(target=end_the_pass, args=(over,))
    thread.start()
    try:
        wait()
    except RuntimeError as error:
        return "GPU Timeout" in str(error)
    finally:
        over.set()
        thread.join()
"""

WORK_UNDER_WAY = """x = torch.ones(64, 64, device="heddle")
x + 1  # compiled from here on
torch.heddle.synchronize()
other = torch.heddle.Stream()

def waiting(wait):
    return lambda held, event: failure_of(lambda: wait(held, event))

def queries(held, event):
    before = held.query(), event.query(), other.query()
    failure_of(held.synchronize)
    return *before, held.query(), event.query()

def waits_for_its_tensor_alone(held, event):
    while is_on(KERNEL_NEVER_ENDS):  # until the held pass runs: the next one to run would be held
        os.sched_yield()
    ready = x.nonzero().shape[0], x[0, 0].item(), int(x.sum().item())
    running = held.query(), event.query()
    return *ready, *running, failure_of(held.synchronize)

def order(wait):
    def scenario(held, event):
        follower = torch.heddle.Stream()
        wait(follower, held, event)
        return follower.query(), failure_of(follower.synchronize)
    return scenario

def record_stream(size):
    def made():
        return torch.empty(size, dtype=torch.uint8, device="heddle")

    def scenario(held, event):
        # The held pass does not name the tensor: to Heddle, whatever uses it there is foreign work.
        first = made().data_ptr()
        y = made()
        at_once = y.data_ptr() == first
        y.record_stream(held)
        del y
        meanwhile = made().data_ptr() == first
        failure_of(held.synchronize)
        torch.heddle.empty_cache()
        return at_once, meanwhile, torch.heddle.memory_reserved() < torch.heddle.memory_allocated() + size
    return scenario

SCENARIOS = {
    "torch.heddle.synchronize": waiting(lambda held, event: torch.heddle.synchronize()),
    "torch.accelerator.synchronize": waiting(lambda held, event: torch.accelerator.synchronize()),
    "torch.heddle.synchronize(stream)": waiting(lambda held, event: torch.heddle.synchronize(held)),
    "Stream.synchronize": waiting(lambda held, event: held.synchronize()),
    "Event.synchronize": waiting(lambda held, event: event.synchronize()),
    "Tensor.cpu": waiting(lambda held, event: result.cpu()),
    "query": queries,
    "nonzero and item": waits_for_its_tensor_alone,
    "Stream.wait_event": order(lambda follower, held, event: follower.wait_event(event)),
    "Stream.wait_stream": order(lambda follower, held, event: follower.wait_stream(held)),
    "Event.wait": order(lambda follower, held, event: event.wait(follower)),
    "record_stream of 4 KiB": record_stream(1 << 12),
    "record_stream of 4 MiB": record_stream(1 << 22),
}
for name, scenario in SCENARIOS.items():
    held, event = torch.heddle.Stream(), torch.heddle.Event()
    set_fault(KERNEL_NEVER_ENDS, True)
    with torch.heddle.stream(held):
        result = x + 1
    held.record_event(event)
    print(name, scenario(held, event), sep=": ", flush=True)
os._exit(0)  # where a wait is missing, a pass is still held
"""


def told_by(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    return dict(line.split(": ", 1) for line in done.stdout.splitlines()), done.stderr


@pytest.fixture(scope="module")
def outcome():
    return told_by(HELD_PASSES + WORK_UNDER_WAY)


def assert_told(outcome, name, expected):
    told, errors = outcome
    assert told.get(name) == str(expected), errors


def test_queries_are_false_while_work_is_under_way(outcome):
    assert_told(outcome, "query", (False, False, True, True, True))


@pytest.mark.parametrize(
    "wait",
    [
        "torch.heddle.synchronize",
        "torch.accelerator.synchronize",
        "torch.heddle.synchronize(stream)",
        "Stream.synchronize",
        "Event.synchronize",
        "Tensor.cpu",
    ],
)
def test_waiting_lasts_until_the_work_is_over_and_raises_its_failure(wait, outcome):
    """It frees the GIL: another thread of Python ends the work."""
    assert_told(outcome, wait, True)


def test_nonzero_and_item_wait_for_their_tensor_and_not_for_the_device(outcome):
    assert_told(outcome, "nonzero and item", (4096, 1.0, 4096, False, False, True))


@pytest.mark.parametrize("wait", ["Stream.wait_event", "Stream.wait_stream", "Event.wait"])
def test_a_stream_goes_on_only_after_the_event_that_it_waits_for(wait, outcome):
    assert_told(outcome, wait, (False, True))


@pytest.mark.parametrize("size", ["4 KiB", "4 MiB"])
def test_recorded_memory_is_not_used_again_while_foreign_work_is_under_way(size, outcome):
    """Freed memory is used again at once, but not while the stream that was recorded is at work."""
    assert_told(outcome, f"record_stream of {size}", (True, False, True))


# ---- leases

LEASES = """import heddle
heddle.Device.configure(exhaustion="fail")
x = torch.ones(64, 64, device="heddle")
x + 1
torch.heddle.synchronize()

def leased():
    return heddle.Device().stats()["streams_leased"]

def hold_all(places):
    \"\"\"So many threads have streams of their own at once. The one with stream 1 keeps it.\"\"\"
    numbers, all_hold, others_end = [], threading.Barrier(places + 1), threading.Event()
    def body():
        number = torch.heddle.current_stream().stream_id
        numbers.append(number)
        all_hold.wait(60)
        if number == 1:
            others_end.wait()
    [threading.Thread(target=body).start() for _ in range(places)]
    all_hold.wait(60)
    return len(set(numbers))

def wait_for_leases(count):
    while leased() != count:  # a thread's ends just after a join
        os.sched_yield()

places = heddle.Device().streams - 1
held = torch.heddle.Stream()
set_fault(KERNEL_NEVER_ENDS, True)
with held:
    x + 1
while is_on(KERNEL_NEVER_ENDS):
    os.sched_yield()
print("kept while it works", (leased(), hold_all(places - 1), held.query()), sep=": ", flush=True)
wait_for_leases(1)
print("given up where all are wanted", (hold_all(places), held.query()), sep=": ", flush=True)
wait_for_leases(1)  # the one that the stream had
event = held.record_event()
with held:
    follower = torch.heddle.current_stream().record_event()
print("in order", (held.query(), event.query(), follower.query()), sep=": ", flush=True)
print("its failure", failure_of(event.synchronize), sep=": ", flush=True)
with held:
    again = x + 2
held.synchronize()
print("used again", (again.sum().item(), held.query()), sep=": ", flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def leases():
    return told_by(HELD_PASSES + LEASES)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("kept while it works", lambda places: (1, places - 1, False)),
        ("given up where all are wanted", lambda places: (places, False)),
        ("in order", lambda _: (False, False, False)),
        ("its failure", lambda _: True),
        ("used again", lambda _: (3.0 * 4096, True)),
    ],
)
def test_a_stream_keeps_its_lease_while_it_works_and_its_order_without(what, expected, leases):
    """One that torch.Stream made. It gives the lease up to a thread that would get none."""
    assert_told(leases, what, expected(heddle.Device().streams - 1))


# ---- a lost device

LOST = """import sys
import heddle.torch
from collections import Counter
sys.path.insert(0, sys.argv[1])
from threads import Tally, run_threads
COMMAND_BUFFER_OUT_OF_MEMORY, COMMAND_BUFFER_ERROR = 5, 6  # of Fault; each takes the next commit
THREADS, TIMES = 8, 3
x = torch.randn(THREADS, TIMES, 4, 6)
there = x.to("heddle")
net = torch.nn.Linear(6, 5).eval().requires_grad_(False)
wanted = torch.stack([net(each).relu() for each in x.flatten(0, 1)]).view(THREADS, TIMES, 4, 5)
compiled = heddle.torch.compile(net, torch.zeros(4, 6), coalesce=False)
eager = torch.nn.Linear(6, 5).to("heddle").requires_grad_(False)
eager.load_state_dict(net.state_dict())
alone = [torch.Stream("heddle") for _ in range(THREADS)]
shared = [torch.Stream("heddle") for _ in range(THREADS // 2)]
told, right = Counter(), Tally()

def streams_of(t):
    return torch.heddle.current_stream(), alone[t], shared[t // 2]

def calls(t):
    for i in range(TIMES):
        for stream in streams_of(t):
            for module in (eager, compiled):
                yield i, stream, module

def once(t, i, stream, module):
    with stream:
        y = module(there[t, i]).relu()
    stream.synchronize()
    torch.testing.assert_close(y.cpu(), wanted[t, i], rtol=1e-4, atol=1e-4)
    right.add()

def failing(error):
    assert ("Internal Error" in str(error)) != ("no memory" in str(error)), error
    return type(error).__name__

def each_fails_once(t):
    with one_at_a_time:
        for i, stream, module in calls(t):
            set_fault((COMMAND_BUFFER_ERROR, COMMAND_BUFFER_OUT_OF_MEMORY)[i % 2], True)
            try:
                once(t, i, stream, module)
            except RuntimeError as error:
                told[failing(error)] += 1
            once(t, i, stream, module)

def until_right(t):
    for n, call in enumerate(calls(t)):
        if (n + t) % 5 == 0:  # somebody's next commit
            set_fault((COMMAND_BUFFER_ERROR, COMMAND_BUFFER_OUT_OF_MEMORY)[n % 2], True)
        for _ in range(100):
            try:
                once(t, *call)
                break
            except RuntimeError as error:
                met.add(failing(error))

torch.heddle.synchronize()  # weights and inputs are there: what a lost stream was to write is lost
one_at_a_time = threading.Lock()
each_fails_once(0)  # the main thread's is the default stream
print("one thread", (dict(told), right["done"]), sep=": ", flush=True)
told.clear()
run_threads(THREADS, each_fails_once)
print("eight threads in turn", (dict(told), right["done"]), sep=": ", flush=True)
met = Tally()
run_threads(THREADS, until_right)
for fault in (COMMAND_BUFFER_ERROR, COMMAND_BUFFER_OUT_OF_MEMORY):
    set_fault(fault, False)
try:
    torch.heddle.synchronize()
except RuntimeError as error:  # the last fault's, whose work nobody has waited for
    met.add(failing(error))
torch.heddle.synchronize()
some = met["RuntimeError"] > 0 and met["OutOfMemoryError"] > 0
print("eight threads at once", (some, right["done"]), sep=": ", flush=True)
"""


@pytest.fixture(scope="module")
def lost():
    return told_by(HELD_PASSES + LOST, str(Path(__file__).parent))


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("one thread", ({"RuntimeError": 12, "OutOfMemoryError": 6}, 18)),
        ("eight threads in turn", ({"RuntimeError": 96, "OutOfMemoryError": 48}, 18 + 144)),
        ("eight threads at once", (True, 18 + 2 * 144)),
    ],
)
def test_calls_whose_stream_is_lost_say_so_and_the_next_ones_are_right(who, expected, lost):
    """On threads' own streams, and on torch.Streams that one thread uses and that two threads use."""
    assert_told(lost, who, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_print_without_the_f64_that_the_device_does_not_have(dtype):
    x = torch.tensor([[1, 0], [0, 12345]]).to(dtype)
    here = str(x)
    suffix = ", dtype=" if ", dtype=" in here else ")"
    wanted = here.replace(suffix, f", device='heddle:0'{suffix}")
    assert str(x.to("heddle")) == wanted
    assert str(torch.tensor(2.5, device="heddle")) == "tensor(2.5000, device='heddle:0')"


def test_the_double_is_the_mac_that_the_environment_names():
    field = ctypes.CDLL(None)["_ZN6heddle12metal_double5fieldEv"]
    field.restype = ctypes.c_void_p
    assert bool(field()) == ("HEDDLE_METAL_DOUBLE_MAC" in os.environ)


# ---- no lock is shared

MEETINGS = """import ctypes, sys, threading
import heddle, torch
from torch import nn
double = ctypes.CDLL(None)
x = [torch.randn(4, 8), torch.randn(4, 8)]
on_device = [each.to("heddle") for each in x]

def linear(width=5):
    return nn.Linear(8, width).eval().requires_grad_(False)

def compiled(module):
    return heddle.torch.compile(module, torch.zeros(4, 8), coalesce=False)

def dynamo(module):
    return torch.compile(module.to("heddle"), backend="heddle", options={"coalesce": False})

def there(module):
    return module.to("heddle")

def meet(place, calls, expected):
    \"\"\"The two calls are at `place` of the double at the same time.\"\"\"
    double.metal_double_meet(place.encode(), 2, ctypes.c_uint64(1))
    results = [None, None]
    submitted = threading.Barrier(2)
    def work(i):
        with torch.inference_mode():
            for _ in range(8):  # as many share a submission, which goes within the last of these calls
                results[i] = calls[i](on_device[i])
        submitted.wait(60)  # a thread that ends gives its stream to the other one
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    right = [torch.allclose(each.cpu(), wanted, atol=1e-5) for each, wanted in zip(results, expected)]
    return double.metal_double_met(place.encode()), double.metal_double_missed(place.encode()), right

def warm(calls):
    for call, each in zip(calls, on_device):
        call(each).cpu()
    return calls

def expected(first, second):
    return [first(x[0]), second(x[1])]

CASES = {
    "one compiled module": (lambda a, b: [compiled(a)] * 2, lambda a, b: expected(a, a)),
    "two compiled modules": (lambda a, b: [compiled(a), compiled(b)], expected),
    "torch.compile": (lambda a, b: [dynamo(a)] * 2, lambda a, b: expected(a, a)),
    "one module": (lambda a, b: [there(a)] * 2, lambda a, b: expected(a, a)),
    "two modules": (lambda a, b: [there(a), there(b)], expected),
    "two operators": (lambda a, b: [torch.relu, torch.exp], lambda a, b: expected(torch.relu, torch.exp)),
}
for name, (make, reference) in CASES.items():
    modules = linear(), linear()
    wanted = reference(*modules)
    calls = warm(make(*modules))
    for place in ("commit", "run"):
        met, missed, right = meet(place, calls, wanted)
        print(f"{name}, {place}", (met, missed, right), sep=": ", flush=True)
        if missed:
            sys.exit()  # the others would wait as long
cold = linear(11), linear(13)
wanted = expected(*cold)
print("two modules, compile", meet("compile", [there(each) for each in cold], wanted), sep=": ")
"""


@pytest.fixture(scope="module")
def meetings():
    return told_by(MEETINGS)


@pytest.mark.parametrize("place", ["commit", "run"])
@pytest.mark.parametrize(
    "calls",
    [
        "one compiled module",
        "two compiled modules",
        "torch.compile",
        "one module",
        "two modules",
        "two operators",
    ],
)
def test_two_threads_submit_and_run_at_once(calls, place, meetings):
    assert_told(meetings, f"{calls}, {place}", (1, 0, [True, True]))


def test_two_threads_compile_at_once(meetings):
    assert_told(meetings, "two modules, compile", (1, 0, [True, True]))
