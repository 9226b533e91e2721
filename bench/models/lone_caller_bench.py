"""Question  does a lone caller have the machine, with one row as with a batch: how does the time of a call
          fall with the number of threads, beside PyTorch's?
Subjects  ResNet-18 with 1 and 8 images, and an LSTM of 512 with one sequence of 64 steps: random weights,
          built by tools/models/graph_nets.py, so that neither a file nor a network is needed. PyTorch runs
          the same modules, convolutions with channels last as well, and the faster way counts.
Read as   milliseconds of a call, the median of the rounds, for each number of threads; `speedup` is the time
          of one thread over that. Every measurement has a process of its own, as threads that a peer leaves
          behind would be in the way of the next one.
Checked   before anything is timed, the answers are compared with PyTorch's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from ratios import parser

ROOT = Path(__file__).resolve().parent.parent.parent
SUBJECTS = {"resnet18, 1 image": 1, "resnet18, 8 images": 8, "lstm, 1 sequence": 1}
PEERS = ("heddle", "torch")


def median_ms(call, seconds: float) -> float:
    for _ in range(3):
        call()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def made(subject: str):
    """The torch module, the graph of the same, and an input."""
    import torch

    sys.path.insert(0, str(ROOT / "tools" / "models"))
    import graph_nets
    import torch_nets

    torch.manual_seed(1)
    random = np.random.default_rng(1)
    if subject.startswith("resnet18"):
        net = torch_nets.ResNet18().eval()
        x = random.standard_normal((SUBJECTS[subject], 3, 224, 224), dtype=np.float32)
        return net, graph_nets.resnet18(net), x
    net = torch.nn.LSTM(256, 512).eval()
    return net, graph_nets.lstm(net), random.standard_normal((64, 1, 256), dtype=np.float32)


def answer(net, x: np.ndarray) -> np.ndarray:
    import torch

    with torch.inference_mode():
        y = net(torch.from_numpy(x))
    return (y[0] if isinstance(y, tuple) else y).numpy()


def torch_ms(net, x: np.ndarray, threads: int, seconds: float) -> float:
    import torch

    torch.set_num_threads(threads)
    given = torch.from_numpy(x)
    best = float("inf")
    with torch.inference_mode():
        layouts = [torch.contiguous_format, torch.channels_last] if x.ndim == 4 else [torch.contiguous_format]
        for layout in layouts:
            module, turned = net.to(memory_format=layout), given.contiguous(memory_format=layout)
            best = min(best, median_ms(lambda m=module, t=turned: m(t), seconds))
    return best


def measure(peer: str, subject: str, threads: int, seconds: float) -> float:
    import heddle

    net, graph, x = made(subject)
    if peer == "torch":
        return torch_ms(net, x, threads, seconds)
    model = graph.build(heddle.Device.open(threads=threads), coalesce=False)
    got, want = model(x), answer(net, x)
    error = np.abs(got.reshape(want.shape) - want).max() / max(1.0, np.abs(want).max())
    if not error < 1e-4:
        raise SystemExit(f"{subject}, {threads} threads: the answers differ by {error}")
    return median_ms(lambda: model(x), seconds)


def apart(peer: str, subject: str, threads: int, seconds: float) -> float:
    command = [sys.executable, __file__, "--one", json.dumps([peer, subject, threads, seconds])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{peer}, {subject}, {threads} threads: {done.stderr[-2000:]}")
    return float(done.stdout)


def main() -> int:
    made_parser = parser(__doc__)
    made_parser.set_defaults(rounds=3)
    made_parser.add_argument("--threads", type=int, nargs="*")
    made_parser.add_argument("--one", type=json.loads, help="one measurement, in this process")
    options = made_parser.parse_args()
    if options.one is not None:
        print(measure(*options.one))
        return 0
    cores = len(os.sched_getaffinity(0))
    counts = options.threads or [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores]
    figures: dict[str, dict[str, dict[int, float]]] = {}
    for subject in SUBJECTS:
        rounds: dict[tuple[str, int], list[float]] = {}
        for _ in range(options.rounds):
            for threads in counts:
                for peer in PEERS:
                    rounds.setdefault((peer, threads), []).append(
                        apart(peer, subject, threads, options.seconds)
                    )
        figures[subject] = {peer: {n: statistics.median(rounds[peer, n]) for n in counts} for peer in PEERS}
        print(f"\n{subject:24s}" + "".join(f"{n:>10d} threads" for n in counts))
        for peer, times in figures[subject].items():
            print(f"  {peer:22s}" + "".join(f"{times[n]:15.3f} ms" for n in counts))
        ours, theirs = figures[subject]["heddle"], figures[subject]["torch"]
        print(f"  {'heddle speedup':22s}" + "".join(f"{ours[counts[0]] / ours[n]:15.2f} x " for n in counts))
        print(f"  {'torch / heddle':22s}" + "".join(f"{theirs[n] / ours[n]:15.2f} x " for n in counts))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
