"""torch.accelerator: what each of its names does on the device; streams and events by PyTorch's own names."""

import os
import subprocess
import sys

import pytest
import torch
from threads import Tally, run_threads

BEGIN = """import torch
from torch import accelerator
x = torch.ones(1000, device="heddle")
"""
CHECKS = {
    "Graph": """
try:
    accelerator.Graph()
except RuntimeError as error:
    assert "heddle" in str(error), error
else:
    raise AssertionError("made")
""",
    "current_accelerator": "assert accelerator.current_accelerator() == torch.device('heddle')",
    "current_device_idx": "assert accelerator.current_device_idx() == 0",
    "current_device_index": "assert accelerator.current_device_index() == 0",
    "current_stream": "assert accelerator.current_stream() == torch.heddle.current_stream()",
    "device_count": "assert accelerator.device_count() == torch.heddle.device_count()",
    "device_index": """
with accelerator.device_index(accelerator.device_count() - 1):
    assert torch.heddle.current_device() == accelerator.device_count() - 1
assert torch.heddle.current_device() == 0
""",
    "empty_cache": """
del x
accelerator.empty_cache()
assert accelerator.memory_reserved() == accelerator.memory_allocated() == 0
""",
    "empty_host_cache": """
accelerator.empty_host_cache()
pinned = torch.arange(5000.0).pin_memory()
back = (pinned.to("heddle") + 1).cpu()
accelerator.empty_host_cache()
assert pinned.is_pinned() and pinned.sum() + 5000 == back.sum()
del pinned
accelerator.empty_host_cache()
assert torch.arange(5000.0).pin_memory().sum() + 5000 == back.sum()
""",
    "get_device_capability": """
assert set(accelerator.get_device_capability()) == {"supported_dtypes"}
assert torch.float32 in accelerator.get_device_capability()["supported_dtypes"]
""",
    "get_memory_info": """
free, total = accelerator.get_memory_info()
assert 0 < free <= total
assert (free, total) == torch.heddle.mem_get_info()
""",
    "is_available": "assert accelerator.is_available()",
    "max_memory_allocated": "assert accelerator.max_memory_allocated() >= 4000",
    "max_memory_reserved": "assert accelerator.max_memory_reserved() >= 4000",
    "memory_allocated": "assert accelerator.memory_allocated() == torch.heddle.memory_allocated() >= 4000",
    "memory_reserved": "assert accelerator.memory_reserved() == torch.heddle.memory_reserved() >= 4000",
    "memory_stats": """
stats = accelerator.memory_stats()
assert stats["allocated_bytes.all.current"] == torch.heddle.memory_allocated()
assert stats["reserved_bytes.all.peak"] == torch.heddle.max_memory_reserved()
""",
    "reset_accumulated_memory_stats": """
try:
    accelerator.reset_accumulated_memory_stats()
except NotImplementedError as error:
    assert "device heddle: memory figures count from the start" in str(error), error
else:
    raise AssertionError("reset")
""",
    "reset_peak_memory_stats": """
y = torch.ones(1 << 20, device="heddle")
del y
torch.heddle.synchronize()
accelerator.reset_peak_memory_stats()
assert accelerator.max_memory_allocated() < 1 << 20
""",
    "set_device_idx": "accelerator.set_device_idx(0); assert accelerator.current_device_index() == 0",
    "set_device_index": """
accelerator.set_device_index(0)
assert accelerator.current_device_index() == 0
try:
    accelerator.set_device_index(99)
except ValueError as error:
    assert "there is no device heddle:99" in str(error), error
else:
    raise AssertionError("set")
""",
    "set_stream": """
stream = torch.Stream("heddle")
accelerator.set_stream(stream)
assert accelerator.current_stream() == stream
assert (x + 1).sum().item() == 2000
""",
    "synchronize": "y = x + 1; accelerator.synchronize(); assert y.sum().item() == 2000",
}


def test_every_name_of_torch_accelerator_has_a_check():
    assert set(torch.accelerator.__all__) - set(CHECKS) == set()


@pytest.mark.parametrize("name", torch.accelerator.__all__)
def test_what_a_name_of_torch_accelerator_does(name):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::FutureWarning", "-c", BEGIN + CHECKS[name] + "\nprint('over')\n"],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


# ---- streams and events by PyTorch's own names

PRIORITIES = "streams of heddle have no priorities: leave priority at 0"
PROCESSES = "events of heddle do not cross processes"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.Stream("heddle", priority=-1),
        lambda: torch.Stream(priority=1),
        lambda: torch.Stream(device="heddle:0", priority=-2),
        lambda: torch.heddle.Stream(priority=-1),
        lambda: torch.heddle.Stream("heddle:0", 1),
    ],
)
def test_a_stream_with_a_priority_is_refused_in_the_same_words_by_either_name(make):
    with pytest.raises(NotImplementedError, match=f"^{PRIORITIES}"):
        make()
    assert torch.Stream("heddle", priority=0).device.type == "heddle"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.Event("heddle", interprocess=True),
        lambda: torch.Event(interprocess=True),
        lambda: torch.Event(device=torch.device("heddle", 0), enable_timing=True, interprocess=True),
        lambda: torch.Event.__new__(torch.Event, "heddle", interprocess=True),
        lambda: torch.heddle.Event(interprocess=True),
        lambda: torch.heddle.Event(False, False, True),
    ],
)
def test_an_event_for_processes_is_refused_in_the_same_words_by_either_name(make):
    with pytest.raises(NotImplementedError, match=f"^{PROCESSES}$"):
        make()


def test_other_events_are_made_as_before():
    for event in (
        torch.Event("heddle", interprocess=False),
        torch.Event("heddle", enable_timing=True, blocking=True),
        torch.Event(),
    ):
        assert type(event) is torch.Event
        event.record()
        event.synchronize()
        assert event.query()
    assert torch.Event("cpu", interprocess=True).device.type == "cpu"
    with pytest.raises(TypeError):
        torch.Event("heddle", interprocess="no")


def test_eight_threads_are_refused_what_they_ask_for_and_given_the_rest():
    times, tally = 50, Tally()

    def body(_):
        for _ in range(times):
            with pytest.raises(NotImplementedError, match=PRIORITIES):
                torch.Stream("heddle", priority=-1)
            with pytest.raises(NotImplementedError, match=PROCESSES):
                torch.Event("heddle", interprocess=True)
            event = torch.Event("heddle")
            event.record()
            event.synchronize()
            tally.add()

    run_threads(8, body)
    assert tally["done"] == 8 * times
