"""Run a test program; one that hangs ends with the stacks of all its threads instead of in silence.

usage: watched.py LIMIT COMMAND [ARGUMENT...]

LIMIT is in seconds. Exits with the command's own code (128 + the signal that ended it), or 124 after the
limit.
Without gdb on the machine the kernel's view of each thread is printed.
"""

import shutil
import subprocess
import sys
from pathlib import Path


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def kernel_view(pid: int) -> str:
    if sys.platform == "darwin":
        return subprocess.run(["sample", str(pid), "1"], capture_output=True, text=True, check=False).stdout
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
        name, waits = (task / "comm").read_text().strip(), (task / "wchan").read_text()
        lines.append(f"{task.name} {name}: {waits or 'running'}")
    return "\n".join(lines)


def stacks(pid: int) -> str:
    gdb = shutil.which("gdb")
    if gdb is None:
        return kernel_view(pid)
    command = [gdb, "-p", str(pid), "-batch", "-nx", "-ex", "set debuginfod enabled off",
               "-ex", "thread apply all backtrace 40"]  # fmt: skip
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return kernel_view(pid)
    return shown.stdout if "#0" in shown.stdout else kernel_view(pid)


def main() -> int:
    limit, command = float(sys.argv[1]), sys.argv[2:]
    test = subprocess.Popen(command)
    try:
        code = test.wait(timeout=limit)
        return code if code >= 0 else 128 - code
    except subprocess.TimeoutExpired:
        pass
    hanging = [test.pid, *children(test.pid)]
    for pid in hanging:
        print(f"== process {pid} still runs after {limit:.0f} s", stacks(pid), sep="\n", flush=True)
    for pid in reversed(hanging):
        subprocess.run(["kill", "-KILL", str(pid)], check=False)
    test.wait()
    print(f"== {' '.join(command)}: killed after {limit:.0f} s; the stacks of its threads stand above")
    return 124


if __name__ == "__main__":
    sys.exit(main())
