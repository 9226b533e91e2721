"""The programs of examples/ that use PyTorch run, and say what is so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODELS = {"speech", "translation", "language"}
STARVES = 0.05  # 0.25 is the least that busy processors gave; who is served only when others rest got 0.01


def run(program, *options):
    command = [sys.executable, EXAMPLES / program, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all right\n")
    return done.stdout


@pytest.mark.parametrize("options", [(), ("--compiled",)], ids=["eager", "compiled"])
def test_three_models_answer_right_and_none_starves(options, tmp_path):
    told = tmp_path / "figures.json"
    said = run("pytorch_three_models.py", "--seconds", 0.5, "--rounds", 1, "--json", told, *options)
    figures = json.loads(told.read_text(encoding="utf-8"))
    assert figures["answers"] == (1 + 4 + 8) * len(MODELS) * 4
    assert f"calls/s, {figures['mode']}" in said
    assert figures["threads"].keys() == {"1", "4", "8"}
    for found in figures["threads"].values():
        for how in ("alone", "together"):
            assert found[how].keys() == MODELS
            assert all(rate > 0 for rate in found[how].values()), found
        assert found["fairness"] > STARVES, found


def test_every_example_has_a_test():
    assert [path.name for path in EXAMPLES.glob("pytorch_*.py")] == ["pytorch_three_models.py"]
