"""Tensors in a GPU's memory: from call to call, and to and from other libraries by DLPack.

On the CUDA double, whose device memory is SIGSEGV for a host that touches it, or on a card (test_cuda.py).
"""

import textwrap
from pathlib import Path

from test_cuda import ON_CUDA, python

ON_THE_DEVICE = """
import ctypes
import numpy as np
import heddle

sys.path.insert(0, {here!r})
from conftest import build_affine

model = build_affine()
x = np.arange(24, dtype=np.float32).reshape(3, 8)
there = heddle.to_device(x)


class Other:  # another library's array: its memory is the GPU's, and it asks for a stream
    def __init__(self, tensor, **words):
        self.tensor, self.words, self.streams = tensor, words, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, **self.words)


def from_dlpack(made):  # what that library, this module, makes of a result
    return made
"""


def on_cuda(program):
    """The program's output."""
    begin = "import sys\n" + ON_THE_DEVICE.format(here=str(Path(__file__).parent))
    done = python("-c", begin + textwrap.dedent(program), env=ON_CUDA)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_tensors_on_the_device_stay_there_from_call_to_call():
    said = on_cuda("""
        first = model(there)
        second = model(first)
        print(type(second).__name__, second.shape, second.dtype, second.device.name)
        print(second.__dlpack_device__())
        assert np.array_equal(second.numpy(), 4 * x + 3)
        assert second.ready
        with heddle.stream(heddle.Stream()):
            third = model(second)
        assert np.array_equal(third.numpy(), 8 * x + 7)
    """)
    assert said == ["Tensor", "(3,", "8)", "f32", "cuda", "(2,", "0)"]


def test_memory_goes_out_and_comes_in_by_dlpack_without_a_copy():
    said = on_cuda("""
        other = Other(there)
        result = model(other)
        assert other.streams == [heddle.current_stream().native_handle], other.streams
        assert isinstance(result, heddle.Tensor)
        del other
        stream = heddle.current_stream()
        capsule = there.__dlpack__(stream=stream.native_handle)
        assert "dltensor" in repr(capsule), capsule
        del capsule  # nobody took it: let go of
        for each in (None, 1, -1):
            there.__dlpack__(stream=each)
        try:
            there.__dlpack__(stream=0)
        except heddle.InvalidError as error:
            print("refused")
        del there
        assert np.array_equal(result.numpy(), 2 * x + 1)
        print(stream.native_handle != 0)
    """)
    assert said == ["refused", "True"]


def test_dlpack_makes_a_copy_where_it_is_asked_to_and_refuses_what_it_cannot_do_by_name():
    said = on_cuda("""
        class Asked:  # as numpy asks for memory on the host
            def __init__(self, tensor, **words):
                self.tensor, self.words = tensor, words

            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **asked):
                return self.tensor.__dlpack__(**(asked | self.words))

        there = model(there)
        wanted = 2 * x + 1
        for words in ({"dl_device": (1, 0)}, {"dl_device": (1, 0), "copy": True, "max_version": (1, 0)}):
            assert np.array_equal(np.from_dlpack(Asked(there, **words)), wanted), words

        before = heddle.current_allocated_memory()
        capsules = [there.__dlpack__(copy=False), there.__dlpack__(dl_device=(2, 0), copy=False)]
        assert heddle.current_allocated_memory() == before
        capsules.append(there.__dlpack__(copy=True))
        assert heddle.current_allocated_memory() > before
        del capsules
        for words in ({}, {"copy": True}, {"copy": False}):
            assert np.array_equal(model(Other(there, **words)).numpy(), 2 * wanted + 1), words
        for words in ({"dl_device": (1, 0), "copy": False}, {"dl_device": (2, 7)}, {"dl_device": (13, 0)}):
            try:
                there.__dlpack__(**words)
            except BufferError as error:
                print(str(error).split("=")[1].split(") ")[0])
        on_host = heddle.to_device(x, "host")
        assert np.array_equal(np.from_dlpack(on_host), x)
        copied = np.from_dlpack(on_host, copy=True)
        assert np.array_equal(copied, x)
        assert not np.shares_memory(copied, np.from_dlpack(on_host))
        assert np.shares_memory(np.from_dlpack(on_host, copy=False), np.from_dlpack(on_host))
    """)
    assert said == ["(1,", "0", "(2,", "7", "(13,", "0"]


def test_another_librarys_memory_is_let_go_of_and_its_default_stream_has_a_number():
    said = on_cuda("""

        def allocated():  # the last uses are over, and the next call lets go of what other threads dropped
            heddle.synchronize()
            np.testing.assert_array_equal(model(x), 2 * x + 1)
            return heddle.current_allocated_memory()

        before = allocated()
        for _ in range(4):
            other = Other(heddle.to_device(np.ones((1 << 16, 8), np.float32)))
            result = model(other)
            assert result.numpy().min() == 3
            del other, result
        held = allocated() - before
        assert held < 1 << 20, held  # of 2 MiB each

        other = Other(there)
        with heddle.stream(heddle.Stream.from_native(0)):
            result = model(other)
        assert other.streams == [1], other.streams
        assert np.array_equal(result.numpy(), 2 * x + 1)
        try:
            there.__dlpack__(stream=2)
        except heddle.InvalidError as error:
            print("refused")

        own = heddle.Device.open("cuda")
        assert np.array_equal(build_affine(device=own)(other).numpy(), 2 * x + 1)
    """)
    assert said == ["refused"]


def test_a_stream_of_cupys_lives_as_long_as_what_was_given_out_for_it():
    said = on_cuda("""
        import types
        import weakref

        class Stream:  # as CuPy's, which ends with its object
            def __init__(self):
                self.stream = heddle.Stream()
                self.ptr = self.stream.native_handle

        cupy = types.ModuleType("cupy")
        sys.modules["cupy"] = cupy
        there.__dlpack__()  # while CuPy is being imported
        current = [Stream()]
        cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: current[0])
        alive = weakref.ref(current[0])
        capsule = there.__dlpack__(stream=current[0].ptr)
        others = there.__dlpack__(stream=1)
        current[0] = Stream()
        print(alive() is not None)
        del others
        print(alive() is not None)
        del capsule
        print(alive() is None)
        assert np.array_equal(there.numpy(), x)
    """)
    assert said == ["True", "True", "True"]


def test_a_stream_in_step_with_another_librarys_runs_calls_between_what_that_one_is_given():
    said = on_cuda("""
        theirs = heddle.Stream()  # whose handle any library could have made
        mine = heddle.Stream.from_native(theirs.native_handle)
        assert mine.native_handle == theirs.native_handle
        assert mine.id < 0
        with heddle.stream(theirs):
            first = model(there)
        with heddle.stream(mine):
            second = model(first)
            capsule = second.__dlpack__(stream=mine.native_handle)
        with heddle.stream(theirs):
            third = model(second)
        assert np.array_equal(third.numpy(), 8 * x + 7)
        default = heddle.Stream.from_native(0)
        with heddle.stream(default):
            assert np.array_equal(model(third).numpy(), 16 * x + 15)
        try:
            heddle.Stream.from_native(1, "host")
        except heddle.UnsupportedError as error:
            print(error)
    """)
    assert " ".join(said).startswith("device 'host' waits for no streams of other libraries")
