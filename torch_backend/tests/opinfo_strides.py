"""Whether the results of OpInfo's samples lie as on PyTorch's CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# They lie by rows here, where PyTorch's CPU lays them out as a permuted operand lies.
BY_ROWS = {
    "__getitem__",
    "_unsafe_masked_index_put_accumulate",
    "addr",
    "cat",
    "flip",
    "fliplr",
    "flipud",
    "index_put",
    "nn.functional.adaptive_max_pool1d",
    "nn.functional.avg_pool1d",
    "nn.functional.conv1d",
    "nn.functional.conv_transpose1d",
    "nn.functional.interpolate",
    "put",
    "rot90",
    "select_scatter",
    "slice_scatter",
}


def lie_otherwise(name: str, actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str:
    """ "" where they have the same strides, in the axes where those say something."""
    if name in BY_ROWS:
        return ""
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        telling = [axis for axis, extent in enumerate(e.shape) if extent != 1 and e.numel()]
        if e.layout is torch.strided and any(a.stride(axis) != e.stride(axis) for axis in telling):
            return f"result {i} has the strides {a.stride()}, not {e.stride()}"
    return ""
