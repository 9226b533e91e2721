"""PyTorch's device "heddle" over the GPU: MiniLM, a ViT and a decoder with its cache, eager and compiled.

From 16 threads that share a module, every value against the CPU's. Then a tensor of `cuda` goes to `heddle`
and back by DLPack, without a copy.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import heddle.torch
import torch
from program import TOLERANCE, arguments, error, finish
from torch import nn
from torch.nn import functional

import heddle
from heddle.cli.together import run_together

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "models"))
import torch_nets

Cache = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Size:
    threads: int
    rounds: int
    layers: int
    width: int
    words: int
    image: int
    tokens: int  # that the decoder is given, and then one by one

    @property
    def heads(self) -> int:
        return self.width // 16


ON_CARD = Size(threads=16, rounds=6, layers=6, width=384, words=2000, image=224, tokens=12)
ON_DOUBLE = Size(threads=16, rounds=1, layers=1, width=32, words=50, image=32, tokens=2)


class Vit(nn.Module):
    """Patches of 16 x 16, a token for the class, encoder layers, a head."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, size.width, 16, 16)
        self.kind = nn.Parameter(torch.randn(1, 1, size.width))
        self.places = nn.Parameter(torch.randn(1, 1 + (size.image // 16) ** 2, size.width))
        layer = nn.TransformerEncoderLayer(
            size.width, size.heads, 4 * size.width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, 100)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.kind.expand(len(images), -1, -1), patches], 1) + self.places
        return self.head(self.norm(self.encoder(x))[:, 0])


class DecoderBlock(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.project, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.wide, self.narrow = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(
        self, x: torch.Tensor, before: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.project(self.norm1(x)).split(width, dim=2)
        )
        if before is not None:
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=before is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x)))), (k, v)


class Decoder(nn.Module):
    """Logits of the tokens that are new, and the cache with their keys and values."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(size.words, size.width), nn.Embedding(64, size.width)
        self.blocks = nn.ModuleList(DecoderBlock(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.words, bias=False)

    def forward(self, ids: torch.Tensor, places: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
        x = self.words(ids) + self.places(places)
        made = []
        for i, block in enumerate(self.blocks):
            x, both = block(x, cache[i] if cache else None)
            made.append(both)
        return self.head(self.norm(x)), made


Call = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def call_minilm(module: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return module(ids, (ids > 2).long(), torch.zeros_like(ids))


def call_vit(module: nn.Module, images: torch.Tensor) -> torch.Tensor:
    return module(images)


def call_decoder(module: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Half of the tokens at once, the others one by one."""
    places = torch.arange(ids.shape[1], device=ids.device)
    half = ids.shape[1] // 2
    logits, cache = module(ids[:, :half], places[:half], [])
    said = [logits]
    for i in range(half, ids.shape[1]):
        logits, cache = module(ids[:, i : i + 1], places[i : i + 1], cache)
        said.append(logits)
    return torch.cat(said, 1)


def works(size: Size) -> dict[str, tuple[nn.Module, Call, list[torch.Tensor]]]:
    torch.manual_seed(3)
    minilm = torch_nets.MiniLm(size.words, size.width, size.heads, size.layers)
    sentences = [torch.randint(0, size.words, (1 + i % 3, size.tokens)) for i in range(4)]
    images = [torch.randn(1 + i % 2, 3, size.image, size.image) for i in range(2)]
    texts = [torch.randint(0, size.words, (2, 2 * size.tokens)) for _ in range(2)]
    return {
        "minilm": (minilm.eval(), call_minilm, sentences),
        "vit": (Vit(size).eval(), call_vit, images),
        "decoder": (Decoder(size).eval(), call_decoder, texts),
    }


def compare(size: Size, module: nn.Module, call: Call, inputs: list[torch.Tensor], wanted) -> list[float]:
    """How wrong each call is."""

    def wrong(k: int) -> float:
        with torch.inference_mode():
            return error(call(module, inputs[k].to("heddle")).cpu().numpy(), wanted[k])

    alone = [wrong(k) for k in range(len(inputs))]
    results, _ = run_together(
        size.threads,
        lambda thread, _: [wrong((thread + i) % len(inputs)) for i in range(size.rounds)],
    )
    return alone + [each for thread in results for each in thread]


def check_dlpack(mistakes: list[str]) -> None:
    there = torch.randn(64, 64, device="cuda")
    mine = heddle.torch.from_dlpack(there)
    back = torch.from_dlpack(mine)
    if (mine.device.type, back.device.type) != ("heddle", "cuda"):
        mistakes.append(f"by DLPack a tensor came to {mine.device} and back to {back.device}")
    if back.data_ptr() != there.data_ptr():
        mistakes.append("by DLPack a tensor went to heddle and back to cuda with a copy")
    doubled = torch.from_dlpack(mine + mine)
    if not torch.equal(doubled, there + there):
        mistakes.append("what heddle makes of cuda's tensor is wrong")


def main() -> None:
    double = arguments(__doc__).double
    size = ON_DOUBLE if double else ON_CARD
    torch.backends.cuda.matmul.allow_tf32 = False
    if torch.__version__ < (2, 13):
        torch.backends.mha.set_fastpath_enabled(False)  # its operator has no meta kernel there
    found: dict[str, object] = {"torch": torch.__version__, "threads": size.threads}
    mistakes: list[str] = []
    if heddle.torch.device_names()[0] != "cuda":
        mistakes.append(f"heddle is {heddle.torch.device_names()[0]}")
    for name, (module, call, inputs) in works(size).items():
        with torch.inference_mode():
            wanted = [call(module, x).numpy() for x in inputs]
        for mode in ("eager", "compiled"):
            there = copy.deepcopy(module).to("heddle")
            chosen = torch.compile(there, backend="heddle") if mode == "compiled" else there
            try:
                errors = compare(size, chosen, call, inputs, wanted)
            except Exception as raised:  # the others are tried all the same
                mistakes.append(f"{name}, {mode}: {type(raised).__name__}: {str(raised)[:300]}")
                continue
            found[f"{name}, {mode}"] = {"calls": len(errors), "largest_error": max(errors)}
            if not max(errors) <= TOLERANCE:
                mistakes.append(f"{name}, {mode}: wrong by {max(errors):.2e} of the greatest value")
            print(
                f"{name}, {mode}: {len(errors)} calls, wrong by {max(errors):.2e}",
                file=sys.stderr,
                flush=True,
            )
    if torch.cuda.is_available():
        check_dlpack(mistakes)
    finish(found, mistakes)


if __name__ == "__main__":
    main()
