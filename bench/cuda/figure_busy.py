"""The share of time that the card is busy while bench/cuda/figure.py measures a case.

It is what the driver says (NVML, nvmlDeviceGetUtilizationRates): the per cent of the time of its last sample,
of a sixth of a second to a whole, in which a kernel ran on the card. It does not say how many of the card's
multiprocessors had work. What is told in a case's first SETTLED_S counts for nothing, as that sample may have
begun before the case.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

LIBRARY = "libnvidia-ml.so.1"
EVERY_S = 0.1
SETTLED_S = 1.2
SECONDS = 3.0  # of a case
# (work, callers, outstanding of each, rows of a call)
CASES = (
    ("mlp", 1, 0, 1),
    ("mlp", 8, 0, 1),
    ("mlp", 16, 0, 1),
    ("mlp", 64, 0, 1),
    ("mlp", 256, 0, 1),
    ("mlp", 64, 8, 1),
    ("mlp", 4, 0, 256),
    ("encoder", 64, 0, 1),
    ("minilm_torch", 64, 0, 1),
)


class Refused(Exception):
    """There is no share; what was said in its place."""


class Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@dataclass(frozen=True)
class Share:
    busy: float  # 0 to 1: the mean of the samples
    samples: int
    rows_per_s: float

    def as_json(self) -> dict:
        return asdict(self)


def card() -> Callable[[], int]:
    """Asks the first card of the machine: per cent. Refused: the driver has no NVML, or it fails."""
    try:
        nvml = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise Refused(str(error)) from error

    def call(name: str, *words: object) -> None:
        status = getattr(nvml, name)(*words)
        if status != 0:
            raise Refused(f"{name} returned {status}")

    device = ctypes.c_void_p()
    call("nvmlInit_v2")
    call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(device))

    def asked() -> int:
        told = Utilization()
        call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(told))
        return told.gpu

    asked()  # a machine whose driver does not tell is refused before anything runs
    return asked


def share(utilization: Callable[[], int], case: Callable[[], float]) -> Share:
    """Runs the case, which says its rows a second. Refused: it ended before it had settled."""
    told: list[int] = []
    refused: list[Refused] = []
    ended = threading.Event()

    def sample() -> None:
        try:
            wait_s = SETTLED_S
            while not ended.wait(wait_s):
                told.append(utilization())
                wait_s = EVERY_S
        except Refused as error:
            refused.append(error)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        rows_per_s = case()
    finally:
        ended.set()
        sampler.join()
    if refused:
        raise refused[0]
    if not told:
        raise Refused(f"the case ended before {SETTLED_S:g} s")
    return Share(sum(told) / len(told) / 100, len(told), rows_per_s)
