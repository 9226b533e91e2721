"""Which forward operators of PyTorch's MPS backend the device has.

PyTorch's wheel carries the list that its operators are generated from. An operator is of the MPS backend when
its entry, or that of the structured operator that it delegates to, names the dispatch key MPS.
mps_excluded.tsv, written by hand: a line is one that has no kernel on the device, and the reason.
"""

import re
from pathlib import Path

import torch
import torchgen

DEFINITIONS = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
EXCLUDED = Path(__file__).with_name("mps_excluded.tsv")

# A kernel of the device's, or one of PyTorch's that is made of other operators.
KEYS = (
    "PrivateUse1",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)


def forward_operators(definitions: str) -> list[str]:
    """Those of the MPS backend, without passes for gradients."""
    entries = dict(entry.split("(", 1) for entry in re.split(r"^- func: ", definitions, flags=re.M)[1:])

    def names_mps(entry: str) -> bool:
        keys = re.findall(r"^    (\w[\w, ]*):", entry, flags=re.M)
        return "MPS" in {key.strip() for line in keys for key in line.split(",")}

    def is_of_mps(entry: str) -> bool:
        delegate = re.search(r"^  structured_delegate: (\S+)", entry, flags=re.M)
        return names_mps(entry) or (delegate is not None and names_mps(entries[delegate[1]]))

    return [name for name, entry in entries.items() if is_of_mps(entry) and "backward" not in name]


def of_this_pytorch() -> list[str]:
    return forward_operators(DEFINITIONS.read_text(encoding="utf-8"))


def has_kernel(name: str) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key) for key in KEYS)


def read_excluded() -> dict[str, str]:
    """Operators that have no kernel: reason."""
    lines = (line for line in EXCLUDED.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split("\t") for line in lines)
