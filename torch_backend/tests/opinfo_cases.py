"""PyTorch's OpInfo database as cases: samples on the CPU, run on another device, compared.

A case is an OpInfo and a dtype. Of its samples a few are taken: the first ones, zero-size and non-contiguous
ones where there are some, and more spread over the rest; the first one comes a second time with every tensor
laid out otherwise. A sample that the CPU refuses is none; one that the device refuses (NotImplementedError)
is counted as refused. What each case had when it was last looked at is in opinfo_scope.tsv, and in
opinfo_scope_later.tsv with the version for cases that came after PyTorch 2.13.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from opinfo_comparison import BY_THE_LARGEST, difference_of, real, tolerances_of
from opinfo_strides import lie_otherwise
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree

# They look through the whole stack for a unittest.TestCase, which takes longer than a case's samples do.
common_utils.extract_test_fn = core.extract_test_fn = lambda: None

SCOPE = Path(__file__).with_name("opinfo_scope.tsv")
LATER = Path(__file__).with_name("opinfo_scope_later.tsv")
DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip
WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float64: torch.float64,
    torch.complex64: torch.complex128,
}
MOST_SAMPLES = 8
_LOOKED_AT = 120  # samples of an OpInfo that are chosen from

# Which of several equal elements an index names is nobody's promise; the values are compared.
TIES = {"kthvalue", "topk", "median", "nanmedian", "mode", "argsort", "msort", "sort"}

# Saved statistics are for a backward pass; without training PyTorch's CPU leaves them empty.
FIRST_ONLY = {"native_batch_norm", "_native_batch_norm_legit"}

# What is in new memory is nobody's promise: only shape, dtype, strides and device are compared.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# They draw where they pool, which may change no value of a small sample. test_cpu_operators.py says where.
DRAWN = {"nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"}

# PyTorch's CPU takes the last axis for one without gaps there: its own result is wrong where it has some.
WITHOUT_GAPS = {"torch.ops.aten._scaled_dot_product_flash_attention_for_cpu"}

# Their tensor arguments beside the input have to be on the CPU.
ON_CPU = {"tensor_split"}


@dataclass(frozen=True)
class Case:
    name: str  # of the OpInfo, with its variant
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.name}-{str(self.dtype).removeprefix('torch.')}"


@dataclass
class Outcome:
    ran: int = 0
    refused: int = 0
    not_here: int = 0  # refused beside those, by Metal's driver
    wrong: list[str] = field(default_factory=list)
    refusals: set[str] = field(default_factory=set)


@functools.cache
def op_infos() -> dict[str, OpInfo]:
    return {
        info.name + ("." + info.variant_test_name if info.variant_test_name else ""): info for info in op_db
    }


# The scope lists the operators of this version, and counts its samples. Others have fewer, or other ones.
IN_SCOPE = (2, 13) <= torch.__version__ < (2, 14)


def read_scope() -> dict[Case, tuple[int, int]]:
    """Cases in scope, with the samples that ran and those that were refused."""
    out = {}
    for line in SCOPE.read_text().splitlines():
        if line and not line.startswith("#"):
            name, dtype, ran, refused = line.split("\t")
            if IN_SCOPE or name in op_infos():
                out[Case(name, getattr(torch, dtype))] = int(ran), int(refused)
    return out


def read_later() -> dict[Case, tuple[int, int]]:
    """The same of what PyTorchs after 2.13 brought, as far as this one has it."""
    out = {}
    for line in LATER.read_text().splitlines():
        if not line.startswith("#"):
            since, name, dtype, ran, refused = line.split("\t")
            if torch.__version__ >= since:
                out[Case(name, getattr(torch, dtype))] = int(ran), int(refused)
    return out


# ---- samples


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _strided_otherwise(x: Any) -> Any:
    """The same values in a layout of its own: the last two axes swapped, or every second element."""
    if not isinstance(x, torch.Tensor) or x.is_sparse:
        return x
    if x.ndim >= 2:
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    return torch.stack((x, x), dim=-1).flatten()[::2] if x.ndim else x.clone()


def _chosen(samples: list[SampleInput]) -> list[SampleInput]:
    def first(wanted: Any, most: int) -> list[int]:
        return list(itertools.islice((i for i, s in enumerate(samples) if wanted(s)), most))

    inputs = [(s.input, s.args, s.kwargs) for s in samples]
    empty = {i for i, tree in enumerate(inputs) if any(not t.numel() for t in _tensors(tree))}
    strided = {i for i, tree in enumerate(inputs) if any(not t.is_contiguous() for t in _tensors(tree))}
    picked = [*range(min(3, len(samples))), *sorted(empty)[:2], *sorted(strided)[:2]]
    step = max(1, len(samples) // MOST_SAMPLES)
    picked += range(0, len(samples), step)
    return [samples[i] for i in sorted(set(list(dict.fromkeys(picked))[:MOST_SAMPLES]))]


def samples_of(case: Case) -> list[tuple[str, Any, Any, Any]]:
    """(label, input, args, kwargs) on the CPU."""
    info = op_infos()[case.name]
    torch.manual_seed(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = list(itertools.islice(info.sample_inputs("cpu", case.dtype, requires_grad=False), _LOOKED_AT))
    out = [(f"sample {i}", s.input, s.args, s.kwargs) for i, s in enumerate(_chosen(made))]
    if out and case.name not in WITHOUT_GAPS:
        _, *first = out[0]
        out.append(("sample 0, strided otherwise", *_pytree.tree_map(_strided_otherwise, tuple(first))))
    return out


# ---- to the device and back


def _names_a_device(x: Any) -> bool:
    """A device or the name of one: where PyTorch finds a card, samples name that, or have tensors on it."""
    if isinstance(x, str):
        try:
            x = torch.device(x)
        except RuntimeError:
            return False
    return isinstance(x, torch.device) and x.type != "meta"


def to_device(tree: Any, device: str) -> Any:
    """Copies of the whole storages, so views stay views. Devices named in arguments are replaced, too."""
    there = {"meta"} | {torch.device(device).type} - {"cpu"}

    def move(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if x.device.type in there or x.layout != torch.strided:
                return x
            flat = x.detach().as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
            return flat.cpu().to(device, copy=True).as_strided(x.shape, x.stride(), x.storage_offset())
        if _names_a_device(x):
            return device if isinstance(x, str) else torch.device(device)
        return x

    return _pytree.tree_map(move, tree)


def _copied(tree: Any) -> Any:
    return to_device(tree, "cpu")


# ---- comparing


def _exactly(info: OpInfo, sample: tuple[Any, Any, Any]) -> Any:
    """The result in f64 or complex128, or None where the CPU has none."""

    def wide(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.dtype in WIDER:
            return x.to(WIDER[x.dtype])
        return WIDER.get(x, x) if isinstance(x, torch.dtype) else x

    x, args, kwargs = _pytree.tree_map(wide, _copied(sample))
    try:
        return info.op(x, *args, **kwargs)
    except Exception:  # whatever PyTorch has against it
        return None


def _is_random(info: OpInfo, sample: tuple[Any, Any, Any], expected: Any) -> bool:
    x, args, kwargs = _copied(sample)
    torch.manual_seed(12)
    with mock.patch("torch.manual_seed"):  # some OpInfos seed themselves
        again = info.op(x, *args, **kwargs)
    pairs = zip(_tensors(again), _tensors(expected), strict=True)
    return any(not torch.equal(real(a).nan_to_num(), real(e).nan_to_num()) for a, e in pairs)


def kinds(tree: Any) -> list[Any]:
    return [(t.shape, t.dtype) for t in _tensors(tree)]


def _of_another_kind_or_place(actual: Any, expected: Any, device: str) -> str:
    if kinds(actual) != kinds(expected):
        return f"{kinds(actual)}, not {kinds(expected)}"
    away = [t.device for t in _tensors(actual) if t.device.type != torch.device(device).type]
    return f"on {away}" if away else ""


# ---- running

# What Metal's driver refuses.
NOT_HERE = ("Metal has no f64", "which MPSGraph does not have")


def ways_of(info: OpInfo) -> Iterator[tuple[str, Any]]:
    """How an operator is called: as a function, and in place."""
    yield "", info.op
    inplace = info.get_inplace()
    if inplace is not None:
        yield " in place", inplace


def run_case(case: Case, device: str) -> Outcome:
    info = op_infos()[case.name]
    outcome = Outcome()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, *sample in samples_of(case):
            for way, op in ways_of(info):
                if way and not label.startswith("sample 0"):
                    continue
                expected = _run(op, _copied(sample))
                if isinstance(expected, Exception):
                    continue  # the CPU refuses it, whatever its reason: no reference
                actual = called_on(info, sample, device, op)
                _judge(info, case, label + way, sample, expected, actual, device, outcome)
    return outcome


def called_on(info: OpInfo, sample: Any, device: str, op: Any = None) -> Any:
    """The result, or the exception."""
    moved = (
        to_device(sample[0], device),
        *to_device(sample[1:], "cpu" if info.name in ON_CPU else device),
    )
    return _run(op or info.op, moved)


def difference_on(info: OpInfo, case: Case, sample: Any, expected: Any, actual: Any, device: str) -> str:
    """Of a result or refusal of the device from the CPU's result; "" when they agree."""
    outcome = Outcome()
    _judge(info, case, "", sample, expected, actual, device, outcome)
    return "; ".join([*outcome.wrong, *outcome.refusals])


