"""The runtimes that users have today, each behind one shape: open a model with a thread setting, call it.

A Setting is one way a peer can be run (its own thread pool's size, its streams); the benchmarks try them all
and count the best. open() gives a function from the inputs, in the model's order, to the first output; it may
be called from any thread, and keeps what the peer wants to have once per thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CORES = len(os.sched_getaffinity(0))
Arrays = tuple[np.ndarray, ...]
Call = Callable[[Arrays], np.ndarray]


@dataclass(frozen=True)
class Work:
    """One model: its file, and how to make the PyTorch module it was exported from."""

    name: str
    path: Path
    module: Callable[[], object] | None


@dataclass(frozen=True)
class Setting:
    peer: str
    label: str
    open: Callable[[Work], Call]

    @property
    def name(self) -> str:
        return f"{self.peer}, {self.label}"


def heddle_call(work: Work, precision: str, coalesce: bool = False) -> Call:
    import heddle

    model = heddle.load(work.path, precision=precision, coalesce=coalesce)

    def call(inputs: Arrays) -> np.ndarray:
        outputs = model(*inputs)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    return call


def onnxruntime_call(work: Work, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(work.path), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    first = [session.get_outputs()[0].name]
    return lambda inputs: session.run(first, dict(zip(names, inputs, strict=True)))[0]


def openvino_call(work: Work, threads: int, streams: int, precision: str) -> Call:
    import openvino

    model = openvino.Core().compile_model(
        str(work.path),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": streams,
            "INFERENCE_PRECISION_HINT": precision,
        },
    )
    return with_own_request(model)


def with_own_request(model) -> Call:
    """OpenVINO's compiled model, each thread with an infer request of its own."""
    mine = threading.local()

    def call(inputs: Arrays) -> np.ndarray:
        if not hasattr(mine, "request"):
            mine.request = model.create_infer_request()
        mine.request.infer(list(inputs), share_inputs=True)
        return mine.request.get_output_tensor(0).data.copy()

    return call


def torch_call(work: Work, threads: int, precision: str) -> Call:
    import torch

    if work.module is None:
        raise LookupError(f"{work.name} has no PyTorch module")
    module = work.module()

    def call(inputs: Arrays) -> np.ndarray:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            output = module(*map(torch.from_numpy, inputs))
        output = output[0] if isinstance(output, tuple) else output
        return output.float().numpy()

    return call


def settings(precision: str, callers: int) -> list[Setting]:
    """Heddle first, then every setting of every peer that makes sense for this number of callers."""
    every = [Setting("heddle", "default", lambda work: heddle_call(work, precision))]
    for threads in range(1, CORES + 1):
        if precision == "f32":
            every.append(
                Setting("onnxruntime", f"{threads} threads", lambda w, n=threads: onnxruntime_call(w, n))
            )
        every.append(Setting("torch", f"{threads} threads", lambda w, n=threads: torch_call(w, n, precision)))
    for streams in sorted({1, min(callers, CORES)}):
        every.append(
            Setting(
                "openvino",
                f"{CORES} threads, {streams} streams",
                lambda w, s=streams: openvino_call(w, CORES, s, precision),
            )
        )
    return every
