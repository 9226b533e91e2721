"""Writes wav2vec2-base with a CTC head, its weights random by a seed, as ONNX. Needs transformers.

    python tools/models/wav2vec2.py --out build/models/wav2vec2.onnx

No package holds the trained weights; the architecture is that of 94 million parameters. Input "samples"
f32[batch, length], output "logits" f32[batch, frames, 32]. A file that is there stays.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

SEED = 7
OPSET = 17


class Logits(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.model = Wav2Vec2ForCTC(Wav2Vec2Config(attn_implementation="eager"))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.model(samples).logits


def export(path: Path) -> None:
    warnings.simplefilter("ignore")  # the exporter's own
    part = path.with_suffix(".part")
    torch.onnx.export(
        Logits().eval(),
        (torch.randn(1, 16000),),
        part,
        input_names=["samples"],
        output_names=["logits"],
        dynamic_axes={"samples": {0: "batch", 1: "length"}, "logits": {0: "batch"}},
        opset_version=OPSET,
        dynamo=False,
    )
    part.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    if not out.exists():
        export(out)
    print(out)


if __name__ == "__main__":
    main()
