"""heddle.torch.compile: a module in eval mode becomes one Heddle model for any number of callers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from heddle import errors
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument

from . import tracing
from .graph_lowering import GraphLowering, Input, Known, Role, Weight, dims_of
from .private_names import pytree

NO_LIMIT = torch.iinfo(torch.int64).max


class CompiledModule:
    """A module as it was when it was compiled; call it as the module, from any thread.

    Weights are copies: changing the module afterwards changes nothing here. Calls that find the device busy
    are joined into batches along axis 0, when the graph is proven to keep rows apart: explain_coalescing()
    tells.
    Results carry no gradients.
    """

    def __init__(self, module: torch.nn.Module, example: inspect.BoundArguments, program: ExportedProgram):
        self.name = type(module).__name__
        self._signature = inspect.signature(module.forward)
        leaves, self._in_spec = pytree.tree_flatten((example.args, example.kwargs))
        self._fixed = {i: leaf for i, leaf in enumerate(leaves) if not isinstance(leaf, Tensor)}
        self._only_tensors = not example.kwargs and all(isinstance(arg, Tensor) for arg in example.args)
        self._out_spec = program.call_spec.out_spec
        self._ranges = _ranges(program)

    def _build(self, program: ExportedProgram, options: dict[str, Any]) -> None:
        lowering = GraphLowering(program.graph_module.graph, program.graph_module, self.name)
        lowering.lower(_roles(program))
        self._order, self._outputs = lowering.arguments, lowering.outputs
        self._model = lowering.lowering.build(**options)
        self._in_order = self._order == list(range(self._in_spec.num_leaves))
        # What a call holds the GIL for, every other caller waits for.
        self._plain = (
            self._only_tensors
            and self._in_order
            and not self._ranges
            and self._outputs.plain
            and self._out_spec.is_leaf()
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._plain and not kwargs:
            result = self._model.call_plainly(args)
            if result is not None:
                return result
        leaves = self._flatten(args, kwargs)
        inputs = (
            leaves if self._in_order and len(leaves) == len(self._order) else [leaves[i] for i in self._order]
        )
        if torch.is_grad_enabled() and any(each.requires_grad for each in inputs):
            raise RuntimeError(
                f"{self.name} was compiled for inference, and an input requires a gradient. Call it under "
                "torch.inference_mode() or torch.no_grad(), or detach() the input."
            )
        for argument, axis, low, high in self._ranges:
            if not low <= leaves[argument].shape[axis] <= high:
                raise errors.InvalidError(
                    f"{self.name}: dimension {axis} of input {argument} is {leaves[argument].shape[axis]}; "
                    f"the module's code allows {low} to {high}"
                )
        results = self._model(inputs)
        if not self._outputs.plain:
            results = self._outputs.assemble(results, leaves)
        return pytree.tree_unflatten(results, self._out_spec)

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        tensors = self._only_tensors and not kwargs and len(args) == self._in_spec.num_leaves
        if tensors and all(isinstance(arg, Tensor) for arg in args):
            return args
        bound = _canonical(self._signature, args, kwargs)
        leaves, spec = pytree.tree_flatten((bound.args, bound.kwargs))
        if spec != self._in_spec:
            raise TypeError(
                f"{self.name} was compiled for arguments of another structure:\n  it was {self._in_spec}\n"
                f"  this call has {spec}"
            )
        for i, value in self._fixed.items():
            if leaves[i] != value:
                raise TypeError(
                    f"{self.name} was compiled with {value!r} for argument {i}, which is part of it; this "
                    f"call has {leaves[i]!r}. Compile once for each."
                )
        return leaves

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """For the shapes of these arguments now, instead of on the first call that has them."""
        leaves = self._flatten(args, kwargs)
        self._model.compile([list(leaves[i].shape) for i in self._order])

    @property
    def batchable(self) -> bool:
        return self._model.batchable

    def explain_coalescing(self) -> str:
        return self._model.explain_coalescing()

    def coalescing_stats(self) -> dict[str, Any] | None:
        return self._model.coalescing_stats()

    def graph(self) -> str:
        """The optimised graph, one line a node, for people."""
        return self._model.graph()

    @property
    def weight_bytes(self) -> int:
        return self._model.weight_bytes

    def close(self) -> None:
        """Waits for the calls under way, then refuses new ones and frees what was compiled."""
        self._model.close()

    def __enter__(self) -> CompiledModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def compile(
    module: torch.nn.Module,
    example_inputs: torch.Tensor | tuple[Any, ...] | Mapping[str, Any],
    dynamic_shapes: Any = None,
    *,
    device: str | torch.device = "heddle",
    precision: str = "f32",
    coalesce: bool = True,
    exact: bool = False,
    ragged: Mapping[str, int | tuple[int, float]] | None = None,
    max_batch: int = 64,
    max_waiting: int = 4096,
) -> CompiledModule:
    """One Heddle model of a module in eval mode.

    `example_inputs`: the arguments of one call, as a tuple, or by name as a dict. `dynamic_shapes` as
    ``torch.export.export`` takes it; None: the first extent of every tensor is free where the module allows
    it. The other options are those of ``heddle.load``.
    """
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    named = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    args = () if isinstance(example_inputs, Mapping) else tuple(example_inputs)
    _refuse_training(module)
    signature = inspect.signature(module.forward)
    example = _canonical(signature, args, named)
    shapes = _by_name(dynamic_shapes, signature.bind(*args, **named), example)
    program = tracing.export(module, example.args, example.kwargs, shapes)
    _refuse_mutation(module, program)
    compiled = CompiledModule(module, example, program)
    compiled._build(
        program,
        {
            "device_index": torch.device(device).index or 0,
            "precision": precision,
            "coalesce": coalesce,
            "exact": exact,
            "ragged": None if ragged is None else [_ragged(name, place) for name, place in ragged.items()],
            "max_batch": max_batch,
            "max_waiting": max_waiting,
        },
    )
    return compiled


def _ragged(name: str, place: int | tuple[int, float]) -> tuple[str, int, float]:
    return (name, *place) if isinstance(place, tuple) else (name, place, 0.0)


def _canonical(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """The same call in one form, whichever way its arguments were given; those left at their defaults are not
    in it."""
    bound = signature.bind(*args, **kwargs)
    for name, parameter in signature.parameters.items():
        if name in bound.arguments and bound.arguments[name] is parameter.default:
            del bound.arguments[name]
    return bound


def _by_name(dynamic_shapes: Any, given: inspect.BoundArguments, kept: inspect.BoundArguments) -> Any:
    """A tuple names arguments by their place; as a dict it fits what _canonical() keeps."""
    if isinstance(dynamic_shapes, tuple | list) and len(dynamic_shapes) == len(given.arguments):
        dynamic_shapes = dict(zip(given.arguments, dynamic_shapes, strict=True))
    if isinstance(dynamic_shapes, dict):
        left_out = given.arguments.keys() - kept.arguments.keys()
        dynamic_shapes = {name: dims for name, dims in dynamic_shapes.items() if name not in left_out}
    return dynamic_shapes


def _refuse_training(module: torch.nn.Module) -> None:
    training = [name or "the module itself" for name, each in module.named_modules() if each.training]
    if training:
        raise errors.InvalidError(
            f"{type(module).__name__} is in training mode ({training[0]}); heddle.torch.compile is for "
            "inference: call eval() first"
        )


def _refuse_mutation(module: torch.nn.Module, program: ExportedProgram) -> None:
    signature = program.graph_signature
    written = [f"buffer '{name}'" for name in signature.buffers_to_mutate.values()]
    written += [f"input '{name}'" for name in signature.user_inputs_to_mutate.values()]
    if written:
        raise errors.UnsupportedError(
            f"{type(module).__name__} writes to {', '.join(written)} in forward(); a compiled model keeps no "
            "state. Pass it in and return its new value instead."
        )


def _roles(program: ExportedProgram) -> list[Role]:
    roles: list[Role] = []
    symbols = _symbol_names(program)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    arguments = 0
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            stored = program.state_dict if spec.target in program.state_dict else program.constants
            roles.append(Weight(stored[spec.target].detach()))
        elif spec.kind == InputKind.CONSTANT_TENSOR:
            roles.append(Weight(program.constants[spec.target].detach()))
        elif isinstance(spec.arg, TensorArgument):
            roles.append(Input(arguments, spec.arg.name, dims_of(nodes[spec.arg.name].meta["val"], symbols)))
        elif isinstance(spec.arg, ConstantArgument):
            roles.append(Known(spec.arg.value))
        else:
            raise errors.UnsupportedError(
                f"argument '{spec.arg.name}' is neither a tensor nor a known number"
            )
        arguments += spec.kind == InputKind.USER_INPUT
    return roles


def _user_tensors(program: ExportedProgram) -> list[tuple[int, Tensor]]:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    named = [(i, values[spec.arg.name]) for i, spec in enumerate(inputs)]
    return [(i, value) for i, value in named if isinstance(value, Tensor)]


def _symbol_names(program: ExportedProgram) -> dict[str, str]:
    """The rows' symbol is called batch, for people."""
    for _, tensor in _user_tensors(program):
        if tensor.dim() > 0 and not isinstance(tensor.shape[0], int):
            return {str(tensor.shape[0]): "batch"}
    return {}


def _ranges(program: ExportedProgram) -> list[tuple[int, int, int, int]]:
    """Input, axis, least and greatest extent, where the module's code holds for some only."""
    ranges = []
    for argument, tensor in _user_tensors(program):
        for axis, extent in enumerate(tensor.shape):
            known = None if isinstance(extent, int) else program.range_constraints.get(extent.node.expr)
            if known is not None:
                low = int(known.lower) if known.lower > 1 else 0
                high = int(known.upper) if known.upper.is_Integer else NO_LIMIT
                if low > 0 or high < NO_LIMIT:
                    ranges.append((argument, axis, low, high))
    return ranges
