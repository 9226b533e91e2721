"""The interface of ``onnx.backend`` over Heddle, for ONNX's own test suite and for tools that know it.

>>> prepared = heddle.onnx_backend.prepare(onnx.load("model.onnx"))
>>> (y,) = prepared.run([x])

What    ``Backend`` with ``prepare``, ``run_model``, ``run_node``, ``supports_device`` and
        ``is_compatible``, also as functions of this module. Needs the ``onnx`` package; nothing else in
        Heddle does.
Shapes  To Heddle a value that decides a shape (the ``shape`` of Reshape, the ``k`` of TopK) is part of the
        model. ONNX's tests give such values as inputs. A model that is refused for that reason is compiled
        by ``run`` with as few small inputs as possible made constants, once per values; ``Prepared.bound``
        names them. For the same reason ``is_compatible`` judges a model with such inputs by its form alone.
Threads As Heddle's: ``Prepared.run`` may be called from any of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference
from onnx.backend import base

from . import Model, load
from .errors import Error, UnsupportedError

__all__ = ["Backend", "Prepared", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

BINDABLE_RANK_MAX = 1
BINDABLE_ELEMENTS_MAX = 256  # Heddle's own limit for a computed shape
BINDABLE_INPUTS_MAX = 6  # 2^6 models at most are tried


def free_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller gives: those without an initializer."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def may_bind(value: onnx.ValueInfoProto, array: Any) -> bool:
    return (
        isinstance(array, (np.ndarray, np.generic))
        and array.dtype != object
        and value.type.HasField("tensor_type")
        and array.ndim <= BINDABLE_RANK_MAX
        and array.size <= BINDABLE_ELEMENTS_MAX
    )


def bind(model: onnx.ModelProto, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A copy of `model` in which the inputs named by `values` are constants."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    left = [value for value in bound.graph.input if value.name not in values]
    del bound.graph.input[:]
    bound.graph.input.extend(left)
    bound.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in values.items()
    )
    return bound


class Prepared(base.BackendRep):
    """A model ready to run. ``bound`` names the inputs that the last new model was compiled with."""

    def __init__(self, proto: onnx.ModelProto, device: str = "host") -> None:
        self._proto = proto
        self._inputs = free_inputs(proto)
        self._device = device
        self._bound: dict[tuple[bytes, ...], tuple[Model, frozenset[str]]] = {}
        self._free: Model | None = None
        self._refusal: UnsupportedError | None = None
        self.bound: frozenset[str] = frozenset()
        try:
            self._free = load(proto.SerializeToString(), device)
        except UnsupportedError as error:
            if not any(self._small(value) for value in self._inputs):
                raise
            self._refusal = error

    @staticmethod
    def _small(value: onnx.ValueInfoProto) -> bool:
        tensor = value.type.tensor_type
        return tensor.HasField("shape") and len(tensor.shape.dim) <= BINDABLE_RANK_MAX

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """All outputs for `inputs`: a sequence in the model's order, a dict by name, or one array."""
        if isinstance(inputs, dict):
            inputs = [inputs[value.name] for value in self._inputs]
        elif not isinstance(inputs, (list, tuple)):
            inputs = [inputs]
        if self._free is not None:
            try:
                return call(self._free, inputs)
            except UnsupportedError as error:  # refused only now that its shapes are known
                self._refusal = error
        return self._run_bound(inputs)

    def _run_bound(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        pairs = list(zip(self._inputs, inputs, strict=False))
        small = [(value.name, array) for value, array in pairs if may_bind(value, array)]
        key = tuple(repr((name, array.shape)).encode() + array.tobytes() for name, array in small)
        if key not in self._bound:
            self._bound[key] = self._compile_bound(small, pairs)
        model, names = self._bound[key]
        return call(model, [array for value, array in pairs if value.name not in names])

    def _compile_bound(self, small: list, pairs: list) -> tuple[Model, frozenset[str]]:
        """The model with the fewest inputs bound that runs. Integers are tried before floats."""
        assert self._refusal is not None
        refusal: Error = self._refusal
        small = sorted(small, key=lambda pair: pair[1].dtype.kind == "f")[:BINDABLE_INPUTS_MAX]
        for count in range(1, len(small) + 1):
            for chosen in itertools.combinations(small, count):
                names = frozenset(name for name, _ in chosen)
                try:
                    model = load(bind(self._proto, dict(chosen)).SerializeToString(), self._device)
                    call(model, [array for value, array in pairs if value.name not in names])
                except UnsupportedError as error:
                    refusal = error
                else:
                    self.bound = names
                    return model, names
        raise refusal


def call(model: Model, inputs: Sequence[Any]) -> tuple[Any, ...]:
    results = model(*inputs)
    return results if isinstance(results, tuple) else (results,)


class Backend(base.Backend):
    """Heddle's host device as an ONNX backend."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        try:
            cls.prepare(model, device, **kwargs)
        except Error:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Raises UnsupportedError or InvalidError naming the node that cannot be run."""
        if not cls.supports_device(device):
            raise UnsupportedError(f"device '{device}' is not there; 'CPU' is")
        super().prepare(model, device, **kwargs)  # the checker
        return Prepared(model)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One node on arrays. `opset_version` among `kwargs`, else the newest that the onnx package knows."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)  # the checker
        names = [name for name in node.input if name]
        arrays = [inputs[name] for name in names] if isinstance(inputs, dict) else list(inputs)
        graph = helper.make_graph(
            [node],
            node.op_type,
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in zip(names, arrays, strict=True)
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.run_model(shape_inference.infer_shapes(model, strict_mode=True), arrays, device)


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
