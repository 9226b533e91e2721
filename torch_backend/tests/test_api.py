"""torch.heddle: each function of the device module, and what PyTorch asks of such a module."""

import copy
import ctypes
import io
import os
import pickle
import subprocess
import sys
import threading
from importlib import metadata

import heddle.torch
import pytest
import torch
from threads import run_threads
from torch.utils.dlpack import DLDeviceType

import heddle


def on_device(*shape):
    return torch.randn(*shape).to("heddle")


def in_a_process(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


# ---- registration


def test_import_torch_alone_registers_the_device():
    code = "import torch; print(torch.ones(3, device='heddle').sum().item(), torch.heddle.__name__)"
    assert in_a_process(code).stdout.split() == ["3.0", "heddle.torch"]


def test_either_import_may_come_first_and_autoload_may_be_off():
    for first in ("import heddle.torch, torch", "import torch, heddle.torch", "import heddle, torch"):
        assert in_a_process(f"{first}; print(torch.ones(2, device='heddle').sum().item())").stdout == "2.0\n"
    code = """import os; os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
assert not hasattr(torch, "heddle")
import heddle.torch
print(torch.ones(2, device="heddle").sum().item())
"""
    assert in_a_process(code).stdout == "2.0\n"


def test_registering_twice_changes_nothing():
    before = torch.heddle
    heddle.torch._register()
    assert torch.heddle is before is heddle.torch


def test_tensors_and_modules_have_methods_of_the_device():
    x = torch.ones(3)
    assert not x.is_heddle
    y = x.heddle()
    assert y.is_heddle
    assert y.device == torch.device("heddle:0")
    assert torch.nn.Linear(2, 2).heddle().weight.is_heddle
    assert y.untyped_storage().is_heddle


# ---- devices


def test_devices_are_named_and_counted():
    names = torch.heddle.device_names()
    assert names[0] == heddle.Device().name
    assert sorted(names) == sorted(heddle.Device.names())
    assert torch.heddle.device_count() == len(names) == torch.accelerator.device_count()
    assert torch.heddle.is_available()
    assert torch.heddle.get_device_properties(0).name == names[0]
    assert torch.heddle.get_device_name("heddle:0") == heddle.Device(names[0]).description
    assert torch.heddle.get_device_properties().multi_processor_count == heddle.Device(names[0]).threads


OPENED = """import sys, threading
import heddle, torch
opens, asks = threading.Event(), threading.Event()
def note(level, message):
    opens.set()
    assert asks.wait(60)
heddle.set_log(note)
thread = threading.Thread(target=lambda: {first})
thread.start()
assert opens.wait(60)
sys.setswitchinterval(60)  # the next call comes before the log goes on
asks.set()
print(torch.heddle.device_count() >= 1)
thread.join()
"""


@pytest.mark.parametrize("first", ["torch.ones(2, device='heddle')", "torch.heddle.default_generators"])
def test_threads_that_wait_for_devices_to_be_opened_leave_the_gil_to_the_log(first):
    assert in_a_process(OPENED.format(first=first)).stdout == "True\n"


def test_the_current_device_is_set_exchanged_and_restored():
    last = torch.heddle.device_count() - 1
    assert torch.heddle.current_device() == 0
    with torch.heddle.device(last):
        assert torch.heddle.current_device() == last
        assert torch.empty(1, device="heddle").device.index == last
    assert torch.heddle.current_device() == 0
    with torch.heddle.device(None), torch.heddle.device(-1):
        assert torch.heddle.current_device() == 0
    with torch.heddle.device_of(torch.empty(1, device=f"heddle:{last}")):
        assert torch.heddle.current_device() == last
    torch.heddle.set_device(f"heddle:{last}")
    assert torch.heddle._exchange_device(0) == last
    assert torch.heddle._maybe_exchange_device(-1) == -1
    assert torch.accelerator.current_device_index() == 0


@pytest.mark.parametrize("wrong", [99, "heddle:99", "cpu", torch.device("cpu")])
def test_a_device_that_is_none_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match="heddle"):
        torch.heddle.set_device(wrong)


def test_it_is_the_accelerator():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("heddle")
    assert torch.get_device_module("heddle") is heddle.torch
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().stream_id == torch.heddle.current_stream().stream_id


# ---- streams and events


