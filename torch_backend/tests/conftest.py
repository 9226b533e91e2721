"""The device under test, and the tests that a run takes."""

import ctypes
import os
import sys
import zlib
from pathlib import Path

import heddle.torch  # noqa: F401  (where autoload is off)
import pytest
import torch

os.environ.setdefault("HEDDLE_TUNE", "off")  # nothing depends on this machine's times
sys.path.insert(0, str(Path(__file__).resolve().parent))

ON_CUDA = os.environ.get("HEDDLE_DEVICE", "").startswith("cuda")
ON_THE_DOUBLE = hasattr(ctypes.CDLL(None), "_ZN6heddle12metal_double17end_stuck_kernelsEv")
# torch.manual_seed keeps each call for devices that may come later, with its stack: most of a sample's time.
for absent in (torch.cuda, torch.xpu, torch.mtia):
    if not absent.is_available():
        absent.manual_seed_all = lambda seed: None
if torch.__version__ < (2, 13):
    torch.backends.mha.set_fastpath_enabled(False)  # its operator has no meta kernel there


def pytest_addoption(parser):
    parser.addoption(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="one of N of the cases",
    )


def pytest_collection_modifyitems(config, items):
    """Leaves out what needs a double, a GPU or a later PyTorch where there is none, and other shares."""
    runs = {
        "test_on_the_double": ON_THE_DOUBLE,
        "test_on_cuda": ON_CUDA,
        "test_cpu_operators_on_cuda": ON_CUDA,
        "test_lost_streams": ON_THE_DOUBLE,
        "test_pinned_on_cuda": ON_CUDA,
        "test_shared_submissions": ON_THE_DOUBLE or ON_CUDA,
        "test_two_devices": torch.heddle.device_count() > 1,
        "test_opinfo_later": torch.__version__ >= (2, 14),
    }
    share = config.getoption("--share")

    def is_left_out(item):
        if not runs.get(item.path.stem, True):
            return True
        return share > 1 and zlib.crc32(item.nodeid.encode()) % share != 0

    left_out = [item for item in items if is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="session")
def on_the_double() -> bool:
    """Of Metal."""
    return ON_THE_DOUBLE


@pytest.fixture
def device() -> str:
    return "heddle"


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(5)


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def built(monkeypatch):
    """The calls of dynamo's graphs, each once for each model that it built."""
    from heddle.torch import dynamo

    times = []
    original = dynamo.GraphCall._build
    monkeypatch.setattr(
        dynamo.GraphCall, "_build", lambda self, *given: times.append(self) or original(self, *given)
    )
    return times
