"""What of a failed stage's output a person reads first."""

import re
from pathlib import Path

CAUSE = re.compile(
    r"error:|ERROR|SUMMARY|FAILED|Failed|Fatal|WARNING: Thread|^\[doctest\] test cases|^E  |^    #\d |"
    r"^== |^Thread \d|^#\d+ "  # of tools/watched.py
)


def telling_lines(output: Path) -> list[str]:
    """The lines that name a cause, wherever they stand, and the end of the output."""
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    causes = [line for line in lines[:-20] if CAUSE.search(line)]
    return causes[:60] + ["..."] * bool(causes) + lines[-20:]
