"""How long does one call take on a GPU, beside PyTorch's on the same GPU?

For each model and batch: heddle with tensors on the device, heddle with arrays of the host, PyTorch eager
with tensors on the device and with arrays of the host, a CUDA graph of the eager call replayed, and with
--compiled torch.compile(mode="max-autotune"). Each call's end is awaited. All in f32 (TF32 off), or with
--dtype bf16 weights and tensors of both in bf16, in one process, in turn; every answer is checked against
PyTorch's of f32 on the CPU first. A ratio is heddle's time / the
peer's, round by round, with the lower and upper quartile.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import ratios
import torch

import heddle

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "models"))
import as_bf16
import export_torch

TORCH = Path(__file__).resolve().parents[2] / "build" / "models" / "torch"
WORKS = (
    ("mlp", {"batch": 1}),
    ("mlp", {"batch": 64}),
    ("encoder", {"batch": 1, "length": 32}),
    ("encoder", {"batch": 64, "length": 32}),
    ("conv1d", {"batch": 1, "length": 100}),
    ("conv1d", {"batch": 64, "length": 100}),
    ("resnet18", {"batch": 1, "height": 224, "width": 224}),
    ("resnet18", {"batch": 8, "height": 224, "width": 224}),
    ("minilm_torch", {"batch": 1, "length": 32}),
    ("minilm_torch", {"batch": 64, "length": 32}),
    ("minilm_torch", {"batch": 8, "length": 128}),
)
# Of the greatest value: sums in other orders, through up to 18 layers.
TOLERANCES = {"f32": 2e-3, "bf16": 1e-1}


def first(outputs: object) -> object:
    return outputs[0] if isinstance(outputs, tuple) else outputs


def eager(module: torch.nn.Module, inputs: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        result = first(module(*inputs))
        torch.cuda.synchronize()
        return result

    return call


def graphed(module: torch.nn.Module, inputs: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            module(*inputs)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = first(module(*inputs))

    def call() -> torch.Tensor:
        graph.replay()
        torch.cuda.synchronize()
        return result

    return call


def on_device(model: heddle.Model, arrays: list[np.ndarray]) -> Callable[[], heddle.Tensor]:
    tensors = [heddle.to_device(array, "cuda") for array in arrays]

    def call() -> heddle.Tensor:
        result = first(model(*tensors))
        result.wait()
        return result

    return call


def peers_of(
    name: str, given: list[np.ndarray], dtype: str, compiled: bool
) -> dict[str, Callable[[], object]]:
    module = export_torch.module(name).cuda()
    from_host = [torch.from_numpy(array) for array in given]
    path = TORCH / f"{name}.onnx"
    if dtype == "bf16":
        model = heddle.load(as_bf16.as_bf16(onnx.load(path)).SerializeToString(), device="cuda")
        module = module.bfloat16()
        from_host = [each.bfloat16() if each.is_floating_point() else each for each in from_host]
        arrays = [a.astype(ml_dtypes.bfloat16) if a.dtype == np.float32 else a for a in given]
    else:
        model, arrays = heddle.load(path, device="cuda"), given
    tensors = [each.cuda() for each in from_host]
    peers: dict[str, Callable[[], object]] = {
        "heddle": on_device(model, arrays),
        "heddle, arrays": lambda: first(model(*arrays)),
        "eager": eager(module, tensors),
        "eager, arrays": lambda: first(module(*[each.cuda() for each in from_host])).cpu(),
        "graph": graphed(module, tensors),
    }
    if compiled:
        peers["compiled"] = eager(torch.compile(module, mode="max-autotune"), tensors)
    return peers


def as_array(result: object) -> np.ndarray:
    if isinstance(result, torch.Tensor):
        return result.float().cpu().numpy()
    array = result.numpy() if isinstance(result, heddle.Tensor) else np.asarray(result)
    return array.astype(np.float32)


def seconds_of(call: Callable[[], object], seconds: float) -> float:
    """Median of the calls that fit."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(name: str, extents: dict[str, int], options) -> dict:
    arrays = export_torch.arrays(name, extents)
    wanted = first(export_torch.module(name)(*map(torch.from_numpy, arrays))).numpy()
    peers = peers_of(name, arrays, options.dtype, options.compiled)
    wrong = {}
    for peer, call in peers.items():
        got = as_array(call())
        wrong[peer] = float(np.abs(got - wanted).max() / np.abs(wanted).max())
        if not wrong[peer] <= TOLERANCES[options.dtype]:
            raise SystemExit(f"{name} {extents}: {peer} is wrong by {wrong[peer]:.2e} of the greatest value")
        seconds_of(call, options.seconds / 4)
    times = ratios.in_turn(
        {peer: lambda call=call: seconds_of(call, options.seconds) for peer, call in peers.items()},
        options.rounds,
    )
    print(f"{name} {extents} {options.dtype}: heddle {statistics.median(times['heddle']) * 1e6:.1f} us, "
          f"wrong by {wrong['heddle']:.1e}", flush=True)  # fmt: skip
    compared = {}
    for mine in ("heddle", "heddle, arrays"):
        for peer in times:
            if not peer.startswith("heddle") and peer.endswith("arrays") == mine.endswith("arrays"):
                compared[f"{mine} / {peer}"] = ratios.ratio(times[mine], times[peer])
                ratios.show(f"{mine} / {peer}", compared[f"{mine} / {peer}"], "time")
    return {
        "model": name,
        "extents": extents,
        "dtype": options.dtype,
        "seconds": times,
        "wrong": wrong,
        "ratios": compared,
    }


def main() -> int:
    parser = ratios.parser(__doc__ or "")
    parser.add_argument("--models", nargs="*", help="of them only")
    parser.add_argument("--dtype", choices=list(TOLERANCES), default="f32", help="of weights and tensors")
    parser.add_argument("--batches", action="store_true", help="the largest of each model only")
    parser.add_argument("--compiled", action="store_true", help="torch.compile(mode='max-autotune') as well")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    figures = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "works": []}
    figures["heddle"] = dict(heddle.Device("cuda").facts)
    for name, extents in WORKS:
        if options.models and name not in options.models:
            continue
        if options.batches and extents["batch"] == 1:
            continue
        figures["works"].append(measure(name, extents, options))
        ratios.write(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
