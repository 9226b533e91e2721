"""How soon does MiniLM answer, and what does it hold? Beside PyTorch's `.to("cuda")` and first call.

Each start is a process of its own, the CUDA context included; the better of two. Memory is what the device's
allocator holds from CUDA while 16 threads call, beside the weights and twice what one call adds to them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from program import arguments, error, finish

ROOT = Path(__file__).resolve().parents[2]
EXPORTED = ROOT / "build" / "models" / "torch" / "minilm_torch.onnx"
EXTENTS = {"batch": 1, "length": 32}
STARTS, CALLERS, CALLS = 2, 16, 100
MOST_MEMORY = 1.3  # of 16 callers, / weights and twice what one call adds to them


def inputs() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    ids = random.integers(0, 2000, (1, EXTENTS["length"]))
    return [ids, np.ones_like(ids), np.zeros_like(ids)]


def start_heddle() -> dict[str, object]:
    import heddle

    begin = time.perf_counter()
    device = heddle.Device("cuda")
    opened = time.perf_counter()
    model = heddle.load(EXPORTED, device=device)
    y = model(*inputs())
    end = time.perf_counter()
    return {"open_s": opened - begin, "load_and_first_call_s": end - opened, "answer": as_lists(y)}


def start_torch() -> dict[str, object]:
    import torch

    sys.path.insert(0, str(ROOT / "tools" / "models"))
    import export_torch

    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    module = export_torch.module("minilm_torch")
    begin = time.perf_counter()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    opened = time.perf_counter()
    module = module.to("cuda")
    y = module(*(torch.from_numpy(each).cuda() for each in inputs()))
    y = (y[0] if isinstance(y, tuple) else y).cpu().numpy()
    end = time.perf_counter()
    return {"open_s": opened - begin, "load_and_first_call_s": end - opened, "answer": as_lists(y)}


def as_lists(y) -> list:
    return (y[0] if isinstance(y, tuple) else y).tolist()


def memory() -> dict[str, object]:
    import heddle
    from heddle.cli.together import run_together

    device = heddle.Device("cuda")
    model = heddle.load(EXPORTED, device=device, coalesce=False)
    arrays = inputs()
    held = device.stats()["reserved"]
    model(*arrays)
    device.synchronize()
    one = device.stats()["reserved"]
    run_together(CALLERS, lambda *_: [model(*arrays) for _ in range(CALLS)] and None)
    device.synchronize()
    many = device.stats()["reserved"]
    return {
        "weight_bytes": model.weight_bytes,
        "reserved_after_load": held,
        "reserved_after_one_call": one,
        "reserved_with_callers": many,
        "weights_and_two_calls": model.weight_bytes + 2 * max(0, one - held),
    }


CHILDREN = {"heddle": start_heddle, "torch": start_torch, "memory": memory}


def child(kind: str) -> dict:
    done = subprocess.run([sys.executable, __file__, "--child", kind], capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{kind} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if "--child" in sys.argv:
        print(json.dumps(CHILDREN[sys.argv[-1]]()))
        return
    if arguments(__doc__).double:
        finish({}, ["the double has no PyTorch beside it"])
    found: dict[str, object] = {}
    answers = {}
    for kind in ("heddle", "torch"):
        starts = [child(kind) for _ in range(STARTS)]
        answers[kind] = np.array(starts[0].pop("answer"))
        found[kind] = {
            name: round(min(each[name] for each in starts), 4) for name in ("open_s", "load_and_first_call_s")
        }
    wrong = error(answers["heddle"], answers["torch"])
    mistakes = [] if wrong <= 1e-3 else [f"the first answers differ by {wrong:.2e}"]
    memory_held: dict[str, int] = child("memory")
    found["memory"] = memory_held
    held, usual = memory_held["reserved_with_callers"], memory_held["weights_and_two_calls"]
    if held > MOST_MEMORY * usual:
        mistakes.append(f"{CALLERS} callers hold {held} bytes: more than {MOST_MEMORY} x {usual}")
    finish(found | {"callers": CALLERS, "largest_error": wrong}, mistakes)


if __name__ == "__main__":
    main()
