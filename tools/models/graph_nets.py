"""Nets of torch_nets.py, built node by node with heddle.GraphBuilder: where no file can be exported.

The weights are those of the torch module, so that both can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch_nets
from torch import nn

import heddle

if TYPE_CHECKING:
    from heddle._heddle import Value


def array(tensor) -> np.ndarray:
    return tensor.detach().numpy().copy()


def normalised(graph: heddle.GraphBuilder, x: Value, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Value:
    kernel, stride, pad = (int(pair[0]) for pair in (conv.kernel_size, conv.stride, conv.padding))
    y = graph.add(
        "Conv",
        x,
        graph.constant(array(conv.weight)),
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad] * 4,
    )
    parts = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return graph.add(
        "BatchNormalization", y, *(graph.constant(array(part)) for part in parts), epsilon=norm.eps
    )


def block(graph: heddle.GraphBuilder, x: Value, made: torch_nets.BasicBlock) -> Value:
    y = graph.add("Relu", normalised(graph, x, made.conv1, made.bn1))
    y = normalised(graph, y, made.conv2, made.bn2)
    shortcut = made.shortcut
    if isinstance(shortcut, nn.Sequential):
        x = normalised(graph, x, shortcut[0], shortcut[1])
    return graph.add("Relu", graph.add("Add", y, x))


def resnet18(net: torch_nets.ResNet18) -> heddle.GraphBuilder:
    """[batch, 3, 224, 224] to [batch, 1000]."""
    graph = heddle.GraphBuilder("resnet18")
    x = graph.input("x", "f32", ["batch", 3, 224, 224])
    y = graph.add("Relu", normalised(graph, x, net.stem, net.bn))
    y = graph.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for made in net.blocks:
        y = block(graph, y, made)
    y = graph.add("Flatten", graph.add("GlobalAveragePool", y), axis=1)
    weight, bias = graph.constant(array(net.head.weight)), graph.constant(array(net.head.bias))
    graph.output(graph.add("Gemm", y, weight, bias, transB=1), "logits")
    return graph


def lstm(net: nn.LSTM) -> heddle.GraphBuilder:
    """[steps, batch, inputs] to the states of all steps, [steps, batch, hidden]."""
    graph = heddle.GraphBuilder("lstm")
    x = graph.input("x", "f32", ["steps", "batch", net.input_size])

    def gates(tensor) -> np.ndarray:  # torch: in, forget, cell, out; ONNX: in, out, forget, cell
        parts = np.split(array(tensor), 4)
        return np.concatenate([parts[i] for i in (0, 3, 1, 2)])[None]

    w, r = (graph.constant(gates(t)) for t in (net.weight_ih_l0, net.weight_hh_l0))
    bias = np.concatenate([gates(net.bias_ih_l0), gates(net.bias_hh_l0)], axis=1)
    y = graph.add_multiple("LSTM", 3, x, w, r, graph.constant(bias), hidden_size=net.hidden_size)[0]
    graph.output(graph.add("Squeeze", y, graph.constant(np.array([1], np.int64))), "states")
    return graph
