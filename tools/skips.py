"""For which reasons a test may be skipped on this machine."""

import shutil
import subprocess
import sys
from pathlib import Path

from broken_layers import namespace

NO_MOUNTS = "no mounts in a namespace here, which take Linux and root"


def allowed_skips() -> set[str]:
    """The reasons for which a test may be skipped on this machine: what it shows is not there, by design."""
    allowed = {"this Python has a GIL"}
    if "avx512_bf16" not in processor():
        allowed.add("this processor has no bf16 instructions")
    if not can_mount():
        allowed.add(NO_MOUNTS)
    if sys.platform == "darwin":
        # Of torch_backend/tests/test_batching.py, and of what runs on the doubles of Apple's frameworks.
        allowed |= {"there is one", "needs cmake --build --preset metal-double", "there is no CUDA there"}
    return allowed


def can_mount() -> bool:
    if shutil.which(namespace()[0]) is None:
        return False
    command = [*namespace(), "mount", "-t", "tmpfs", "none", "/tmp"]
    return subprocess.run(command, capture_output=True).returncode == 0


def processor() -> str:
    described = Path("/proc/cpuinfo")
    return described.read_text(encoding="utf-8") if described.exists() else ""
