"""Gradients of PyTorch's own operator samples on the device, against PyTorch's CPU.

A case is an OpInfo whose float32 samples have gradients: its first samples, each called and then
differentiated with the same cotangents on both sides. Autograd's formulas are PyTorch's own; the operators
that they call are the device's. One that the device does not have raises NotImplementedError and names
itself: gradients.tsv has for each case that it is right, or those names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import opinfo_cases
import opinfo_comparison
import torch
from torch.testing import assert_close
from torch.utils import _pytree

_tensors = opinfo_cases._tensors

LIST = Path(__file__).with_name("gradients.tsv")
MOST_SAMPLES = 3
_LOOKED_AT = 200  # of which those with gradients that have elements are taken
RIGHT = "right"
NONE = "none"  # the CPU gives no sample a gradient with elements
NAMED = re.compile(r"aten::\w+|convolution_backward_overrideable")  # PyTorch names the latter without aten::


@dataclass
class Outcome:
    right: int = 0
    missing: set[str] = field(default_factory=set)  # operators that the device refused by name
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.missing:
            return " ".join(sorted(self.missing))
        return RIGHT if self.right else NONE


def read_list() -> dict[str, str]:
    lines = LIST.read_text().splitlines()
    return dict(line.split("\t") for line in lines if not line.startswith("#"))


def names() -> list[str]:
    """OpInfos in scope that have gradients."""
    infos = opinfo_cases.op_infos()
    scope = {case.name for case in opinfo_cases.read_scope() if case.dtype is torch.float32}
    return [name for name in infos if name in scope and infos[name].supports_autograd]


def _samples(name: str) -> list[tuple[Any, Any, Any]]:
    info = opinfo_cases.op_infos()[name]
    torch.manual_seed(11)
    made = itertools.islice(info.sample_inputs("cpu", torch.float32, requires_grad=True), _LOOKED_AT)
    return [(each.input, each.args, each.kwargs) for each in made]


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) else x


def _widened(x: Any) -> Any:
    if isinstance(x, torch.Tensor) and x.dtype in opinfo_cases.WIDER:
        return x.to(opinfo_cases.WIDER[x.dtype])
    return opinfo_cases.WIDER.get(x, x) if isinstance(x, torch.dtype) else x


def _moved(name: str, sample: Any, device: str) -> Any:
    rest = "cpu" if opinfo_cases.op_infos()[name].name in opinfo_cases.ON_CPU else device
    return opinfo_cases.to_device(sample[0], device), *opinfo_cases.to_device(sample[1:], rest)


def _as_leaves(sample: Any, move: Callable[[Any], Any]) -> Any:
    """Moved copies, which require gradients where the sample's tensors do."""
    moved = move(_pytree.tree_map(_detached, sample))
    for mine, theirs in zip(_pytree.tree_leaves(moved), _pytree.tree_leaves(sample), strict=True):
        if isinstance(theirs, torch.Tensor) and theirs.requires_grad:
            mine.requires_grad_(True)
    return moved


def _differentiated(name: str, sample: Any, seed: int = 13) -> list[torch.Tensor | None]:
    """The gradients of the sample's tensors that require them; empty: no result depends on one."""
    info = opinfo_cases.op_infos()[name]
    x, args, kwargs = sample
    torch.manual_seed(seed)
    with mock.patch("torch.manual_seed"):  # some OpInfos seed themselves
        result = info.op(x, *args, **kwargs)
    if info.name in opinfo_cases.FIRST_ONLY:
        result = result[0]
    outputs = [each for each in _tensors(result) if each.requires_grad]
    inputs = [each for each in _tensors(sample) if each.requires_grad]
    if not outputs or not inputs:
        return []
    generator = torch.Generator().manual_seed(14)
    given = [torch.randn(each.shape, generator=generator).to(each.dtype).to(each.device) for each in outputs]
    return list(torch.autograd.grad(outputs, inputs, given, allow_unused=True))


def _of_the_cpu(name: str, sample: Any, move: Callable[[Any], Any], seed: int = 13) -> list | None:
    """None: the CPU refuses the sample, whatever its reason, and is no reference."""
    try:
        return _differentiated(name, _as_leaves(sample, move), seed)
    except Exception:
        return None


def _difference(actual: list, expected: list, exact: list | None) -> str:
    """ "" when they agree. `exact`: the same in f64."""
    if [each is None for each in actual] != [each is None for each in expected]:
        return f"{len(actual)} gradients, {actual.count(None)} of them absent, not {len(expected)}"
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if a is None:
            continue
        try:
            assert_close(a.cpu(), e, equal_nan=True, check_stride=False)
        except AssertionError as error:
            near = exact is not None and a.shape == e.shape
            if not near or not opinfo_comparison.no_farther(a.cpu(), e, exact[i]):
                return f"gradient {i}: " + " ".join(str(error).split())
    return ""


def _found_different(name: str, sample: Any, actual: list, expected: list) -> str:
    difference = _difference(actual, expected, None)
    if difference:
        wide = _of_the_cpu(name, sample, lambda tree: _pytree.tree_map(_widened, tree))
        difference = _difference(actual, expected, wide)
    if difference:  # what is drawn anew each time has its shape and its dtype in common
        again = _of_the_cpu(name, sample, lambda tree: opinfo_cases.to_device(tree, "cpu"), seed=12)
        if again is not None and _difference(again, expected, None):
            return "" if opinfo_cases.kinds(actual) == opinfo_cases.kinds(expected) else difference
    return difference


def run(name: str, device: str) -> Outcome:
    outcome, refused = Outcome(), 0
    for i, sample in enumerate(_samples(name)):
        expected = _of_the_cpu(name, sample, lambda tree: opinfo_cases.to_device(tree, "cpu"))
        if expected is None or not any(each is not None and each.numel() for each in expected):
            continue
        if outcome.right + refused + len(outcome.wrong) == MOST_SAMPLES:
            break
        try:
            actual = _differentiated(name, _as_leaves(sample, lambda tree: _moved(name, tree, device)))
        except NotImplementedError as error:
            first = str(error).splitlines()[0]
            refused += 1
            outcome.missing |= set(NAMED.findall(first)) or {first}
            continue
        except Exception as error:  # which is told, and fails the test
            outcome.wrong.append(f"sample {i}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        difference = _found_different(name, sample, actual, expected)
        if difference:
            outcome.wrong.append(f"sample {i}: {difference}")
        outcome.right += not difference
    return outcome
