"""Products of groups of rows with a matrix each, as mixtures of experts take them, for traced graphs.

Where a group ends is known only when the graph runs, and extents inside a graph are not read off values.
heddle::rows_of_groups is an operator of the runtime's that reads the ends while it runs. Groups along what is
summed over have none: every matrix gets all of it, with zeros for the other groups. An eager call multiplies
each group alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .private_names import OpOverload


def _groups(ends: Tensor, count: int) -> Tensor:
    """The group of each of `count` places; places past the last end have the number of groups."""
    places = torch.arange(count, device=ends.device)
    return (ends[:, None] <= places).sum(0)


_OURS = torch.library.Library("heddle", "DEF")
# [rows, k] with [groups, k, n]: [rows, n], zeros past the last end.
_OURS.define("rows_of_groups(Tensor a, Tensor matrices, Tensor ends) -> Tensor")


@torch.library.impl(_OURS, "rows_of_groups", "Meta")
def _rows_of_groups(a: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    return a.new_empty((a.shape[0], matrices.shape[2]))


def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Of 3 dimensions on both sides: a product each. Of 2 on one side: groups along its rows (columns). Of 2
    on both: groups along what is summed over."""
    if offs is None:
        made = torch.matmul(a, b)
    elif b.dim() == 3:
        made = torch.ops.heddle.rows_of_groups(a, b, offs)
    elif a.dim() == 3:
        made = torch.ops.heddle.rows_of_groups(b.t(), a.transpose(1, 2), offs).t()
    else:
        own = _groups(offs, a.shape[1]) == torch.arange(offs.shape[0], device=offs.device)[:, None]
        # Both, for what is no number in one group's rows is none in a product with zeros.
        made = torch.matmul(torch.where(own.unsqueeze(1), a, 0), torch.where(own.unsqueeze(2), b, 0))
    if bias is not None:
        made = made + bias
    return made if out_dtype is None else made.to(out_dtype)


def grouped_products() -> dict[OpOverload, Callable[..., Any]]:
    """PyTorch's operator, and that of transformers for PyTorchs without one, where transformers is loaded."""
    products: dict[OpOverload, Callable[..., Any]] = {}
    if hasattr(torch.ops.aten, "_grouped_mm"):
        products[torch.ops.aten._grouped_mm.default] = grouped_mm
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        products[torch.ops.transformers.grouped_mm_fallback.default] = grouped_mm
    return products
