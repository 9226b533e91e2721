"""Question  what does transformers' generate() with a growing cache cost on device "heddle", beside the CPU?
Read as   time      of NEW tokens of GPT-2 (its smallest published size, weights of a seed, one sequence) on
                    the device over the time of PyTorch's CPU at its best number of threads: median and
                    quartiles, round by round, both in turn in one process
          graphs    that the device builds a token in the first generation, once the cache was seen to
                    grow: from the fourth token to the last but one, with which generate() stops
Checked   before anything is timed, the tokens are the CPU's, and the logits within 1e-3 of their scale.
"""

from __future__ import annotations

import copy
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench" / "models")]

import heddle.torch  # noqa: E402
from ratios import in_turn, parser, ratio, show, spread, write  # noqa: E402

NEW = 64
PROMPT = 32
BARS = {"time": "<= 0.9", "graphs": "0"}
TOLERANCE = 1e-3


def gpt2(layers: int) -> transformers.GPT2LMHeadModel:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=layers, bos_token_id=None, eos_token_id=None)
    return transformers.GPT2LMHeadModel(config).eval().requires_grad_(False)


def generated(
    module: torch.nn.Module, ids: Tensor, tokens: int, streamer: object = None
) -> tuple[Tensor, Tensor]:
    made = module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
        streamer=streamer,
    )
    return made.sequences.cpu(), torch.stack(made.logits).cpu()


def seconds_of(call: Callable[[], object], threads: int) -> Callable[[], float]:
    def measure() -> float:
        torch.set_num_threads(threads)
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return measure


def check(ours: torch.nn.Module, theirs: torch.nn.Module, ids: Tensor) -> None:
    tokens, logits = generated(ours, ids.to("heddle"), 8)
    wanted_tokens, wanted = generated(theirs, ids, 8)
    error = float((logits - wanted).abs().max() / wanted.abs().max())
    if not torch.equal(tokens, wanted_tokens) or not error < TOLERANCE:
        raise SystemExit(f"generate(): other tokens, or logits that differ by {error:.2e}")


class GraphsATurn:
    """What generate() tells of each token, the prompt first: how many graphs there were by then."""

    def __init__(self) -> None:
        self.built: list[int] = []

    def put(self, _: Tensor) -> None:
        self.built.append(heddle.torch._C.cache_stats()["graphs"])

    def end(self) -> None:
        pass


def graphs_a_token(module: torch.nn.Module, prompt: Tensor) -> float:
    turns = GraphsATurn()
    generated(module, prompt.to("heddle"), NEW, turns)
    return (turns.built[-2] - turns.built[4]) / (len(turns.built) - 6)


def main() -> int:
    command = parser(__doc__)
    command.add_argument("--layers", type=int, default=12)
    options = command.parse_args()
    theirs = gpt2(options.layers)
    ours = copy.deepcopy(theirs).to("heddle")
    ids = torch.randint(1, 50000, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    graphs = graphs_a_token(ours, ids)
    check(ours, theirs, ids[:, :12])
    there = ids.to("heddle")
    peers = {"heddle": seconds_of(lambda: generated(ours, there, NEW), 1)} | {
        f"cpu, {n} threads": seconds_of(lambda: generated(theirs, ids, NEW), n)
        for n in range(1, len(os.sched_getaffinity(0)) + 1)
    }
    times = in_turn(peers, options.rounds)
    for name, values in times.items():
        show(name, spread(values), "s")
    best = min((name for name in times if name != "heddle"), key=lambda name: statistics.median(times[name]))
    of_time = ratio(times["heddle"], times[best])
    show(f"time of heddle / {best}", of_time, "x", BARS["time"])
    print(f"  graphs built a token {graphs:.2f}   bar: {BARS['graphs']}")
    write(options.json, {"ratio": of_time, "peer": best, "seconds": times, "graphs_a_token": graphs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
