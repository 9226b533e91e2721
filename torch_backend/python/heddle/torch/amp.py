"""What torch.autocast("heddle") asks of a device module."""

from __future__ import annotations

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def is_autocast_enabled() -> bool:
    """In this thread."""
    return torch.is_autocast_enabled("heddle")


def get_autocast_dtype() -> torch.dtype:
    return torch.get_autocast_dtype("heddle")
