"""How long does one call take on a GPU, beside PyTorch's on the same GPU?

For each model and batch: heddle with tensors on the device, heddle with arrays of the host, PyTorch eager
with tensors on the device and with arrays of the host, a CUDA graph of the eager call replayed, and with
--compiled torch.compile(mode="max-autotune"). Each call's end is awaited. All in f32 (TF32 off), or with
--dtype bf16 weights and tensors of both in bf16, in one process, in turn; every answer is checked against
PyTorch's of f32 on the CPU first. A peer that fails or is wrong is a mistake and is not timed; the rest goes
on. A ratio is heddle's time / the peer's, round by round, with the lower and upper quartile.

tools/gpu_check.py sets HEDDLE_CUDA_GRAPHS=all: PyTorch is in the process, and Heddle replays calls of
cuBLASLt and cuDNN as graphs nevertheless.

--double: a small call of each model on the CUDA double, beside PyTorch on the CPU: answers, and no figures.
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
    ("minilm_torch", {"batch": 1, "length": 32}),
    ("minilm_torch", {"batch": 64, "length": 32}),
    ("minilm_torch", {"batch": 8, "length": 128}),
    # Last: torch.compile tries for minutes how its convolutions are the fastest.
    ("resnet18", {"batch": 1, "height": 224, "width": 224}),
    ("resnet18", {"batch": 8, "height": 224, "width": 224}),
)
SMALL = {"batch": 2, "length": 12, "height": 32, "width": 32}
# Of the greatest value: sums in other orders, through up to 18 layers.
TOLERANCES = {"f32": 2e-3, "bf16": 1e-1}


def first(outputs: object) -> object:
    return outputs[0] if isinstance(outputs, tuple) else outputs


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def eager(module: torch.nn.Module, inputs: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        result = first(module(*inputs))
        synchronize()
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


class Later:
    """A peer that is made when it is first called: what fails then is that peer's."""

    def __init__(self, make: Callable[[], Callable[[], object]]) -> None:
        self.make, self.call = make, None

    def __call__(self) -> object:
        if self.call is None:
            self.call = self.make()
        return self.call()


def peers_of(name: str, given: list[np.ndarray], options) -> dict[str, Callable[[], object]]:
    place = "cpu" if options.double else "cuda"
    module = export_torch.module(name).to(place)
    from_host = [torch.from_numpy(array) for array in given]
    path = TORCH / f"{name}.onnx"
    if options.dtype == "bf16":
        model = heddle.load(as_bf16.as_bf16(onnx.load(path)).SerializeToString(), device="cuda")
        module = module.bfloat16()
        from_host = [each.bfloat16() if each.is_floating_point() else each for each in from_host]
        arrays = [a.astype(ml_dtypes.bfloat16) if a.dtype == np.float32 else a for a in given]
    else:
        model, arrays = heddle.load(path, device="cuda"), given
    tensors = [each.to(place) for each in from_host]
    peers: dict[str, Callable[[], object]] = {
        "heddle": on_device(model, arrays),
        "heddle, arrays": lambda: first(model(*arrays)),
        "eager": eager(module, tensors),
        "eager, arrays": lambda: first(module(*[each.to(place) for each in from_host])).cpu(),
    }
    if not options.double:
        peers["graph"] = Later(lambda: graphed(module, tensors))
    if options.compiled:
        peers["compiled"] = Later(lambda: eager(torch.compile(module, mode="max-autotune"), tensors))
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


def wrong_by(call: Callable[[], object], wanted: np.ndarray) -> float:
    """Of the greatest value; infinite for NaN."""
    difference = float(np.abs(as_array(call()) - wanted).max() / np.abs(wanted).max())
    return difference if difference == difference else float("inf")


