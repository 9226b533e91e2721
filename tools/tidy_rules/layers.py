"""Which folder may know which: include arrows, third-party names in one place each, names of files."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tidy_rules.tree import File, Finding, Tree

CORE = {"base", "ir", "plan", "device"}
ARROWS: dict[str, set[str]] = {
    "base": set(),
    "ir": {"base"},
    "plan": {"base", "ir"},
    "device": {"base", "ir", "plan"},
    "drivers/cuda": CORE,
    "drivers/host": CORE,
    "drivers/metal": CORE,
    "drivers/sim": CORE,
    "runtime": CORE,
    "batch": CORE | {"runtime"},
    "onnx": {"base", "ir"},
}
FACADE_ONLY = ("python", "torch_backend")
# What stands for Apple's frameworks; not its tests. It shares no meaning with what it is to test.
METAL_DOUBLE = re.compile(r"tests/metal_double/(?!.*_(?:test|bench|fixture)\.\w+$)")
FOR_METAL_DOUBLE = {"base", "drivers/sim"}

# What a third party is called in includes and in code, and the one folder that may say it.
THIRD_PARTIES = [
    ("oneDNN", re.compile(r"\bdnnl"), re.compile(r"dnnl|^omp\.h$"), "src/drivers/host"),
    ("OpenMP", re.compile(r"\bomp_\w+\s*\("), re.compile(r"^omp\.h$"), "src/drivers/host"),
    ("protobuf", re.compile(r"\bgoogle::protobuf\b"), re.compile(r"^google/protobuf|\.pb\.h$"), "src/onnx"),
    ("nanobind", re.compile(r"\bnanobind\b"), re.compile(r"^nanobind/"), "python"),
    ("libtorch", re.compile(r"\b(?:torch|at|c10)::"), re.compile(r"^(?:torch|ATen|c10)/"), "torch_backend"),
    ("pybind11", re.compile(r"\bpybind11\b"), re.compile(r"^pybind11/"), "torch_backend"),
    ("Metal", re.compile(r"\bMTL[A-Z]|\bMPSGraph"), re.compile(r"^Metal"), "src/drivers/metal"),
]
# What an operator's entry sees and is: the same for every release of PyTorch.
TORCH_FREE = re.compile(r"torch_backend/csrc/(?:(?:call|table)\.\w+|ops/.*)")
FORBIDDEN = re.compile(r"(?:^|_)(?:utils?|common|detail|impl|managers?)$")


def part_of(path: str) -> str | None:
    """The part of src/ that a path or include belongs to: "ir", "drivers/host"; None for anything else."""
    words = path.split("/")
    if words[0] == "drivers" and len(words) > 2:
        return "/".join(words[:2])
    return words[0] if len(words) > 1 and (words[0] in ARROWS or words[0] == "api") else None


def arrows(tree: Tree) -> Iterator[Finding]:
    for file in tree.cpp():
        if file.below("src"):
            yield from arrows_of_source(file)
        elif file.below(*FACADE_ONLY):
            for line, name in file.includes:
                if part_of(name):
                    message = f'"{name}" is internal; this folder uses heddle/heddle.h only'
                    yield Finding(file.path, line, "arrows", message)
        elif METAL_DOUBLE.match(file.path):
            for line, name in file.includes:
                part = part_of(name)
                if part and part not in FOR_METAL_DOUBLE:
                    message = f'"{name}": what the Metal double computes is its own, none of {part}'
                    yield Finding(file.path, line, "arrows", message)


def arrows_of_source(file: File) -> Iterator[Finding]:
    own = part_of(file.path.removeprefix("src/"))
    for line, name in file.includes:
        if ".." in name.split("/"):
            yield Finding(file.path, line, "arrows", f'"{name}": include paths start at src/')
        if own == "api":
            continue
        other = part_of(name)
        allowed = ARROWS.get(own or "", set())
        if other and other != own and other not in allowed:
            may = ", ".join(sorted(allowed)) or "nothing"
            yield Finding(file.path, line, "arrows", f'"{name}": {own} may include {may}, not {other}')
        if name.startswith("heddle/"):
            yield Finding(file.path, line, "arrows", f"{own} may not know the public header; only api does")


def third_parties(tree: Tree) -> Iterator[Finding]:
    for file in tree.cpp():
        if not file.below("src", "include", "python", "torch_backend"):
            continue
        for who, in_code, in_include, home in THIRD_PARTIES:
            if who == "libtorch" and TORCH_FREE.fullmatch(file.path):
                home = "the other files of torch_backend"
            elif file.below(home):
                continue
            for line, name in file.includes:
                if in_include.search(name):
                    yield Finding(file.path, line, "third-party", f"<{name}>: {who} belongs to {home}")
            for match in in_code.finditer(file.code):
                line = file.line_of(match.start())
                yield Finding(file.path, line, "third-party", f"'{match.group()}': {who} belongs to {home}")


def names(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        pure = PurePosixPath(path)
        stem = re.sub(r"_(?:test|bench)$", "", pure.stem)
        for word in [*pure.parts[:-1], stem]:
            if FORBIDDEN.search(word):
                message = f"'{word}' says nothing; name the file or folder after what it holds"
                yield Finding(path, 1, "names", message)


def headers(tree: Tree) -> Iterator[Finding]:
    for file in tree.cpp():
        if file.suffix != ".h" or not file.below("src", "include", "torch_backend"):
            continue
        if not re.search(r"^#pragma once$", file.text, re.MULTILINE):
            yield Finding(file.path, 1, "headers", "has no #pragma once")
        first = next((line for line in file.lines if line.strip() and line != "#pragma once"), "")
        if not first.startswith("//"):
            yield Finding(
                file.path, 1, "headers", "does not open with its manual: what it is, invariant, threads"
            )


RULES = [arrows, third_parties, names, headers]
