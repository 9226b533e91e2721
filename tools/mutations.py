"""What tools/mutate.py changes in a line of the library, what it draws, and how the count is read."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

Rule = tuple[str, re.Pattern[str], str]
Place = tuple[str, str, str, str]
RULES: list[Rule] = [
    # To what Atomic has.
    ("order", re.compile(r"\b(load|store|add|sub|read_on)_(?:acquire|release|acq_rel|seq_cst)\("),
     r"\1_relaxed("),
    ("order", re.compile(r"\b(cas_strong|and|or)_seq_cst\("), r"\1_acq_rel("),
    # The pointer stays, and the lock ends with the expression.
    ("lock", re.compile(r"(?<=auto )(\w+) = ([\w>.()-]+\.lock\(\));"), r"\1 = &*\2;"),
    ("comparison", re.compile(r" == "), " != "),
    ("comparison", re.compile(r" != "), " == "),
    ("comparison", re.compile(r" < "), " <= "),
    ("comparison", re.compile(r" > "), " >= "),
    ("comparison", re.compile(r" <= "), " < "),
    ("comparison", re.compile(r" >= "), " > "),
    ("notify", re.compile(r"[\w.>()-]+notify_(?:one|all)\(\);"), "{}"),
    ("logic", re.compile(r" && "), " || "),
    ("logic", re.compile(r" \|\| "), " && "),
    ("off by one", re.compile(r" \+ 1\b(?!\.)"), " + 2"),
    ("off by one", re.compile(r" - 1\b(?!\.)"), " - 2"),
]  # fmt: skip
KINDS = tuple(dict.fromkeys(kind for kind, _, _ in RULES))
# Comments, strings, templates' heads and what only the compiler sees hold no step of the program, and room
# that is asked for early changes no result.
LEFT_OUT = re.compile(
    r"^\s*(?://|#|\*|template\b|static_assert\b)|\boperator\b|\bstatic_assert\(|\breserve\("
)
# Behind "they differ", "less" and "at most" are the same.
UNEQUAL = re.compile(r"if \((\S+) != (\S+)\) return \1( [<>] )\2;")
# What holds where the simulations run: Linux on x86-64.
COMPILED = {"defined(__linux__)": True, "!defined(__linux__)": False, "defined(__APPLE__)": False,
            "defined(__aarch64__)": False}  # fmt: skip
VERDICTS = ("killed", "survived", "explained", "does not compile")


@dataclass
class Mutation:
    path: str
    line: int  # from 1
    kind: str
    before: str
    after: str
    above: str = ""  # the line before it
    verdict: str = ""  # one of VERDICTS
    by: str = ""  # the program that noticed, and how, or why none can
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.before.strip()}  ->  {self.after.strip()}"

    def place(self) -> Place:
        """What it is wherever its line lies: the same line is often in a file twice."""
        return self.path, self.above.strip(), self.before.strip(), self.after.strip()


def code_of(line: str) -> str:
    """The line with comments and strings blanked, so that columns stay."""
    blanked = re.sub(r'"(?:\\.|[^"\\])*"', lambda found: " " * len(found.group()), line)
    at = blanked.find("//")
    return blanked if at < 0 else blanked[:at] + " " * (len(blanked) - at)


def compiled(lines: Sequence[str]) -> Iterator[bool]:
    """Of each line, whether it is, as far as the conditions around it are of COMPILED."""
    branches: list[tuple[bool, bool]] = []  # is compiled, and whether one of its #if is known to be
    for line in lines:
        words = line.strip().split(maxsplit=1) or [""]
        if words[0] in ("#if", "#ifdef", "#ifndef"):
            known = COMPILED.get(words[-1])
            branches.append((known is not False, known is True))
        elif words[0] in ("#elif", "#else") and branches:
            taken = branches.pop()[1]
            known = COMPILED.get(words[-1]) if words[0] == "#elif" else None
            branches.append((not taken and known is not False, taken or known is True))
        elif words[0] == "#endif" and branches:
            branches.pop()
        yield all(is_there for is_there, _ in branches)


def mutations_of(path: str, text: str) -> Iterator[Mutation]:
    lines = text.splitlines()
    there = compiled(lines)
    for number, (above, line) in enumerate(zip(["", *lines], lines, strict=False), 1):
        if not next(there) or LEFT_OUT.search(line):
            continue
        code = code_of(line)
        unequal = UNEQUAL.search(code)
        for kind, pattern, instead in RULES:
            for found in pattern.finditer(code):
                if unequal and found.span() == unequal.span(3):
                    continue
                after = line[: found.start()] + found.expand(instead) + line[found.end() :]
                if after != line:
                    yield Mutation(path, number, kind, line, after, above)


def choose(found: Sequence[Mutation], count: int, seed: int) -> list[Mutation]:
    """As many, each as likely as any other: the first ones of a choice are a fair choice, too."""
    return random.Random(seed).sample(found, min(count, len(found)))


def explanations(file: Path) -> dict[Place, str]:
    """Survivors that no test can kill: path, line above, line, changed line and reason, between tabs."""
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    for row in rows:
        if len(row) != 5 or not (row[0] and row[2] and row[3] and row[4]):
            raise ValueError(
                f"{file.name}: path, line above, line, changed line and reason between tabs: {row}"
            )
    return {(path, above, before, after): reason for path, above, before, after, reason in rows}


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share that was seen as `hits` of `tries`."""
    if tries == 0:
        return 0.0, 1.0
    z = 1.959964
    share, spread = hits / tries, z * z / tries
    middle = share + spread / 2
    width = z * math.sqrt(share * (1 - share) / tries + spread / (4 * tries))
    return max(0.0, (middle - width) / (1 + spread)), min(1.0, (middle + width) / (1 + spread))


def summary(judged: Sequence[Mutation]) -> dict:
    """The counts, and the share of the killed: among all that compiled, and without the explained ones."""
    verdicts = {word: sum(each.verdict == word for each in judged) for word in VERDICTS}
    killed, open_ones = verdicts["killed"], verdicts["killed"] + verdicts["survived"]
    scores = {}
    for name, tries in (("of all", open_ones + verdicts["explained"]), ("without explained", open_ones)):
        low, high = wilson(killed, tries)
        scores[name] = {"killed": killed, "of": tries, "share": round(killed / tries, 4) if tries else None,
                        "low": round(low, 4), "high": round(high, 4)}  # fmt: skip
    return {"verdicts": verdicts, "scores": scores, "mutations": [asdict(each) for each in judged]}
