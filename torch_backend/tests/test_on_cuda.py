"""Where device heddle is a GPU: its memory in other libraries' hands and theirs in its own, without a copy.

conftest.py leaves this file out where the process runs on another device. PyTorch's CPU build has no `cuda`:
another library is a class here, whose arrays' memory is the GPU's. On the double of CUDA a host that touches
a GPU's memory gets SIGSEGV.
"""

import copy
import gc
import io
import os
import subprocess
import sys
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from threads import comes_true, run_threads
from torch import nn
from torch.utils.dlpack import DLDeviceType

import heddle


class Other:
    """Another library's array, which keeps the streams that consumers have named."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.streams = []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)


class Copied(Other):
    def __dlpack__(self, stream=None):
        return self.tensor.__dlpack__(stream=stream, copy=True)


@pytest.fixture
def library(monkeypatch):
    """Where a model of heddle's looks for what makes its results arrays of the library of its inputs."""
    module = types.ModuleType("other_library")
    module.from_dlpack = lambda result: result
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Other, "__module__", module.__name__)


def on_device(*shape):
    return torch.randn(*shape).to("heddle")


def test_complex_tensors_are_viewed_and_copied():
    x = torch.randn(3, 2)
    z = torch.view_as_complex(x)
    there = z.to("heddle")
    assert torch.equal(torch.view_as_real(there).cpu(), x)
    assert torch.equal(there.imag.cpu(), z.imag)
    assert torch.equal(there.conj().cpu(), z.conj())
    assert torch.equal(there[1:].clone().cpu(), z[1:])
    assert there[2].conj().item() == z[2].conj().item()


def affine(width):
    """y = 2 x + 1 over f32[batch, width], as a model of heddle's own."""
    graph = heddle.GraphBuilder("affine")
    x = graph.input("x", "f32", ["batch", width])
    doubled = graph.add("Mul", x, graph.constant(np.array(2, np.float32)))
    graph.output(graph.add("Add", doubled, graph.constant(np.array(1, np.float32))), "y")
    return graph.build(heddle.Device(), coalesce=False)


# ---- DLPack


def test_a_tensor_is_said_to_lie_on_the_gpu():
    assert torch.heddle.device_names()[0] == "cuda"
    assert on_device(2).__dlpack_device__() == (DLDeviceType.kDLCUDA, 0)
    host = torch.heddle.device_names().index("host")
    assert torch.ones(2, device=f"heddle:{host}").__dlpack_device__() == (DLDeviceType.kDLExtDev, host)
    assert torch.ones(2).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x[0, 0], lambda x: x[:0]],
    ids=["whole", "transposed", "strided", "scalar", "empty"],
)
def test_memory_goes_out_and_comes_in_with_its_layout_and_without_a_copy(dtype, view):
    x = view((torch.randn(4, 6) * 4).to(dtype).to("heddle"))
    y = torch.heddle.from_dlpack(Other(x))
    assert y.is_heddle
    assert (y.dtype, y.shape, y.stride()) == (x.dtype, x.shape, x.stride())
    assert torch.equal(y.cpu(), x.cpu())
    if x.numel() > 0:
        assert y.data_ptr() == x.data_ptr()
        assert not y._is_view()


def test_the_producer_is_asked_for_the_stream_that_will_read():
    other = Other(on_device(3))
    torch.heddle.from_dlpack(other)
    stream = torch.heddle.Stream()
    with torch.heddle.stream(stream):
        torch.heddle.from_dlpack(other)
    assert other.streams == [torch.heddle.current_stream().native_handle, stream.native_handle]
    assert len({*other.streams, 0}) == 3


