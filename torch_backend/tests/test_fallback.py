"""HEDDLE_TORCH_CPU_FALLBACK: operators that are not there run on the CPU from the start, or are refused."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch
x = torch.ones(2, device="heddle")
y = torch.ops.aten._softmax_backward_data(x, x / 2, 0, torch.float32)
print(torch.heddle.is_cpu_fallback_allowed(), y.tolist(), torch.heddle.fallbacks())
"""


def run_with(value):
    environment = {k: v for k, v in os.environ.items() if k != "HEDDLE_TORCH_CPU_FALLBACK"}
    if value is not None:
        environment["HEDDLE_TORCH_CPU_FALLBACK"] = value
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300
    )


def test_with_the_variable_an_operator_that_is_not_there_runs_on_the_cpu_and_is_counted():
    done = run_with("1")
    assert done.stdout.strip() == "True [0.0, 0.0] {'aten::_softmax_backward_data.out': 1}", done.stderr


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_it_the_operator_is_refused_by_name(value):
    done = run_with(value)
    assert done.returncode != 0
    assert "aten::_softmax_backward_data.out is not implemented on device heddle" in done.stderr


def test_another_value_is_refused_with_what_would_be_right():
    done = run_with("yes")
    assert done.returncode != 0
    assert "HEDDLE_TORCH_CPU_FALLBACK=yes; it has to be 1" in done.stderr
