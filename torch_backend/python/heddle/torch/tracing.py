"""What PyTorch's tracers are asked for: functional ATen graphs, in operators that Heddle's table has.

PyTorch's exporters decompose everything to "core ATen" by default. Here an operator with an entry in the
table stays whole (linear, layer_norm, scaled_dot_product_attention, lstm, ...): fewer nodes, and shapes in
which rows stay rows, so that calls can be joined into batches. Only operators without an entry are
decomposed.

Tracing is not thread-safe in PyTorch; one lock, dynamo's own, is held while it runs.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from . import _C
from .fused_layers import FUSED_LAYERS
from .grouped_products import grouped_products
from .private_names import (
    OpOverload,
    UserError,
    compile_lock,
    fx_config,
    override_composite_implicit_decomp,
    pytree,
    split_decomp_table_to_cia_and_python_decomp,
)

Decompositions = dict[OpOverload, Callable[..., Any]]


def qualified(op: OpOverload) -> str:
    """As its schema and the table have it: ``aten::add.Tensor``, ``aten::relu``."""
    schema = op._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def decompositions() -> Decompositions:
    """Everything PyTorch, or this package, can decompose and the table has no entry for."""
    table = torch.export.default_decompositions()
    table.update(FUSED_LAYERS)
    table.update(grouped_products())
    for op in list(table.keys()):
        if isinstance(op, OpOverload) and _C.has_entry(qualified(op)):
            del table[op]
    return table


@contextlib.contextmanager
def whole_operators() -> Iterator[Decompositions]:
    """For tracers below ``torch.export``: composite operators with an entry stay whole inside; the rest is
    decomposed by what this gives."""
    composite, others = split_decomp_table_to_cia_and_python_decomp(decompositions())
    with compile_lock, override_composite_implicit_decomp(composite):
        yield others


def export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """`dynamic_shapes` as torch.export takes it; None: the first extent of every tensor is free, and one
    number of rows where the example has one, as far as the module's code allows it."""
    if dynamic_shapes is not None:
        return _export(module, args, kwargs, dynamic_shapes)
    try:
        return _export(module, args, kwargs, _free_rows(module, args, kwargs, Dim("batch")))
    except UserError:  # the code asks for certain numbers: the tracer finds out which
        return _export(module, args, kwargs, _free_rows(module, args, kwargs, Dim.AUTO))


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    sizes_from_0 = fx_config.patch(backed_size_oblivious=True)
    with compile_lock, torch.no_grad(), sizes_from_0:
        program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
        return program.run_decompositions(decompositions())


def _free_rows(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Any
) -> dict[str, Any]:
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    count = next((each.shape[0] for each in tensors if each.dim() > 0), None)

    def free(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
            return None
        return {0: rows if leaf.shape[0] == count else Dim.AUTO}

    signature = inspect.signature(module.forward)
    named: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        variable = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named.update(pytree.tree_map(free, value if variable else {name: value}))
    return named
