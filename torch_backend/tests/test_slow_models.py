"""Real models that ask for values on their way: dynamo compiles what lies between, for half a minute or more.

Part of the check stage torch_whole. The others are in test_real_models.py, as are these without compiling.
"""

import copy

import pytest
import torch
from real_models import REAL
from test_real_models import THREADS, compare, reference


@pytest.mark.parametrize("name", [name for name, real in REAL.items() if not real.compiled])
def test_compiled_from_one_and_from_eight_threads(name, device, built, fresh_dynamo):
    module = torch.compile(copy.deepcopy(reference(name)).to(device), backend="heddle")
    compare(name, module, device, 1, 2)
    assert len(built) > 10
    compare(name, module, device, THREADS, 1)
