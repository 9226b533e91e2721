"""DLPack: PyTorch 2.13 knows the device by its first name, "privateuse1", alone; a GPU's memory is CUDA's."""

from __future__ import annotations

import enum
import functools
import sys
import threading
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType

from . import _C
from .devices import device_names

_Place = tuple[enum.IntEnum, int]

_device_of_others = torch.Tensor.__dlpack_device__
_export_of_others = torch.Tensor.__dlpack__

_KINDS = {int(kind): kind.name for kind in DLDeviceType}


def _gpu_of(name: str) -> int | None:
    """The GPU's number, of "cuda" or "cuda:1"; None for other devices of Heddle."""
    kind, _, number = name.partition(":")
    return int(number or 0) if kind == "cuda" else None


def _gpu_under(tensor: torch.Tensor) -> int | None:
    if tensor.device.type != "heddle":
        return None
    return _gpu_of(device_names()[tensor.device.index or 0])


def _dlpack_device(self: torch.Tensor) -> _Place:
    if self.device.type != "heddle":
        return _device_of_others(self)
    gpu = _gpu_under(self)
    if gpu is not None:
        return DLDeviceType.kDLCUDA, gpu
    return DLDeviceType.kDLExtDev, self.device.index or 0


def _dlpack(
    self: torch.Tensor,
    *,
    stream: int | None = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: _Place | None = None,
    copy: bool | None = None,
) -> Any:
    gpu = _gpu_under(self)
    if gpu is None:
        return _export_of_others(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
    if self.requires_grad or self.is_neg():
        raise BufferError("DLPack has no gradients and no negated views: tensor.detach().resolve_neg()")
    if dl_device is not None and tuple(dl_device) == (DLDeviceType.kDLCPU, 0) and copy is not False:
        return self.cpu().__dlpack__(max_version=max_version)
    if dl_device is not None and tuple(dl_device) != (DLDeviceType.kDLCUDA, gpu):
        raise BufferError(f"the tensor's memory is GPU {gpu}'s; it goes to {dl_device} by a copy alone")
    native = _native(stream)
    return _C.to_dlpack(self.clone() if copy else self, gpu, native, _object_of(native))


def _native(stream: int | None) -> int | None:
    """The consumer's stream by CUDA's handle; None: it names none, and the values have to be there."""
    if stream == 0:
        raise ValueError("__dlpack__: stream 0 is ambiguous; 1 is CUDA's legacy default stream")
    if stream is None:
        return 1
    return None if stream == -1 else stream


def _object_of(stream: int | None) -> Any:
    """The object of CuPy's current stream, if it is that one: the stream ends with it, arrays may live on."""
    cuda = getattr(sys.modules.get("cupy"), "cuda", None)
    current = cuda.get_current_stream() if cuda is not None else None
    return current if current is not None and current.ptr == stream else None


@functools.cache
def _start_freeing() -> None:
    """Before Python 3.12 a thread frees the arrays whose last use ends on threads without the GIL."""
    if not _C.frees_by_itself:
        threading.Thread(target=_C.free_for_ever, name="heddle-dlpack", daemon=True).start()


def from_dlpack(array: Any) -> torch.Tensor:
    """A tensor of heddle on the memory of another library's array on the same GPU, torch.cuda's say.

    Nothing is copied. The device waits for what that library has given its streams so far, and not for what
    it gives them later. It gets its memory back when Heddle's last use of it is over.
    """
    if isinstance(array, torch.Tensor) and array.device.type == "heddle":
        return array.detach()
    kind, number = array.__dlpack_device__()
    places = {_gpu_of(name): index for index, name in enumerate(device_names())}
    if kind != DLDeviceType.kDLCUDA or number not in places:
        raise ValueError(
            f"no device of heddle ({', '.join(device_names())}) has memory of {_KINDS.get(int(kind), kind)} "
            f'{number} in common with others; torch.from_dlpack(array).to("heddle") copies'
        )
    index = places[number]
    _start_freeing()
    return _C.from_dlpack(array.__dlpack__(stream=_C.native_stream(index)), index)


def register() -> None:
    torch.Tensor.__dlpack_device__ = _dlpack_device  # type: ignore[method-assign]
    torch.Tensor.__dlpack__ = _dlpack  # type: ignore[method-assign]
