"""Weights in sixteen bits: autocast casts each once until it is written, a Linear reads them as they lie."""

import copy
import gc
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import heddle.torch
import pytest
import torch
from threads import count_right, run_threads

pytest.importorskip("expecttest", reason="torch.testing._internal needs it")

import opinfo_cases

BF16 = torch.bfloat16
THREADS, TIMES = 8, 10


def casts():
    return heddle.torch._C.weight_casts()


def mlp():
    torch.manual_seed(3)
    layers = torch.nn.Linear(24, 40), torch.nn.Identity(), torch.nn.Linear(40, 7)
    return torch.nn.Sequential(*layers).eval().requires_grad_(False)


def lowered(module, x):
    with torch.autocast(x.device.type, dtype=BF16):
        return module(x)


def inputs(thread=0, time=0):
    return torch.randn(3, 24, generator=torch.Generator().manual_seed(100 * thread + time))


# ---- autocast


def test_a_weight_is_cast_once_however_many_threads_call(device):
    reference = mlp()
    module = copy.deepcopy(reference).to(device)
    before = casts()
    done = count_right(
        THREADS,
        TIMES,
        lambda thread, time: lowered(module, inputs(thread, time).to(device)).float(),
        lambda thread, time: lowered(reference, inputs(thread, time)).float(),
        rtol=2e-2,
        atol=2e-2,
    )
    assert done == THREADS * TIMES
    assert casts() - before == 4  # two weights, two biases


def by_optimizer(weight):
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.5).step()
    weight.grad = None


