"""What documents say exists: linked files, named tests, commands."""

import ast
import os
import re
from collections.abc import Iterator

from tidy_rules.tree import File, Finding, Tree

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")
FOLDERS = "src|tests|models|bench|tools|docs|cmake|python|include|demo|requirements|torch_backend"
NAMED_FILE = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/[\w./-]*\w)")
PLANNED = "docs/design.md"  # describes the whole plan, folders to come included


def outside_fences(file: File) -> Iterator[tuple[int, str]]:
    inside = False
    for number, line in enumerate(file.lines, 1):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(file: File) -> set[str]:
    heads = (re.match(r"#+\s+(.*)", line) for _, line in outside_fences(file))
    return {anchor(head.group(1)) for head in heads if head}


def links(tree: Tree) -> Iterator[Finding]:
    for file in tree.documents():
        for number, line in outside_fences(file):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, mark = target.partition("#")
                folder = os.path.dirname(file.path)
                name = os.path.normpath(os.path.join(folder, path)) if path else file.path
                if not (tree.root / name).exists():
                    yield Finding(file.path, number, "links", f"'{target}' does not exist")
                elif mark and name in tree.files and mark not in anchors(tree.files[name]):
                    yield Finding(file.path, number, "links", f"'{name}' has no heading '#{mark}'")


def cpp_tests(tree: Tree) -> set[str]:
    found: set[str] = set()
    for file in tree.cpp():
        for case in re.finditer(
            r"\b(?:TEST_CASE\w*|DRIVER_TEST)\s*\(\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+)", file.text
        ):
            pieces = re.findall(r"\"((?:[^\"\\]|\\.)*)\"", case.group(1))
            found.add("".join(pieces))
    return found


def python_tests(tree: Tree) -> set[str]:
    """Names of test functions, alone and as `file.py::name`."""
    found: set[str] = set()
    for file in tree.python():
        if not file.is_test:
            continue
        try:
            module = ast.parse(file.text)
        except SyntaxError:
            continue
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
                found |= {
                    node.name,
                    f"{file.path}::{node.name}",
                    f"{os.path.basename(file.path)}::{node.name}",
                }
    return found


def tests_named(line: str) -> list[str]:
    """C++ tests as `"the string of TEST_CASE"` and Python tests as `file.py::test_x`."""
    names = [name.replace("\\|", "|") for name in re.findall(r"`([^`]+)`", line)]
    return [name for name in names if re.match(r"\".*\"$|test_\w+$|[\w/]+\.py::\w+$", name)]


def named_tests(tree: Tree) -> Iterator[Finding]:
    """A document that says which test shows what names tests that there are."""
    cpp, python = cpp_tests(tree), python_tests(tree)
    for path in ("docs/parity.md", "docs/metal-api.md", "docs/faults.md"):
        for number, line in outside_fences(tree.files[path]) if path in tree.files else ():
            for name in tests_named(line):
                if name.strip('"') not in (cpp if name.startswith('"') else python):
                    yield Finding(path, number, "named-tests", f"no test is called {name}")


def parity(tree: Tree) -> Iterator[Finding]:
    """Each row of docs/parity.md names a test, or says why there is none."""
    document = tree.files.get("docs/parity.md")
    if not document:
        return
    for number, line in outside_fences(document):
        tests = tests_named(line)
        row = line.startswith("|") and not re.match(r"\|[\s:|-]+\|?$", line)
        head = number < len(document.lines) and re.match(r"\|[\s:|-]+\|?$", document.lines[number])
        if row and not head and not tests and not re.search(r"not offered|not here|`make test", line):
            message = 'the row names no test and no stage, and says neither "not offered" nor "not here"'
            yield Finding(document.path, number, "parity", message)


