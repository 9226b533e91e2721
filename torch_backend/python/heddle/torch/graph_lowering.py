"""An FX graph of ATen operators becomes a Heddle model, node by node, through the table of heddle.torch._C.

The walk knows sizes and what graphs reckon with them, and what does nothing in an inference graph
(assertions, aliases). Everything else is an operator of the table. What the table lacks is told all at once,
before anything is built, each with the line of the user's code that asks for it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from heddle import errors
from torch import fx

from . import _C
from .private_names import OpOverload
from .tracing import qualified

aten = torch.ops.aten

RECKONED: dict[Callable[..., Any], str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.floordiv: "floordiv",
    operator.mod: "mod",
    operator.truediv: "truediv",
    torch.sym_max: "max",
    torch.sym_min: "min",
}
OF_SIZES = (operator.getitem, operator.neg, torch.sym_float, torch.sym_sum, aten.sym_size.int)
CHECKS = {  # of what was traced; values do not depend on them
    "aten::_assert_async",
    "aten::_assert_async.msg",
    "aten::_assert_scalar",
    "aten::_assert_tensor_metadata",
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
}
SAME_VALUE = {  # where the table has no entry: the same value by another name
    "aten::alias",
    "aten::alias_copy",
    "aten::clone",
    "aten::detach",
    "aten::detach_copy",
    "aten::lift",
    "aten::lift_fresh",
    "aten::lift_fresh_copy",
}
CONVERTED = "prims::convert_element_type"  # PyTorch's tracer adds it between dtypes by itself


@dataclass(frozen=True)
class Weight:
    """A placeholder that becomes a constant of the model."""

    tensor: torch.Tensor


@dataclass(frozen=True)
class Input:
    """A placeholder that becomes an input of the model: the caller's argument of this number."""

    argument: int
    name: str
    dims: tuple[int | str, ...]


@dataclass(frozen=True)
class Size:
    """A placeholder for an integer, in graphs with free dimensions: the caller's argument of this number."""

    argument: int
    symbol: str


@dataclass(frozen=True)
class Known:
    """A placeholder whose value the graph has in it."""

    value: Any


Role = Weight | Input | Size | Known


@dataclass
class Outputs:
    """How a call's results are put together: from the model's, the arguments themselves and known values."""

    plan: list[tuple[str, Any]] = field(default_factory=list)
    made: int = 0
    # Results that the code has on another device than the model leaves them on, which is its inputs'.
    elsewhere: dict[int, torch.device] = field(default_factory=dict)

    def assemble(self, results: Sequence[torch.Tensor], arguments: Sequence[Any]) -> list[Any]:
        sources: dict[str, Callable[[Any], Any]] = {
            "result": lambda i: results[i].to(self.elsewhere[i]) if i in self.elsewhere else results[i],
            "number": lambda i: results[i].item(),
            "argument": lambda i: arguments[i],
            "known": lambda value: value,
        }
        return [sources[kind](what) for kind, what in self.plan]

    @property
    def plain(self) -> bool:
        return not self.elsewhere and self.plan == [("result", i) for i in range(self.made)]


def place_of(node: fx.Node) -> str:
    """The line of the user's code that a node comes from."""
    lines = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip()]
    places = [i for i, line in enumerate(lines) if line.startswith("File ")]
    return ": ".join(lines[places[-1] :][:2]) if places else "a line that PyTorch did not record"


def dims_of(tensor: torch.Tensor, names: Mapping[str, str] | None = None) -> tuple[int | str, ...]:
    """Extents of a traced tensor: numbers, and symbols for the free ones."""
    names = names or {}
    return tuple(
        extent if isinstance(extent, int) else names.get(str(extent), str(extent)) for extent in tensor.shape
    )


def order_in_memory(tensor: torch.Tensor) -> list[int]:
    """Axes of a traced tensor from the outermost in memory to the innermost; none where it lies by rows, or
    not in one piece. Symbols are compared as they are written: asking whether two are equal would be a guard.
    """
    left = list(range(tensor.dim()))
    order: list[int] = []
    step: int | torch.SymInt = 1
    while left:
        fitting = [axis for axis in reversed(left) if str(tensor.stride(axis)) == str(step)]
        if not fitting:
            return []
        axis = next((each for each in fitting if str(tensor.shape[each]) == "1"), fitting[0])
        left.remove(axis)
        order.insert(0, axis)
        step = step * tensor.shape[axis]
    return [] if order == sorted(order) else order


