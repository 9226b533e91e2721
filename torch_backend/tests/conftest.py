"""The device under test. HEDDLE_TORCH_TEST_DEVICE=cpu tries the tests themselves."""

import os
import sys
from pathlib import Path

import heddle.torch  # noqa: F401  (where autoload is off)
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

DEVICE = os.environ.get("HEDDLE_TORCH_TEST_DEVICE", "heddle")


@pytest.fixture
def device() -> str:
    return DEVICE


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(5)
