"""How a tool that judges cases ends: what check.py's judged stages read, the last line, the exit code."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path


def tell_verdict(told: Mapping[str, Sequence[str]], path: Path | None) -> int:
    """`told`: what is wrong with each case, nothing where it is right; also into the file. The exit code."""
    bad = sum(bool(wrong) for wrong in told.values())
    if path is not None:
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print(f"{len(told) - bad} passed, {bad} failed")
    return 1 if bad else 0
