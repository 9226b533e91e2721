"""Operators in which PyTorch fuses whole layers for its own CPU and CUDA kernels, taken apart again.

``torch.compile`` meets them when an ``nn.TransformerEncoderLayer`` or ``nn.MultiheadAttention`` takes its
inference path; PyTorch has no decomposition of its own for them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

KEY_PADDING_MASK = 1  # [batch, keys]; 0: [queries, keys], 2: [batch, heads, queries, keys]


def _split_heads(packed: Tensor, heads: int) -> Tensor:
    return packed.unflatten(-1, (heads, -1)).transpose(1, 2)


def native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    if query is key and key is value:
        projected = F.linear(query, qkv_weight, qkv_bias).split(embed_dim, -1)
    else:
        weights, biases = qkv_weight.split(embed_dim), qkv_bias.split(embed_dim)
        projected = tuple(map(F.linear, (query, key, value), weights, biases))
    q, k, v = (_split_heads(each, num_head) for each in projected)
    allowed = None
    if mask is not None:
        allowed = mask.to(torch.bool).logical_not()
        if mask_type == KEY_PADDING_MASK:
            allowed = allowed[:, None, None, :]
    weights = query.new_empty(0)
    if need_weights:
        scores = q @ k.transpose(-1, -2) / (embed_dim // num_head) ** 0.5
        if allowed is not None:
            scores = scores.masked_fill(allowed.logical_not(), float("-inf"))
        weights = scores.softmax(-1)
        attended = weights @ v
        if average_attn_weights:
            weights = weights.mean(1)
    else:
        attended = F.scaled_dot_product_attention(q, k, v, allowed)
    return F.linear(attended.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def norm_1(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attend(x: Tensor) -> Tensor:
        packed = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias)
        return native_multi_head_attention(x, x, x, *packed, mask, need_weights=False, mask_type=mask_type)[0]

    def feed_forward(x: Tensor) -> Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = F.gelu(hidden) if use_gelu else F.relu(hidden)
        return F.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attend(src))
    return norm_2(x + feed_forward(x))


FUSED_LAYERS = {
    torch.ops.aten._native_multi_head_attention.default: native_multi_head_attention,
    torch.ops.aten._transformer_encoder_layer_fwd.default: transformer_encoder_layer,
}
