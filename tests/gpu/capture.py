"""A thread of PyTorch captures CUDA graphs, in global mode, while Heddle's callers load models and call them.

Both stay right: no capture is spoiled, each replay has its values, each call has its own.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import torch
from program import TOLERANCE, arguments, error, finish, mlp

import heddle

SECONDS, WIDTH = 6.0, 256


class Captures:
    """What the capturing thread did, and what went wrong."""

    def __init__(self) -> None:
        self.made = 0
        self.mistakes: list[str] = []

    def capture(self, weight: torch.Tensor, x: torch.Tensor, stream: torch.cuda.Stream) -> None:
        wanted = torch.relu(x @ weight)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="global"):
            y = torch.relu(x @ weight)
        graph.replay()
        stream.synchronize()
        if not torch.allclose(y, wanted, 1e-5, 1e-5):
            self.mistakes.append(f"capture {self.made}: its replay is wrong")
        self.made += 1

    def run(self, until: float) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                x = torch.randn(8, WIDTH, device="cuda")
                weight = torch.randn(WIDTH, WIDTH, device="cuda")
                while time.monotonic() < until:
                    self.capture(weight, x, stream)
        except Exception as raised:
            self.mistakes.append(f"capture {self.made}: {raised}")


def main() -> None:
    if arguments(__doc__).double:
        finish({}, ["the double has no PyTorch beside it"])
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = mlp("host", WIDTH)
    random = np.random.default_rng(2)
    inputs = [random.standard_normal((1 + i % 5, WIDTH), dtype=np.float32) for i in range(10)]
    wanted = [reference(x) for x in inputs]
    torch.randn(8, 8, device="cuda").mm(torch.randn(8, 8, device="cuda")).cpu()  # PyTorch is set up
    until = time.monotonic() + SECONDS
    captures, calls, loads, mistakes = Captures(), [0] * 8, [0] * 2, []

    def call(thread: int, model: heddle.Model) -> None:
        k = calls[thread] % len(inputs)
        wrong = error(model(inputs[k]), wanted[k])
        if wrong > TOLERANCE:
            mistakes.append(f"a call was wrong by {wrong:.2e}")
        calls[thread] += 1

    def work(thread: int, shared: heddle.Model) -> None:
        try:
            while time.monotonic() < until:
                if thread < len(loads):  # these load, and call what they loaded
                    with mlp("cuda", WIDTH) as model:
                        call(thread, model)
                    loads[thread] += 1
                else:
                    call(thread, shared)
        except heddle.Error as raised:
            mistakes.append(f"thread {thread}: {raised.code}: {raised}")

    shared = mlp("cuda", WIDTH)
    threads = [threading.Thread(target=work, args=(i, shared)) for i in range(len(calls))]
    threads.append(threading.Thread(target=captures.run, args=(until,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if captures.made == 0 or min(loads) == 0 or min(calls) == 0:
        mistakes.append(f"{captures.made} captures, {loads} loads, {calls} calls: each has to have begun")
    finish(
        {"seconds": SECONDS, "captures": captures.made, "loads": sum(loads), "calls": sum(calls)},
        [*captures.mistakes, *mistakes],
    )


if __name__ == "__main__":
    main()
