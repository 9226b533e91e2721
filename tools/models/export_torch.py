"""Writes the torch.onnx test models, with the inputs and outputs PyTorch gives for them.

    python tools/models/export_torch.py --out DIR [--jobs N] [NAME ...]

For each net NAME of NETS: DIR/NAME.onnx (dynamo exporter), DIR/NAME-script.onnx (the older exporter), both
with dynamic extents and seeded random weights, and DIR/NAME.npz, which holds `input_0` ... and `output_0` ...
of one call. Files that are there stay when these scripts made them. Needs torch==2.13.0 and onnxscript.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
import real_files
import torch_nets

SEED = 7
SCRIPT_OPSET = 17


@dataclass(frozen=True)
class Port:
    """An input: its extents in the exported example, the symbols of those that vary, and what it may hold."""

    name: str
    extents: tuple[int, ...]
    symbols: dict[int, str] = field(default_factory=lambda: {0: "batch"})
    words: int = 0  # > 0: integers below it, else normal floats
    mask: bool = False  # ones, then zeros, along the last axis


@dataclass(frozen=True)
class Net:
    make: Callable[[], nn.Module]
    inputs: tuple[Port, ...]
    multiple: int = 1  # of the extents that vary, the batch left out


IMAGE = {0: "batch", 2: "height", 3: "width"}
TEXT = {0: "batch", 1: "length"}

NETS = {
    "mlp": Net(torch_nets.Mlp, (Port("x", (3, 512)),)),
    "conv1d": Net(torch_nets.Conv1dNet, (Port("x", (3, 64, 100), {0: "batch", 2: "length"}),)),
    "encoder": Net(torch_nets.encoder, (Port("x", (3, 32, 256), TEXT),)),
    "resnet18": Net(torch_nets.ResNet18, (Port("x", (3, 3, 224, 224), IMAGE),)),
    "mobilenet": Net(torch_nets.MobileNet, (Port("x", (3, 3, 64, 96), IMAGE),)),
    "unet": Net(torch_nets.Unet, (Port("x", (3, 3, 32, 48), IMAGE),), multiple=8),
    "gpt": Net(torch_nets.Gpt, (Port("ids", (3, 12), TEXT, words=500),)),
    "llama": Net(
        torch_nets.Llama, (Port("ids", (3, 12), TEXT, words=500), Port("mask", (3, 12), TEXT, mask=True))
    ),
    "minilm_torch": Net(
        torch_nets.MiniLm,
        (
            Port("input_ids", (3, 12), TEXT, words=2000),
            Port("attention_mask", (3, 12), TEXT, mask=True),
            Port("token_type_ids", (3, 12), TEXT, words=2),
        ),
    ),
}


def module(name: str) -> nn.Module:
    """The net, with the weights that the exported files hold."""
    torch.manual_seed(SEED)
    return NETS[name].make().eval()


def arrays(name: str, extents: dict[str, int], seed: int = SEED) -> list[np.ndarray]:
    """Inputs of the net where the symbols have the given extents; others are the example's."""
    random = np.random.default_rng(seed)
    made = []
    for port in NETS[name].inputs:
        shape = tuple(extents.get(port.symbols.get(i, ""), n) for i, n in enumerate(port.extents))
        if port.words:
            made.append(random.integers(0, port.words, shape))
        elif port.mask:
            lengths = random.integers(1, shape[-1] + 1, (*shape[:-1], 1))
            made.append((np.arange(shape[-1]) < lengths).astype(np.int64))
        else:
            made.append(random.standard_normal(shape, dtype=np.float32))
    return made


def dynamic_shapes(net: Net) -> tuple[dict[int, object], ...]:
    def extent(symbol: str) -> object:
        multiple = 1 if symbol == "batch" else net.multiple
        dim = torch.export.Dim(symbol if multiple == 1 else f"{symbol}_{multiple}th")
        return dim if multiple == 1 else multiple * dim

    dims = {symbol: extent(symbol) for port in net.inputs for symbol in port.symbols.values()}
    return tuple({axis: dims[symbol] for axis, symbol in port.symbols.items()} for port in net.inputs)


def export_dynamo(name: str, inputs: tuple[Tensor, ...], path: Path) -> None:
    net = NETS[name]
    program = torch.onnx.export(
        module(name),
        inputs,
        input_names=[port.name for port in net.inputs],
        output_names=["y"],
        dynamic_shapes=dynamic_shapes(net),
        dynamo=True,
        verbose=False,
    )
    program.save(path)


def export_script(name: str, inputs: tuple[Tensor, ...], path: Path) -> None:
    net = NETS[name]
    axes: dict[str, dict[int, str]] = {port.name: dict(port.symbols) for port in net.inputs}
    torch.onnx.export(
        module(name),
        inputs,
        path,
        input_names=[port.name for port in net.inputs],
        output_names=["y"],
        dynamic_axes=axes | {"y": {0: "batch"}},
        opset_version=SCRIPT_OPSET,
        dynamo=False,
    )


def export(name: str, folder: Path) -> list[Path]:
    """Writes what is missing of the net's files; the paths of the two .onnx files. Files appear whole."""
    warnings.simplefilter("ignore")  # the exporters' own
    inputs = tuple(torch.from_numpy(array) for array in arrays(name, {}))
    paths = [folder / f"{name}.onnx", folder / f"{name}-script.onnx"]
    saved = folder / f"{name}.npz"
    if not saved.exists():
        with torch.no_grad():
            y = module(name)(*inputs)
        values = {f"input_{i}": x.numpy() for i, x in enumerate(inputs)}
        part = saved.with_suffix(".part.npz")
        np.savez(part, **values, output_0=y.numpy())
        part.rename(saved)
    for path, write in zip(paths, (export_dynamo, export_script), strict=True):
        if not path.exists():
            part = path.with_suffix(".part")
            write(name, inputs, part)
            part.rename(path)
    return paths


def operators(path: Path) -> Counter[str]:
    """How often each operator occurs, model-local functions included."""
    model = onnx.load(path, load_external_data=False)
    nodes = list(model.graph.node)
    for function in model.functions:
        nodes += function.node
    return Counter(node.op_type for node in nodes)


def use_one_thread() -> None:
    torch.set_num_threads(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--jobs", type=int, default=2, help="processes that export at once")
    parser.add_argument("names", nargs="*", default=list(NETS), metavar="NAME", help=" ".join(NETS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in NETS]
    if unknown:
        parser.error(f"unknown net {unknown[0]!r}: expected some of {', '.join(NETS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    stamp = arguments.out / "made_by"
    if not stamp.exists() or stamp.read_text() != real_files.exporter_digest():
        for name in NETS:
            for ending in (".onnx", "-script.onnx", ".npz"):
                (arguments.out / f"{name}{ending}").unlink(missing_ok=True)
        stamp.unlink(missing_ok=True)
    with concurrent.futures.ProcessPoolExecutor(
        arguments.jobs, multiprocessing.get_context("spawn"), use_one_thread
    ) as pool:
        for paths in pool.map(export, arguments.names, [arguments.out] * len(arguments.names)):
            for path in paths:
                used = ", ".join(f"{op} x{count}" for op, count in sorted(operators(path).items()))
                print(f"{path}: {used}", flush=True)
    if set(arguments.names) == set(NETS):
        stamp.write_text(real_files.exporter_digest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