def test_the_main_thread_has_the_default_stream_and_others_their_own():
    assert torch.heddle.current_stream() == torch.heddle.default_stream()
    barrier = threading.Barrier(4)

    def body(_):
        mine = torch.heddle.current_stream().stream_id
        barrier.wait()
        again = torch.heddle.current_stream().stream_id
        barrier.wait()
        assert mine == again
        torch.heddle.release_current_thread_slot()
        return mine

    ids = run_threads(4, body)
    assert len({*ids, torch.heddle.default_stream().stream_id}) == 5


def test_a_stream_is_current_inside_its_context():
    stream = torch.heddle.Stream()
    before = torch.heddle.current_stream()
    assert isinstance(stream, torch.Stream)
    assert stream != before
    with torch.heddle.stream(stream):
        assert torch.heddle.current_stream() == stream
        with stream:
            y = on_device(64, 64).relu().sum()
        with torch.heddle.stream(None):
            assert torch.heddle.current_stream() == stream
    assert torch.heddle.current_stream() == before
    stream.synchronize()
    assert stream.query()
    assert y.item() > 0


def test_one_stream_may_be_entered_by_two_threads_at_once():
    stream = torch.heddle.Stream()
    barrier = threading.Barrier(2)

    def body(_):
        before = torch.heddle.current_stream()
        with stream:
            barrier.wait()
            assert torch.heddle.current_stream() == stream
            barrier.wait()
        assert torch.heddle.current_stream() == before
        return before.stream_id

    first, second = run_threads(2, body)
    assert first != second


def test_set_stream_stays_until_it_is_set_again():
    before, stream = torch.heddle.current_stream(), torch.heddle.Stream()
    torch.heddle.set_stream(stream)
    assert torch.heddle.current_stream() == stream
    torch.heddle.set_stream(None)
    assert torch.heddle.current_stream() == stream
    torch.heddle.set_stream(before)
    assert torch.heddle.current_stream() == before


def test_priorities_and_interprocess_events_are_refused():
    with pytest.raises(NotImplementedError, match="priorities"):
        torch.heddle.Stream(priority=-1)
    with pytest.raises(NotImplementedError, match="processes"):
        torch.heddle.Event(interprocess=True)


def test_events_order_streams_and_measure_time():
    one, two = torch.heddle.Stream(), torch.heddle.Stream()
    begin, end = torch.heddle.Event(enable_timing=True), torch.heddle.Event(enable_timing=True)
    x = on_device(256, 256)
    begin.record(one)
    with torch.heddle.stream(one):
        y = x
        for _ in range(20):
            y = torch.mm(y, x) / 16
    end.record(one)
    two.wait_event(end)
    two.wait_stream(one)
    with torch.heddle.stream(two):
        z = y + 1
    made = two.record_event()
    assert isinstance(made, torch.heddle.Event)
    made.synchronize()
    assert made.query()
    assert end.query()
    assert 0 < begin.elapsed_time(end) < 60_000
    torch.testing.assert_close(z.cpu(), y.cpu() + 1)


def test_an_event_that_was_never_recorded_is_over():
    event = torch.heddle.Event()
    assert event.query()
    event.synchronize()
    torch.heddle.current_stream().wait_event(event)


def test_synchronize_takes_a_device_or_a_stream():
    stream = torch.heddle.Stream()
    with torch.heddle.stream(stream):
        y = torch.mm(on_device(200, 200), on_device(200, 200))
    torch.heddle.synchronize(stream)
    assert stream.query()
    torch.heddle.synchronize("heddle:0")
    torch.heddle.synchronize()
    assert y.shape == (200, 200)


# ---- memory


def test_memory_figures_follow_tensors():
    torch.heddle.synchronize()
    before = torch.heddle.memory_allocated()
    x = torch.empty(1 << 20, device="heddle")
    assert torch.heddle.memory_allocated() - before >= 4 << 20
    assert torch.heddle.current_allocated_memory() == torch.heddle.memory_allocated()
    assert torch.heddle.max_memory_allocated() >= torch.heddle.memory_allocated()
    assert torch.heddle.memory_reserved() >= torch.heddle.memory_allocated()
    assert torch.heddle.driver_allocated_memory() == torch.heddle.memory_reserved()
    assert torch.heddle.recommended_max_memory() > 4 << 20
    assert torch.heddle.memory_stats()["allocated"] == torch.heddle.memory_allocated()
    del x
    torch.heddle.synchronize()
    assert torch.heddle.memory_allocated() == before
    torch.heddle.empty_cache()
    assert torch.heddle.memory_reserved() - torch.heddle.memory_allocated() < 4 << 20


