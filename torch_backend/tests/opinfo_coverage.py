"""What the OpInfo cases cover.

opinfo_operators.tsv, written by tools/opinfo_report.py: a line is a registered operator and either a case
that runs it, or "-" and the reason why none does.
opinfo_excluded.tsv, written by hand: a line is an OpInfo that is not in scope, and the reason.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import opinfo_cases
import torch
from torch.utils._python_dispatch import TorchDispatchMode

LIST = Path(__file__).with_name("opinfo_operators.tsv")
EXCLUDED = Path(__file__).with_name("opinfo_excluded.tsv")


class _Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        self.names.add(f"{name}.{func._schema.overload_name}" if func._schema.overload_name else name)
        return func(*args, **(kwargs or {}))


def operators_of(case: opinfo_cases.Case, device: str, most: int = 3) -> set[str]:
    """The overloads that the first samples of the case call on the device."""
    info = opinfo_cases.op_infos()[case.name]
    seen = _Seen()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, *sample in opinfo_cases.samples_of(case)[:most]:
            x, args, kwargs = opinfo_cases.to_device(sample, device)
            try:
                with seen:
                    info.op(x, *args, **kwargs)
            except Exception:  # what is wrong with it is another test's matter
                continue
    return seen.names


def is_functional(name: str) -> bool:
    """Not an in-place or out= overload, which are made from the functional one."""
    base, _, overload = name.removeprefix("aten::").partition(".")
    return not getattr(getattr(torch.ops.aten, base), overload or "default")._schema.is_mutable


def read_list() -> dict[str, tuple[str, str]]:
    """operator: (case or "-", reason)."""
    out = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            operator, case, reason = (line + "\t\t").split("\t")[:3]
            out[operator] = case, reason
    return out


def read_excluded() -> dict[str, str]:
    """OpInfos that are not in scope: reason."""
    lines = (line for line in EXCLUDED.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split("\t") for line in lines)
