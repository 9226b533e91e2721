"""``torch.compile(module, backend="heddle")``: what dynamo traces becomes Heddle models, for inference.

Dynamo passes parameters and buffers with every call. Here they are constants of the model, packed once, and a
call looks whether one of them is another tensor, or was written to, since: then the model is built anew. What
changes for the third time is passed with every call from then on. (Writing through ``.data`` in place
leaves no trace that a program could see; assign to it, or write under ``torch.no_grad()``.)

A number is an input of the model. Where an extent follows from it, which models do not do, there is a model
for each value.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from heddle import errors
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from . import _C, tracing
from .graph_lowering import GraphLowering, Input, Known, Outputs, Role, Size, Weight, dims_of

CHANGES_OF_A_WEIGHT = 2  # a third makes it an input
VALUES_OF_NUMBERS = 8  # models at a time, as many as dynamo makes graphs


class Seen:
    """A weight as it was when the model was built."""

    def __init__(self, tensor: Tensor):
        self._tensor = weakref.ref(tensor)
        self._version = tensor._version
        self._data = tensor.data_ptr()

    def is_still(self, tensor: Tensor) -> bool:
        is_same = self._tensor() is tensor
        return is_same and self._version == tensor._version and self._data == tensor.data_ptr()


@dataclass(frozen=True)
class Built:
    model: _C.CompiledModel | None  # None: every result is an argument, or known
    weights: Mapping[int, Seen]
    arguments: Sequence[int]
    numbers: Sequence[int]  # those of the arguments that are no tensors
    outputs: Outputs


class GraphCall:
    """One graph of dynamo's, called with weights, sizes and tensors in the graph's order. Any thread."""

    _boxed_call = True  # takes its arguments as one list, which it empties

    def __init__(self, graph_module: fx.GraphModule, weights: set[int], options: Mapping[str, Any]):
        self._graph_module = graph_module
        self._options = options
        self._changes = dict.fromkeys(weights, 0)
        self._built: dict[tuple[int, ...], Built] = {}  # replaced, never changed
        self._fixed: Sequence[int] = ()  # arguments whose values are part of the models
        self._building = threading.Lock()
        GraphLowering(graph_module.graph, graph_module, "check").refuse_unknown()

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = tuple(arguments)
        arguments.clear()
        built = self._built.get(tuple(given[i] for i in self._fixed))
        if built is None or self._changed(built, given):
            built = self._build(given)
        if built.model is None:
            return built.outputs.assemble((), given)
        inputs = [_as_tensor(given[i]) for i in built.arguments]
        try:
            results = built.model(inputs)
        except errors.UnsupportedError:
            if not built.numbers:
                raise
            self._fix(built.numbers)
            return self(list(given))
        return built.outputs.assemble(results, given)

    def _fix(self, numbers: Sequence[int]) -> None:
        with self._building:
            if not self._fixed:
                self._built, self._fixed = {}, numbers

    @staticmethod
    def _changed(built: Built, given: Sequence[Any]) -> bool:
        return not all(seen.is_still(given[i]) for i, seen in built.weights.items())

    def _build(self, given: Sequence[Any]) -> Built:
        with self._building:
            values = tuple(given[i] for i in self._fixed)
            last = self._built.get(values)
            if last is not None:
                if not self._changed(last, given):
                    return last
                for i, seen in last.weights.items():
                    self._changes[i] += not seen.is_still(given[i])
            weights = {
                i
                for i, changes in self._changes.items()
                if changes <= CHANGES_OF_A_WEIGHT and not given[i].is_inference()
            }
            lowering = GraphLowering(self._graph_module.graph, self._graph_module, "dynamo")
            copied = {i: Seen(given[i]) for i in weights}  # before they are copied
            lowering.lower(self._roles(weights, given))
            model = lowering.lowering.build(**self._options) if lowering.outputs.made else None
            built = Built(model, copied, lowering.arguments, lowering.number_inputs, lowering.outputs)
            others = [(had, its) for had, its in self._built.items() if had != values]
            self._built = dict([*others[1 - VALUES_OF_NUMBERS :], (values, built)])
            return built

    def _roles(self, weights: set[int], given: Sequence[Any]) -> list[Role]:
        placeholders = [node for node in self._graph_module.graph.nodes if node.op == "placeholder"]
        roles: list[Role] = []
        for i, node in enumerate(placeholders):
            traced = node.meta.get("val")
            if i in weights:
                roles.append(Weight(given[i].detach()))
            elif isinstance(traced, torch.SymInt) and i in self._fixed:
                roles.append(Known(given[i]))
            elif isinstance(traced, torch.SymInt):
                roles.append(Size(i, str(traced)))
            elif isinstance(traced, Tensor):
                roles.append(Input(i, node.name, dims_of(traced)))
            elif isinstance(traced, int | float | bool) or traced is None:
                roles.append(Known(traced))
            else:
                raise errors.UnsupportedError(f"an input of type {type(traced).__name__} is not offered")
        return roles


def _as_tensor(argument: Any) -> Tensor:
    return argument if isinstance(argument, Tensor) else torch.tensor(argument)


def _refuse_training(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    raise errors.UnsupportedError(
        "torch.compile(backend='heddle') is for inference, and this call would record gradients. Call the "
        "module under torch.inference_mode() or torch.no_grad(), or switch requires_grad off."
    )


def backend(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Any:
    """Registered as "heddle". `options`: device_index, precision, coalesce, exact, max_batch, max_waiting."""
    if mode not in (None, "default"):
        raise errors.InvalidError(f"torch.compile(backend='heddle') has no mode {mode!r}; leave it out")

    def compile_inference(graph: fx.GraphModule, _: Sequence[Any]) -> GraphCall:
        return GraphCall(graph, _weights(), dict(options or {}))

    with tracing.whole_operators() as decompositions:
        compiler = aot_autograd(
            fw_compiler=_refuse_training,
            inference_compiler=compile_inference,
            decompositions=decompositions,
        )
        return compiler(graph_module, example_inputs)


def _weights() -> set[int]:
    """Parameters and buffers among the inputs, but those that the graph writes to."""
    context = TracingContext.try_get()
    facts = context.fw_metadata if context is not None else None
    if facts is None:
        return set()
    return {i for i in facts.static_input_indices if not facts.input_info[i].mutates_data}
