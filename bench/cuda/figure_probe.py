"""The probe beside which bench/cuda/figure.py holds Heddle's callers: a program of its own, built elsewhere.

FIGURE_PROBE names it. It is asked for one number of callers at a time, as callers:window:lanes:..., and
answers with one line, which has its rows/s and how many of its answers were wrong.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

NAMED_BY = "FIGURE_PROBE"
BAR = 0.8
# (callers, outstanding of each, how the probe is asked): of several ways the one with the most rows counts.
CASES = (
    (8, 0, ("8:1:1",)),
    (16, 0, ("16:1:1", "16:1:2")),
    (64, 0, ("64:1:4",)),
    (128, 0, ("128:1:4:0:8",)),
    (256, 0, ("256:1:4:0:8",)),
    (64, 8, ("64:8:4:1:4",)),
)
LIMIT_S = 60.0  # it gives up by itself after 5 s without an answer
TOLD = re.compile(r"callers +(\d+) x (\d+),.*: +(\d+) rows/s .*\| wrong (\d+)$")


class Refused(Exception):
    """The probe gave no figure, or one that does not count; what it said."""


def program() -> Path | None:
    named = os.environ.get(NAMED_BY)
    return Path(named) if named else None


def rate_in(said: str, asked: str) -> float:
    """Rows a second in the line that answers this. Refused: there is none, or answers were wrong."""
    callers, window = asked.split(":")[:2]
    for line in said.splitlines():
        told = TOLD.fullmatch(line.strip())
        if told and told.group(1, 2) == (callers, window):
            if told[4] != "0":
                raise Refused(f"the probe, {asked}: {told[4]} answers are wrong")
            return float(told[3])
    raise Refused(f"the probe, {asked}: {said.strip()[-200:] or 'it said nothing'}")


def rate(path: Path, asked: str) -> float:
    try:
        done = subprocess.run(
            [path.resolve(), asked], capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"the probe, {asked}: {error}") from error
    if done.returncode != 0:
        raise Refused(
            f"the probe, {asked}: ended with {done.returncode}: {(done.stdout + done.stderr)[-200:]}"
        )
    return rate_in(done.stdout, asked)