class GraphLowering:
    def __init__(self, graph: fx.Graph, owner: torch.nn.Module, name: str):
        self.graph = graph
        self.owner = owner  # of the tensors that get_attr nodes name
        self.lowering = _C.Lowering(name)
        self.values: dict[fx.Node, Any] = {}
        self.number_inputs: list[int] = []  # arguments that are integers and become inputs
        self.arguments: list[int] = []  # the model's inputs, by number of argument
        self.outputs = Outputs()

    def refuse_unknown(self) -> None:
        unknown: dict[str, fx.Node] = {}
        for node in self.graph.nodes:
            if node.op == "call_function" and not self._is_known(node.target):
                name = qualified(node.target) if isinstance(node.target, OpOverload) else str(node.target)
                unknown.setdefault(name, node)
        if unknown:
            listed = "".join(f"\n  {name}, at {place_of(node)}" for name, node in sorted(unknown.items()))
            raise errors.UnsupportedError(
                f"{len(unknown)} operator(s) of this graph are not offered by heddle.torch:{listed}\n"
                "Write them with others, or keep that part of the module out of the compiled one."
            )

    @staticmethod
    def _is_known(target: Any) -> bool:
        if target in RECKONED or target in OF_SIZES:
            return True
        if not isinstance(target, OpOverload):
            return False
        name = qualified(target)
        return name in CHECKS or name in SAME_VALUE or name == CONVERTED or _C.has_entry(name)

    def lower(self, roles: Sequence[Role]) -> None:
        """`roles` of the placeholders, in order."""
        self.graph.eliminate_dead_code()
        self.refuse_unknown()
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        pairs = list(zip(placeholders, roles, strict=True))
        for node, role in pairs:
            if not isinstance(role, Size):
                self.values[node] = self._placeholder(node, role)
        for node, role in pairs:
            if isinstance(role, Size) and node.users:
                self.values[node] = self._size(role, pairs)
        for node in self.graph.nodes:
            if node.op == "get_attr":
                self.values[node] = self.lowering.constant(operator.attrgetter(node.target)(self.owner))
            elif node.op == "call_function":
                self.values[node] = self._call(node)
            elif node.op == "output":
                self._output(node, dict(pairs))

    def _placeholder(self, node: fx.Node, role: Role) -> Any:
        if isinstance(role, Weight):
            return self.lowering.constant(role.tensor) if node.users else None
        if isinstance(role, Input):
            self.arguments.append(role.argument)
            return self.lowering.input(role.name, node.meta["val"].dtype, list(role.dims))
        assert isinstance(role, Known)  # a Size's turn comes when all inputs are there
        return role.value

    def _size(self, role: Size, pairs: Iterable[tuple[fx.Node, Role]]) -> Any:
        """Read off the first input that has the symbol among its extents; an input of its own if none has."""
        for node, other in pairs:
            if isinstance(other, Input) and role.symbol in other.dims:
                return self.lowering.size_of(self.values[node], other.dims.index(role.symbol))
        self.arguments.append(role.argument)
        self.number_inputs.append(role.argument)
        scalar = self.lowering.input(role.symbol, torch.int64, [])
        return self.lowering.as_number(scalar)

    def _call(self, node: fx.Node) -> Any:
        args = fx.map_arg(node.args, self.values.__getitem__)
        kwargs = fx.map_arg(node.kwargs, self.values.__getitem__)
        try:
            return self._result(node, args, kwargs)
        except errors.UnsupportedError as error:
            raise errors.UnsupportedError(f"{error}\n  at {place_of(node)}") from None
        except errors.Error as error:
            raise type(error)(f"{error}\n  in {node.format_node()}\n  at {place_of(node)}") from error

    def _result(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target, value = node.target, node.meta.get("val")
        if isinstance(value, int | float | bool):
            return value  # a size that turned out to be fixed
        if target is operator.getitem:
            return self._item(node, *args)
        if target is aten.sym_size.int:
            return self.lowering.size_of(*args)
        if target is operator.neg:
            return self.lowering.reckon("sub", 0, args[0])
        if target is torch.sym_float:
            return self.lowering.reckon("truediv", args[0], 1)
        if target is torch.sym_sum:
            return functools.reduce(lambda sum, each: self.lowering.reckon("add", sum, each), args[0])
        if target in RECKONED:
            return self.lowering.reckon(RECKONED[target], *args)
        name = qualified(target)
        if name in CHECKS:
            return None
        if name in SAME_VALUE and not _C.has_entry(name):
            return args[0]
        if name == CONVERTED:
            name, args, kwargs = "aten::_to_copy", args[:1], {"dtype": args[1]}
        several = isinstance(value, tuple | list)
        types = [_type_of(each) for each in (value if several else (value,))]
        results = self.lowering.call(name, args, kwargs, types)
        return results if several else results[0]

    @staticmethod
    def _item(node: fx.Node, results: Sequence[Any], index: int) -> Any:
        if results[index] is None:
            raise errors.UnsupportedError(f"{node.args[0].target}: its result {index} is not offered")
        return results[index]

    def _output(self, node: fx.Node, roles: Mapping[fx.Node, Role]) -> None:
        made: dict[fx.Node, tuple[str, int]] = {}
        inputs = [given for given, role in roles.items() if isinstance(role, Input)]
        left_on_cpu = all(given.meta["val"].is_cpu for given in inputs)
        for each in node.args[0]:
            role = roles.get(each) if isinstance(each, fx.Node) else Known(each)
            if isinstance(role, Input | Size):
                self.outputs.plan.append(("argument", role.argument))
            elif isinstance(role, Weight | Known):
                self.outputs.plan.append(("known", role.tensor if isinstance(role, Weight) else role.value))
            elif isinstance(self.values[each], _C.Node):
                if each not in made:
                    value = each.meta.get("val")
                    self._model_output(self.values[each], f"output_{len(made)}", value)
                    made[each] = ("number" if self.values[each].number else "result", len(made))
                    if isinstance(value, torch.Tensor) and value.is_cpu != left_on_cpu:
                        self.outputs.elsewhere[made[each][1]] = value.device
                self.outputs.plan.append(made[each])
            else:
                self.outputs.plan.append(("known", self.values[each]))
        self.outputs.made = len(made)

    def _model_output(self, node: _C.Node, name: str, traced: Any) -> None:
        """It lies as PyTorch's tracer says. The model itself leaves it so unless its first axis, which may
        count the rows of joined calls, would not be the first one in memory."""
        order = order_in_memory(traced) if isinstance(traced, torch.Tensor) else []
        in_model = bool(order) and (order[0] == 0 or isinstance(traced.shape[0], int))
        self.lowering.output(node, name, order, in_model)


def _type_of(value: Any) -> tuple[torch.dtype, list[int | None]]:
    if not isinstance(value, torch.Tensor):
        return torch.float32, []  # an unused result
    return value.dtype, [extent if isinstance(extent, int) else None for extent in value.shape]
