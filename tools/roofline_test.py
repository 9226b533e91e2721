"""bench/cuda/roofline.py: bounds of models whose extents are known, on a card of round figures."""

from __future__ import annotations

import json
import os
from typing import Any

import figure_peers
import pytest
import roofline

CARD = {
    "launch_us": 16.0,
    "to_card_bytes_per_s": 2.048e9,
    "from_card_bytes_per_s": 4.096e9,
    "memory_bytes_per_s": 8398848e6 / 4,
    "flops_per_s": 4194304e6,
}
WAKE_US = 0.5


def mlp_bounds(batch: float, **card: float) -> dict[str, Any]:
    return roofline.bounds("mlp", batch, CARD | card, WAKE_US * len(os.sched_getaffinity(0)))


def test_a_row_of_the_mlp_is_bounded_by_what_its_extents_and_the_card_say() -> None:
    # 512-1024-1024-512: two operations for each of 2,097,152 weights; a row is 2,048 bytes there and back.
    assert mlp_bounds(8) == {
        "launch": 2.0,
        "copy": pytest.approx(1.0),  # the slower way
        "memory": pytest.approx(0.5),
        "arithmetic": pytest.approx(1.0),
        "wake_up": pytest.approx(0.5),
        "bound": "launch",
    }


@pytest.mark.parametrize(
    ("batch", "card", "bound"),
    [
        (1, {}, "launch"),
        (1, {"memory_bytes_per_s": 1e11}, "memory"),
        (256, {"to_card_bytes_per_s": 1e9}, "copy"),
        (256, {"from_card_bytes_per_s": 1e9}, "copy"),
        (256, {"flops_per_s": 1e12}, "arithmetic"),
        (256, {"flops_per_s": 1e15, "to_card_bytes_per_s": 1e12, "from_card_bytes_per_s": 1e12}, "wake_up"),
    ],
)
def test_the_bound_is_the_largest_of_them(batch: float, card: dict[str, float], bound: str) -> None:
    told = mlp_bounds(batch, **card)
    assert told.pop("bound") == bound
    assert max(told, key=told.__getitem__) == bound


class Alone:
    """In the place of Sides: a batch of any size alone takes 100 us."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []

    def callers(self, work: str, n: int, rows: int) -> dict[str, float]:
        self.asked.append((work, n, rows))
        return {"p50_us": 100.0}


CALLS = json.loads("""{
  "mlp, 64 callers": [
    {"rows_per_s": 1.0, "rows": 1, "batches": 9, "mean_batch": 1.0},
    {"rows_per_s": 800000.0, "rows": 1, "batches": 100, "mean_batch": 16.4}],
  "mlp, 8 callers of 64 rows": [{"rows_per_s": 3200000.0, "rows": 64, "batches": 0, "mean_batch": 0}],
  "minilm, 64 callers": [{"rows_per_s": 30000.0, "rows": 1, "batches": 10, "mean_batch": 12.0}],
  "mlp, 8 own models": [{"rows_per_s": 200000.0, "rows": 1, "batches": 0, "mean_batch": 0}],
  "encoder, 256 callers, all of the cards": [{"rows_per_s": 1.0, "rows": 1, "batches": 1, "mean_batch": 1}],
  "mlp, 8 callers beside the probe": [{"rows_per_s": 1.0, "rows": 1, "batches": 1, "mean_batch": 8.0}]
}""")


def test_each_case_of_callers_has_its_batch_and_how_many_lanes_such_batches_fill() -> None:
    sides = Alone()
    cases = roofline.of_cases(sides, CALLS, CARD, WAKE_US)
    told = {name: (case["batch"], case["measured"], case["lanes_filled"]) for name, case in cases.items()}
    assert told == {
        "mlp, 64 callers": (16.4, 1.25, pytest.approx(800000 / 16.4 * 1e-4)),
        "mlp, 8 callers of 64 rows": (64, 0.3125, pytest.approx(5.0)),
        "minilm, 64 callers": (12.0, pytest.approx(33.333, rel=1e-4), pytest.approx(0.25)),
        "mlp, 8 own models": (1, 5.0, pytest.approx(20.0)),
    }
    assert sides.asked == [("mlp", 1, 16), ("mlp", 1, 64), ("minilm_torch", 1, 12), ("mlp", 1, 1)]
    assert cases["minilm, 64 callers"]["arithmetic"] > 100 * cases["mlp, 64 callers"]["arithmetic"]


def test_ragged_sentences_are_bounded_with_the_mean_of_their_lengths() -> None:
    assert figure_peers.LENGTHS == (4, 64)
    assert [roofline.length_of(work) for work in ("minilm_torch", "encoder")] == [34, 32]
    # Three inputs of i64.
    assert roofline.extents("minilm_torch")["bytes_in"] == 34 * 3 * 8
