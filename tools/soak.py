"""Soak the library: random threads, models, shapes, cancellations, deadlines and faults, for a bounded time.

usage: soak.py [--seconds N] [--seed N] [--json FILE] [--plot FILE] [--program FILE]

Runs the soak of build/release/stress_test (tests/stress/soak_test.cpp). Each operation is answered once,
with the value of a sequential reference or with an error that it may end with, and no memory is gained: else
the last lines name the seed, which repeats the choices, and this exits with 1. HEDDLE_DEVICE chooses the
device. The figures are JSON, and a picture of throughput and memory over time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "soak"
LOST_S = 600.0  # beyond its seconds: a program that has not ended by then never does
MIB = 1 << 20
CASE = "-tc=a soak*"  # the program's argument


def environment(seconds: float, seed: int, figures: Path) -> dict[str, str]:
    return {
        "HEDDLE_SOAK_SECONDS": str(seconds),
        "HEDDLE_SOAK_SEED": str(seed),
        "HEDDLE_SOAK_JSON": str(figures),
    }


def rates(rounds: list[dict], buckets: int = 60) -> tuple[list[float], list[float]]:
    """Seconds, and operations per second around them: each bucket's over the time that its rounds took."""
    if not rounds:
        return [], []
    width = max(rounds[-1]["at_s"] / buckets, 1e-9)
    operations: dict[int, int] = {}
    took: dict[int, float] = {}
    for each in rounds:
        bucket = int(each["at_s"] / width)
        operations[bucket] = operations.get(bucket, 0) + each["operations"]
        took[bucket] = took.get(bucket, 0.0) + each["took_s"]
    order = sorted(operations)
    return [(n + 0.5) * width for n in order], [operations[n] / max(took[n], 1e-9) for n in order]


def draw(figures: dict, picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rounds = figures["rounds"]
    at = [each["at_s"] for each in rounds]
    drawn, (above, below) = pyplot.subplots(2, 1, figsize=(7, 6), sharex=True, constrained_layout=True)
    above.plot(*rates(rounds), marker=".", linewidth=1)
    above.set(ylabel="operations per second", ylim=(0, None))
    above.set_title(f"soak on {figures['device']}, seed {figures['seed']}, {len(rounds)} rounds", fontsize=10)
    for kind, name in (("rss", "resident"), ("heap", "malloc's, in use"), ("books", "the runtime's books")):
        below.plot(at, [each[kind] / MIB for each in rounds], linewidth=1, label=name)
    below.set(xlabel="seconds", ylabel="MiB after each round", ylim=(0, None))
    below.legend(fontsize=8)
    drawn.savefig(picture, dpi=80)


def told(figures: dict) -> list[str]:
    """What happened, for people."""
    lines = []
    for kind, ends in figures["ends"].items():
        others = ", ".join(f"{count} {end}" for end, count in ends.items() if end not in ("asked", "right"))
        others = others and f"; {others}"
        lines.append(f"{kind:<34} {ends['asked']:>9} asked, {ends['right']:>9} right{others}")
    for name, level in figures["memory"].items():
        growth = (level["last"] - level["usual"]) / MIB
        bound = level["bound"] / MIB
        lines.append(f"{name}: {growth:+.2f} MiB since the warm-up, {bound:.2f} are allowed")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=None, help="otherwise the time's")
    parser.add_argument("--json", type=Path, default=OUT / "soak.json")
    parser.add_argument("--plot", type=Path, default=OUT / "soak.png")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "release" / "stress_test")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else int(time.time()) % 1_000_000
    print(f"soak: seed {seed}, {arguments.seconds:.0f} s", flush=True)
    for path in (arguments.json, arguments.plot):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    command = [str(arguments.program), CASE]
    inside = os.environ | environment(arguments.seconds, seed, arguments.json)
    try:
        limit_s = arguments.seconds + LOST_S
        status = subprocess.run(command, env=inside, check=False, timeout=limit_s).returncode
    except subprocess.TimeoutExpired:
        print(f"soak: seed {seed} has not ended {LOST_S:.0f} s after its time: something waits for ever")
        return 1
    if not arguments.json.exists():  # a filter that matches no test is no failure to doctest
        print(f"soak: {arguments.program} wrote no figures")
        return 1
    if status != 0:
        print(f"soak: seed {seed} failed; soak.py --seed {seed} repeats its choices")
        return 1
    figures = json.loads(arguments.json.read_text(encoding="utf-8"))
    print("\n".join(told(figures)))
    draw(figures, arguments.plot)
    print(f"soak: figures in {arguments.json}, picture in {arguments.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
