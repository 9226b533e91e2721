"""torchvision, which tools/setup.sh keeps out of the way, in apart/ of the virtual environment.

The operators of its wheel are compiled for PyTorch's CUDA build. Beside another they do not load, and what is
here stands for their CPU kernels.
"""

import ctypes
import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F

APART = Path(sys.prefix) / "apart"


def overlaps(a: Tensor, b: Tensor) -> Tensor:
    corner = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    shared = (corner[1] - corner[0]).clamp(min=0).prod(-1)
    of_a, of_b = ((each[:, 2:] - each[:, :2]).prod(-1) for each in (a, b))
    return shared / (of_a[:, None] + of_b - shared)


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    near = overlaps(dets, dets) > iou_threshold
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if not near[i, kept].any():
            kept.append(i)
    return torch.tensor(kept, dtype=torch.long)


def roi_align(
    x: Tensor, rois: Tensor, scale: float, height: int, width: int, samples: int, aligned: bool
) -> Tensor:
    """The mean of samples x samples bilinear ones in each part of a region within the picture."""
    assert samples > 0
    assert not aligned
    found = []
    for number, *box in rois.tolist():
        left, top, right, bottom = (each * scale for each in box)
        y, x_ = (
            start + (torch.arange(parts * samples) + 0.5) * max(extent, 1.0) / (parts * samples)
            for start, extent, parts in ((top, bottom - top, height), (left, right - left, width))
        )
        y, x_ = (
            (2 * at.clamp(0, size - 1) + 1) / size - 1 for at, size in ((y, x.shape[2]), (x_, x.shape[3]))
        )
        grid = torch.stack(torch.meshgrid(x_, y, indexing="xy"), -1)
        sampled = F.grid_sample(x[int(number)][None].float(), grid[None], align_corners=False)
        found.append(F.avg_pool2d(sampled, samples)[0].to(x.dtype))
    return torch.stack(found) if found else x.new_zeros(0, x.shape[1], height, width)


def _loads(library: Path) -> bool:
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True


@functools.cache
def kernels() -> torch.library.Library:
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define(
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    )  # its import asks for it
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
        "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"
    )
    library.impl("nms", nms, "CPU")
    library.impl("roi_align", roi_align, "CPU")
    return library


@functools.cache
def torchvision() -> ModuleType:
    if APART.is_dir():
        sys.path.append(str(APART))
    spec = importlib.util.find_spec("torchvision")
    assert spec is not None, f"torchvision is not in {APART}: run tools/setup.sh test"
    compiled = _loads(Path(spec.origin).parent / "_C.so")
    if not compiled:
        kernels()
    import torchvision
    import torchvision.models

    if not compiled:
        torchvision.extension._has_ops = lambda: True  # what it asks before every call
    return torchvision
