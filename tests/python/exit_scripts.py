"""Scripts whose end is watched, each in a process of its own."""

import subprocess
import sys

# start(call): eight daemon threads that make the call for ever; it returns when they have made 32.
START = """
import threading

def start(call):
    calls = threading.Semaphore(0)
    def work():
        while True:
            call()
            calls.release()
    for _ in range(8):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(32):
        calls.acquire()
"""


def run(program: str, code: int = 42, timeout: float = 60) -> str:
    """What the program leaves on standard error."""
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr
