"""What tools/watched.py gives back: the command's own end, or the stacks of one that hangs."""

import subprocess
import sys
from pathlib import Path

import pytest

WATCHED = Path(__file__).with_name("watched.py")


def watched(limit: str, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(WATCHED), limit, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(("code", "status"), [
    ("pass", 0),
    ("raise SystemExit(7)", 7),
    ("import os; os.abort()", 128 + 6),
])  # fmt: skip
def test_a_command_that_ends_gives_its_own_code(code: str, status: int) -> None:
    assert watched("60", code).returncode == status


def test_a_command_that_hangs_is_killed_and_shows_where_it_was() -> None:
    ended = watched("1", "import os, signal; print(os.getpid(), flush=True); signal.pause()")
    assert ended.returncode == 124
    pid = ended.stdout.split()[0]
    assert f"process {pid} still runs after 1 s" in ended.stdout
    assert "pause" in ended.stdout
    assert not Path(f"/proc/{pid}").exists()
