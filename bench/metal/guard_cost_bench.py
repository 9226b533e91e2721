"""Question  what does libagx_guard add to a call on an encoder?
Read as   ns of processor time a call, with the guard less without, by rounds: one thread; eight threads with
          an encoder each; eight that share one encoder, which the guard has to order. On the double of
          Apple's driver, where the message itself costs a few ns. Bars: 25 ns alone, 100 ns with eight
          threads.
Checked   agx_guard_bench says whether the guard is active; both kinds of runs have to be what they claim.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "models"))
from ratios import arguments, show, spread, write  # noqa: E402

BUILD = ROOT / "build" / "release"
GUARD = BUILD / "guard"
BARS = {"alone": 25, "own": 100, "shared": 100}


def build() -> None:
    for step in (["cmake", "--preset", "metal-double"],
                 ["cmake", "--build", str(BUILD), "--target", "agx_guard_bench", "agx_guard", "AGXMetalG16X"],
                 ):  # fmt: skip
        subprocess.run(step, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def costs(guarded: bool) -> dict[str, float]:
    environment = dict(os.environ)
    if guarded:
        environment["LD_PRELOAD"] = str(GUARD / "libagx_guard.so")
    done = subprocess.run(
        [GUARD / "agx_guard_bench", "8", "50"], env=environment, capture_output=True, text=True, check=True
    )
    figures = json.loads(done.stdout)
    if figures["guard"] != guarded:
        raise SystemExit(f"agx_guard_bench says guard: {figures['guard']}, it was run with {guarded}")
    return {name: figures[name]["cpu_ns"] for name in BARS}


def main() -> int:
    options = arguments(__doc__)
    build()
    added: dict[str, list[float]] = {name: [] for name in BARS}
    for _ in range(options.rounds):
        bare, guarded = costs(False), costs(True)
        for name in BARS:
            added[name].append(guarded[name] - bare[name])
    for name, bar in BARS.items():
        show(f"guard, {name}", spread(added[name]), "ns a call", f"bar: {bar}")
    write(options.json, {"added_ns": added, "bars_ns": BARS})
    return 0


if __name__ == "__main__":
    sys.exit(main())
