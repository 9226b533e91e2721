"""batch_inference and guard_mps: values, sharing, settings, refusals. The CPU has an owner as others have."""

import asyncio
import contextvars
import gc
import threading
import weakref
from collections import namedtuple

import pytest
import torch
from heddle.torch import owners
from threads import Tally, run_threads
from torch import nn

import heddle
from heddle import torch as device_module
from heddle.errors import InvalidError, UnavailableError, UnsupportedError


class Noting(nn.Module):
    """y = 2 x + 1; notes its batch sizes, threads and settings. While shut, holds its caller inside."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()
        self.seen = []
        self.inside = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()

    def forward(self, x, scale=2.0, *, plus=None):
        self.seen.append(
            (len(x), threading.get_ident(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        )
        self.inside.release()
        assert self.open.wait(30)
        return self.inner(x * scale + (1 if plus is None else plus))

    def sizes(self):
        return [size for size, *_ in self.seen]


def batched(size=8):
    return device_module.batch_inference(batch_size=size)


def owner_of_cpu():
    return owners.owner_of(torch.device("cpu"))


# ---- values


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 20])
def test_inputs_over_the_batch_size_are_split_and_joined(rows):
    module = Noting()
    x = torch.randn(rows, 3)
    with batched(8):
        y = module(x)
    assert torch.equal(y, 2 * x + 1)
    assert max(module.sizes()) <= 8
    before = len(module.seen)
    assert torch.equal(module(x), 2 * x + 1)  # outside: called directly, in this thread
    assert module.seen[before:] == [(rows, threading.get_ident(), True, False)]


def test_concurrent_callers_share_batches_and_get_their_own_rows(device):
    module = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
    x = torch.randn(16, 16)
    with torch.no_grad():
        expected = module(x)
    module.to(device)
    xs = x.to(device)
    tally = Tally()
    owner = owners.owner_of(xs.device)
    before = owner.queue.metrics()

    def body(i):
        with torch.no_grad(), batched(8):
            for _ in range(20):
                torch.testing.assert_close(
                    module(xs[i : i + 1]).cpu(), expected[i : i + 1], rtol=1e-4, atol=1e-5
                )
                tally.add()

    run_threads(16, body)
    assert tally["done"] == 320
    after = owner.queue.metrics()
    assert after.rows - before.rows == 320
    assert after.batches - before.batches < 320


def test_callers_that_wait_meet_in_one_batch_of_at_most_the_batch_size():
    module = Noting()
    with torch.no_grad(), batched(8):
        module(torch.zeros(2, 1))  # its rows are proven independent
    while module.inside.acquire(blocking=False):
        pass
    module.seen.clear()
    module.open.clear()

    def body(i):
        with torch.no_grad(), batched(8):
            return module(torch.full((1, 1), float(i)))

    threads = [threading.Thread(target=body, args=(-1,))]
    threads[0].start()
    assert module.inside.acquire(timeout=30)
    results = {}
    threads += [threading.Thread(target=lambda i=i: results.__setitem__(i, body(i))) for i in range(12)]
    for thread in threads[1:]:
        thread.start()
    while owner_of_cpu().queue.metrics().depth < 12:
        pass
    module.open.set()
    for thread in threads:
        thread.join(30)
    assert module.sizes()[0] == 1
    assert sorted(module.sizes()[1:]) == [4, 8]
    assert {i: float(y) for i, y in results.items()} == {i: 2.0 * i + 1 for i in range(12)}


def test_structures_go_in_and_come_out():
    Out = namedtuple("Out", "a b")

    class Many(nn.Module):
        def forward(self, pair, *, named, flag=False, nothing=None):
            a, b = pair
            return {"sum": a + named["c"], "out": Out(b * 2, [a, b]), "flag": flag, "nothing": nothing}

    a, b, c = torch.randn(11, 2), torch.randn(11, 3), torch.randn(11, 2)
    with batched(4):
        got = Many()((a, b), named={"c": c}, flag=True)
    assert torch.equal(got["sum"], a + c)
    assert torch.equal(got["out"].a, b * 2)
    assert type(got["out"]) is Out
    assert torch.equal(got["out"].b[0], a)
    assert (got["flag"], got["nothing"]) == (True, None)


def test_arguments_that_are_no_tensors_must_be_equal_to_share():
    module = Noting()
    x = torch.ones(1, 1)
    with batched():
        assert float(module(x, 3.0)) == 4.0
        assert float(module(x, scale=5.0)) == 6.0
        assert float(module(x, 1, plus=torch.full((1, 1), 7.0))) == 8.0
        assert float(module(x, True)) == 2.0


# ---- which thread runs it


def test_only_outermost_calls_are_taken_and_one_thread_runs_them():
    module = Noting()
    before = owner_of_cpu().queue.metrics().submitted
    with batched():
        module(torch.ones(1, 1))
        module(torch.ones(3, 1))
    assert owner_of_cpu().queue.metrics().submitted == before + 2
    assert {thread for _, thread, *_ in module.seen} == {owner_of_cpu()._thread}


def test_it_follows_contextvars_and_decorates_functions_and_coroutines():
    module = Noting()

    @batched(4)
    def plain(x):
        return module(x)

    @batched(4)
    async def later(x):
        await asyncio.get_running_loop().run_in_executor(None, int)
        return module(x)

    plain(torch.ones(9, 1))
    asyncio.run(later(torch.ones(9, 1)))
    assert max(module.sizes()) <= 4
    module.seen.clear()
    with batched(4):
        inherited = contextvars.copy_context()
        thread = threading.Thread(target=module, args=(torch.ones(9, 1),))
        thread.start()
        thread.join()
    assert module.sizes() == [9]  # a plain thread does not inherit
    inherited.run(module, torch.ones(9, 1))
    assert module.sizes()[1:]
    assert max(module.sizes()[1:]) <= 4


def test_contexts_nest_and_the_inner_size_counts():
    module = Noting()
    with batched(8), batched(2):
        module(torch.ones(6, 1))
    assert max(module.sizes()) == 2


def test_a_call_from_the_owner_thread_is_run_there():
    inner = Noting()

    class Nested(nn.Module):
        def forward(self, x):
            with batched(2):
                return inner(x)

    with batched():
        assert torch.equal(Nested()(torch.ones(6, 1)), torch.full((6, 1), 3.0))
    assert {thread for _, thread, *_ in inner.seen} == {owner_of_cpu()._thread}


def test_a_module_is_not_kept_alive_by_the_queue():
    module = Noting()
    with batched():
        module(torch.ones(3, 1))
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


# ---- the caller's settings


def test_grad_mode_and_inference_mode_of_the_caller_hold():
    module = Noting()
    module.weight = nn.Parameter(torch.ones(1))
    module.inner = nn.Linear(1, 1)
    x = torch.ones(2, 1)
    with batched():
        assert module(x).requires_grad
        with torch.no_grad():
            assert not module(x).requires_grad
        with torch.inference_mode():
            assert module(x).is_inference()
    modes = {tuple(seen[2:]) for seen in module.seen}
    assert modes == {(True, False), (False, False), (False, True)}


def test_gradients_through_a_batch_are_the_module_s_own():
    module = nn.Linear(3, 2)
    x = torch.randn(5, 3)
    expected = torch.autograd.grad(module(x).square().sum(), module.weight)[0]
    with batched(2):
        got = torch.autograd.grad(module(x).square().sum(), module.weight)[0]
    torch.testing.assert_close(got, expected)


def test_callers_of_different_settings_share_no_batch():
    module = nn.Linear(4, 4).eval()
    x = torch.randn(8, 4)
    expected = module(x).detach()
    dtypes = Tally()

    def body(i):
        with torch.no_grad(), batched(8), torch.autocast("cpu", dtype=torch.bfloat16, enabled=i % 2 == 1):
            for _ in range(20):
                y = module(x[i : i + 1])
                dtypes.add(y.dtype)
                assert y.dtype == (torch.bfloat16 if i % 2 else torch.float32)
                torch.testing.assert_close(y.float(), expected[i : i + 1], rtol=0.02, atol=0.02)

    run_threads(8, body)
    assert (dtypes[torch.bfloat16], dtypes[torch.float32]) == (80, 80)


# ---- refusals and errors


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.LSTM(4, 3), (1, 2, 4)),
        (nn.LSTM(4, 3), (5, 2, 4)),
        (nn.Softmax(dim=0), (3, 4)),
        (nn.Dropout(0.5), (4, 50)),
        (nn.BatchNorm1d(4), (6, 4)),
        (nn.Flatten(0), (3, 4)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_a_module_whose_rows_depend_on_each_other_is_refused(module, shape):
    for _ in range(2):
        with batched(), pytest.raises((UnsupportedError, InvalidError), match=r"batched|row"):
            module(torch.randn(*shape))


def test_the_same_module_batch_first_is_batched():
    module = nn.LSTM(4, 3, batch_first=True)
    x = torch.randn(9, 5, 4)
    expected = module(x)[0]
    outputs = nn.Module()
    outputs.forward = lambda x: module(x)[0]
    outputs.inner = module
    with torch.no_grad(), batched(4):
        torch.testing.assert_close(outputs(x), expected.detach())


def test_what_cannot_be_batched_is_refused_by_name():
    module = Noting()
    with batched():
        with pytest.raises(UnsupportedError, match="holds a set"):
            module(torch.ones(2, 1), {1})
        with pytest.raises(InvalidError, match="equally many rows"):
            module(torch.ones(2, 1), plus=torch.ones(3, 1))
        with pytest.raises(InvalidError, match="equally many rows"):
            module(torch.tensor(1.0))
        with pytest.raises(UnsupportedError, match="no device"):
            nn.Identity()(3)
    with pytest.raises(InvalidError, match="at least 1"):
        batched(0)


def test_an_error_is_its_own_caller_s_alone():
    module = nn.Embedding(10, 3)
    expected = module(torch.arange(8)).detach()
    tally = Tally()

    def body(i):
        with torch.no_grad(), batched(8):
            for time in range(30):
                bad = i == 3 and time % 3 == 0
                try:
                    y = module(torch.tensor([99 if bad else i]))
                except IndexError:
                    assert bad
                    tally.add("failed")
                else:
                    assert not bad
                    assert torch.equal(y, expected[i : i + 1])
                    tally.add("right")

    run_threads(8, body)
    assert (tally["failed"], tally["right"]) == (10, 230)


def test_compiled_and_traced_modules_are_what_they_were():
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    x = torch.randn(5, 3)
    with batched():
        traced = torch.jit.trace(module, x)
        exported = torch.export.export(module, (x,)).module()
    torch.testing.assert_close(traced(x), module(x))
    torch.testing.assert_close(exported(x), module(x))
    torch._dynamo.reset()  # what other tests compiled of nn.Sequential counts against its limit
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), module(x))
    with torch.no_grad(), batched(2):
        torch.testing.assert_close(compiled(x), module(x))


# ---- the guard


@pytest.fixture
def guard():
    return device_module.guard_mps(device="cpu", max_batch=8, capacity=256)


def test_a_guarded_module_is_called_by_one_thread_in_batches(guard):
    module = Noting()
    safe = guard(module)
    x = torch.randn(32, 3)
    tally = Tally()

    def body(i):
        for _ in range(20):
            with torch.inference_mode():
                assert torch.equal(safe(x[i : i + 2]), 2 * x[i : i + 2] + 1)
            tally.add()

    run_threads(16, body)
    assert tally["done"] == 320
    assert len({thread for _, thread, *_ in module.seen}) == 1
    assert max(module.sizes()) <= 8
    assert guard.metrics().submitted >= 320


def test_the_guard_runs_anything_in_its_thread_and_gives_back_errors(guard):
    thread = guard.run(threading.get_ident)
    assert thread != threading.get_ident()
    assert guard.run(lambda: guard.run(threading.get_ident)) == thread
    assert guard.run(dict, a=1) == {"a": 1}
    with pytest.raises(ZeroDivisionError):
        guard.run(lambda: 1 / 0)


def test_one_guard_per_device(guard):
    assert device_module.guard_mps(device="cpu", max_batch=8, capacity=256) is guard
    with pytest.raises(InvalidError, match="guarded already"):
        device_module.guard_mps(device="cpu", max_batch=16, capacity=256)
    with pytest.raises(InvalidError, match="at least 1"):
        device_module.guard_mps(device="cpu", max_batch=0)


def test_batch_inference_uses_the_guard_s_thread(guard):
    module = Noting()
    with batched():
        module(torch.ones(2, 1))
    assert {thread for _, thread, *_ in module.seen} == {guard.run(threading.get_ident)}


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="there is one")
def test_without_an_mps_device_it_says_so():
    with pytest.raises(UnavailableError, match="no mps device"):
        device_module.guard_mps()


def test_the_agx_guard_is_switched(monkeypatch):
    asked = []
    monkeypatch.setattr(heddle.guard, "install", lambda: asked.append(1) or "waiting")
    from heddle.torch import mps

    assert mps._switch_agx_guard(False) == "not asked for"
    assert mps._switch_agx_guard(True) == "waiting"
    monkeypatch.setattr(mps.sys, "platform", "linux")
    assert mps._switch_agx_guard(None) == "not a Mac"
    monkeypatch.setattr(mps.sys, "platform", "darwin")
    assert mps._switch_agx_guard(None) == "waiting"
    assert len(asked) == 2

    def absent():
        raise UnavailableError("libagx_guard was not found")

    monkeypatch.setattr(heddle.guard, "install", absent)
    assert "not found" in mps._switch_agx_guard(None)
    with pytest.raises(UnavailableError, match="not found"):
        mps._switch_agx_guard(True)


def test_heddle_s_own_device_rests_while_the_guard_works(guard):
    owner = owner_of_cpu()
    graph = heddle.GraphBuilder()
    graph.output(graph.add("Relu", graph.input("x", "f32", ["n"])), "y")
    model = graph.build(heddle.Device("host"))
    inside, leave, called = threading.Event(), threading.Event(), threading.Event()

    def work():
        inside.set()
        assert leave.wait(30)
        return called.is_set()

    owner.exclusive = "host"
    try:
        result = []
        threads = [threading.Thread(target=lambda: result.append(guard.run(work)))]
        threads[0].start()
        assert inside.wait(30)
        threads.append(threading.Thread(target=lambda: (model(torch.ones(3)), called.set())))
        threads[1].start()
        assert not called.wait(0.2)
        leave.set()
        for thread in threads:
            thread.join(30)
        assert result == [False]
        assert called.is_set()
    finally:
        owner.exclusive = None
