"""What tools/gpu_document.py makes of a result, and that the document has the place for it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_document
import pytest

TOOL = Path(__file__).with_name("gpu_document.py")
RESULT: dict[str, Any] = {
    "commit": "0123456789abcdef",
    "double": False,
    "date": "2026-11-24",
    "phases": [
        {"phase": "facts", "status": "ok", "seconds": 2.0,
         "findings": {"driver": "580.159", "facts": {"GPU": "0: a card"}}},
        {"phase": "exits", "status": "failed", "exit": 1, "seconds": 9.5,
         "findings": {"processes": 40, "mistakes": ["3 of 40: -11"], "right": False}},
        {"phase": "start", "status": "not run", "needs": "export"},
        {"phase": "bench", "status": "ok", "seconds": 60.0, "findings": {"torch": "2.11", "works": [
            {"model": "mlp", "extents": {"batch": 64},
             "seconds": {"heddle": [4e-5, 5e-5, 6e-5], "eager": [1e-4] * 3, "graph": [25e-6] * 3}}]}},
        {"phase": "bench_bf16", "status": "failed", "seconds": 9.0, "findings": {"works": [
            {"model": "mlp", "extents": {"batch": 64}, "dtype": "bf16",
             "seconds": {"heddle": [2e-5], "eager": [1e-4], "graph": [25e-6]}}]}},
        {"phase": "bench_compiled", "status": "failed", "seconds": 9.0, "findings": {"works": [
            {"model": "mlp", "extents": {"batch": 64},
             "seconds": {"heddle": [5e-5] * 3, "eager": [1e-4] * 3, "compiled": [4e-5, 5e-5, 8e-5]}},
            {"model": "encoder", "extents": {"batch": 64}, "seconds": {"heddle": [5e-5], "eager": [1e-4]}},
            {"model": "conv1d", "extents": {"batch": 64}, "seconds": {"eager": [1e-4], "compiled": [1e-4]}},
        ]}},
    ],
}  # fmt: skip


def written(folder: Path, result: dict[str, Any], before: str) -> tuple[int, str, str]:
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "cuda.md").write_text(before)
    command = [sys.executable, TOOL, folder / "result.json", folder / "cuda.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, (folder / "cuda.md").read_text(), done.stderr


def test_the_results_take_the_place_of_the_last_ones_and_nothing_else_changes(tmp_path: Path) -> None:
    before = f"# Head\n\n{gpu_document.BEGIN}\nold\n{gpu_document.END}\n\nThe rest.\n"
    code, after, _ = written(tmp_path, RESULT, before)
    assert code == 0
    assert after.startswith(
        f"# Head\n\n{gpu_document.BEGIN}\nOn 2026-11-24, commit 0123456789ab; driver 580.159,"
    )
    assert after.endswith(f"\n{gpu_document.END}\n\nThe rest.\n")
    assert "old" not in after
    assert "| exits | **failed** | 9.5 | **3 of 40: -11** processes 40 |\n" in after
    assert "| start | **not run** |  | needs export |\n" in after
    assert "| mlp | batch 64, f32 | 50 | 0.50 | 2.00 |\n" in after
    assert "| mlp | batch 64, bf16 | 20 | 0.20 | 0.80 |\n" in after
    assert "| mlp | batch 64, f32 | 50 | 0.50 | 1.00 | 1.00 |\n" in after
    assert "| encoder | batch 64, f32 | 50 | 0.50 | - | 0.50 |\n" in after
    assert "| conv1d | batch 64, f32 | - | - | - | - |\n" in after
    assert "\nMean of the last column: 0.75.\n" in after
    assert written(tmp_path, RESULT, after)[1] == after


def test_a_phase_that_a_later_result_has_takes_the_place_of_the_earlier_ones(tmp_path: Path) -> None:
    marks = f"{gpu_document.BEGIN}\n{gpu_document.END}\n"
    again = RESULT | {"phases": [{"phase": "exits", "status": "ok", "seconds": 8.0, "findings": {}}]}
    for name, result in (("a", RESULT), ("b", again), ("c", RESULT | {"commit": "other"})):
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    (tmp_path / "cuda.md").write_text(marks)

    def write(*names: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, TOOL, *(tmp_path / name for name in names), tmp_path / "cuda.md"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert write("a.json", "c.json").returncode == 1
    assert (tmp_path / "cuda.md").read_text() == marks
    assert write("a.json", "b.json").returncode == 0
    after = (tmp_path / "cuda.md").read_text()
    assert "| exits | ok | 8.0 |  |\n" in after
    assert "| mlp | batch 64, f32 | 50 | 0.50 | 2.00 |\n" in after


def test_the_probe_has_its_lines_where_it_was_measured(tmp_path: Path) -> None:
    marks = f"{gpu_document.BEGIN}\n{gpu_document.END}\n"
    figures = [
        {"row": "MLP, 8 callers / the probe, 8:1:1", "quartiles": [0.6, 0.7, 0.9], "bar": 0.8,
         "at_least": True, "met": False},
    ]  # fmt: skip
    rates = {"mlp, callers of one row": {"heddle, 8 callers": [2e5] * 3}}
    probe = {"heddle": [2e5] * 3, "the probe, 8:1:1": [25e4] * 3, "the probe, 8:1:2": [1e5] * 3}

    def after(rates: dict[str, Any]) -> str:
        found = {"torch": "2.11", "figures": figures, "rates": rates, "left_out": []}
        phase = {"phase": "figure", "status": "ok", "seconds": 9.0, "findings": found}
        return written(tmp_path, RESULT | {"phases": [phase]}, marks)[1]

    assert "beside the probe" not in after(rates)
    told = after(rates | {"mlp, 8 callers beside the probe": probe})
    assert "| MLP, 8 callers / the probe, 8:1:1 | 0.7 (0.6 .. 0.9) | >= 0.8 | **no** |\n" in told
    table = "| MLP | 8 callers |\n| --- | --- |\n| Heddle | 200 |\n| the probe | 250 |\n"
    assert table + "| Heddle / the probe; bar 0.8 | 0.80 |\n" in told


def test_files_that_had_changed_since_the_commit_are_told(tmp_path: Path) -> None:
    marks = f"{gpu_document.BEGIN}\n{gpu_document.END}\n"
    dirty = RESULT | {"commit": "0123456789abcdef and changes"}
    assert "commit 0123456789ab and changes; driver" in written(tmp_path, dirty, marks)[1]


@pytest.mark.parametrize(
    ("result", "before", "told"),
    [
        (RESULT, "no marks\n", "does not have the lines"),
        (RESULT | {"double": True}, f"{gpu_document.BEGIN}\n{gpu_document.END}\n", "is of the double"),
    ],
)
def test_what_it_cannot_write_leaves_the_document_alone(
    tmp_path: Path, result: dict[str, Any], before: str, told: str
) -> None:
    code, after, said = written(tmp_path, result, before)
    assert code == 1
    assert told in said
    assert after == before


def test_the_document_has_the_place() -> None:
    document = (TOOL.parent.parent / "docs" / "cuda.md").read_text(encoding="utf-8")
    assert document.count(gpu_document.BEGIN) == document.count(gpu_document.END) == 1
