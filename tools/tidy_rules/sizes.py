"""How long lines, functions and files may be."""

import ast
from collections.abc import Iterator

from tidy_rules import scopes
from tidy_rules.tree import File, Finding, Tree

FILE_LINES = 500
FUNCTION_LINES = 70
COLUMNS = 110
PUBLIC_HEADER, PUBLIC_HEADER_LINES = "include/heddle/heddle.h", 936
CONTRACT_LINES = 640
MODEL_LINES = 695  # a model is one file: Promela has no parts to split it into, and a line for each step
TEXT = {".md"}


def files(tree: Tree) -> Iterator[Finding]:
    for file in tree.files.values():
        limit = MODEL_LINES if file.suffix == ".pml" else FILE_LINES
        if file.path == PUBLIC_HEADER:
            limit = PUBLIC_HEADER_LINES - 1
        if file.suffix not in TEXT and len(file.lines) > limit:
            yield Finding(
                file.path, len(file.lines), "file-size", f"{len(file.lines)} lines, {limit} at most"
            )


def contract(tree: Tree) -> Iterator[Finding]:
    """Without what only tests use, x_fixture.h."""
    headers = [file for file in tree.cpp() if file.below("src/device") and file.suffix == ".h"]
    headers = [file for file in headers if not file.path.endswith("_fixture.h")]
    total = sum(len(file.lines) for file in headers)
    if total >= CONTRACT_LINES:
        message = f"the headers of the driver contract have {total} lines, under {CONTRACT_LINES} are allowed"
        yield Finding("src/device", 1, "contract-size", message)


def lines(tree: Tree) -> Iterator[Finding]:
    for file in tree.files.values():
        if file.suffix in TEXT:
            continue
        for number, line in enumerate(file.lines, 1):
            if len(line) > COLUMNS:
                yield Finding(file.path, number, "line-length", f"{len(line)} columns, {COLUMNS} at most")


def functions(tree: Tree) -> Iterator[Finding]:
    for file in tree.cpp():
        for scope in scopes.parse(file.code)[0]:
            size = file.code.count("\n", scope.begin, scope.end) + 1
            if scope.kind == "function" and size > FUNCTION_LINES:
                message = f"a function of {size} lines, {FUNCTION_LINES} at most"
                yield Finding(file.path, file.line_of(scope.begin), "function-size", message)
    for file in tree.python():
        yield from python_functions(file)


def python_functions(file: File) -> Iterator[Finding]:
    try:
        module = ast.parse(file.text)
    except SyntaxError as error:
        yield Finding(file.path, error.lineno or 1, "syntax", str(error))
        return
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES:
                message = f"{node.name}() has {size} lines, {FUNCTION_LINES} at most"
                yield Finding(file.path, node.lineno, "function-size", message)


RULES = [files, contract, lines, functions]