def check(peers: dict[str, Callable[[], object]], wanted: np.ndarray, options) -> tuple[dict, dict]:
    """How wrong each peer is, and what is said of those that are left out."""
    wrong: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for peer, call in peers.items():
        try:
            wrong[peer] = wrong_by(call, wanted)
        except Exception as error:  # a compiler's, say
            left_out[peer] = f"{type(error).__name__}: {str(error)[:300]}"
            continue
        if not wrong[peer] <= TOLERANCES[options.dtype]:
            left_out[peer] = f"is wrong by {wrong[peer]:.2e} of the greatest value"
            continue
        seconds_of(call, options.seconds / 4)
    return wrong, left_out


def compare(times: dict[str, list[float]]) -> dict[str, object]:
    compared = {}
    for mine in ("heddle", "heddle, arrays"):
        for peer in times:
            if (
                mine not in times
                or peer.startswith("heddle")
                or peer.endswith("arrays") != mine.endswith("arrays")
            ):
                continue
            compared[f"{mine} / {peer}"] = ratios.ratio(times[mine], times[peer])
            ratios.show(f"{mine} / {peer}", compared[f"{mine} / {peer}"], "time")
    return compared


def measure(name: str, extents: dict[str, int], options) -> dict:
    arrays = export_torch.arrays(name, extents)
    wanted = first(export_torch.module(name)(*map(torch.from_numpy, arrays))).numpy()
    peers = peers_of(name, arrays, options)
    wrong, left_out = check(peers, wanted, options)
    timed = {peer: call for peer, call in peers.items() if peer not in left_out}
    times = ratios.in_turn(
        {peer: lambda call=call: seconds_of(call, options.seconds) for peer, call in timed.items()},
        options.rounds,
    )
    told = {peer: statistics.median(seconds) for peer, seconds in times.items()}
    print(f"{name} {extents} {options.dtype}: heddle {told.get('heddle', float('nan')) * 1e6:.1f} us, "
          f"wrong by {wrong.get('heddle', float('nan')):.1e}, left out {left_out}", flush=True)  # fmt: skip
    return {
        "model": name,
        "extents": extents,
        "dtype": options.dtype,
        "seconds": times,
        "wrong": wrong,
        "left_out": left_out,
        "ratios": compare(times),
    }


def works_of(options) -> list[tuple[str, dict[str, int]]]:
    if options.double:
        small = {name: {axis: SMALL[axis] for axis in extents} for name, extents in WORKS}
        return [work for work in small.items() if not options.models or work[0] in options.models]
    return [
        (name, extents)
        for name, extents in WORKS
        if (not options.models or name in options.models) and not (options.batches and extents["batch"] == 1)
    ]


def main() -> int:
    parser = ratios.parser(__doc__ or "")
    parser.add_argument("--models", nargs="*", help="of them only")
    parser.add_argument("--dtype", choices=list(TOLERANCES), default="f32", help="of weights and tensors")
    parser.add_argument("--batches", action="store_true", help="the largest of each model only")
    parser.add_argument("--compiled", action="store_true", help="torch.compile(mode='max-autotune') as well")
    parser.add_argument("--double", action="store_true", help="a small call of each, on the CUDA double")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    gpu = "the double" if options.double else torch.cuda.get_device_name()
    figures = {"gpu": gpu, "torch": torch.__version__, "works": [], "mistakes": []}
    figures["heddle"] = dict(heddle.Device("cuda").facts)
    for name, extents in works_of(options):
        try:
            work = measure(name, extents, options)
        except Exception as error:  # the other models are measured all the same
            figures["mistakes"].append(f"{name} {extents}: {type(error).__name__}: {str(error)[:300]}")
        else:
            figures["works"].append(work)
            told = [f"{name} {extents}: {peer} {what}" for peer, what in work["left_out"].items()]
            figures["mistakes"] += told
        ratios.write(options.json, figures)
    print("\n".join(figures["mistakes"]), flush=True)
    return 1 if figures["mistakes"] else 0


if __name__ == "__main__":
    sys.exit(main())