def test_a_stream_of_cupys_lives_as_long_as_what_was_given_out_for_it(monkeypatch):
    class Stream:
        def __init__(self):
            self.stream = torch.heddle.Stream()
            self.ptr = self.stream.native_handle

    cupy = types.ModuleType("cupy")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    x = on_device(3)
    x.__dlpack__(stream=1)  # while CuPy is being imported
    current = [Stream()]
    cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: current[0])
    alive = weakref.ref(current[0])
    capsule, others = x.__dlpack__(stream=current[0].ptr), x.__dlpack__(stream=1)
    current[0] = Stream()
    del others
    assert alive() is not None
    del capsule
    assert alive() is None


def test_what_one_side_writes_the_other_one_reads():
    x = torch.zeros(1000, device="heddle")
    y = torch.heddle.from_dlpack(Other(x))
    y += 1
    torch.heddle.synchronize()
    assert x.sum().item() == 1000


def test_values_that_are_still_computed_are_waited_for():
    module = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))).eval()
    there = copy.deepcopy(module).to("heddle")
    x = torch.randn(50, 32, 64)
    with torch.inference_mode():
        wanted = [module(each) + 1 for each in x]
        streams = [torch.heddle.Stream() for _ in range(3)]
        got = []
        for i, each in enumerate(x):
            with torch.heddle.stream(streams[i % 3]):
                made = there(each.to("heddle"))
            with torch.heddle.stream(streams[(i + 1) % 3]):
                got.append(torch.heddle.from_dlpack(Other(made)) + 1)
            del made  # its memory is not used again before the other stream has read it
    for one, right in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), right, rtol=1e-4, atol=1e-4)


def test_eight_threads_exchange_memory_and_each_finds_its_own_values():
    x = torch.randn(8, 30, 16)

    def body(thread):
        right = 0
        for each in x[thread]:
            theirs = torch.heddle.from_dlpack(Other(each.to("heddle") * 2))
            right += torch.equal((theirs + 1).cpu(), each * 2 + 1)
        return right

    assert run_threads(8, body) == [30] * 8


class Lent(Other):
    """An array whose library lets go of something of Python's with its memory."""

    def __dlpack__(self, stream=None):
        lent = self.tensor.detach()
        lent.owner = Owner()
        return lent.__dlpack__(stream=stream)


class Owner:
    living = 0

    def __init__(self):
        Owner.living += 1

    def __del__(self):
        Owner.living -= 1


def test_memory_that_is_taken_is_given_back_when_the_last_use_ends():
    x = on_device(64, 64)
    taken = torch.heddle.from_dlpack(Lent(x))
    assert Owner.living == 1
    half = taken[:32]
    del taken
    gc.collect()
    assert Owner.living == 1
    result = half * 2
    del half
    assert comes_true(lambda: Owner.living == 0)
    assert torch.equal(result.cpu(), x.cpu()[:32] * 2)


def test_a_capsule_that_nobody_takes_lets_go_of_the_memory():
    x = on_device(1 << 20)
    before = torch.heddle.memory_allocated()
    for stream in (None, 1, -1, torch.heddle.current_stream().native_handle):
        capsule = x.__dlpack__(stream=stream)
        assert "dltensor" in repr(capsule)
        del capsule
    del x
    assert comes_true(lambda: torch.heddle.memory_allocated() <= before - (4 << 20))


def test_results_of_factories_and_of_compiled_modules_go_out_too():
    module = nn.Linear(6, 3).eval()
    x = torch.randn(4, 6)
    compiled = heddle.torch.compile(module, x)
    with torch.inference_mode():
        results = [(compiled(x.to("heddle")), module(x)), (torch.arange(5, device="heddle"), torch.arange(5))]
    for result, right in results:
        torch.testing.assert_close(torch.heddle.from_dlpack(Other(result)).cpu(), right)


def test_a_copy_is_made_where_it_is_asked_for():
    x = on_device(5)
    values = x.cpu()
    on_cpu = torch.from_dlpack(x.__dlpack__(dl_device=(DLDeviceType.kDLCPU, 0)))
    taken = torch.heddle.from_dlpack(Copied(x))
    x.zero_()
    assert taken.is_heddle
    for copied in (on_cpu, taken):
        assert torch.equal(copied.cpu(), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (), (0, 3), (70, 80)])