def _run(op: Any, sample: Any) -> Any:
    x, args, kwargs = sample
    torch.manual_seed(13)
    try:
        return op(x, *args, **kwargs)
    except Exception as error:
        return error


def _count_refused(error: NotImplementedError, outcome: Outcome) -> None:
    if any(words in str(error) for words in NOT_HERE):
        outcome.not_here += 1
        return
    outcome.refused += 1
    outcome.refusals.add(str(error).splitlines()[0])


def _judge(
    info: OpInfo,
    case: Case,
    label: str,
    sample: Any,
    expected: Any,
    actual: Any,
    device: str,
    outcome: Outcome,
) -> None:
    if isinstance(actual, NotImplementedError):
        _count_refused(actual, outcome)
        return
    outcome.ran += 1
    if isinstance(actual, Exception):
        words = str(actual).splitlines() or [""]
        outcome.wrong.append(f"{label}: {type(actual).__name__}: {words[0]}")
        return
    difference = ""
    if info.name not in UNINITIALISED:  # which a checked device does not even let a test read
        difference = _found_different(info, case, sample, expected, actual, device)
    if info.name in UNINITIALISED or (
        difference and (info.name in DRAWN or _is_random(info, sample, expected))
    ):
        difference = _of_another_kind_or_place(actual, expected, device)
    difference = difference or lie_otherwise(info.name, _tensors(actual), _tensors(expected))
    if difference:
        outcome.wrong.append(f"{label}: {difference}")


