"""Where functions, classes and namespaces begin and end in C++ code: brace matching on blanked text."""

import re
from dataclasses import dataclass

CONTROL = re.compile(r"^\s*(?:namespace|inline\s+namespace|extern\s*\"\s*\")")
TYPE = re.compile(
    r"(?:^|[\s>)])(?:class|struct|union|enum)\b(?![^{]*\)\s*(?:const|noexcept|override|->|\{|$))"
)
MEMBER_INIT = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:).*[\w>]\s*$", re.DOTALL)


@dataclass(frozen=True)
class Scope:
    kind: str  # "namespace" | "type" | "function" | "value"
    head: str  # the text before the brace
    begin: int  # where the head starts
    body: int  # where the brace is
    end: int  # where the closing brace is


@dataclass(frozen=True)
class Statement:
    """A declaration that ends in a semicolon, outside of functions."""

    text: str
    begin: int
    place: str  # "namespace" | "type"


def without_arguments(head: str) -> str:
    """Empties parentheses, so that a default argument is not taken for an assignment."""
    before = ""
    while before != head:
        before, head = head, re.sub(r"\([^()]*\)", "\0", head)
    return head.replace("\0", "()")


def kind_of(head: str) -> str:
    bare = re.sub(r"^\s*(?:template\s*<[^{}]*?>\s*(?=\S))+", "", head)
    if CONTROL.match(bare):
        return "namespace"
    if TYPE.search(bare) and not re.search(r"\)\s*(?:const|noexcept|override|final|&|\s)*$", bare):
        return "type"
    bare = re.sub(r"operator\s*[^\w\s(]+", "operator", without_arguments(bare))
    assigned = re.search(r"(?<![=!<>+\-*/&|^])=(?!=)", bare)
    if "(" in bare and not assigned:
        return "function"
    return "value"


def close_of(code: str, brace: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, brace):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    return len(code) - 1


def parse(code: str) -> tuple[list[Scope], list[Statement]]:
    """All scopes that are not inside a function, and the statements of namespaces and types."""
    scopes: list[Scope] = []
    statements: list[Statement] = []
    stack = [("namespace", len(code))]
    begin = at = 0
    marks = re.compile(r"[{};]|(?:public|private|protected)\s*:(?!:)")
    while match := marks.search(code, at):
        at = match.end()
        mark = match.group()
        if mark == ";":
            if code[begin : at - 1].strip():
                statements.append(Statement(code[begin : at - 1], begin, stack[-1][0]))
            begin = at
        elif mark == "}":
            if len(stack) > 1:
                stack.pop()
            begin = at
        elif mark == "{":
            head = code[begin : match.start()]
            if MEMBER_INIT.search(head) or head.count("(") > head.count(")"):
                at = close_of(code, match.start()) + 1
                continue
            kind = kind_of(head)
            end = close_of(code, match.start())
            scopes.append(Scope(kind, head, begin + len(head) - len(head.lstrip()), match.start(), end))
            if kind in ("namespace", "type"):
                stack.append((kind, end))
                begin = at
            else:
                at = end + 1
                begin = begin if kind == "value" else at
        else:
            begin = at
    return scopes, statements