def test_places_that_are_not_zero_are_found_on_the_gpu(shape, dtype):
    x = (torch.randn(shape) > 0.3).to(dtype)
    assert torch.equal(x.to("heddle").nonzero().cpu(), x.nonzero())


def test_of_a_mask_only_the_number_of_its_places_goes_to_the_host():
    x = torch.randn(40, 50)
    x[1, 2] = float("nan")
    there = x.to("heddle")

    def find():
        return there.nonzero(), there[there > 0], torch.masked_select(there, there <= 0)

    find()  # PyTorch's shape functions compute, too, when a call is new
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profile:
        found = find()
    assert not {each.key for each in profile.key_averages()} & {"aten::copy_", "copy"}
    for got, wanted in zip(found, (x.nonzero(), x[x > 0], x[x <= 0]), strict=True):
        assert torch.equal(got.cpu(), wanted)
    transposed = there.t()
    assert torch.equal(transposed.nonzero().cpu(), x.t().nonzero())


def test_of_unique_elements_only_their_number_goes_to_the_host():
    x = torch.randint(0, 9, (40, 2)).float()
    there = x.to("heddle")

    def find(x):
        everything = {"return_inverse": True, "return_counts": True}
        return (
            *torch.unique(x, **everything),
            *torch.unique_consecutive(x, **everything),
            *torch.unique(x, dim=0, **everything),
        )

    find(there)  # PyTorch's shape functions compute, too, when a call is new
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profile:
        found = find(there)
    assert not {each.key for each in profile.key_averages()} & {"aten::copy_", "copy"}
    for got, wanted in zip(found, find(x), strict=True):
        assert torch.equal(got.cpu(), wanted)
    with pytest.raises(NotImplementedError, match=r"not implemented for 'ComplexFloat'"):  # as on the CPU
        torch.unique(there.to(torch.complex64))


def test_what_cannot_be_exchanged_is_refused_by_name():
    x = on_device(4)
    with pytest.raises(ValueError, match="stream 0 is ambiguous"):
        x.__dlpack__(stream=0)
    with pytest.raises(BufferError, match=r"detach\(\)"):
        on_device(4).requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="GPU 0"):
        x.__dlpack__(dl_device=(DLDeviceType.kDLCUDA, 3))
    with pytest.raises(BufferError, match="GPU 0"):
        x.__dlpack__(dl_device=(DLDeviceType.kDLCPU, 0), copy=False)
    for array, place in ((torch.ones(2), "kDLCPU 0"), (Elsewhere(), "kDLCUDA 5")):
        with pytest.raises(ValueError, match=place):
            torch.heddle.from_dlpack(array)
    untold = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))  # by address alone
    with pytest.raises(NotImplementedError, match=r"torch\.heddle\.from_dlpack"):
        untold + 1


class Elsewhere:
    def __dlpack_device__(self):
        return (2, 5)


def test_a_tensor_of_heddle_is_taken_as_it_is():
    x = on_device(3).requires_grad_()
    y = torch.heddle.from_dlpack(x)
    assert y.data_ptr() == x.data_ptr()
    assert not y.requires_grad


# ---- heddle.Tensor


@pytest.mark.usefixtures("library")
def test_results_of_a_model_of_heddle_and_tensors_go_to_and_fro():
    model = affine(6)
    x = torch.randn(3, 6)
    there = heddle.to_device(x.numpy())
    first = model(there)
    taken = torch.heddle.from_dlpack(first)
    assert taken.is_heddle
    second = model(Other(taken * 3))
    assert isinstance(second, heddle.Tensor)
    back = torch.heddle.from_dlpack(second)
    torch.testing.assert_close(back.cpu(), ((2 * x + 1) * 3) * 2 + 1)