def scenarios(tree: Tree) -> Iterator[Finding]:
    """Each scenario that is explored has a row in docs/concurrency.md, and each row a scenario."""
    document = tree.files.get("docs/concurrency.md")
    rows: dict[str, int] = {}
    for number, line in outside_fences(document) if document else ():
        if row := re.match(r"\| `(\w+)` \| \d", line):
            rows[row.group(1)] = number
    tests = [file for file in tree.cpp() if file.is_test]
    for file in tests:
        for found in re.finditer(r"\bexplore\(\s*\{\s*\"(\w+)\"", file.text):
            if found.group(1) not in rows:
                line = file.text.count("\n", 0, found.start()) + 1
                message = f"docs/concurrency.md has no row for '{found.group(1)}'"
                yield Finding(file.path, line, "scenarios", message)
    named = {name for file in tests for name in re.findall(r"\"(\w+)\"", file.text)}
    for name, number in rows.items():
        if document and name not in named:
            yield Finding(document.path, number, "scenarios", f"no test explores '{name}'")


def faults(tree: Tree) -> Iterator[Finding]:
    """Each class of docs/faults.md names removals that there are, or `by type`, or says that it is open."""
    document = tree.files.get("docs/faults.md")
    for number, line in outside_fences(document) if document else ():
        if not re.match(r"\| C\d+ ", line):
            continue
        column = line.strip("|").split("|")[-1]
        removals = re.findall(r"`([^`/ ]+)`", column)
        for name in removals:
            folders = ("tests/broken", "models/broken")
            if not any((tree.root / folder / f"{name}.patch").exists() for folder in folders):
                yield Finding("docs/faults.md", number, "faults", f"no removal is called {name}")
        if not removals and not re.search(r"\bopen: |\bby type\b", column):
            message = 'the last column names no removal, and says neither "by type" nor "open: "'
            yield Finding("docs/faults.md", number, "faults", message)


def commands(tree: Tree) -> Iterator[Finding]:
    """Commands and files that documents name in code spans and shell blocks exist."""
    makefile = tree.files.get("Makefile")
    targets = set(re.findall(r"^([\w-]+):", makefile.text, re.MULTILINE)) if makefile else set()
    for file in tree.documents():
        if file.path == PLANNED:
            continue
        for number, line in enumerate(file.lines, 1):
            yield from commands_of_line(tree, targets, file.path, number, line)


def commands_of_line(tree: Tree, targets: set[str], path: str, number: int, line: str) -> Iterator[Finding]:
    shell = re.match(r"\s*\$?\s*(?:make|python\d?|bash|cmake)\b", line)
    spans = [line] if shell else re.findall(r"`([^`]+)`", line)
    for span in spans:
        for target in re.findall(r"(?:^|[;&$]\s*)\s*make\s+([a-z][\w-]*)", span):
            if target not in targets:
                yield Finding(path, number, "commands", f"the Makefile has no target '{target}'")
        for name in NAMED_FILE.findall(span):
            if not (tree.root / name).exists() and not re.search(r"[*<{]", span):
                yield Finding(path, number, "commands", f"'{name}' does not exist")


def ruled(tree: Tree) -> Iterator[Finding]:
    """An example opts out of being run only in the plan."""
    for file in tree.documents():
        if file.path != PLANNED:
            for number, line in enumerate(file.lines, 1):
                if re.match(r"\s*```(?:cpp|c\+\+|python|py)\s+ignore", line):
                    yield Finding(
                        file.path, number, "examples", "every C++ and Python example is compiled or run"
                    )


def version(tree: Tree) -> Iterator[Finding]:
    """The version is written in several files, for several readers; all say the same."""
    places = {
        "CMakeLists.txt": r"project\(heddle VERSION ([\d.]+)",
        "pyproject.toml": r"^version = \"([\d.]+)\"",
        "torch_backend/CMakeLists.txt": r"project\(heddle_torch VERSION ([\d.]+)",
        "torch_backend/pyproject.toml": r"^version = \"([\d.]+)\"",
        "include/heddle/heddle.h": r"HEDDLE_VERSION_MAJOR (\d+)\n.*MINOR (\d+)\n.*PATCH (\d+)",
    }
    said = {}
    for path, pattern in places.items():
        match = re.search(pattern, tree.files[path].text, re.MULTILINE) if path in tree.files else None
        if match:
            said[path] = ".".join(match.groups())
    if len(set(said.values())) > 1:
        for path, text in said.items():
            yield Finding(path, 1, "version", f"says {text}; the files disagree: {said}")


RULES = [links, named_tests, parity, scenarios, faults, commands, ruled, version]