NEW = torch.linspace(-1, 1, 7 * 40).view(7, 40)
WRITES = {
    "in place": lambda w: w.mul_(-2),
    "through data": lambda w: w.data.mul_(-2),
    "a part, through data": lambda w: w.data[2:4].zero_(),
    "an element of a view": lambda w: w.data.view(-1)[3:90:2].fill_(5),
    "transposed": lambda w: w.data.t().add_(1),
    "from the CPU": lambda w: w.data.copy_(NEW),
    "by index": lambda w: w.data.index_copy_(0, torch.tensor([1], device=w.device), NEW[:1].to(w.device)),
    "under a mask": lambda w: w.data.__setitem__(w.data > 0, 0.25),
    "out=": lambda w: torch.neg(w.data, out=w.data),
    "other data": lambda w: setattr(w, "data", NEW.to(w.device)),
    "an initialisation": lambda w: torch.nn.init.constant_(w, 0.125),
    "an optimizer": by_optimizer,
    "by a detached alias": lambda w: w.detach().sub_(3),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_weight_that_was_written_is_cast_again(name, device):
    reference = mlp()
    module = copy.deepcopy(reference).to(device)
    x = inputs()
    lowered(module, x.to(device))
    before = casts()
    for each in (reference, module):
        with torch.no_grad():
            WRITES[name](each[2].weight)
    for _ in range(3):
        got = lowered(module, x.to(device)).float().cpu()
        torch.testing.assert_close(got, lowered(reference, x).float(), rtol=2e-2, atol=2e-2)
    assert casts() - before == 1


def changes_its_target(info, sample, device):
    """Whether it does, or None where it is refused: a result of another shape or dtype, say."""
    target = opinfo_cases.to_device(sample.input.clone(), device)
    args, kwargs = opinfo_cases.to_device((sample.args, sample.kwargs), device)
    before, writes = target.clone(), heddle.torch._C.writes(target)
    try:
        info.inplace_variant(target, *args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    if target.shape != before.shape or torch.equal(before.nan_to_num(), target.nan_to_num()):
        return False  # other memory, or nothing to see
    assert heddle.torch._C.writes(target) > writes, info.name
    return True


def test_every_operator_in_place_counts_its_writes(device):
    infos = [info for info in opinfo_cases.op_infos().values() if info.inplace_variant is not None]
    changed = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in infos:
            samples = info.sample_inputs("cpu", torch.float32) if torch.float32 in info.dtypes else ()
            changed |= {info.name for sample in list(samples)[:6] if changes_its_target(info, sample, device)}
    assert len(changed) >= 100, len(changed)


def test_a_cast_goes_with_its_weight(device):
    weight = torch.zeros(1 << 18, 4, device=device)
    x = torch.zeros(1, 4, device=device)
    before = torch.heddle.memory_allocated()
    with torch.autocast(device, dtype=BF16):
        torch.nn.functional.linear(x, weight)
        with_cast = torch.heddle.memory_allocated()
    assert with_cast - before >= weight.numel() * 2
    del weight
    gc.collect()
    torch.heddle.synchronize()
    assert torch.heddle.memory_allocated() < with_cast - (1 << 18) * 4 * 6 + (1 << 18)


def test_gradients_are_recorded_through_the_cast(device):
    module = mlp().to(device)
    lowered(module, inputs().to(device))  # there are casts without gradients
    for each in module.parameters():
        each.requires_grad_(True)
    lowered(module, inputs().to(device)).float().sum().backward()
    reference = mlp().requires_grad_(True)
    lowered(reference, inputs()).float().sum().backward()
    for got, wanted in zip(module.parameters(), reference.parameters(), strict=True):
        assert got.grad.dtype == torch.float32
        torch.testing.assert_close(got.grad.cpu(), wanted.grad, rtol=5e-2, atol=5e-2)


def test_without_the_cache_nothing_is_kept(device):
    module = mlp().to(device)
    before = casts()
    with torch.autocast(device, dtype=BF16, cache_enabled=False):
        module(inputs().to(device))
    assert casts() == before


def test_casts_of_inference_mode_serve_calls_outside_it(device):
    module = mlp().to(device)
    with torch.inference_mode():
        lowered(module, inputs().to(device))
    before = casts()
    x = inputs().to(device).requires_grad_(True)
    lowered(module, x).float().sum().backward()
    assert x.grad is not None
    assert casts() == before


# ---- a Linear in sixteen bits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_in_sixteen_bits_gives_what_the_cpu_does(rows, dtype, bias, device):
    torch.manual_seed(rows)
    reference = torch.nn.Linear(300, 130, bias=bias).to(dtype).requires_grad_(False)
    module = copy.deepcopy(reference).to(device)
    xs = [torch.randn(rows, 300).to(dtype) for _ in range(THREADS)]
    got = run_threads(THREADS, lambda thread: module(xs[thread].to(device)).cpu())
    assert len(got) == THREADS
    for x, each in zip(xs, got, strict=True):
        torch.testing.assert_close(each, reference(x), rtol=2e-2, atol=1e-2)


STEPS = """
import json, sys, heddle.torch, torch
linear = torch.nn.Linear(64, 96, bias=False).to(torch.bfloat16).to("heddle").requires_grad_(False)
x = torch.zeros(5, 64, dtype=torch.bfloat16, device="heddle")
linear(x)
with torch.heddle.profiler.profile(sys.argv[1]):
    linear(x)
"""


def multiplies_bf16():
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and "avx512_bf16" in cpuinfo.read_text()


# oneDNN does without what a processor has beyond the name. The rows' Cast goes where bf16 is multiplied.
@pytest.mark.parametrize(("isa", "casts_rows"), [("AVX512_CORE", True), ("ALL", not multiplies_bf16())])
def test_a_linear_in_sixteen_bits_runs_no_cast_of_its_weight(isa, casts_rows, tmp_path):
    file = tmp_path / "trace.json"
    environment = {**os.environ, "HEDDLE_DEVICE": "host", "DNNL_MAX_CPU_ISA": isa}
    subprocess.run([sys.executable, "-c", STEPS, file], check=True, env=environment)
    events = json.loads(file.read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    steps = [event["name"] for event in events if event.get("cat") == "host" and event.get("ph") in "XB"]
    assert steps == [*["Cast"] * casts_rows, "Linear", "Cast"]  # of the result