@pytest.mark.usefixtures("library")
def test_threads_hand_tensors_from_pytorch_to_a_model_and_back():
    model = affine(6)
    x = torch.randn(8, 20, 3, 6)

    def body(thread):
        right = 0
        for each in x[thread]:
            result = torch.heddle.from_dlpack(model(Other(each.to("heddle") - 1)))
            right += torch.allclose(result.cpu(), 2 * (each - 1) + 1, atol=1e-5)
        return right

    assert run_threads(8, body) == [20] * 8


# ---- what reads a tensor on the host


def test_values_between_operators_may_have_no_elements():
    x = torch.ones((2, 0), dtype=torch.int32)
    y = x.to("heddle")
    assert torch.equal(y.prod().cpu(), x.prod())  # converted, then multiplied
    assert torch.equal(y.prod(1).cpu(), x.prod(1))
    assert torch.linalg.norm(x.float().to("heddle"), 1, 1).tolist() == [0, 0]


def test_tensors_are_printed_and_read_on_the_host():
    x = torch.arange(6.0).reshape(2, 3)
    y = x.to("heddle")
    assert repr(y) == repr(x)[:-1] + ", device='heddle:0')"
    assert y.tolist() == x.tolist()
    assert [each.item() for each in y.view(-1)] == x.view(-1).tolist()
    assert bool((y > 4).any())
    assert np.array_equal(y.cpu().numpy(), x.numpy())
    with pytest.raises(TypeError, match=r"cpu\(\)"):
        y.numpy()
    assert f"{y[1, 2]:.1f}" == "5.0"


def test_copies_and_clones_have_memory_of_their_own():
    x = torch.arange(6.0).reshape(2, 3)
    y = x.to("heddle")
    for made in (
        y.clone(),
        torch._lazy_clone(y),
        copy.copy(y.clone()),
        copy.deepcopy(y),
        y.t().contiguous().t(),
    ):
        made += 1
        assert torch.equal(made.cpu(), x + 1)
    assert torch.equal(y.cpu(), x)
    with pytest.raises(NotImplementedError, match="cannot be given to another process"):
        y.share_memory_()
    assert y.untyped_storage().clone().tolist() == x.untyped_storage().tolist()


def test_files_hold_the_values(tmp_path):
    module = nn.Linear(5, 3).to("heddle")
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    for location in (None, "cpu", "heddle"):
        other = nn.Linear(5, 3)
        other.load_state_dict(torch.load(tmp_path / "weights.pt", map_location=location))
        assert torch.equal(other.weight, module.weight.cpu())
    mapped = torch.load(tmp_path / "weights.pt", map_location="cpu", mmap=True)
    assert torch.equal(mapped["bias"], module.bias.cpu())
    for zipped in (True, False):
        file = io.BytesIO()
        torch.save(
            {"weight": module.weight.detach(), "row": module.weight.detach()[1]},
            file,
            _use_new_zipfile_serialization=zipped,
        )
        file.seek(0)
        back = torch.load(file)
        assert back["weight"].is_heddle
        assert torch.equal(back["weight"].cpu(), module.weight.cpu())
        assert torch.equal(back["row"].cpu(), module.weight[1].cpu())


def test_workers_of_a_data_loader_fork_beside_a_device_that_is_in_use():
    assert on_device(4).sum().isfinite()
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(
        data, batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork"
    )
    assert sum(batch.to("heddle").sum().item() for (batch,) in loader) == sum(range(64))


def test_tensors_go_between_two_gpus():
    """Of the double, which makes a second one where the environment says so; on a machine with two, those."""
    on_the_double = "HEDDLE_CUDA_IMAGE" in os.environ
    if not on_the_double and torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(Path(__file__).with_name("test_two_devices.py"))],
        env=os.environ | {"HEDDLE_CUDA_DOUBLE_DEVICES": "2", "HEDDLE_DEVICE": "cuda:1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
