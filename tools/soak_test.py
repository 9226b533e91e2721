"""tools/soak.py: what it says of runs that end well, fail, or are none."""

import json
import sys
from pathlib import Path

import pytest
import soak

FIGURES = {
    "seed": 7,
    "device": "host",
    "rounds": [
        {"at_s": 1.0 + i, "took_s": 0.5, "operations": 100, "threads": 2, "books": 10, "heap": 20, "rss": 30,
         "fault": ""}
        for i in range(4)
    ],
    "ends": {"call": {"asked": 400, "right": 390, "deadline": 10}},
    "memory": {"heap": {"usual": 0, "last": 1 << 20, "bound": 8 << 20}},
    "failed": False,
}  # fmt: skip


def program(folder: Path, body: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> int:
    command = ["soak.py", "--seconds", "1", "--seed", "7", "--json", str(folder / "s.json"), "--plot",
               str(folder / "s.png"), "--program", str(program(folder, body))]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    return soak.main()


WRITES = f"open(os.environ['HEDDLE_SOAK_JSON'], 'w').write({json.dumps(json.dumps(FIGURES))})"


def test_a_soak_that_passes_leaves_figures_and_a_picture(monkeypatch, tmp_path, capsys):
    check = "assert os.environ['HEDDLE_SOAK_SEED'] == '7' and float(os.environ['HEDDLE_SOAK_SECONDS']) == 1"
    assert run(monkeypatch, tmp_path, f"{check}\n{WRITES}") == 0
    said = capsys.readouterr().out
    assert "400 asked" in said
    assert "10 deadline" in said
    assert "+1.00 MiB since the warm-up, 8.00 are allowed" in said
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_a_soak_that_fails_names_its_seed(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, tmp_path, f"{WRITES}\nsys.exit(1)") == 1
    assert "seed 7 failed" in capsys.readouterr().out


def test_a_program_without_the_soak_is_a_failure(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, tmp_path, "") == 1
    assert "wrote no figures" in capsys.readouterr().out


def test_a_soak_that_never_ends_is_a_failure(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(soak, "LOST_S", -0.5)
    assert run(monkeypatch, tmp_path, "sys.stdin.read() if False else __import__('signal').pause()") == 1
    assert "seed 7 has not ended" in capsys.readouterr().out


def test_rates_are_operations_over_the_time_that_rounds_took():
    at, rate = soak.rates(FIGURES["rounds"], buckets=1)
    assert sum(rate) / len(rate) == pytest.approx(200)
    assert at == sorted(at)
