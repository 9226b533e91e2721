"""The private names of PyTorch that this package uses from Python, each with the versions it was seen in.

PyTorch promises nothing about them, so they are all here, and a test keeps them out of the other files:

>>> from .private_names import compile_lock

Each is looked up when it is first asked for: the tracers' take seconds to import, which `import torch` must
not. Operators (torch.ops.aten._softmax) are asked for by name, and are PyTorch's table's matter.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # those that are types
    from torch._dynamo.exc import UserError as UserError
    from torch._guards import TracingContext as TracingContext
    from torch._ops import OpOverload as OpOverload
    from torch.utils import _pytree as pytree  # noqa: F401

SEEN = ("2.13.0", "2.14.1", "2.15.0")


@dataclass(frozen=True)
class Private:
    module: str
    path: str = ""  # below the module; none: the module itself
    seen: tuple[str, ...] = SEEN


NAMES = {
    # The device, its streams and its tensors
    "register_device_module": Private("torch", "_register_device_module"),
    "privateuse1_type": Private("torch", "_C._autograd.DeviceType.PrivateUse1"),
    "storage_write_file": Private("torch", "UntypedStorage._write_file"),
    "storage_set_from_file": Private("torch", "UntypedStorage._set_from_file"),
    "printed_totype": Private("torch._tensor_str", "tensor_totype", SEEN[:2]),
    "pytree": Private("torch.utils._pytree"),
    "BatchNorm": Private("torch.nn.modules.batchnorm", "_BatchNorm"),
    # What traces a module's call
    "get_tracing_state": Private("torch", "_C._get_tracing_state"),
    "len_torch_dispatch_stack": Private("torch", "_C._len_torch_dispatch_stack"),
    # Graphs
    "OpOverload": Private("torch._ops", "OpOverload"),
    "InductorWrapper": Private("torch", "_TorchCompileInductorWrapper"),
    "aot_autograd": Private("torch._dynamo.backends.common", "aot_autograd"),
    "compile_lock": Private("torch._dynamo.convert_frame", "compile_lock"),
    "UserError": Private("torch._dynamo.exc", "UserError"),
    "TracingContext": Private("torch._guards", "TracingContext"),
    "fx_config": Private("torch.fx.experimental._config"),
    "override_composite_implicit_decomp": Private(
        "torch.export.exported_program", "_override_composite_implicit_decomp"
    ),
    "split_decomp_table_to_cia_and_python_decomp": Private(
        "torch.export.exported_program", "_split_decomp_table_to_cia_and_python_decomp"
    ),
}


def _owner(private: Private) -> tuple[Any, str]:
    """What has the name, and the name there."""
    owner = importlib.import_module(private.module)
    *path, last = private.path.split(".")
    for name in path:
        owner = getattr(owner, name)
    return owner, last


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    owner, last = _owner(NAMES[name])
    return getattr(owner, last) if last else owner


def find(name: str) -> Any:
    """None where this PyTorch does not have it."""
    try:
        return __getattr__(name)
    except (ImportError, AttributeError):
        return None


def put(name: str, made: Any) -> None:
    """In the place of PyTorch's, for all that asks PyTorch for it."""
    setattr(*_owner(NAMES[name]), made)
