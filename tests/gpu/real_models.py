"""Real model files on the device against ONNX Runtime on the CPU in f32: the largest error of each.

The files are those of tools/models below build/models; one that is not there is a mistake. From one thread
at each size, then from eight at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from program import arguments, error, finish

import heddle
from heddle.cli.together import run_together

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "models"))
import real_files  # noqa: E402

MODELS = ROOT / "build" / "models"
TOLERANCE = 1e-3  # of an output's greatest value, through up to 60 layers of f32 sums in other orders
THREADS, ROUNDS = 8, 3
SMALL = ("silero-16k-op15",)
NAMES = ("resnet18-dynamo", "ppocr-det", "ppocr-rec", "ppocr-cls", "silero-16k-op15", "silero-op18-ifless")
LENGTHS = (3, 5, 8, 9, 12, 17, 23, 31, 40, 64, 101, 128)  # tokens of a ragged sentence


def sentences() -> list[dict[str, np.ndarray]]:
    """Ragged rows for MiniLM, one a call: indices of words of its vocabulary."""
    random = np.random.default_rng(4)
    made = []
    for length in LENGTHS:
        ids = random.integers(1000, 30000, (1, length))
        made.append(
            {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        )
    return made


def works(small: bool) -> dict[str, tuple[Path, list[dict[str, np.ndarray]]]]:
    """By name: the file and its inputs. The one of ResNet-18 that is not a square is a page as well."""
    found = {}
    if not small:
        found["minilm"] = (MODELS / "minilm.onnx", sentences())
    for file in real_files.FILES:
        if file.name in (SMALL if small else NAMES):
            sizes = file.sizes if small else (*file.sizes, file.timed)
            found[file.name] = (real_files.MODELS / file.place, [file.inputs(extents) for extents in sizes])
    return found


def as_tuple(outputs) -> tuple[np.ndarray, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def largest(got, wanted) -> float:
    if len(got) != len(wanted):
        return float("inf")
    return max(error(np.asarray(a), b) for a, b in zip(got, wanted, strict=True))


def compare(path: Path, inputs: list[dict[str, np.ndarray]]) -> dict[str, object]:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    wanted = [session.run(None, x) for x in inputs]
    model = heddle.load(path, device="cuda")
    alone = [largest(as_tuple(model(**x)), want) for x, want in zip(inputs, wanted, strict=True)]

    def body(thread: int, _: float) -> list[float]:
        order = [(thread + i) % len(inputs) for i in range(ROUNDS * len(inputs))]
        return [largest(as_tuple(model(**inputs[k])), wanted[k]) for k in order]

    results, _ = run_together(THREADS, body)
    together = [wrong for thread in results for wrong in thread]
    return {
        "sizes": len(inputs),
        "calls": len(alone) + len(together),
        "largest_error": max(alone),
        "largest_error_of_eight_threads": max(together),
    }


def main() -> None:
    options = arguments(__doc__)
    found: dict[str, object] = {}
    mistakes = []
    for name, (path, inputs) in works(options.double).items():
        if not path.exists():
            found[name] = "its file is not here"
            mistakes.append(f"{name}: there is no {path.relative_to(ROOT)}")
            continue
        try:
            found[name] = result = compare(path, inputs)
        except heddle.Error as raised:
            found[name] = str(raised)
            mistakes.append(f"{name}: {raised.code}: {raised}")
            continue
        worst = max(result["largest_error"], result["largest_error_of_eight_threads"])
        if not worst <= TOLERANCE:
            mistakes.append(f"{name}: wrong by {worst:.2e} of the greatest value")
        print(f"{name}: {result}", file=sys.stderr, flush=True)
    finish({"tolerance": TOLERANCE, "models": found}, mistakes)


if __name__ == "__main__":
    main()
