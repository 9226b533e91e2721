"""What headers declare: types, selectors, enumerators, functions, read from what clang dumps of them."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FRAMEWORKS = ("Foundation", "Metal", "MetalPerformanceShaders", "MetalPerformanceShadersGraph")

LINE = re.compile(r"([| ]*)[|`]-(\w+) ?(.*)")
TYPES = r"'([^']*)'(?::'([^']*)')?"
METHOD = re.compile(r"(implicit )?([-+]) (\S+) " + TYPES)
NAMED = re.compile(r"(\w+) " + TYPES + r"(.*)")
TYPED = re.compile(TYPES)
MACOS = re.compile(r"> macos ([\d.]+) ([\d.]+) ")
VALUE = re.compile(r"-value: Int (-?\d+)")
QUALIFIER = re.compile(r"__attribute__\(\((?:nothrow|noescape)\)\)|\b(?:_Nonnull|_Nullable|_Null_unspecified|"
                       r"__strong|__autoreleasing|__unsafe_unretained|NS_RETURNS_RETAINED)\b")  # fmt: skip
KEPT = {"ObjCProtocolDecl", "ObjCInterfaceDecl", "ObjCCategoryDecl", "ObjCMethodDecl", "ObjCPropertyDecl",
        "ParmVarDecl", "EnumDecl", "EnumConstantDecl", "FunctionDecl", "VarDecl", "TypedefDecl", "FieldDecl",
        "CXXRecordDecl", "LinkageSpecDecl"}  # fmt: skip
# Of a property; what else is dumped about it follows from these.
ATTRIBUTES = ("readonly", "copy", "retain", "strong", "weak", "assign", "atomic", "nonatomic", "class")


def plain(text: str) -> str:
    """A type without what says nothing of its size and class."""
    text = " ".join(QUALIFIER.sub(" ", text).split())
    return re.sub(r"\s*([*<>(),&^])\s*", r"\1", text)


def number(version: str) -> list[int]:
    parts = [int(part) for part in version.split(".")]
    return parts + [0] * (3 - len(parts))


def later(one: str, other: str) -> str:
    """Of what holds a member and the member: it is there when both are."""
    return max(one, other, key=number) if other else one


@dataclass
class Member:
    """A method, a property or its accessor."""

    result: str
    parameters: list[str] = field(default_factory=list)
    attributes: frozenset[str] = frozenset()
    designated: bool = False
    unavailable: bool = False
    implicit: bool = False
    version: str = ""

    def signature(self) -> str:
        return f"{self.result}({', '.join(self.parameters)})"


@dataclass
class Type:
    """A class or a protocol, with what its categories add."""

    protocol: bool
    above: str = ""
    protocols: set[str] = field(default_factory=set)
    members: dict[str, Member] = field(default_factory=dict)
    version: str = ""


@dataclass
class Declared:
    types: dict[str, Type] = field(default_factory=dict)
    enumerators: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(
        default_factory=dict
    )  # functions, variables, type names, structs: their type
    versions: dict[str, str] = field(default_factory=dict)  # of enumerators and names
    inherited: set[str] = field(default_factory=set)  # enumerators whose version is their enumeration's

    def ancestry(self, name: str) -> Iterator[str]:
        """The type and all that it inherits from or conforms to."""
        waiting, seen = [name], set()
        while waiting:
            at = waiting.pop(0)
            if at in seen or at not in self.types:
                continue
            seen.add(at)
            yield at
            found = self.types[at]
            waiting += [*([found.above] if found.above else []), *sorted(found.protocols)]

    def member(self, name: str, key: str) -> Member | None:
        above = (self.types[each].members for each in self.ancestry(name))
        return next((members[key] for members in above if key in members), None)


@dataclass
class Node:
    kind: str
    text: str
    into: object = None
    version: str = ""  # its own, or that of what holds it
    last: int = -1  # of an enumeration: the latest value
    name: str = ""


class Reader:
    """Takes the lines of a dump in order. Declarations only: no bodies, no expressions but constants."""

    def __init__(self) -> None:
        self.found = Declared()
        self.stack: list[Node] = []

    def take(self, line: str) -> None:
        match = LINE.match(line)
        if not match:
            return
        depth = len(match.group(1)) // 2
        if depth > len(self.stack):
            self.value_of(line, depth)
            return
        del self.stack[depth:]
        kind, text = match.group(2), match.group(3)
        if kind in KEPT:
            version = self.stack[-1].version if self.stack else ""
            node = Node(kind, text, version=version)
            self.declaration(node)
            self.stack.append(node)
        elif self.stack:
            self.attribute(self.stack[-1], kind, text)

    def value_of(self, line: str, depth: int) -> None:
        """The constant below an enumerator, which its `value` line states."""
        if self.stack and depth == len(self.stack) + 1 and self.stack[-1].kind == "EnumConstantDecl":
            found = VALUE.search(line)
            if found:
                self.set_value(int(found.group(1)))

    def set_value(self, value: int) -> None:
        self.found.enumerators[self.stack[-1].name] = value
        self.stack[-2].last = value

    def declaration(self, node: Node) -> None:
        parent = self.stack[-1] if self.stack else None
        text = node.text
        if node.kind in ("ObjCProtocolDecl", "ObjCInterfaceDecl"):
            node.name = text.split()[-1]
            protocol = node.kind == "ObjCProtocolDecl"
            name = f"<{node.name}>" if protocol else node.name
            node.into = self.found.types.setdefault(name, Type(protocol))
        elif node.kind == "ObjCMethodDecl" and parent and isinstance(parent.into, Type):
            self.method(node, parent.into)
        elif node.kind == "ObjCPropertyDecl" and parent and isinstance(parent.into, Type):
            self.property(node, parent.into)
        elif node.kind == "ParmVarDecl" and parent and isinstance(parent.into, Member):
            types = TYPED.search(text)
            if types:
                parent.into.parameters.append(plain(types.group(2) or types.group(1)))
        elif node.kind == "EnumConstantDecl" and parent:
            self.enumerator(node, parent)
        elif node.kind in ("FunctionDecl", "VarDecl", "TypedefDecl"):
            match = NAMED.search(text)
            if match and (parent is None or parent.kind == "LinkageSpecDecl"):
                node.name = match.group(1)
                self.found.names.setdefault(node.name, plain(match.group(3) or match.group(2)))
                if match.group(2) == f"struct {node.name}" and "struct" in self.found.names:
                    self.found.names[f"struct {node.name}"] = self.found.names.pop("struct")
        elif node.kind == "CXXRecordDecl":
            struct = re.search(r"\bstruct( \w+)? definition", text)
            node.name = "struct" + (struct.group(1) or "") if struct and not parent else ""
            self.found.names.pop("struct", None)  # until a typedef names it
        elif node.kind == "FieldDecl" and parent and parent.name:
            match = NAMED.search(text)
            if match:
                own = f"{plain(match.group(3) or match.group(2))} {match.group(1)};"
                self.found.names[parent.name] = self.found.names.get(parent.name, "") + own
        if node.version:
            self.dated(node, node.version)

    def method(self, node: Node, type_: Type) -> None:
        match = METHOD.search(node.text)
        if match:
            node.name = match.group(2) + match.group(3)
            member = Member(plain(match.group(5) or match.group(4)), implicit=bool(match.group(1)))
            if node.name not in type_.members or type_.members[node.name].implicit:
                type_.members[node.name] = member
            node.into = member

    def property(self, node: Node, type_: Type) -> None:
        match = NAMED.search(node.text)
        if match:
            said = frozenset(word for word in match.group(4).split() if word in ATTRIBUTES)
            node.name = "@" + match.group(1)
            node.into = type_.members[node.name] = Member(
                plain(match.group(3) or match.group(2)), attributes=said
            )

    def enumerator(self, node: Node, parent: Node) -> None:
        match = NAMED.search(node.text)
        if match:
            node.name = match.group(1)
            parent.last += 1  # unless the constant below says otherwise
            self.found.inherited.add(node.name)  # unless it has a version
            self.found.enumerators[node.name] = parent.last

    def attribute(self, node: Node, kind: str, text: str) -> None:
        if kind == "AvailabilityAttr":
            macos = MACOS.search(text)
            if macos and macos.group(1) != "0":
                self.dated(node, later(macos.group(1), self.stack[-2].version if self.stack[1:] else ""))
                self.found.inherited.discard(node.name)
        elif kind == "ObjCInterface" and node.kind == "ObjCCategoryDecl":
            quoted = text.split("'")[1]
            node.name = quoted
            node.into = self.found.types.setdefault(quoted, Type(False))
        elif kind == "super" and isinstance(node.into, Type):
            node.into.above = text.split("'")[1]
        elif kind == "ObjCProtocol" and isinstance(node.into, Type):
            node.into.protocols.add(f"<{text.split(chr(39))[1]}>")
        elif isinstance(node.into, Member):
            node.into.designated |= kind == "ObjCDesignatedInitializerAttr"
            node.into.unavailable |= kind == "UnavailableAttr"

    def dated(self, node: Node, version: str) -> None:
        node.version = version
        if isinstance(node.into, Member) or (isinstance(node.into, Type) and node.kind != "ObjCCategoryDecl"):
            node.into.version = version
        elif node.name and node.kind != "ObjCCategoryDecl":
            self.found.versions[node.name] = version


def read(lines: Iterable[str]) -> Declared:
    reader = Reader()
    for line in lines:
        reader.take(line)
    return reader.found


def dump(compiler: str, flags: list[str], folder: Path) -> Declared:
    """What the frameworks' headers declare under these flags. Raises ValueError with the compiler's words."""
    source = folder / "all_headers.mm"
    source.write_text("".join(f"#import <{name}/{name}.h>\n" for name in FRAMEWORKS)
                      + "#include <dispatch/dispatch.h>\n", encoding="utf-8")  # fmt: skip
    command = [
        compiler,
        *flags,
        "-fsyntax-only",
        "-fno-color-diagnostics",
        "-Xclang",
        "-ast-dump",
        str(source),
    ]
    errors = folder / "errors.txt"
    with errors.open("w") as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said,
                                                    text=True, errors="replace") as clang:  # fmt: skip
        assert clang.stdout is not None
        found = read(clang.stdout)
    if clang.returncode != 0:
        lines = errors.read_text(errors="replace").splitlines()
        told = [line for line in lines if "error:" in line]
        raise ValueError("\n".join(told[:5] or lines[:5]))
    return found
