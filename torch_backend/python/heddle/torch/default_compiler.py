"""``torch.compile(module)`` without ``backend=``: graphs with tensors of the device become Heddle models.

PyTorch's default is inductor, which has no code for the device, and dynamo asks no device for a default of
its own. So inductor's door, a private name of PyTorch's, is where graphs are told apart; where it is missing,
``backend="heddle"`` has to be named.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from heddle import errors

from . import private_names


def _devices(graph_module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Iterator[str]:
    for each in (*inputs, *graph_module.parameters(), *graph_module.buffers()):
        if isinstance(each, torch.Tensor):
            yield each.device.type
    for node in graph_module.graph.nodes:
        if node.kwargs.get("device") is not None:
            yield torch.device(node.kwargs["device"]).type


def install() -> None:
    inductor = private_names.find("InductorWrapper")
    if inductor is None:
        return
    of_inductor = inductor.__call__

    @functools.wraps(of_inductor)
    def compile_graph(
        self: Any, graph_module: torch.fx.GraphModule, inputs: Sequence[Any], **keywords: Any
    ) -> Any:
        if "heddle" not in _devices(graph_module, inputs):
            return of_inductor(self, graph_module, inputs, **keywords)
        if self.config:
            raise errors.InvalidError(
                "torch.compile(mode=, options=) without a backend are inductor's, which has no code for "
                f"device heddle: {', '.join(self.config)}. Leave them out, or name backend='heddle'"
            )
        from . import dynamo  # needs PyTorch's tracers, which are there by now

        return dynamo.backend(graph_module, inputs)

    inductor.__call__ = compile_graph
