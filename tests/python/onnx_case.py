"""What a case of tests/python/onnx_cases*.py is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOATS = (np.float32, np.float64, np.float16)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.int64)
SHAPES = ((), (3,), (2, 0, 3), (2, 3, 4))
BROADCASTS = (((2, 3), (2, 3)), ((2, 1, 4), (3, 1)), ((4,), (2, 3, 4)), ((), (2, 3)), ((0, 3), (1, 3)))


@dataclass
class Case:
    """One node. Arrays in `fixed` stand in the file; the others are the model's inputs. None is left out."""

    op: str
    inputs: tuple[np.ndarray | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    fixed: tuple[int, ...] = ()
    outputs: int = 1
    opset: int | None = None  # None: the newest one
    expected: tuple[np.ndarray, ...] = ()  # where onnx.reference lacks the operator

    def label(self) -> str:
        types = [f"{x.dtype}{list(x.shape)}".replace(" ", "") for x in self.inputs if x is not None]
        words = [
            f"{k}={v}".replace(" ", "")
            for k, v in self.attributes.items()
            if isinstance(v, (int, float, str, list))
        ]
        return "-".join([self.op, *types, *words])


class Numbers:
    """Seeded arrays: values small enough that every dtype holds them and few operations lose digits."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(11)

    def __call__(self, shape, dtype=np.float32, low: float = -3, high: float = 3) -> np.ndarray:
        if dtype == np.bool_:
            return self.random.integers(0, 2, shape).astype(np.bool_)
        if np.issubdtype(dtype, np.integer):
            least = max(low, 0) if np.issubdtype(dtype, np.unsignedinteger) else low
            return np.asarray(self.random.integers(int(least), int(high) + 1, shape), dtype)
        return np.asarray(self.random.uniform(low, high, shape), dtype)

    def distinct(self, shape, dtype=np.float32) -> np.ndarray:
        """No two elements are equal, so that the order is beyond doubt."""
        return self.random.permutation(int(np.prod(shape))).reshape(shape).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)
