"""bench/cuda/figure_plot.py and figure_table.py over figures that are known."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import figure_plot
import figure_table
import pytest
from matplotlib import pyplot

FIGURES = {
    "card": {"name": "a card"},
    "rates": {
        "mlp, callers of one row": {
            "heddle, 64 callers": [3e5, 1e5, 2e5],
            "heddle, 8 callers": [4e4, 5e4, 9e4],
            "heddle, 64 x 8 outstanding": [9e6] * 3,
            "eager, 8 threads": [7e3] * 3,
        }
    },
    "tried": {
        "mlp, eager, 8 threads x 1 rows": 7e3,
        "mlp, eager, 2 threads x 1 rows": 3e3,
        "mlp, eager, 2 threads x 64 rows": 1e5,
        "mlp, graph, 4 threads x 1 rows": 9e3,
        "encoder, compiled, 1 threads x 1 rows": 1e3,
    },
    "figures": [],
    "left_out": [],
    "mistakes": [],
    "roofline": {
        "mlp, 8 callers": {"launch": 1.5, "copy": 0.04, "memory": 0.25, "arithmetic": 0.5, "wake_up": 2.0,
                           "bound": "wake_up", "measured": 4.0, "batch": 8.0, "lanes_filled": 4.62}
    },
}  # fmt: skip


def lines_drawn(monkeypatch: pytest.MonkeyPatch, picture: Path) -> dict[str, list[tuple[float, float]]]:
    """By its name in the legend, each line of the picture that main() leaves."""
    kept = []
    subplots = pyplot.subplots

    def keeping(**words):
        kept.append(subplots(**words))
        return kept[-1]

    monkeypatch.setattr(pyplot, "subplots", keeping)
    assert figure_plot.main() == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    axes = kept[0][1]
    return {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axes.get_lines()}


def test_the_picture_has_medians_over_callers_and_each_peer_that_was_tried_with_single_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "figures.json").write_text(json.dumps(FIGURES))
    words = ["figure_plot.py", str(tmp_path / "figures.json"), str(tmp_path / "drawn.png")]
    monkeypatch.setattr(sys, "argv", words)
    assert lines_drawn(monkeypatch, tmp_path / "drawn.png") == {
        "Heddle, C++": [(8, 5e4), (64, 2e5)],
        "PyTorch, eager": [(2, 3e3), (8, 7e3)],
        "PyTorch, graph": [(4, 9e3)],
    }


def test_figures_without_callers_draw_nothing_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "figures.json").write_text(json.dumps(FIGURES | {"rates": {}}))
    words = ["figure_plot.py", str(tmp_path / "figures.json"), str(tmp_path / "drawn.png")]
    monkeypatch.setattr(sys, "argv", words)
    assert figure_plot.main() == 1
    assert "figure.py --rows callers measures them" in capsys.readouterr().out
    assert not (tmp_path / "drawn.png").exists()
    monkeypatch.setattr(sys, "argv", words[:2])
    assert figure_plot.main() == 2


def test_the_table_of_bounds_has_a_column_for_each_and_for_the_lanes_that_batches_fill() -> None:
    assert figure_table.bounds(FIGURES["roofline"]) == [
        "| case | batch | launch | copy | memory | arithmetic | wake-up | bound | measured | lanes filled |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| mlp, 8 callers | 8.0 | 1.500 | 0.040 | 0.250 | 0.500 | 2.000 | wake-up | 4.000 | 4.62 |",
    ]
