"""What bounds each measured case, by the model's extents and the card's own figures: microseconds of one row.

launch      an empty kernel awaited, shared by the rows of a batch
copy        a row there and its result back, at the rate of large pinned copies
memory      the weights read once a batch, shared by its rows, at the rate of a large copy on the card
arithmetic  the row's products at the rate of a product of 8192 x 8192 in f32
wake_up     from a write into a pipe to the other thread's return from read(), shared by the cores
bound       the largest of them

lanes_filled is (time of a batch of that size alone on one lane, host to host) x (batches a second): how many
lanes such batches would keep occupied if each took as long as alone. It is above 1 where lanes overlap, holds
a batch's copies and waits, and is no share of the time that the card is busy: figure_busy.py has that.

A row of tokens has LENGTH of them; of ragged sentences, the mean of theirs, as if nothing were padded. There
are no bounds for what other programs than cuda_callers measure: how many rows their runs have is not told.
"""

from __future__ import annotations

import os

import export_torch
import torch
from figure_peers import LENGTHS
from torch.utils.flop_counter import FlopCounterMode

LENGTH = 32  # of the encoder's rows


def length_of(work: str) -> int:
    return round(sum(LENGTHS) / 2) if work == "minilm_torch" else LENGTH


def extents(work: str) -> dict[str, float]:
    module = export_torch.module(work)
    arrays = export_torch.arrays(work, {"batch": 1, "length": length_of(work)})
    given = [torch.from_numpy(each) for each in arrays]
    with FlopCounterMode(display=False) as counter:
        result = module(*given)
    result = result[0] if isinstance(result, tuple) else result
    return {
        "flops": counter.get_total_flops(),
        "weight_bytes": sum(p.numel() * p.element_size() for p in module.parameters()),
        "bytes_in": sum(each.numel() * each.element_size() for each in given),
        "bytes_out": result.numel() * result.element_size(),
    }


def bounds(work: str, batch: float, card: dict, wake_us: float) -> dict[str, float | str]:
    """Of one row in a batch of so many, in microseconds."""
    model = extents(work)
    each = {
        "launch": card["launch_us"] / batch,
        "copy": 1e6 * max(model["bytes_in"] / card["to_card_bytes_per_s"],
                          model["bytes_out"] / card["from_card_bytes_per_s"]),
        "memory": 1e6 * model["weight_bytes"] / batch / card["memory_bytes_per_s"],
        "arithmetic": 1e6 * model["flops"] / card["flops_per_s"],
        "wake_up": wake_us / len(os.sched_getaffinity(0)),
    }  # fmt: skip
    return {**each, "bound": max(each, key=each.__getitem__)}


def of_cases(sides, calls: dict[str, list[dict]], card: dict, wake_us: float) -> dict[str, dict]:
    """Of each case that cuda_callers measured, by its last round; not of those of the rows "cards" and
    "probe", which have more cards, or are cases of other rows again."""
    cases = {}
    for name, rounds in calls.items():
        work = "minilm_torch" if name.startswith("minilm") else name.partition(",")[0]
        said = rounds[-1]
        if name.endswith((" of the cards", " beside the probe")):
            continue
        joined = said["batches"] > 0 and said["rows"] == 1
        batch = said["mean_batch"] if joined else said["rows"]
        batches_per_s = said["rows_per_s"] / batch
        alone = sides.callers(work, 1, rows=max(1, round(batch)))
        cases[name] = {
            **bounds(work, batch, card, wake_us),
            "measured": 1e6 / said["rows_per_s"],
            "batch": batch,
            "lanes_filled": alone["p50_us"] * 1e-6 * batches_per_s,
        }
    return cases
