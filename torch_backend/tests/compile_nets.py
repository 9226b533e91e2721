"""Small modules of the kinds that heddle.torch.compile is for, with the arguments of one call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

WIDTH, HEADS, WORDS = 32, 4, 50


def assert_same(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def mlp(width: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Linear(32, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, 8),
        nn.Softmax(-1),
    )


class Conv1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(8, 16, 5, padding=2)
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Conv1d(16, 16, 3, stride=2, groups=2)
        self.out = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool1d(F.silu(self.second(x)), 2)
        return self.out(F.adaptive_avg_pool1d(x, 1).flatten(1))


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = nn.Conv2d(inside, outside, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.path(x) + self.shortcut(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class PaddedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = encoder(norm_first=True, activation="gelu")

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=padded).masked_fill(padded.unsqueeze(-1), 0)


class Decoder(nn.Module):
    """A layer of a language model: all words at once, or the next one with a cache."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(128, WIDTH)
        self.qkv, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(approximate="tanh"), nn.Linear(64, WIDTH))
        self.out = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor, cache: tuple[Tensor, Tensor] | None = None) -> dict[str, Any]:
        rows, length = ids.shape
        past = 0 if cache is None else cache[0].shape[2]
        x = self.words(ids) + self.places(torch.arange(past, past + length, device=ids.device))
        packed = self.qkv(self.before(x)).view(rows, length, 3, HEADS, -1)
        q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.joined(attended.transpose(1, 2).reshape(rows, length, -1))
        return {"logits": self.out(x + self.hidden(self.between(x))), "cache": (k, v)}


class Bert(nn.Module):
    """As sentence encoders are: an additive mask, and a mean over the words that count."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.places, self.kinds = nn.Embedding(64, WIDTH), nn.Embedding(2, WIDTH)
        self.first, self.middle, self.last = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(3))
        self.q, self.k, self.v, self.joined = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.hidden = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
        self.register_buffer("position_ids", torch.arange(64).expand((1, -1)))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        places = self.places(self.position_ids[:, : input_ids.shape[1]])
        x = self.first(self.words(input_ids) + self.kinds(token_type_ids) + places)
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        q, k, v = self._heads(self.q(x)), self._heads(self.k(x)), self._heads(self.v(x))
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + mask, -1)
        attended = (weights @ v).permute(0, 2, 1, 3).contiguous()
        x = self.middle(x + self.joined(attended.view(*x.shape)))
        x = self.last(x + self.hidden(x))
        counts = attention_mask.unsqueeze(-1).expand(x.size()).float()
        return F.normalize((x * counts).sum(1) / counts.sum(1).clamp(min=1e-9), p=2, dim=1)


def _mask(rows: int, length: int) -> Tensor:
    """Rows of different length, each with a word at least."""
    lengths = torch.arange(rows) % length + 1
    return torch.arange(length)[None] < lengths[:, None]


def _text(rows: int, length: int) -> Tensor:
    return torch.randint(1, WORDS, (rows, length))


def _cache(rows: int, length: int) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, HEADS, length, 8), torch.randn(rows, HEADS, length, 8)


ROWS, TEXT = {0: Dim.DYNAMIC}, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
PAST = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC}


@dataclass(frozen=True)
class Net:
    make: Callable[[], nn.Module]
    arguments: Callable[[int, int], tuple[Any, ...]]  # of so many rows, and of this length
    shapes: Any = None  # free extents; None: the rows alone
    joins: bool = True  # callers' rows may share a batch

    def module(self) -> nn.Module:
        torch.manual_seed(3)
        return self.make().eval()

    def call(self, rows: int, length: int = 12) -> tuple[Any, ...]:
        torch.manual_seed(100 * rows + length)
        return self.arguments(rows, length)


NETS = {
    "mlp": Net(mlp, lambda rows, _: (torch.randn(rows, 32),)),
    "conv1d": Net(Conv1d, lambda rows, length: (torch.randn(rows, 8, 4 * length),), (PAST,)),
    "resnet": Net(resnet, lambda rows, _: (torch.randn(rows, 3, 64, 64),)),
    "encoder": Net(encoder, lambda rows, length: (torch.randn(rows, length, WIDTH),), (TEXT,)),
    "padded encoder": Net(
        PaddedEncoder,
        lambda rows, length: (torch.randn(rows, length, WIDTH), ~_mask(rows, length)),
        (TEXT, TEXT),
    ),
    "lstm": Net(
        lambda: nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True),
        lambda rows, _: (torch.randn(rows, 9, 16),),
        joins=False,  # the last states have their rows along axis 1
    ),
    "gru": Net(
        lambda: nn.GRU(16, 32, batch_first=True), lambda rows, _: (torch.randn(rows, 9, 16),), joins=False
    ),
    "prefill": Net(Decoder, lambda rows, length: (_text(rows, length),), (TEXT,)),
    "decode": Net(Decoder, lambda rows, length: (_text(rows, 1), _cache(rows, length)), (ROWS, (PAST, PAST))),
    "bert": Net(Bert, lambda rows, length: (_text(rows, length), _mask(rows, length).long()), (TEXT, TEXT)),
}
