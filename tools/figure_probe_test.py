"""The row `probe` of bench/cuda/figure.py, with programs in the place of the probe and of cuda_callers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import figure_probe
import figure_table
import gpu_phases
import pytest
import ratios
from figure_rows import ROWS, Table
from figure_sides import Sides

LINE = (
    "callers {:3d} x {}, lanes {}, closers lead, fan 4, spinners 8: {:8.0f} rows/s  p50    22 p99    32 us "
    "(p99/p50 1.4)  batch   8.0  cores user 7.8 sys 0.2 | gather 1.2, to launch 0.7, launch call 3.7, "
    "to seen 15.4 (gpu 12.0), seen to running 0.9 | gpu busy 54% | wrong {}"
)
# What each is asked is noted, so that a test sees the order.
PROBE = """#!/bin/sh
echo "probe $1" >> {log}
case $1 in
{cases}
*) echo "$1: 3 of ${{1%%:*}} callers hang"; exit 1;;
esac
"""
CALLERS = """#!/bin/sh
while read -r callers outstanding rest; do
  echo "heddle $callers $outstanding $rest" >> {log}
  [ "$outstanding" != 0 ] || outstanding=1
  echo "{{\\"rows_per_s\\": $((1000 * callers * outstanding)).0}}"
done
"""
# In thousands, as the programs above answer: Heddle has 8, 16, 64, 128, 256 and 512.
RATES = {
    (8, 1, 1): (10e3, 0),
    (16, 1, 1): (16e3, 0),
    (16, 1, 2): (32e3, 0),
    (64, 1, 4): (80e3, 0),
    (128, 1, 4): (100e3, 0),
    (256, 1, 4): (512e3, 0),
    (64, 8, 4): (512e3, 0),
}


class Measured:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, rates: dict) -> None:
        log = folder / "log"
        log.write_text("")
        cases = "\n".join(
            f"{':'.join(map(str, way))} | {':'.join(map(str, way))}:*) echo '{LINE.format(*way, *told)}';;"
            for way, told in rates.items()
        )
        for name, text in (("probe", PROBE), ("callers", CALLERS)):
            (folder / name).write_text(text.format(log=log, cases=cases))
            (folder / name).chmod(0o755)
        monkeypatch.setenv(figure_probe.NAMED_BY, str(folder / "probe"))
        monkeypatch.setattr(ratios, "PAUSE_S", 0)
        options = SimpleNamespace(double=False, program=folder / "callers", rounds=2, seconds=0.01)
        sides = Sides(options)
        table = Table(sides)
        ROWS["probe"](table)
        sides.end()
        self.asked = log.read_text().splitlines()
        self.mistakes, self.left_out, self.figures = sides.mistakes, sides.left_out, table.figures
        self.table = figure_table.probe({"rates": table.rates})


def test_each_number_of_callers_takes_turns_with_the_probe_and_the_better_way_of_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(tmp_path, monkeypatch, RATES)
    assert measured.mistakes == []
    told = [(each.row, each.quartiles[1], each.bar, each.met) for each in measured.figures]
    assert told == [
        ("MLP, 8 callers / the probe, 8:1:1", 0.8, 0.8, True),
        ("MLP, 16 callers / the probe, 16:1:2", 0.5, 0.8, False),
        ("MLP, 64 callers / the probe, 64:1:4", 0.8, 0.8, True),
        ("MLP, 128 callers / the probe, 128:1:4:0:8", 1.28, 0.8, True),
        ("MLP, 256 callers / the probe, 256:1:4:0:8", 0.5, 0.8, False),
        ("MLP, 64 callers x 8 outstanding / the probe, 64:8:4:1:4", 1.0, 0.8, True),
    ]
    # Heddle warms up, and the order is rotated from round to round.
    turns = ["heddle 8 0 1 0.01", "probe 8:1:1", "probe 8:1:1", "heddle 8 0 1 0.01"]
    assert measured.asked[:6] == ["heddle 8 0 1 0.01", *turns, "heddle 16 0 1 0.01"]
    assert measured.asked[6:12] == ["heddle 16 0 1 0.01", "probe 16:1:1", "probe 16:1:2",
                                    "probe 16:1:1", "probe 16:1:2", "heddle 16 0 1 0.01"]  # fmt: skip
    assert measured.asked[-1] == "heddle 64 8 1 0.01"
    names = "8 callers | 16 callers | 64 callers | 128 callers | 256 callers | 64 callers x 8 outstanding"
    assert measured.table == [
        f"| MLP | {names} |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| Heddle | 8 | 16 | 64 | 128 | 256 | 512 |",
        "| the probe | 10 | 32 | 80 | 100 | 512 | 512 |",
        "| Heddle / the probe; bar 0.8 | 0.80 | **0.50** | 0.80 | 1.28 | **0.50** | 1.00 |",
    ]


def test_a_wrong_answer_and_callers_that_hang_are_refused_and_leave_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = RATES | {(64, 1, 4): (80e3, 2)}
    del rates[(128, 1, 4)]
    measured = Measured(tmp_path, monkeypatch, rates)
    assert [each.row.split(" /")[0] for each in measured.figures] == [
        "MLP, 8 callers", "MLP, 16 callers", "MLP, 256 callers", "MLP, 64 callers x 8 outstanding"
    ]  # fmt: skip
    assert measured.mistakes == [
        "probe, 64 callers: the probe, 64:1:4: 2 answers are wrong",
        "probe, 128 callers: the probe, 128:1:4:0:8: ended with 1: 128:1:4:0:8: 3 of 128 callers hang\n",
    ]


def test_without_its_program_the_row_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(figure_probe.NAMED_BY, raising=False)
    table = Table(Sides(SimpleNamespace(double=False)))
    ROWS["probe"](table)
    assert table.sides.left_out == ["probe: FIGURE_PROBE names no program"]
    assert (table.figures, table.sides.mistakes) == ([], [])
    assert figure_table.probe({"rates": {"mlp, callers of one row": {"heddle, 8 callers": [1.0]}}}) == []


@pytest.mark.parametrize("said", ["", "heddle: 12 rows/s\n", LINE.format(8, 8, 1, 9.0, 0), LINE[:60]])
def test_what_is_not_the_line_that_was_asked_for_gives_no_figure(said: str) -> None:
    with pytest.raises(figure_probe.Refused, match="the probe, 8:1:1"):
        figure_probe.rate_in(said, "8:1:1")


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(figure_probe.Refused, match="No such file"):
        figure_probe.rate(tmp_path / "none", "8:1:1")


def test_a_probe_that_was_carried_is_the_one_unless_the_environment_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = SimpleNamespace(double=False, programs=tmp_path)

    def environment() -> dict[str, str]:
        return gpu_phases.figure(machine, tmp_path, {"HEDDLE_TUNE": "on"}).env

    monkeypatch.delenv("FIGURE_PROBE", raising=False)
    assert environment() == {"HEDDLE_TUNE": "on"}
    (tmp_path / "probe").write_text("")
    assert environment() == {"HEDDLE_TUNE": "on", "FIGURE_PROBE": str(tmp_path / "probe")}
    monkeypatch.setenv("FIGURE_PROBE", "/other")
    assert environment() == {"HEDDLE_TUNE": "on"}
