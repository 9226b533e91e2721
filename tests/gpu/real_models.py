"""Real model files on the device against ONNX Runtime on the CPU in f32: the largest error of each precision.

The files are those of tools/models below build/models; one that is not there is a mistake. wav2vec2 is the
architecture, with random weights. From one thread at each size, then from eight at once.
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
# Of an output's greatest value, through up to 60 layers: f32 sums in other orders, and factors of products
# that are rounded to 10 bits behind the point (tf32, f16) or to 7 (bf16).
TOLERANCES = {"f32": 1e-3, "tf32": 2e-2, "bf16": 1e-1, "f16": 2e-2}
THREADS, ROUNDS = 8, 3
SMALL = ("silero-16k-op15",)
NAMES = ("resnet18-dynamo", "ppocr-det", "ppocr-rec", "ppocr-cls", "silero-16k-op15", "silero-op18-ifless")
SOUNDS = ((1, 16000), (3, 8000), (1, 5333))  # batch, samples at 16 kHz
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


def sounds() -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(5)
    return [{"samples": random.standard_normal(shape, np.float32)} for shape in SOUNDS]


def works(small: bool) -> dict[str, tuple[Path, list[dict[str, np.ndarray]]]]:
    """By name: the file and its inputs. The one of ResNet-18 that is not a square is a page as well."""
    found = {}
    if not small:
        found["minilm"] = (MODELS / "minilm.onnx", sentences())
        found["wav2vec2"] = (MODELS / "wav2vec2.onnx", sounds())
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


def answers(path: Path, inputs: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return [session.run(None, x) for x in inputs]


def errors_of(
    model: heddle.Model, inputs: list[dict[str, np.ndarray]], wanted
) -> tuple[list[float], list[float]]:
    """Of each call: alone, and from threads at once."""
    alone = [largest(as_tuple(model(**x)), want) for x, want in zip(inputs, wanted, strict=True)]

    def body(thread: int, _: float) -> list[float]:
        order = [(thread + i) % len(inputs) for i in range(ROUNDS * len(inputs))]
        return [largest(as_tuple(model(**inputs[k])), wanted[k]) for k in order]

    results, _ = run_together(THREADS, body)
    return alone, [wrong for thread in results for wrong in thread]


def compare(
    name: str, path: Path, inputs: list[dict[str, np.ndarray]], mistakes: list[str]
) -> dict[str, object]:
    """The largest error of each precision, and what is above its tolerance or fails."""
    wanted = answers(path, inputs)
    found: dict[str, object] = {"sizes": len(inputs)}
    for precision, tolerance in TOLERANCES.items():
        try:
            with heddle.load(path, device="cuda", precision=precision) as model:
                alone, together = errors_of(model, inputs, wanted)
        except heddle.Error as raised:
            found[precision] = str(raised)
            mistakes.append(f"{name} in {precision}: {raised.code}: {raised}")
            continue
        found["calls"] = len(alone) + len(together)
        found[precision] = worst = max(alone + together)
        if not worst <= tolerance:
            mistakes.append(
                f"{name} in {precision}: wrong by {max(alone):.2e} alone and by {max(together):.2e} from "
                f"{THREADS} threads, of the greatest value; {tolerance} is allowed"
            )
    return found


def main() -> None:
    options = arguments(__doc__)
    found: dict[str, object] = {}
    mistakes: list[str] = []
    for name, (path, inputs) in works(options.double).items():
        if not path.exists():
            found[name] = "its file is not here"
            mistakes.append(f"{name}: there is no {path.relative_to(ROOT)}")
            continue
        found[name] = compare(name, path, inputs, mistakes)
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    finish({"tolerances": TOLERANCES, "models": found}, mistakes)


if __name__ == "__main__":
    main()
