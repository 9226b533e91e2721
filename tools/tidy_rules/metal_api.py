"""docs/metal-api.md lists what driver and guard use of Apple's frameworks: classes, selectors, constants.

What may be listed is what tests/metal_double/include declares, with Apple's names. A use that is declared
there and not listed, a listed name that is not declared there, a row without page or macOS version: findings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidy_rules.tree import File, Finding, Tree

DOCUMENT = "docs/metal-api.md"
HEADERS = ("tests/metal_double/include/Metal", "tests/metal_double/include/MetalPerformanceShaders",
           "tests/metal_double/include/MetalPerformanceShadersGraph")  # fmt: skip
USERS = ("src/drivers/metal", "agx_guard")
NAME = re.compile(r"\b((?:MTL|MPS)[A-Z]\w+)\b")
PROPERTY = re.compile(r"@property\s*(?:\([^)]*\))?[^;]*?(\w+)\s*(?:NS_\w+\s*)?;")
METHOD = re.compile(r"^[-+]\s*\([^)]*\)([^;{]*);", re.MULTILINE)
ROW = re.compile(r"^\|\s*`([^`]+)`\s*\|\s*(\S[^|]*?)?\s*\|\s*(\S[^|]*?)?\s*\|\s*$")
MEANING = "## What operations mean"
VERSION = re.compile(r"1[0-9](\.\d+)?$")
# Properties whose names C++ members also have: a use counts only when it is a message.
ORDINARY = {"device", "description", "error", "groups", "label", "length", "name", "options", "shape", "size",
            "status", "strides", "type"}  # fmt: skip
INHERITED = {"init", "new"}


@dataclass
class Declared:
    names: set[str] = field(default_factory=set)
    selectors: set[str] = field(default_factory=set)


def without_parentheses(text: str) -> str:
    while True:
        shorter = re.sub(r"\([^()]*\)", " ", text)
        if shorter == text:
            return text
        text = shorter


def selector_of(signature: str) -> str:
    """The selector of a method's declaration, its return type left out."""
    plain = without_parentheses(re.sub(r"\b(?:NS|API|MTL)_\w+", " ", signature))
    parts = re.findall(r"(\w+)\s*:", plain)
    if parts:
        return "".join(part + ":" for part in parts)
    word = re.match(r"\s*(\w+)", plain)
    return word.group(1) if word else ""


def declared(tree: Tree) -> Declared:
    found = Declared()
    for file in tree.cpp():
        if not file.below(*HEADERS):
            continue
        found.names |= set(NAME.findall(file.code))
        found.selectors |= {selector_of(match.group(1)) for match in METHOD.finditer(file.code)}
        found.selectors |= set(PROPERTY.findall(file.code))
    found.selectors -= INHERITED
    return found


def closing(code: str, at: int) -> int:
    depth = 0
    for i in range(at, len(code)):
        depth += {"[": 1, "]": -1}.get(code[i], 0)
        if depth == 0:
            return i
    return len(code)


def outermost(text: str) -> str:
    """The text without what stands in brackets, parentheses and braces."""
    kept, depth = [], 0
    for c in text:
        if c in "([{":
            depth += 1
        kept.append(c if depth == 0 else " ")
        if c in ")]}":
            depth -= 1
    return "".join(kept)


def message(text: str) -> str:
    """The selector of the message in `[text]`; empty if it is none."""
    plain = re.sub(r"\?[^:]*:", " ", outermost(text).replace("::", "  "))
    parts = re.findall(r"(\w+)\s*:", plain)
    if parts:
        return "".join(part + ":" for part in parts)
    words = re.search(r"(\w+)\s*$", plain)
    return words.group(1) if words and len(text.split()) > 1 else ""


def uses(file: File, known: Declared) -> Iterator[tuple[int, str]]:
    code = file.code
    for match in NAME.finditer(code):
        if match.group(1) in known.names:
            yield match.start(), match.group(1)
    for match in re.finditer(r"\[", code):
        selector = message(code[match.end() : closing(code, match.start())])
        if selector in known.selectors:
            yield match.start(), selector
    for match in re.finditer(r"@selector\(([\w:]+)\)", code):
        if match.group(1) in known.selectors:
            yield match.start(), match.group(1)
    if file.suffix == ".mm":
        for match in re.finditer(r"\.(\w+)\b(?!\s*\()", code):
            if match.group(1) in known.selectors - ORDINARY:
                yield match.start(), match.group(1)


def listed(document: File) -> dict[str, tuple[int, str, str]]:
    rows = {}
    for number, line in enumerate(document.lines, 1):
        match = ROW.match(line)
        if match:
            for name in match.group(1).split(" "):
                rows[name] = (number, match.group(2) or "", match.group(3) or "")
    return rows


def users(tree: Tree) -> Iterator[File]:
    return (f for f in tree.cpp() if f.below(*USERS) and not f.is_test and not f.is_bench)


def metal_api(tree: Tree) -> Iterator[Finding]:
    files = list(users(tree))
    if not files:
        return
    document = tree.files.get(DOCUMENT)
    if not document:
        yield Finding(DOCUMENT, 1, "metal-api", "does not exist, but driver or guard use Apple's frameworks")
        return
    known, rows = declared(tree), listed(document)
    seen: set[str] = set()
    for file in files:
        for offset, name in uses(file, known):
            if name not in rows and name not in seen:
                seen.add(name)
                yield Finding(file.path, file.line_of(offset), "metal-api", f"'{name}' is not in {DOCUMENT}")
    meaning = document.text.partition(MEANING)[2]
    for name, (number, page, version) in rows.items():
        # MPSGraph's operations end with their name's argument.
        if name.endswith(":name:") and not re.search(rf"\b{name.split(':')[0]}\b", meaning):
            yield Finding(DOCUMENT, number, "metal-api", f"what '{name}' means is not under '{MEANING}'")
        if name not in known.names and name not in known.selectors:
            yield Finding(DOCUMENT, number, "metal-api", f"'{name}' is in no header of the Metal double")
        if not re.match(r"\[[^\]]+\]\(https://developer\.apple\.com/documentation/", page):
            yield Finding(DOCUMENT, number, "metal-api", f"'{name}' has no documentation page")
        if not VERSION.match(version):
            yield Finding(DOCUMENT, number, "metal-api", f"'{name}' does not say which macOS has it first")


RULES = [metal_api]
