"""Which number of threads bench/cuda/figure_sides.py takes for a peer that fails with some."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import ClassVar

import figure_rows
import figure_sides
import pytest
from figure_sides import Failed, Sides


class Peer:
    """In the place of Child: the rate is that of so many threads, and one that has failed fails for ever."""

    RATES: ClassVar[dict[int, float | None]] = {}
    ended: ClassVar[list[str]] = []

    def __init__(self, name: str, command: list[str], env: dict[str, str]) -> None:
        self.name, self.kind, self.spoilt = name, command[2], False
        self.process = SimpleNamespace(poll=lambda: None)

    def ask(self, line: str) -> dict:
        threads = json.loads(line)["threads"]
        rate = self.RATES[threads] if self.kind == "compiled" else threads * 2.0
        if self.spoilt or rate is None:
            self.spoilt = True
            raise Failed(f"{self.name}, {threads} threads")
        return {"rows_per_s": rate}

    def end(self) -> None:
        self.ended.append(self.name)


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Sides:
    monkeypatch.setattr(figure_sides, "Child", Peer)
    monkeypatch.setattr(Peer, "RATES", {1: 5.0, 2: None, 4: 9.0, 8: None, 16: 7.0})
    monkeypatch.setattr(Peer, "ended", [])
    return Sides(SimpleNamespace(double=False, seconds=0.1))


def test_a_number_of_threads_that_fails_leaves_the_others_to_a_new_process(sides: Sides) -> None:
    found = sides.best(("eager", "compiled"), "mlp", (1, 2, 4, 8, 16))
    assert list(found) == ["eager, 16 threads", "compiled, 4 threads"]
    assert found["compiled, 4 threads"]() == 9.0
    assert Peer.ended == ["peer compiled mlp cuda"] * 2
    assert sides.left_out == [f"peer compiled mlp cuda, {n} threads" for n in (2, 8)]
    assert sides.mistakes == []


def test_a_peer_that_no_number_of_threads_suits_is_a_mistake_and_no_side(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "RATES", dict.fromkeys((1, 2)))
    assert list(sides.best(("compiled",), "mlp", (1, 2))) == []
    assert sides.mistakes == [f"peer compiled mlp cuda, {n} threads" for n in (1, 2)]
    assert sides.left_out == []


@pytest.mark.parametrize("row", ["callers", "offline"])
def test_sixteen_threads_are_tried_for_single_rows_and_for_batches(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    asked = []

    def best(kinds, work, threads, rows=1):
        asked.append((rows, threads))
        raise Failed("enough")

    monkeypatch.setattr(sides, "best", best)
    monkeypatch.setattr(sides, "best_callers", lambda work, rows: 2)
    with pytest.raises(Failed):
        figure_rows.ROWS[row](figure_rows.Table(sides))
    assert asked == [(64 if row == "offline" else 1, (1, 2, 4, 8, 16))]
