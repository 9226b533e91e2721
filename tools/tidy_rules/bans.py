"""What may not be written, where, and what to write instead."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidy_rules.tree import File, Finding, Tree


def everywhere(file: File) -> bool:
    return True


def ours(file: File) -> bool:
    """All that can use base. Users of heddle.h alone (python, consumer, stress tests) and what stands in for
    macOS (the Metal double) have the standard."""
    outside = ("src/base", "tests/consumer", "tests/stress", "tests/metal_double")
    return file.below("src", "include", "tests", "bench") and not file.below(*outside)


def tests(file: File) -> bool:
    return file.is_test


def product(file: File) -> bool:
    products = ("src", "include", "python", "torch_backend")
    return file.below(*products) and not file.below("src/api") and not file.is_test


def sources(file: File) -> bool:
    return file.below("src", "include", "torch_backend")


@dataclass(frozen=True)
class Ban:
    rule: str
    pattern: re.Pattern[str]
    where: Callable[[File], bool]
    instead: str


LOCKS = (
    r"std::(?:recursive_|shared_|timed_|recursive_timed_|shared_timed_)?mutex\b|std::condition_variable\w*"
)
CPP = [
    Ban("locks", re.compile(LOCKS), ours, "use Guarded<T, Rank> of base/sync.h"),
    Ban("locks", re.compile(r"std::(?:lock_guard|unique_lock|scoped_lock|shared_lock)\b"), ours,
        "use Guarded<T, Rank>::lock()"),
    Ban("locks", re.compile(r"\brecursive_(?:timed_)?mutex\b"), everywhere,
        "a lock is taken once; split the function"),
    Ban("threads", re.compile(r"std::j?thread\b"), ours, "use Thread of base/thread.h, which joins itself"),
    Ban("threads", re.compile(r"(?:\.|->)detach\s*\("), everywhere, "a thread has an owner that joins it"),
    Ban("atomics", re.compile(r"\b(?:std::)?memory_order\w*"), ours,
        "the order is in the name of Atomic<T>'s methods"),
    Ban("atomics", re.compile(r"std::atomic\w*"), ours, "use Atomic<T> of base/atomic.h"),
    Ban("threads", re.compile(r"std::stop_callback\b"), ours,
        "use StopCallback of base/stop_callback.h, whose wait a simulation owns"),
    Ban("sleep", re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\("), tests,
        "wait for the condition itself, or advance a ManualClock"),
    Ban("environment", re.compile(r"\b(?:secure_)?getenv\b"), product, "only src/api reads the environment"),
    Ban("streams", re.compile(r"^\s*(?:const\s+)?(?:\w+::)*Stream\s*&\s*\w+_\s*(?:;|=|\{)", re.MULTILINE),
        sources, "a stream is an argument, never a member"),
]  # fmt: skip
PYTHON = [
    Ban("sleep", re.compile(r"\b(?:time|asyncio)\.sleep\("), tests, "wait for the condition itself"),
]
OWNERLESS = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\([\w.@-]+\))")
FOREIGN = re.compile(r"^\w+:\^?dnnl::|^leak:libobjc\.so|^race:\^std::__exception_ptr::")


def banned(tree: Tree) -> Iterator[Finding]:
    for file in tree.files.values():
        text, bans = (file.code, CPP) if file.is_cpp else (file.text, PYTHON if file.suffix == ".py" else [])
        for ban in bans:
            if ban.where(file):
                for match in ban.pattern.finditer(text):
                    message = f"'{match.group().strip()}': {ban.instead}"
                    yield Finding(file.path, file.line_of(match.start()), ban.rule, message)


def ownerless(tree: Tree) -> Iterator[Finding]:
    for file in tree.files.values():
        if file.below("tools/tidy_rules") or file.path in ("tools/tidy_test.py", "docs/design.md"):
            continue
        for number, line in enumerate(file.lines, 1):
            if OWNERLESS.search(line):
                yield Finding(
                    file.path, number, "to-do", "a marker needs an owner in parentheses, or an issue"
                )


def suppressed(tree: Tree) -> Iterator[Finding]:
    """A sanitizer's report may be silenced for a library we do not build, by its name; never for our code."""
    for file in tree.files.values():
        for number, line in enumerate(file.lines if file.suffix == ".supp" else [], 1):
            if line.strip() and not line.startswith("#") and not FOREIGN.search(line):
                message = f"'{line}' may hide a race of our own: only other libraries' names may stand here"
                yield Finding(file.path, number, "suppressions", message)


RULES = [banned, ownerless, suppressed]