def test_memory_beyond_the_fraction_is_refused_and_the_rest_goes_on():
    code = """import torch
limit = 64 << 20
torch.heddle.set_per_process_memory_fraction(limit / torch.heddle.recommended_max_memory())
kept = torch.ones(1 << 20, device="heddle")
try:
    torch.empty(1 << 28, device="heddle")
except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
    print("refused", type(error).__name__)
print(kept.sum().item())
"""
    done = in_a_process(code)
    assert done.stdout.splitlines() == ["refused OutOfMemoryError", "1048576.0"], done.stderr


# ---- random numbers


def test_seeds_and_states_repeat_random_numbers():
    torch.manual_seed(3)  # seeds every device
    first = torch.randn(100, device="heddle").cpu()
    torch.heddle.manual_seed(3)
    assert torch.equal(torch.randn(100, device="heddle").cpu(), first)
    torch.heddle.manual_seed_all(4)
    assert not torch.equal(torch.randn(100, device="heddle").cpu(), first)
    assert torch.heddle.initial_seed() == 4
    state, states = torch.heddle.get_rng_state(), torch.heddle.get_rng_state_all()
    assert state.dtype == torch.uint8
    second = torch.rand(50, device="heddle").cpu()
    torch.heddle.set_rng_state(state)
    assert torch.equal(torch.rand(50, device="heddle").cpu(), second)
    torch.heddle.set_rng_state_all(states)
    assert torch.equal(torch.rand(50, device="heddle").cpu(), second)
    torch.heddle.seed()
    seeds = {torch.heddle.initial_seed()}
    torch.heddle.seed_all()
    seeds.add(torch.heddle.initial_seed())
    assert len(seeds - {4}) == 2


def test_fork_rng_and_generators_of_the_device():
    state = torch.heddle.get_rng_state()
    with torch.random.fork_rng(device_type="heddle"):
        torch.rand(7, device="heddle")
    assert torch.equal(torch.heddle.get_rng_state(), state)
    assert len(torch.heddle.default_generators) == torch.heddle.device_count()
    one, two = (torch.Generator(device="heddle").manual_seed(9) for _ in range(2))
    a = torch.randn(32, device="heddle", generator=one)
    assert torch.equal(a.cpu(), torch.randn(32, device="heddle", generator=two).cpu())
    assert abs(torch.randn(20000, device="heddle", generator=one).mean().item()) < 0.05


# ---- saving, copying, exchanging


def test_tensors_are_saved_and_loaded_where_map_location_says():
    x = on_device(3, 4).t()
    for location, device in ((None, "heddle"), ("cpu", "cpu"), ("heddle", "heddle"), ("heddle:0", "heddle")):
        file = io.BytesIO()
        torch.save({"x": x, "views": (x[0], x)}, file)
        file.seek(0)
        back = torch.load(file, map_location=location, weights_only=True)
        assert back["x"].device.type == device
        assert torch.equal(back["x"].cpu(), x.cpu())
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    assert torch.load(file, map_location=torch.device("heddle:0")).is_heddle


def test_copies_pickles_and_state_dicts_keep_the_device():
    module = torch.nn.Linear(4, 3).to("heddle")
    assert copy.deepcopy(module).weight.is_heddle
    assert torch.equal(pickle.loads(pickle.dumps(module.weight.detach())).cpu(), module.weight.detach().cpu())
    other = torch.nn.Linear(4, 3).to("heddle")
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.weight.cpu(), module.weight.cpu())


def test_a_file_for_a_device_that_is_not_there_is_refused():
    file = io.BytesIO()
    torch.save(on_device(2), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="device_count"):
        torch.load(file, map_location="heddle:9")


def test_pinned_memory_and_non_blocking_copies():
    x = torch.randn(1000)
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert pinned[500:].is_pinned()
    assert not x.is_pinned()
    y = pinned.to("heddle", non_blocking=True)
    back = torch.empty(1000, pin_memory=True)
    back.copy_(y, non_blocking=True)
    torch.heddle.synchronize()
    assert torch.equal(back, x)


def test_dlpack_gives_and_takes_the_memory():
    x = torch.arange(6.0, device="heddle").reshape(2, 3)
    is_on_a_gpu = x.__dlpack_device__()[0] == DLDeviceType.kDLCUDA  # there PyTorch's is a tensor of cuda
    y = torch.heddle.from_dlpack(x) if is_on_a_gpu else torch.from_dlpack(x)
    assert torch.equal(y.cpu(), x.cpu())
    if torch.heddle.device_names()[0] == "host":
        assert ctypes.c_float.from_address(y.data_ptr()).value == 0.0


