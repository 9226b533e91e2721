"""How many test cases passed and failed, from what the test programs report."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Count:
    passed: int = 0
    failed: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.passed + other.passed, self.failed + other.failed)


DOCTEST = re.compile(r"test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")


def count_doctest(junit: Path) -> Count:
    """Test cases of all executables. One that died without its closing line, or ran none, is one failure."""
    total = Count()
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        bad = case.get("status") != "run"
        closing = DOCTEST.findall(re.sub(r"\x1b\[[0-9;]*m", "", case.findtext("system-out") or ""))
        bad = bad or (bool(closing) and closing[-1][0] == "0")
        if closing:
            total.passed += int(closing[-1][1])
            total.failed += int(closing[-1][2])
        if not closing or (bad and int(closing[-1][2]) == 0):
            total.failed += bad
            total.passed += not bad
    return total


def count_pytest(junit: Path, allowed: set[str]) -> tuple[Count, list[str]]:
    """A skipped test counts as neither when its reason is allowed; otherwise as failed, and is named."""
    total, refused = Count(), []
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            total.failed += 1
        elif skipped is None:
            total.passed += 1
        elif skipped.get("message") not in allowed:
            total.failed += 1
            why = skipped.text if skipped.get("message") == "collection skipped" else skipped.get("message")
            name = f"{case.get('classname')}::{case.get('name')}".removeprefix("::")
            refused.append(f"FAILED {name}: skipped for a reason that tools/skips.py does not allow: {why}")
    return total, refused
