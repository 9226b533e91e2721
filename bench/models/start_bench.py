"""Question  how soon does MiniLM answer after its file is opened, and what does the process weigh under load?
Read as   seconds from opening the file to the first answer, in a fresh process whose libraries are imported;
          resident memory of the process after 16 threads made 20 calls each. Heddle's over ONNX Runtime's
          (one thread, its lightest setting for that load), processes in turn; bars: 1.0 each.
Checked   the two first answers agree within 1e-4 of their scale.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from peers import Work, heddle_call, onnxruntime_call
from ratios import arguments, in_turn, ratio, show, spread, write

from heddle.cli.together import run_together

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "models"))
CALLERS, CALLS, TOKENS = 16, 20, 32


def resident_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def child(peer: str, path: Path) -> None:
    ids = np.arange(1000, 1000 + TOKENS)[None]
    inputs = (ids, np.ones_like(ids), np.zeros_like(ids))
    work = Work("minilm", path, None)
    if peer == "heddle":
        import heddle  # noqa: F401
    else:
        import onnxruntime  # noqa: F401
    begin = time.perf_counter()
    call = heddle_call(work, "f32") if peer == "heddle" else onnxruntime_call(work, 1)
    answer = call(inputs)
    seconds = time.perf_counter() - begin

    def loop(*_: object) -> None:
        for _ in range(CALLS):
            call(inputs)

    run_together(CALLERS, loop)
    figures = {"seconds": seconds, "bytes": resident_bytes(), "answer": answer.ravel().tolist()}
    print(json.dumps(figures))


def main() -> int:
    if "--child" in sys.argv:
        child(sys.argv[-2], Path(sys.argv[-1]))
        return 0
    options = arguments(__doc__)
    import minilm

    path = ROOT / "build" / "models" / "minilm.onnx"
    path = path if path.exists() else minilm.build(path)
    results: dict[str, list[dict]] = {"heddle": [], "onnxruntime": []}

    def run(peer: str) -> float:
        command = [sys.executable, __file__, "--child", peer, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results[peer].append(json.loads(done.stdout))
        return results[peer][-1]["seconds"]

    seconds = in_turn({peer: lambda p=peer: run(p) for peer in results}, options.rounds)
    ours, theirs = (np.array(results[peer][0]["answer"]) for peer in results)
    error = np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max())
    if not error < 1e-4:
        raise SystemExit(f"the first answers differ by {error}")
    memory = {peer: [run["bytes"] / 2**20 for run in runs] for peer, runs in results.items()}
    for what, figures, unit in (
        ("file to first answer", {peer: [s * 1e3 for s in v] for peer, v in seconds.items()}, "ms"),
        ("resident, 16 callers", memory, "MiB"),
    ):
        print(f"\n{what}")
        for peer, values in figures.items():
            show(peer, spread(values), unit)
        show("heddle / onnxruntime", ratio(figures["heddle"], figures["onnxruntime"]), "x", "bar: 1.0")
    write(options.json, {"first_answer_s": seconds, "resident_mib": memory})
    return 0


if __name__ == "__main__":
    sys.exit(main())