def _found_different(info: OpInfo, case: Case, sample: Any, expected: Any, actual: Any, device: str) -> str:
    if info.name in FIRST_ONLY or (info.name in TIES and len(_tensors(expected)) == 2):
        expected, actual = _tensors(expected)[0], _tensors(actual)[0]
    if info.name == "argsort":
        x, args, kwargs = sample
        dim = args[0] if args else kwargs.get("dim", -1)
        expected, actual = (
            x.take_along_dim(index.cpu(), dim).to(index.device) for index in (expected, actual)
        )
    tolerances = tolerances_of(info, case.dtype)
    difference = difference_of(actual, expected, None, tolerances, device)
    if difference and case.dtype in WIDER:
        exact = _exactly(info, sample)
        difference = difference_of(actual, expected, exact, tolerances, device, case.name in BY_THE_LARGEST)
    return difference


# ---- out=

# Each makes a tensor to write to from a result.
OUTS: dict[str, Any] = {
    "full of other values": lambda e: torch.full_like(e, 3, memory_format=torch.contiguous_format),
    "empty": lambda e: torch.empty(0, dtype=e.dtype),
    "strided": lambda e: torch.full((*e.shape, 2), 3, dtype=e.dtype)[..., 0],
    "of another shape": lambda e: torch.full((*e.shape, 2), 3, dtype=e.dtype),
    "of another kind": lambda e: torch.full(e.shape, 3, dtype=_of_another_kind(e.dtype)),
    "wider": lambda e: torch.full(e.shape, 3, dtype=torch.float64),
}
OF_OTHER_DTYPES = ("of another kind", "wider")


# Where an `out` that cannot hold the result is refused with an error of another type than the CPU's, and why.
_OF_CAT = "cat() has a TypeError of its own on the CPU; here it is the RuntimeError of all operators"
_OF_NAN = "the CPU lacks a kernel for whole numbers: NotImplementedError; here the dtype is what is refused"
OUT_REFUSED_OTHERWISE = {
    **dict.fromkeys(("_chunk_cat", "cat", "column_stack", "dstack", "hstack", "stack", "vstack"), _OF_CAT),
    "nanmean": _OF_NAN,
    "nansum": _OF_NAN,
}

