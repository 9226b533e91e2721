"""Mutable state of the process, forbidden but for a short list; locks and atomics, each of them listed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tidy_rules import scopes
from tidy_rules.tree import File, Finding, Tree

# (folder or file, name pattern, why it may outlive a Runtime). Everything else belongs to a Runtime.
ALLOWED_GLOBALS = [
    ("src/base", r".*", "lock ranks, lock statistics, trace and fork count belong to a process or a thread"),
    ("src/runtime/registry.cpp", r".*", "the per-device registry: the one process state of docs/design.md"),
    ("src/runtime/thread_number.h", r"threads_seen", "numbers the process's threads; orders nothing"),
    (
        "src/runtime/memory/allocator.cpp",
        r"callbacks_of_this_thread",
        "how deep a thread is in pressure callbacks, whichever runtime's",
    ),
    ("src/ir/dim.cpp", r"count", "names for unknown dimensions: unique in the process, in no order"),
    ("src/drivers/cuda/kernels/portable.h", r"on_t\w+", "of a thread of tests/cuda_double; else null"),
    (
        "src/batch/calls/pace.cpp",
        r"innermost|has_turn",
        "a thread's own scope and turn: hosts have one lock a process",
    ),
    ("src/api", r".*", "the thread-local lease, which the API layer alone owns"),
]
QUIET = re.compile(
    r"^\s*(?:\[\[[^\]]*\]\]\s*)*(?:template\b|using\b|typedef\b|class\b|struct\b|union\b"
    r"|enum\b|friend\b|extern\b|namespace\b|static_assert\b|concept\b|TEST_|DOCTEST_"
    r"|HEDDLE_\w+\s*\(|operator\b)"
)
CONSTANT = re.compile(r"\b(?:const|constexpr|consteval)\b")
VARIABLE = re.compile(
    r"^[\w:<>,\s*&\[\]()]*?[\w>*&\]]\s+[*&]*(\w+)\s*(?:\[[^\]]*\]\s*)?(?:=.*|\{.*\}\s*)?$", re.DOTALL
)
LOCAL_STATIC = re.compile(
    r"^[ \t]+(?:static|thread_local)\b(?![^;{(<]*\b(?:const|constexpr|MadeOnce<const)\b)"
    r"(?:\s+(?:static|thread_local))?"
    r"\s+[\w:<>,\s*&]*?[\w>*&]\s*[\s*&](\w+)\s*(?:;|=|\{|\[)",
    re.MULTILINE,
)


def allowed(file: File, name: str) -> bool:
    def covers(place: str) -> bool:
        return file.path == place or file.below(place)

    return any(covers(place) and re.fullmatch(pattern, name) for place, pattern, _ in ALLOWED_GLOBALS)


def mutable_globals(file: File) -> Iterator[tuple[int, str]]:
    found, statements = scopes.parse(file.code)
    for statement in statements:
        text = statement.text.strip()
        head = re.sub(r"<.*>", "<>", re.split(r"[={]", text)[0], flags=re.DOTALL)
        if statement.place != "namespace" or QUIET.match(text) or CONSTANT.search(head):
            continue
        match = VARIABLE.match(text)
        if match and "(" not in head:
            yield statement.begin + len(statement.text) - len(statement.text.lstrip()), match.group(1)
    for scope in found:
        if scope.kind == "function":
            for match in LOCAL_STATIC.finditer(file.code, scope.body, scope.end):
                yield match.start(1), match.group(1)


def process_state(tree: Tree) -> Iterator[Finding]:
    for file in tree.cpp():
        if not file.below("src", "include") or file.is_test:
            continue
        for offset, name in mutable_globals(file):
            if not allowed(file, name):
                message = f"'{name}' is mutable state of the process; let a Runtime own it"
                yield Finding(file.path, file.line_of(offset), "process-state", message)


@dataclass(frozen=True, order=True)
class Lock:
    path: str  # below src/, or of torch_backend
    name: str
    kind: str  # "Guarded" | "SpinGuarded" | "Atomic"; "mutex" | "atomic" in torch_backend, which has no base
    line: int


def after_brackets(code: str, at: int) -> int:
    """The offset behind the `>` that closes the `<` at `at`."""
    depth = 0
    while at < len(code):
        depth += {"<": 1, ">": -1}.get(code[at], 0)
        at += 1
        if depth == 0:
            break
    return at


DECLARED = re.compile(r"[\s>\[\])]*(?:,\s*[\w:]+\s*>+)*\s*(\w+)\s*(?:\[[^\]]*\]\s*)*(?:;|=|\{|,)")


KINDS = {
    "src": re.compile(r"\b(Guarded|SpinGuarded|Atomic)(?=<)"),
    "torch_backend": re.compile(r"\bstd::(atomic(?=<)|(?:shared_)?mutex(?=\s+\w+;))"),
}


def locks(tree: Tree) -> list[Lock]:
    """Members and globals that are or hold a lock or an atomic; locals and parameters are left out."""
    found = []
    for file in tree.cpp():
        kinds = KINDS.get(file.path.split("/")[0])
        if kinds is None or file.is_test or file.is_bench:
            continue
        bodies = [(s.body, s.end) for s in scopes.parse(file.code)[0] if s.kind == "function"]
        for match in kinds.finditer(file.code):
            start = match.start()
            if any(begin < start < end for begin, end in bodies):
                continue
            line_head = file.code[file.code.rfind("\n", 0, start) + 1 : start]
            if re.search(r"\b(?:using|friend|class|struct|template)\b|\($", line_head):
                continue
            at = after_brackets(file.code, match.end()) if file.code[match.end()] == "<" else match.end()
            declared = DECLARED.match(file.code, at)
            if declared:
                path = file.path.removeprefix("src/")
                found.append(Lock(path, declared.group(1), match.group(1), file.line_of(start)))
    return sorted(set(found))


def listed(tree: Tree) -> Iterator[Finding]:
    document = tree.files.get("docs/concurrency.md")
    rows: dict[tuple[str, str], int] = {}
    for number, line in enumerate(document.lines if document else [], 1):
        row = re.match(r"\|\s*`(?:src/)?([\w/]+\.(?:h|cpp))`\s*\|\s*`(\w+)`", line)
        if row:
            rows[row.group(1), row.group(2)] = number
    existing = locks(tree)
    for lock in existing:
        if (lock.path, lock.name) not in rows:
            message = f"{lock.kind} '{lock.name}' has no row in docs/concurrency.md (tools/tidy.py --locks)"
            where = lock.path if lock.path in tree.files else "src/" + lock.path
            yield Finding(where, lock.line, "concurrency", message)
    known = {(lock.path, lock.name) for lock in existing}
    for (path, name), number in rows.items():
        if (path, name) not in known:
            yield Finding(
                "docs/concurrency.md", number, "concurrency", f"src/{path} has no lock or atomic '{name}'"
            )


RULES = [process_state, listed]
