"""Run a command with the Python module of the preset sim, whose library lets tests plan faults of the
simulated device (src/api/sim_hooks.h).

usage: python_simulated.py COMMAND [ARGUMENT...]

Builds what has changed, into build/sim. Threads are real ones there.
"""

import os
import subprocess
import sys

from python_sanitized import build
from torch_sanitized import ROOT


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # heddle-torch's libheddle is another
    inside = {**os.environ, "PYTHONPATH": str(build("sim"))}
    return subprocess.run(sys.argv[1:], cwd=ROOT, env=inside, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
