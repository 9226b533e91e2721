"""``torch.compile(module, backend="heddle")``: what dynamo traces becomes Heddle models, for inference.

Dynamo passes parameters and buffers with every call. Here they are constants of the model, packed once, and a
call looks whether one of them is another tensor, or was written to, since: then the model is built anew. What
changes for the third time is passed with every call from then on. The look is one call into C++, however many
weights there are (csrc/seen_weights.h). Writing in place through ``.data``, or through an array on the same
memory, leaves no trace on a tensor of the CPU; assign to ``.data``, or write under ``torch.no_grad()``. The
memory of the device counts its writes, so that those through ``.data`` are seen there.

A number is an input of the model. Where the device refuses that and takes the same call with the number in
the model, as it does where an extent follows from it, there is a model for each value from then on.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from heddle import errors
from torch import Tensor, fx

from . import _C, tracing
from .graph_lowering import GraphLowering, Input, Known, Outputs, Role, Size, Weight, dims_of
from .private_names import TracingContext, aot_autograd

CHANGES_OF_A_WEIGHT = 2  # a third makes it an input
VALUES_OF_NUMBERS = 8  # models at a time, as many as dynamo makes graphs


@dataclass
class Built:
    model: _C.CompiledModel | None  # None: every result is an argument, or known
    weights: _C.SeenWeights
    arguments: Sequence[int]
    outputs: Outputs
    last_use: int = 0

    def run(self, given: Sequence[Any]) -> list[Any]:
        if self.model is None:
            return self.outputs.assemble((), given)
        results = self.model([_as_tensor(given[i]) for i in self.arguments])
        return self.outputs.assemble(results, given)


@dataclass(frozen=True)
class Models:
    """Those of a graph, by the values of the arguments `fixed`, which are numbers."""

    fixed: Sequence[int]
    built: Mapping[tuple[int, ...], Built]

    def of(self, fixed: Sequence[int], given: Sequence[Any]) -> Built | None:
        return self.built.get(_values(fixed, given)) if self.fixed == fixed else None

    def with_one(self, given: Sequence[Any], built: Built) -> Models:
        """In the place of the one that was used least lately, where there are many."""
        values = _values(self.fixed, given)
        others = sorted((each for each in self.built.items() if each[0] != values), key=_last_use)
        return Models(self.fixed, dict([*others[1 - VALUES_OF_NUMBERS :], (values, built)]))


def _values(fixed: Sequence[int], given: Sequence[Any]) -> tuple[int, ...]:
    return tuple(given[i] for i in fixed)


def _last_use(item: tuple[tuple[int, ...], Built]) -> int:
    return item[1].last_use


class GraphCall:
    """One graph of dynamo's, called with weights, sizes and tensors in the graph's order. Any thread."""

    _boxed_call = True  # takes its arguments as one list, which it empties

    def __init__(self, graph_module: fx.GraphModule, weights: set[int], options: Mapping[str, Any]):
        self._graph_module = graph_module
        self._options = options
        self._changes = dict.fromkeys(weights, 0)
        self._seen: dict[int, _C.SeenWeight] = {}  # as they were at the last build of any model
        self._models = Models((), {})  # replaced, never changed
        self._numbers: Sequence[int] = ()  # arguments that are numbers, and inputs where none is fixed
        self._uses = itertools.count(1)
        self._building = threading.Lock()
        GraphLowering(graph_module.graph, graph_module, "check").refuse_unknown()

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = tuple(arguments)
        arguments.clear()
        fixed = self._models.fixed
        try:
            return self._model_of(fixed, given).run(given)
        except errors.UnsupportedError:
            if fixed or not self._numbers:
                raise
        numbers = self._numbers
        built = self._model_of(numbers, given)
        results = built.run(given)
        with self._building:
            if not self._models.fixed:  # now that one is known to run, and not before
                self._models = Models(numbers, {}).with_one(given, built)
        return results

    def _model_of(self, fixed: Sequence[int], given: tuple[Any, ...]) -> Built:
        built = self._models.of(fixed, given)
        if built is None or self._changed(built, given):
            built = self._build(fixed, given)
        built.last_use = next(self._uses)
        return built

    @staticmethod
    def _changed(built: Built, given: tuple[Any, ...]) -> bool:
        return not built.weights.are_still(given)

    def _build(self, fixed: Sequence[int], given: tuple[Any, ...]) -> Built:
        with self._building:
            last = self._models.of(fixed, given)
            if last is not None and not self._changed(last, given):
                return last
            copied = self._see_weights(given)  # before they are copied
            lowering = GraphLowering(self._graph_module.graph, self._graph_module, "dynamo")
            try:
                lowering.lower(self._roles(set(copied), fixed, given))
            finally:
                if not fixed:
                    self._numbers = tuple(lowering.number_inputs)
            model = lowering.lowering.build(**self._options) if lowering.outputs.made else None
            weights = _C.SeenWeights(copied)
            built = Built(model, weights, lowering.arguments, lowering.outputs, next(self._uses))
            if self._models.fixed == fixed:
                self._models = self._models.with_one(given, built)
            return built

    def _see_weights(self, given: Sequence[Any]) -> dict[int, _C.SeenWeight]:
        """Those that become constants. A write counts once, however many models are built anew for it."""
        constants = {}
        for i in self._changes:
            if given[i].is_inference():  # writes to it leave no trace
                continue
            if i not in self._seen or not self._seen[i].is_still(given[i]):
                self._changes[i] += i in self._seen
                self._seen[i] = _C.SeenWeight(given[i])
            if self._changes[i] <= CHANGES_OF_A_WEIGHT:
                constants[i] = self._seen[i]
        return constants

    def _roles(self, weights: set[int], fixed: Sequence[int], given: Sequence[Any]) -> list[Role]:
        placeholders = [node for node in self._graph_module.graph.nodes if node.op == "placeholder"]
        roles: list[Role] = []
        for i, node in enumerate(placeholders):
            traced = node.meta.get("val")
            if i in weights:
                roles.append(Weight(given[i].detach()))
            elif isinstance(traced, torch.SymInt) and i in fixed:
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
