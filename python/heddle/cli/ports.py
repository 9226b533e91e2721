"""Inputs for a model's ports: made up from dimensions, or read from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import InvalidError

_NUMPY = {
    "f32": np.float32,
    "f16": np.float16,
    "f64": np.float64,
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}


def parse_dims(words: list[str]) -> dict[str, int]:
    """["batch=4", "seq=128"] -> {"batch": 4, "seq": 128}"""
    dims = {}
    for word in words:
        name, sign, number = word.partition("=")
        if not sign or not number.isdigit():
            raise InvalidError(f"--dims takes name=number, such as seq=128, not '{word}'")
        dims[name] = int(number)
    return dims


def symbols(model) -> list[str]:
    """The symbolic dimensions of a model's inputs, in order of appearance."""
    found: dict[str, None] = {}
    for port in model.inputs:
        for extent in port.shape:
            if isinstance(extent, str):
                found.setdefault(extent)
    return list(found)


def with_batch(model, dims: dict[str, int]) -> dict[str, int]:
    """`dims`, and 1 for a batch that it leaves out. InvalidError for a name that no input has.

    A batch is a symbol that is called so, or that is axis 0 of every input of a batchable model.
    """
    names = symbols(model)
    for name in dims:
        if name not in names:
            has = f"its inputs have {', '.join(names)}" if names else "its inputs have none"
            raise InvalidError(
                f"--dims gives {name} a number, which is no free dimension of the model: {has}"
            )
    rows = {port.shape[0] if port.shape else None for port in model.inputs}
    only = rows.pop() if model.batchable and len(rows) == 1 else None
    batch = [n for n in names if n == only or n.lower() in ("n", "b", "bs") or "batch" in n.lower()]
    return dict.fromkeys(batch, 1) | dims


def missing_dims(model, dims: dict[str, int]) -> list[str]:
    """The symbols of the inputs that `dims` gives no number."""
    return [name for name in symbols(model) if name not in dims]


def shape_of(port, dims: dict[str, int]) -> tuple[int, ...]:
    """The port's shape with every symbol replaced. InvalidError names a symbol without a number."""
    missing = [extent for extent in port.shape if isinstance(extent, str) and extent not in dims]
    if missing:
        raise InvalidError(
            f"input '{port.name}' needs a number for {', '.join(missing)}: --dims {missing[0]}=N"
        )
    return tuple(dims[extent] if isinstance(extent, str) else extent for extent in port.shape)


def make_inputs(model, dims: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    """Normal floats, and ones for integers and booleans (valid as mask and as index)."""
    random = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    for port in model.inputs:
        shape = shape_of(port, dims)
        if port.dtype not in _NUMPY:
            raise InvalidError(
                f"input '{port.name}' is {port.dtype}, which numpy lacks: inputs cannot be made up"
            )
        if port.dtype.startswith("f"):
            arrays.append(random.standard_normal(shape).astype(_NUMPY[port.dtype]))
        else:
            arrays.append(np.ones(shape, _NUMPY[port.dtype]))
    return arrays


def read_inputs(model, words: list[str]) -> dict[str, np.ndarray]:
    """Each word is a .npz file, or name=file.npy; for a model of one input a bare .npy will do."""
    arrays: dict[str, np.ndarray] = {}
    for word in words:
        name, sign, file = word.partition("=")
        path = Path(file if sign else word)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                arrays.update({key: archive[key] for key in archive.files})
        elif path.suffix == ".npy":
            if not sign and len(model.inputs) != 1:
                names = ", ".join(port.name for port in model.inputs)
                raise InvalidError(f"the model has several inputs ({names}); say which: NAME={word}")
            arrays[name if sign else model.inputs[0].name] = np.load(path, allow_pickle=False)
        else:
            raise InvalidError(f"'{word}' is neither a .npz file nor name=file.npy")
    return arrays
