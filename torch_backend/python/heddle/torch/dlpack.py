"""DLPack: PyTorch 2.13 knows the device by its first name, "privateuse1", alone."""

from __future__ import annotations

import enum

import torch
from torch.utils.dlpack import DLDeviceType

_before = torch.Tensor.__dlpack_device__


def _device_of(self: torch.Tensor) -> tuple[enum.IntEnum, int]:
    if self.device.type == "heddle":
        return DLDeviceType.kDLExtDev, self.device.index or 0
    return _before(self)


def register() -> None:
    torch.Tensor.__dlpack_device__ = _device_of  # type: ignore[method-assign]
