"""torch.profiler and torch.heddle.profiler: operators, and what the device did for them."""

import json
import threading
import time
from collections import Counter

import pytest
import torch

CPU = torch.autograd.DeviceType.CPU
ACTIVITY = torch.profiler.ProfilerActivity


def on_device(*shape):
    return torch.randn(*shape).to("heddle")


def test_the_profiler_names_operators(tmp_path):
    file = tmp_path / "trace.json"
    with torch.heddle.profiler.profile(str(file)):
        on_device(8, 8).relu().sum().item()
    on_host = torch.heddle.device_names()[0] == "host"  # elsewhere it names what is submitted
    assert ('"Relu"' if on_host else '"submit"') in file.read_text()


def test_torch_profiler_sees_operators_of_the_device():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        on_device(8, 8).relu()
    assert "aten::relu" in {event.key for event in profile.key_averages()}


def device_activities(profile):
    return [each for each in profile.events() if each.device_type == torch.autograd.DeviceType.PrivateUse1]


def test_torch_profiler_shows_what_the_device_did_beside_the_operators_that_asked_for_it(tmp_path):
    a, b = on_device(128, 128), on_device(128, 128)
    expected = torch.relu(a.cpu() @ b.cpu())
    (a @ b).relu()  # compiled before the profile
    torch.heddle.synchronize()
    begin = time.perf_counter()
    with torch.profiler.profile(activities=[ACTIVITY.CPU, ACTIVITY.PrivateUse1]) as profile:
        for _ in range(3):
            got = (a @ b).relu()
        torch.heddle.synchronize()
    wall_us = (time.perf_counter() - begin) * 1e6
    torch.testing.assert_close(got.cpu(), expected)
    activities = device_activities(profile)
    names = Counter(each.name for each in activities)
    assert names["aten::mm"] == 3
    assert names["aten::relu"] == 3
    assert 0 < sum(each.time_range.elapsed_us() for each in activities) <= wall_us
    averages = {each.key: each for each in profile.key_averages() if each.device_type == CPU}
    for name in ("aten::mm", "aten::relu"):
        of_device = sum(each.time_range.elapsed_us() for each in activities if each.name == name)
        assert averages[name].device_time_total == pytest.approx(of_device, rel=0.01)
    file = tmp_path / "trace.json"
    profile.export_chrome_trace(str(file))
    trace = json.loads(file.read_text())["traceEvents"]
    assert sum(each.get("cat") == "kernel" and each["name"] == "aten::mm" for each in trace) == 3


def test_a_profile_shows_copies_and_compiled_models_too():
    module = torch.nn.Linear(8, 4).eval().to("heddle")
    # Of one number of rows, whatever was compiled before: calls of any number are joined, on the host.
    compiled = torch.compile(module, backend="heddle", dynamic=False)
    x = torch.randn(3, 8)
    with torch.no_grad():
        compiled(x.to("heddle"))  # compiled before the profile
        with torch.profiler.profile(activities=[ACTIVITY.CPU, ACTIVITY.PrivateUse1]) as profile:
            got = compiled(x.to("heddle")).cpu()
        strided = on_device(4, 8)[:, ::2]
        with torch.profiler.profile(activities=[ACTIVITY.CPU, ACTIVITY.PrivateUse1]) as of_out:
            torch.neg(on_device(4, 4), out=strided)  # computed apart, then copied
    torch.testing.assert_close(got, module.cpu()(x))
    assert Counter(each.name for each in device_activities(profile)) == {"copy": 2, "model": 1}
    assert Counter(each.name for each in device_activities(of_out)) == {"copy": 2, "aten::neg": 1}


def test_a_profile_counts_what_each_of_eight_threads_asks_for_and_nothing_after_its_end():
    inputs = [on_device(16, 16) for _ in range(8)]
    expected = [(x.cpu() @ x.cpu()).relu() for x in inputs]
    right = []

    def work(i):
        for _ in range(10):
            got = (inputs[i] @ inputs[i]).relu()
            right.append(torch.allclose(got.cpu(), expected[i], atol=1e-5))

    def together():
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    together()
    with torch.profiler.profile(activities=[ACTIVITY.CPU, ACTIVITY.PrivateUse1]) as profile:
        together()
    with torch.profiler.profile(activities=[ACTIVITY.CPU, ACTIVITY.PrivateUse1]) as empty:
        pass
    together()
    assert right == [True] * 240
    names = Counter(each.name for each in device_activities(profile))
    assert names["aten::mm"] == 80
    assert names["aten::relu"] == 80
    assert not device_activities(empty)
