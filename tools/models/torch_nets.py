"""The nets that tools/models/export_torch.py exports: the shapes of network that people bring, small.

Written with torch.nn alone. Weights are whatever the seed gives; running statistics are random, so that they
matter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def randomize_statistics(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)


class Mlp(nn.Module):
    """512-1024-1024-512 with ReLU between the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Conv1dNet(nn.Module):
    """64 channels x 100 steps: two convolutions of width 5, the mean over time, one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(64, 128, 5)
        self.second = nn.Conv1d(128, 128, 5)
        self.head = nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(x.mean(dim=-1))


def encoder() -> nn.Module:
    """nn.TransformerEncoder: 2 layers, width 256, 4 heads, feed-forward 1024, GELU."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class BasicBlock(nn.Module):
    """ResNet's basic block: two 3x3 convolutions with batch normalisation and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 for 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        blocks: list[nn.Module] = []
        width = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(width, outputs, stride), BasicBlock(outputs, outputs, 1)]
            width = outputs
        self.blocks = nn.Sequential(*blocks)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(512, 1000)
        randomize_statistics(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.bn(self.stem(x))))
        return self.head(torch.flatten(self.average(self.blocks(x)), 1))


class SqueezeExcite(nn.Module):
    """Channels weighed by a gate computed from their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.narrow = nn.Conv2d(channels, channels // 4, 1)
        self.widen = nn.Conv2d(channels // 4, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.widen(torch.relu(self.narrow(self.pool(x)))))


class InvertedResidual(nn.Module):
    """MobileNetV3's block: widen, depthwise, squeeze-excite, narrow, shortcut."""

    def __init__(
        self, inputs: int, wide: int, outputs: int, kernel: int, stride: int, *, excite: bool
    ) -> None:
        super().__init__()
        self.shortcut = stride == 1 and inputs == outputs
        parts: list[nn.Module] = [
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.Hardswish(),
        ]
        parts += [nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False)]
        parts += [nn.BatchNorm2d(wide), nn.Hardswish()]
        parts += [SqueezeExcite(wide)] if excite else []
        parts += [nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.body = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.shortcut else self.body(x)


class MobileNet(nn.Module):
    """MobileNetV3's parts in six blocks, 100 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
        self.blocks = nn.Sequential(
            InvertedResidual(16, 16, 16, 3, 2, excite=True),
            InvertedResidual(16, 72, 24, 3, 2, excite=False),
            InvertedResidual(24, 88, 24, 3, 1, excite=False),
            InvertedResidual(24, 96, 40, 5, 2, excite=True),
            InvertedResidual(40, 240, 40, 5, 1, excite=True),
            InvertedResidual(40, 120, 48, 5, 1, excite=True),
        )
        self.last = nn.Sequential(nn.Conv2d(48, 288, 1, bias=False), nn.BatchNorm2d(288), nn.Hardswish())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(nn.Linear(288, 512), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(512, 100))
        randomize_statistics(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.last(self.blocks(self.stem(x)))), 1))


def double_conv(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


class Unet(nn.Module):
    """Three levels; up again by a ConvTranspose2d, a bilinear and a nearest Resize."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([double_conv(3, 16), double_conv(16, 24), double_conv(24, 32)])
        self.bottom = double_conv(32, 48)
        self.pool = nn.MaxPool2d(2)
        self.transpose = nn.ConvTranspose2d(48, 32, 2, stride=2)
        self.bilinear = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.nearest = nn.Upsample(scale_factor=2, mode="nearest")
        self.up = nn.ModuleList([double_conv(64, 32), double_conv(32 + 24, 24), double_conv(24 + 16, 16)])
        self.head = nn.Conv2d(16, 2, 1)
        randomize_statistics(self)

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for part in self.down:
            x = part(x)
            levels.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for raise_, part in zip((self.transpose, self.bilinear, self.nearest), self.up, strict=True):
            x = part(torch.cat([raise_(x), levels.pop()], dim=1))
        return torch.sigmoid(self.head(x))


class GptBlock(nn.Module):
    """GPT-2's block: layer norm first, one projection for all heads, causal attention, tanh GELU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.project(self.norm1(x)).split(width, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """A GPT-2-like decoder's prefill: logits of every token. The head shares the embedding."""

    def __init__(self, words: int = 500, width: int = 128, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.words.weight)


class RmsNorm(nn.Module):
    """As Llama writes it: in f32, the root of the mean square, then the scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of the two halves of the last axis."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cosine + turned * sine


class LlamaBlock(nn.Module):
    """Llama's block: RMS norm, rotary embedding, grouped-query heads with a written-out mask, SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1 = RmsNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = RmsNorm(width)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.wide = nn.Linear(width, 2 * width, bias=False)
        self.narrow = nn.Linear(2 * width, width, bias=False)

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    def repeat(self, x: Tensor) -> Tensor:
        batch, groups, length, size = x.shape
        each = self.heads // groups
        return (
            x[:, :, None].expand(batch, groups, each, length, size).reshape(batch, self.heads, length, size)
        )

    def forward(self, x: Tensor, mask: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        y = self.norm1(x)
        q = rotate(self.split(self.query(y), self.heads), cosine, sine)
        k = self.repeat(rotate(self.split(self.key(y), self.groups), cosine, sine))
        v = self.repeat(self.split(self.value(y), self.groups))
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.size) + mask
        y = torch.matmul(torch.softmax(scores, dim=-1), v)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))
        y = self.norm2(x)
        return x + self.narrow(functional.silu(self.gate(y)) * self.wide(y))


class Llama(nn.Module):
    """A Llama-like decoder's prefill: 8 heads in 2 groups, a padding mask joined with the causal one."""

    def __init__(self, words: int = 500, width: int = 128, heads: int = 8, groups: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups) for _ in range(2))
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        size = width // heads
        self.register_buffer("speeds", 1.0 / 10000 ** (torch.arange(0, size, 2) / size))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        length = ids.shape[1]
        places = torch.arange(length, device=ids.device)
        angles = places[:, None].float() * self.speeds[None, :]
        angles = torch.cat([angles, angles], dim=-1)
        allowed = (places[:, None] >= places[None, :]) & (mask[:, None, None, :] > 0)
        added = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, added, torch.cos(angles), torch.sin(angles))
        return self.head(self.norm(x))


class BertLayer(nn.Module):
    """BERT's layer, its attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size) + mask
        y = torch.matmul(torch.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        x = self.norm1(self.out(y.view(x.shape[0], x.shape[1], -1)) + x)
        return self.norm2(self.narrow(functional.gelu(self.wide(x))) + x)


class MiniLm(nn.Module):
    """The architecture of all-MiniLM-L6-v2 with the mean over the tokens behind it; a small vocabulary."""

    def __init__(self, words: int = 2000, width: int = 384, heads: int = 12, layers: int = 6) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(512, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.register_buffer("place_ids", torch.arange(512)[None])

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        places = self.places(self.place_ids[:, : input_ids.shape[1]])
        x = self.norm(self.words(input_ids) + self.kinds(token_type_ids) + places)
        added = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, added)
        kept = attention_mask[:, :, None].to(x.dtype)
        mean = (x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
        return functional.normalize(mean, p=2.0, dim=1)
