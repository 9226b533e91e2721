"""The row `busy` of bench/cuda/figure.py, with others in the place of NVML and of the sides."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace

import figure_busy
import figure_table
import pytest
from figure_rows import ROWS, Table
from figure_sides import Failed, Sides

CASES = (("mlp", 8, 0, 1), ("mlp", 64, 8, 1))


class Nvml:
    """Tells 30 % twice and 60 % from then on, and counts; `failing` names the function that returns 3."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.asked = 0
        self.more = threading.Condition()

    def __getattr__(self, name: str):
        def call(*words) -> int:
            if name == "nvmlDeviceGetUtilizationRates":
                with self.more:
                    self.asked += 1
                    words[1]._obj.gpu = 30 if self.asked <= 2 else 60
                    self.more.notify_all()
            return 3 if name == self.failing else 0

        return call

    def until(self, asked: int) -> None:
        with self.more:
            assert self.more.wait_for(lambda: self.asked >= asked, timeout=60)


def put(monkeypatch: pytest.MonkeyPatch, nvml: Nvml) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: nvml)
    monkeypatch.setattr(figure_busy, "SETTLED_S", 0.001)
    monkeypatch.setattr(figure_busy, "EVERY_S", 0.001)


def test_a_share_is_the_mean_of_what_the_driver_told_while_the_case_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = Nvml()
    put(monkeypatch, nvml)
    utilization = figure_busy.card()  # which asks once: 30 % is told once more

    def case() -> float:
        nvml.until(200)
        return 5e3

    told = figure_busy.share(utilization, case)
    assert told.samples == nvml.asked - 1 >= 199
    assert told.busy == pytest.approx((0.3 + 0.6 * (told.samples - 1)) / told.samples)
    assert told.rows_per_s == 5e3


def test_a_case_that_ends_before_it_has_settled_and_one_that_fails_have_no_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(monkeypatch, Nvml())
    monkeypatch.setattr(figure_busy, "SETTLED_S", 60.0)
    with pytest.raises(figure_busy.Refused, match="ended before 60 s"):
        figure_busy.share(figure_busy.card(), lambda: 1.0)

    def fails() -> float:
        raise Failed("a wrong answer")

    with pytest.raises(Failed, match="a wrong answer"):
        figure_busy.share(figure_busy.card(), fails)


@pytest.mark.parametrize(
    "failing", ["nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUtilizationRates"]
)
def test_a_driver_that_does_not_tell_leaves_the_row_out_by_the_name_of_what_failed(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, Nvml(failing))
    table = Table(Sides(SimpleNamespace(double=False)))
    ROWS["busy"](table)
    assert table.sides.left_out == [f"busy: {failing} returned 3"]
    assert (table.busy, table.sides.mistakes) == ({}, [])


def test_a_driver_that_stops_telling_gives_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    put(monkeypatch, nvml)
    utilization = figure_busy.card()
    nvml.failing = "nvmlDeviceGetUtilizationRates"
    with pytest.raises(figure_busy.Refused, match="returned 3"):
        figure_busy.share(utilization, lambda: nvml.until(2) or 1.0)


def test_a_machine_without_nvml_leaves_the_row_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_busy, "LIBRARY", "libheddle-has-no-such.so.1")
    table = Table(Sides(SimpleNamespace(double=False)))
    ROWS["busy"](table)
    assert len(table.sides.left_out) == 1
    assert table.sides.left_out[0].startswith("busy: libheddle-has-no-such.so.1: cannot open")


def test_each_case_runs_warm_for_its_seconds_and_the_table_has_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = Nvml()
    put(monkeypatch, nvml)
    monkeypatch.setattr(figure_busy, "CASES", CASES)
    sides = Sides(SimpleNamespace(double=False, seconds=0.3))
    asked: list[tuple] = []

    def callers(work: str, n: int, **more) -> dict:
        asked.append((work, n, more["outstanding"], more["rows"], more.get("seconds")))
        if "seconds" in more:
            nvml.until(nvml.asked + 100)
        return {"rows_per_s": 1e3 * n}

    def rate(kind: str, work: str, threads: int, rows: int = 1, seconds: float | None = None) -> float:
        asked.append((kind, work, threads, rows, seconds))
        if kind == "graph":
            raise Failed("capture was lost")
        if seconds is not None:
            nvml.until(nvml.asked + 100)
        return 7e3

    monkeypatch.setattr(sides, "callers", callers)
    monkeypatch.setattr(sides, "rate", rate)
    table = Table(sides)
    ROWS["busy"](table)
    seconds = figure_busy.SECONDS
    assert asked == [
        ("mlp", 8, 0, 1, None), ("mlp", 64, 8, 1, None),
        ("eager", "mlp", 8, 1, None), ("graph", "mlp", 4, 1, None),
        ("mlp", 8, 0, 1, seconds), ("mlp", 64, 8, 1, seconds), ("eager", "mlp", 8, 1, seconds),
    ]  # fmt: skip
    assert sides.mistakes == ["capture was lost"]
    told = figure_table.busy({name: share.as_json() for name, share in table.busy.items()})
    assert told[:2] == [
        "| case | rows/s, thousands | the card is busy | samples |",
        "| --- | --- | --- | --- |",
    ]
    assert [line.rsplit(" | ", 1)[0] for line in told[2:]] == [
        "| mlp, 8 callers | 8.0 | 60%",
        "| mlp, 64 callers x 8 outstanding | 64.0 | 60%",
        "| mlp, PyTorch eager, 8 threads | 7.0 | 60%",
    ]
    assert figure_table.busy({}) == []