# The CPU resizes an `out` of another shape without the warning that others give.
RESIZED_IN_SILENCE = {"addbmm", "arange", "narrow_copy", "nn.functional.logsigmoid"}


def _of_another_kind(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_floating_point:
        return torch.int64
    return torch.uint8 if dtype is torch.bool else torch.float32


def _written(info: OpInfo, sample: Any, out: Any) -> tuple[Any, bool]:
    """What the call returned or raised, and whether PyTorch warned that `out` was resized."""
    x, args, kwargs = sample
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = _run(info.op, (x, args, {**kwargs, "out": out}))
    return result, any("was resized" in str(each.message) for each in told)


def run_out(case: Case, device: str) -> Outcome:
    """The first sample with out=: how many calls wrote (`ran`), and what is wrong.

    The values are compared with the CPU's functional form: some of the CPU's own out= forms write nothing
    into a strided tensor. An `out` of another dtype may be refused where the CPU takes it. One that the CPU
    refuses is refused, or gets the values where its dtype holds them all.
    """
    info = op_infos()[case.name]
    _, *sample = samples_of(case)[0]
    expected = _run(info.op, _copied(sample))
    single = isinstance(expected, torch.Tensor)
    outcome = Outcome()
    for label, make in OUTS.items():
        outs = [make(each) for each in _tensors(expected)]
        to_write = [to_device(each, device) for each in outs]
        theirs, they_warned = _written(info, _copied(sample), outs[0] if single else tuple(outs))
        ours, we_warned = _written(
            info, to_device(sample, device), to_write[0] if single else tuple(to_write)
        )
        pairs = list(zip(_tensors(expected), outs, strict=True))
        kept = all(torch.can_cast(each.dtype, out.dtype) for each, out in pairs)
        if isinstance(ours, NotImplementedError):
            _count_refused(ours, outcome)
            continue
        if isinstance(ours, Exception):
            told = isinstance(theirs, Exception) and info.name not in OUT_REFUSED_OTHERWISE
            if told and not isinstance(ours, type(theirs)):
                outcome.wrong.append(f"out {label}: {ours!r}, while the CPU says {theirs!r}")
            if not isinstance(theirs, Exception) and label not in OF_OTHER_DTYPES:
                outcome.wrong.append(f"out {label}: {type(ours).__name__}: {str(ours).splitlines()[0]}")
            continue
        outcome.ran += 1
        if isinstance(theirs, Exception) and not (label in OF_OTHER_DTYPES and kept):
            outcome.wrong.append(
                f"out {label}: written, while the CPU refuses: {str(theirs).splitlines()[0]}"
            )
            continue
        converted = outs if not kept else [each.to(out.dtype) for each, out in pairs]
        difference = _found_different(info, case, sample, tuple(converted), tuple(to_write), device)
        if difference:
            outcome.wrong.append(f"out {label}: {difference}")
        if label == "of another shape" and they_warned != we_warned and info.name not in RESIZED_IN_SILENCE:
            outcome.wrong.append(
                f"out {label}: a warning that it was resized: {we_warned}, not {they_warned}"
            )
    return outcome


# Random, without a tensor as the result, or with a list of tensors to write to, which is not there yet.
NO_OUT = {
    "bernoulli", "empty", "equal", "histogramdd", "multinomial", "normal", "normal.number_mean", "randn",
    "split_with_sizes_copy", "unbind_copy",
}  # fmt: skip


def out_cases(scope: Iterable[Case]) -> list[Case]:
    """Each OpInfo of them with an out= form, in one dtype."""
    cases: dict[str, Case] = {}
    for case in scope:
        if not op_infos()[case.name].supports_out or case.name in NO_OUT:
            continue
        if case.dtype is torch.float32 or case.name not in cases:
            cases[case.name] = case
    return list(cases.values())


def supported_cases() -> list[Case]:
    """All that OpInfo and PyTorch's CPU have in these dtypes."""
    return [
        Case(name, dtype)
        for name, info in op_infos().items()
        if "sparse" not in name
        for dtype in DTYPES
        if dtype in info.dtypes
    ]
