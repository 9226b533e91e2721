"""Private names of PyTorch are in private_names.py alone, and are there in the versions that it says."""

import ast
import re
from pathlib import Path

import heddle.torch
import pytest
import torch
from heddle.torch import private_names

PACKAGE = Path(heddle.torch.__file__).parent
OTHERS = sorted(path for path in PACKAGE.glob("**/*.py") if path.name != "private_names.py")
OPERATORS = "torch.ops."  # of PyTorch's table, which names them; many begin so
BUILTINS = ("getattr", "hasattr", "setattr", "delattr")


def is_private(path: str) -> bool:
    private = any(part.startswith("_") and not part.startswith("__") for part in path.split("."))
    return path.startswith("torch.") and private and not path.startswith(OPERATORS)


def private_uses(source: str) -> list[str]:
    """The paths below torch, with a private part, that a file imports or spells out."""
    tree = ast.parse(source)
    known, found = {"torch": "torch"}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
            known |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            paths = {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            known |= {name: path for name, path in paths.items() if path.startswith("torch.")}
            found += paths.values()

    def path_of(node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return known.get(node.id, "")
        if isinstance(node, ast.Attribute) and (owner := path_of(node.value)):
            return f"{owner}.{node.attr}"
        return ""

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.append(path_of(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            owner, name = path_of(node.args[0]), node.args[1]
            if owner and isinstance(name, ast.Constant):
                found.append(f"{owner}.{name.value}")
    return sorted({path for path in found if is_private(path)})


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_no_other_file_names_what_is_private_to_pytorch(path):
    assert private_uses(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("import torch\ntorch._C._len()", "torch._C._len"),
        ("import torch as t\nt.cuda._lazy()", "torch.cuda._lazy"),
        ("import torch._dynamo", "torch._dynamo"),
        ("from torch._ops import OpOverload", "torch._ops.OpOverload"),
        ("from torch import fx\nfx._x", "torch.fx._x"),
        ("from torch.utils import _pytree as tree", "torch.utils._pytree"),
        ("def f():\n    from torch import _guards", "torch._guards"),
        ("import torch\ntorch.UntypedStorage._write_file = 1", "torch.UntypedStorage._write_file"),
        ("import torch\ngetattr(torch, '_X', None)", "torch._X"),
    ],
    ids=lambda value: value if value.startswith("torch") else "",
)
def test_a_private_name_is_found(source, path):
    assert path in private_uses(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.ops.aten._softmax.default, torch.nn.Module.__call__",
        "import torch\nhasattr(torch.ops.aten, '_grouped_mm')",
        "from . import _C\n_C._x",
        "from heddle import _heddle\nx._y",
    ],
)
def test_what_is_not_private_to_pytorch_is_not_found(source):
    assert private_uses(source) == []


@pytest.mark.parametrize("name", private_names.NAMES)
def test_a_name_is_there_in_the_versions_that_it_was_seen_in(name):
    seen = private_names.NAMES[name].seen
    assert seen
    assert set(seen) <= set(private_names.SEEN)
    if torch.__version__.split("+")[0] in seen:
        assert private_names.find(name) is not None


SOURCES = Path(__file__).parents[1] / "csrc"
PRIVATE_IN_CPP = re.compile(r"\b(?:at|c10|torch)(?:::\w+)*::(?:detail|impl|internal)::\w+")


def test_names_that_cpp_headers_keep_for_themselves_are_in_one_header():
    sources = [path for path in SOURCES.glob("**/*") if path.suffix in (".h", ".cpp")]
    found = {path.name: PRIVATE_IN_CPP.findall(path.read_text(encoding="utf-8")) for path in sources}
    assert len(found.pop("private_names.h")) >= 10
    assert found.pop("activities.cpp") == ["torch::profiler::impl::PrivateUse1ProfilerRegistry"]
    assert {name: names for name, names in found.items() if names} == {}


def asked_for(source: str) -> set[str]:
    """What a file imports from private_names, or asks it for by name."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module == "private_names":
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "private_names":
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_every_name_is_used():
    asked = set().union(*(asked_for(path.read_text(encoding="utf-8")) for path in OTHERS))
    assert private_names.NAMES.keys() - asked == set()


def test_a_name_that_is_not_there_is_none():
    assert private_names.find("of_no_pytorch") is None