# ---- autocast


def test_autocast_holds_for_the_device_and_its_dtypes():
    x, w = on_device(4, 8), on_device(8, 2)
    assert not torch.heddle.is_autocast_enabled()
    for dtype in torch.heddle.get_amp_supported_dtype():
        with torch.autocast("heddle", dtype=dtype):
            assert torch.heddle.is_autocast_enabled()
            assert torch.heddle.get_autocast_dtype() == dtype
            y = torch.mm(x, w)
            assert y.dtype == dtype
            assert torch.softmax(y, 0).dtype == torch.float32
        torch.testing.assert_close(y.float().cpu(), x.cpu() @ w.cpu(), rtol=0.05, atol=0.1)
    assert torch.mm(x, w).dtype == torch.float32


# ---- operators that are not there


def test_an_operator_that_is_not_there_is_refused_by_name_and_may_go_to_the_cpu():
    grad, y = on_device(4, 4), on_device(4, 4).softmax(1)
    softmax_backward = torch.ops.aten._softmax_backward_data
    assert not torch.heddle.is_cpu_fallback_allowed()
    with pytest.raises(NotImplementedError, match="_softmax_backward_data"):
        softmax_backward(grad, y, 1, torch.float32)
    before = torch.heddle.fallbacks()
    torch.heddle.allow_cpu_fallback()
    try:
        assert torch.heddle.is_cpu_fallback_allowed()
        found = softmax_backward(grad, y, 1, torch.float32)
    finally:
        torch.heddle.allow_cpu_fallback(False)
    assert found.is_heddle
    torch.testing.assert_close(found.cpu(), softmax_backward(grad.cpu(), y.cpu(), 1, torch.float32))
    after = torch.heddle.fallbacks()
    new = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
    assert sum(new.values()) == 1
    assert "_softmax_backward_data" in next(iter(new))
    with pytest.raises(NotImplementedError, match="_softmax_backward_data"):
        softmax_backward(grad, y, 1, torch.float32)


# ---- queues


def test_a_batch_queue_runs_a_module_of_the_device():
    module = torch.nn.Linear(4, 3).to("heddle").eval()
    x = on_device(16, 4)
    with torch.no_grad():
        expected = module(x).cpu()
    with torch.heddle.BatchQueue(torch.no_grad()(module), max_batch=8) as queue:
        futures = [queue.submit(x[i : i + 1]) for i in range(16)]
        got = torch.cat([future.result().cpu() for future in futures])
    torch.testing.assert_close(got, expected)


# ---- what PyTorch asks of a device module


def test_a_data_loader_pins_for_the_device():
    data = torch.utils.data.TensorDataset(torch.arange(20.0).reshape(10, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=5, pin_memory=True)
    batches = [batch for (batch,) in loader]
    assert len(batches) == 2
    assert torch.equal(torch.cat([b.to("heddle", non_blocking=True) for b in batches]).cpu(), data.tensors[0])


def test_operators_that_this_pytorch_does_not_have_are_told_and_the_others_are_there():
    unknown = torch.heddle.unknown_operators()
    known = {name.split(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    assert [name for name in unknown if name in known] == []
    if torch.__version__ < (2, 14):
        assert unknown == ["aten::linalg_matrix_sqrth", "aten::linalg_polar"]
    x = on_device(4, 4)
    assert torch.equal((x + 1).cpu(), x.cpu() + 1)


def test_another_pytorch_than_it_was_built_with_is_refused_in_one_sentence():
    program = "import torch; torch.__version__ = '1.2.3'; import heddle.torch"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    built = ".".join(torch.__version__.split(".")[:2])
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: heddle-torch was built with PyTorch {built}")
    assert "and this is PyTorch 1.2.3: build heddle-torch again" in last


def test_every_public_name_is_there():
    assert [name for name in heddle.torch.__all__ if not hasattr(torch.heddle, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = torch.heddle.nothing
    torch.heddle.init()
    assert torch.heddle.is_initialized()


def test_the_installed_package_asks_for_exactly_the_heddle_that_it_was_built_with():
    needs = [need for need in metadata.requires("heddle-torch") or [] if need.startswith("heddle")]
    assert needs == [f"heddle=={heddle.__version__}"]
