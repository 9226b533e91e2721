"""What PyTorch keeps per thread and a result depends on: taken from a caller, put in force elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Settings:
    """Equal settings, equal results: calls of unequal ones never share a batch."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype], ...]  # where it is on
    autocast_cache: bool
    default_device: torch.device

    @classmethod
    def of_this_thread(cls, device_type: str) -> Settings:
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            tuple(
                (kind, torch.get_autocast_dtype(kind))
                for kind in sorted({"cpu", device_type})
                if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
            ),
            torch.is_autocast_cache_enabled(),
            torch.get_default_device(),
        )

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """In the calling thread, which has PyTorch's defaults otherwise."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=self.autocast_cache))
            if self.default_device.type != "cpu":
                stack.enter_context(self.default_device)
            yield
