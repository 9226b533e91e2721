"""Writes the torch.onnx test models, with the inputs and outputs PyTorch gives for them.

    python tools/models/export_torch.py --out DIR [NAME ...]

For each model NAME: DIR/NAME.onnx (dynamo exporter, dynamic batch, seeded random weights) and DIR/NAME.npz,
which holds `input_0` ... and `output_0` ... for one batch. Needs torch==2.13.0 and onnxscript.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """512-1024-1024-512 with ReLU between the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Conv1dNet(nn.Module):
    """64 channels x 100 steps: two convolutions of width 5, the mean over time, one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(64, 128, 5)
        self.second = nn.Conv1d(128, 128, 5)
        self.head = nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(x.mean(dim=-1))


def encoder() -> nn.Module:
    """nn.TransformerEncoder: 2 layers, width 256, 4 heads, feed-forward 1024, GELU."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class BasicBlock(nn.Module):
    """ResNet's basic block: two 3x3 convolutions with batch normalisation and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 for 1000 classes. The running statistics are random, so that they matter."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        blocks: list[nn.Module] = []
        width = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(width, outputs, stride), BasicBlock(outputs, outputs, 1)]
            width = outputs
        self.blocks = nn.Sequential(*blocks)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(512, 1000)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.bn(self.stem(x))))
        return self.head(torch.flatten(self.average(self.blocks(x)), 1))


# Name -> (module, extents of the input with a batch of 3).
MODELS = {
    "mlp": (Mlp, (3, 512)),
    "conv1d": (Conv1dNet, (3, 64, 100)),
    "encoder": (encoder, (3, 32, 256)),
    "resnet18": (ResNet18, (3, 3, 224, 224)),
}


def export(name: str, folder: Path, *, seed: int = 7, fastpath: bool = True) -> Path:
    """Writes NAME.onnx and NAME.npz into `folder` and returns the path of the former."""
    make, extents = MODELS[name]
    torch.manual_seed(seed)
    module = make().eval()
    x = torch.randn(*extents)
    with torch.no_grad():
        y = module(x)
    path = folder / f"{name}.onnx"
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fastpath)
    try:
        program = torch.onnx.export(
            module,
            (x,),
            input_names=["x"],
            output_names=["y"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    program.save(path)
    np.savez(folder / f"{name}.npz", input_0=x.numpy(), output_0=y.numpy())
    return path


def operators(path: Path) -> Counter[str]:
    """How often each operator occurs, model-local functions included."""
    model = onnx.load(path, load_external_data=False)
    nodes = list(model.graph.node)
    for function in model.functions:
        nodes += function.node
    return Counter(node.op_type for node in nodes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--no-fastpath", action="store_true", help="keep nn.MultiheadAttention decomposed")
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME", help=" ".join(MODELS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in MODELS]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}: expected some of {', '.join(MODELS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        path = export(name, arguments.out, fastpath=not arguments.no_fastpath)
        used = ", ".join(f"{op} x{count}" for op, count in sorted(operators(path).items()))
        print(f"{path}: {used}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
