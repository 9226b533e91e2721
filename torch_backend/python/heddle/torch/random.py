"""Seeds and states of the devices' default generators.

Each stream draws from a sequence of its own, made from the generator's seed and the stream's number: a seed
and a stream give the same numbers whatever other threads draw meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from . import _C
from .devices import DeviceLike, device_count, index_of


def _generators() -> list[torch.Generator]:
    return [_C.default_generator(i) for i in range(device_count())]


def manual_seed(seed: int) -> None:
    """Of the current device."""
    _C.default_generator(index_of()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for generator in _generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """A seed from the system for the current device."""
    _C.default_generator(index_of()).seed()


def seed_all() -> None:
    """One seed from the system for every device."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """The current device's."""
    return _C.default_generator(index_of()).initial_seed()


def get_rng_state(device: DeviceLike = "heddle") -> Tensor:
    """A uint8 tensor on the CPU."""
    return _C.default_generator(index_of(device)).get_state()


def get_rng_state_all() -> list[Tensor]:
    return [generator.get_state() for generator in _generators()]


def set_rng_state(new_state: Tensor, device: DeviceLike = "heddle") -> None:
    _C.default_generator(index_of(device)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    for generator, state in zip(_generators(), new_states, strict=True):
        generator.set_state(state)
