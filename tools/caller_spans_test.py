"""bench/cuda/caller_spans.py over traces whose rounds are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent / "bench" / "cuda" / "caller_spans.py"


def event(category: str, name: str, begin: float, end: float, thread: int) -> dict:
    return {"name": name, "cat": category, "ph": "X", "ts": begin, "dur": end - begin, "tid": thread}


def told_of(tmp_path: Path, rounds: int) -> subprocess.CompletedProcess:
    events = [{"name": "process_name", "ph": "M", "args": {"name": "heddle"}}]
    for i in range(rounds):
        at = 40.0 * i
        events.append(event("batch", "run", at, at + 33, 1 + i % 2))
        events.append(event("cuda", "submit", at + 4, at + 7, 1 + i % 2))
        events.append(event("cuda", "submit", at + 5, at + 6, 3))  # another caller's
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    command = [sys.executable, str(TOOL), str(trace), "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_parts_of_a_round_are_those_of_its_leader(tmp_path):
    told = json.loads(told_of(tmp_path, 61).stdout)
    assert told == {"rounds": 10, "before": 4.0, "submission": 3.0, "published": 26.0, "next": 7.0}


def test_a_trace_of_too_few_rounds_is_refused_in_words(tmp_path):
    done = told_of(tmp_path, 51)
    assert done.returncode == 1
    assert "no more than 50 rounds" in done.stderr
