"""Storages in files: PyTorch's own way to and from a device names memory by its address alone.

Nothing tells Heddle then which work uses it, and a host cannot address a GPU's. So files are written from a
copy on the host, and read into one.
"""

from __future__ import annotations

from typing import Any

import torch

from . import private_names

_write_of_others = private_names.storage_write_file
_read_of_others = private_names.storage_set_from_file


def _write_file(self: torch.UntypedStorage, *arguments: Any) -> None:
    _write_of_others(self.cpu() if self.device.type == "heddle" else self, *arguments)


def _set_from_file(self: torch.UntypedStorage, *arguments: Any) -> torch.UntypedStorage:
    if self.device.type != "heddle":
        return _read_of_others(self, *arguments)
    self.copy_(_read_of_others(torch.UntypedStorage(self.nbytes()), *arguments))
    return self


def register() -> None:
    private_names.put("storage_write_file", _write_file)
    private_names.put("storage_set_from_file", _set_from_file)
