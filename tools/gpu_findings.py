"""What the phases of tools/gpu_check.py found, read from their output.

A phase's findings are the JSON of its last line, or what its kind of program says at its end.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

OURS = "heddle_"  # with which the name of each kernel of src/drivers/cuda begins
FOUND = 9  # the exit status of compute-sanitizer that found something
BEGINS = re.compile(r"=+ ((?:Invalid|Uninitialized|Error|Program hit|Warning: Race|Race|Barrier).{0,120})")
KERNELS = (  # as compute-sanitizer of CUDA 12 and 13, and as older ones name the kernel of a finding
    re.compile(r"=+ .*?\bat (?!0x)(.+?)\+0x[0-9a-f]+"),
    re.compile(r"=+ .*?\bat 0x[0-9a-f]+ in (?:\S*:\d+:)?(?:void )?([\w~]+)"),
)


def json_line(log: str) -> dict[str, object]:
    """The last line that is a JSON object."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                return {}
    return {}


def facts_of(log: str) -> dict[str, object]:
    """What heddle doctor says, and the version of NVIDIA's driver."""
    driver = re.search(r"Driver Version: (\S+)", log)
    kept = ("device", "versions", "facts", "risks", "missing_devices", "verdict")
    told = {name: value for name, value in json_line(log).items() if name in kept}
    return told | ({"driver": driver[1]} if driver else {})


def doctest(log: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for kind in ("test cases", "assertions"):
        counted = re.search(rf"{kind}: +(\d+) \| +(\d+) passed \| +(\d+) failed", log)
        if counted:
            total, passed, failed = map(int, counted.groups())
            found[kind] = {"total": total, "passed": passed, "failed": failed}
    ended = re.findall(r"^\d+\.\d+ s: (.+)$", log, re.MULTILINE)
    if ended:
        found["ended"] = ended
    failed_cases = list(dict.fromkeys(re.findall(r"^TEST CASE:  (.+)$", log, re.MULTILINE)))
    return found | ({"said something": failed_cases} if failed_cases else {})


def kernel_of(lines: list[str]) -> str:
    """The first kernel that a finding's lines name; "" for one that names none."""
    for line in lines:
        for pattern in KERNELS:
            named = pattern.match(line)
            if named:
                return re.sub(r"^void |[(<].*", "", named[1])
    return ""


def split_findings(log: str) -> list[tuple[str, str]]:
    """Each finding of compute-sanitizer: what it is, and the kernel."""
    found: list[list[str]] = []
    for line in log.splitlines():
        if BEGINS.match(line):
            found.append([line])
        elif found and re.match(r"=+ {5}", line):
            found[-1].append(line)
    kinds = [re.sub(r" (between .*|at .*)", "", BEGINS.match(lines[0])[1]) for lines in found]
    return [(kind, kernel_of(lines)) for kind, lines in zip(kinds, found, strict=True)]


def sanitizer(log: str) -> dict[str, object]:
    """Findings in kernels that are not ours are told apart; what names no kernel counts as ours."""
    summary = re.findall(r"=+ (?:ERROR|RACECHECK) SUMMARY: (?!.*not printed)(.+)", log)
    counted = Counter(split_findings(log))
    told: dict[str, list[str]] = {"ours": [], "of others": []}
    for (kind, kernel), times in counted.most_common():
        side = "of others" if kernel and not kernel.startswith(OURS) else "ours"
        told[side].append(f"{kind} in {kernel or 'no kernel'}, {times} x")
    cut = bool(re.search(r"=+ .*\bnot printed", log))
    return doctest(log) | {"summary": summary[-1:], **told} | ({"some were not printed": True} if cut else {})


def sanitizer_passes(code: int | None, findings: dict[str, object]) -> bool:
    """Also where all that was found is of others' kernels, and no case failed."""
    if code == 0:
        return True
    cases = findings.get("test cases", {"passed": 0, "failed": 0})
    right = cases["failed"] == 0 and cases["passed"] > 0
    others_only = findings["of others"] and not findings["ours"] and "some were not printed" not in findings
    return code == FOUND and right and bool(others_only)


def pytest_end(log: str) -> dict[str, object]:
    return {"pytest": (log.strip().splitlines() or [""])[-1].strip("= ")}


def read_json(path: Path) -> dict[str, object]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
