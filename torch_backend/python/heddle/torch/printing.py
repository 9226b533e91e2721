"""print(tensor) on devices without float64: PyTorch's printer would convert numbers to it where they lie."""

from __future__ import annotations

import torch
from torch import _tensor_str

_NAME = "tensor_totype"  # private, seen in PyTorch 2.13; without it tensors print as PyTorch prints them


def install() -> None:
    convert = getattr(_tensor_str, _NAME, None)
    if convert is None:
        return

    def on_the_cpu(tensor: torch.Tensor) -> torch.Tensor:
        return convert(tensor.cpu() if tensor.device.type == "heddle" else tensor)

    setattr(_tensor_str, _NAME, on_the_cpu)
