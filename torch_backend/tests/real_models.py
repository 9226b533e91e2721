"""Tiny models of the families that programs run, with weights of a seed, and the arguments of calls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import rnn
from torchvision_apart import torchvision
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl

WORDS, WIDTH = 60, 16
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BODY = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
SIDES = ("encoder", "decoder")
LAYERS = {f"{side}_layers": 1 for side in SIDES} | {f"{side}_attention_heads": 2 for side in SIDES}
LAYERS |= {f"{side}_ffn_dim": 24 for side in SIDES}
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Real:
    make: Callable[[], nn.Module]
    arguments: Callable[[], Arguments]
    compiled: bool = (
        True  # False: it asks for values on its way, and dynamo compiles what lies between for long
    )
    traced: bool = True  # False: dynamo leaves it to eager PyTorch, as it does with recurrent layers

    def module(self) -> nn.Module:
        torch.manual_seed(3)
        module = self.make().eval().requires_grad_(False)
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(std=0.1)
                part.running_var.uniform_(0.5, 1.5)
        return module

    def call(self, number: int) -> Arguments:
        torch.manual_seed(50 + number)
        return self.arguments()


# ---- words


def text(rows: int, length: int) -> Tensor:
    return torch.randint(3, WORDS, (rows, length))


def kept(rows: int, length: int) -> Tensor:
    """A mask whose first row is full, and each further one shorter."""
    return (torch.arange(length)[None] < length - torch.arange(rows)[:, None]).long()


def words() -> Arguments:
    return {"input_ids": text(2, 6), "attention_mask": kept(2, 6)}


def words_of_two() -> Arguments:
    return words() | {"decoder_input_ids": text(2, 4)}


def gpt2() -> nn.Module:
    sizes = {"n_positions": 32, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=WORDS, **sizes, **TOKENS))


def decoder_of(kind: str, **sizes: int) -> nn.Module:
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=WORDS, num_key_value_heads=1, max_position_embeddings=32, **BODY, **TOKENS, **sizes
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config)


def mixtral() -> nn.Module:
    return decoder_of("Mixtral", num_local_experts=4, num_experts_per_tok=2)


def qwen2_moe() -> nn.Module:
    return decoder_of(
        "Qwen2Moe",
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=12,
        shared_expert_intermediate_size=12,
    )


def bart() -> nn.Module:
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=WORDS,
            d_model=WIDTH,
            max_position_embeddings=32,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
            **LAYERS,
            **TOKENS,
        )
    )


def t5() -> nn.Module:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=WORDS,
            d_model=WIDTH,
            d_kv=8,
            d_ff=24,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=2,
        )
    )


class Sentences(nn.Module):
    """As sentence-transformers does: BERT, the mean over the words that count, a length of one."""

    def __init__(self):
        super().__init__()
        config = transformers.BertConfig(vocab_size=WORDS, max_position_embeddings=32, **BODY)
        self.bert = transformers.BertModel(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        counts = attention_mask.unsqueeze(-1).expand(found.size()).float()
        return F.normalize((found * counts).sum(1) / counts.sum(1).clamp(min=1e-9), p=2, dim=1)


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        # The layers leave any values in padded places, and not the same ones on each device.
        return self.encoder(x, src_key_padding_mask=padded).masked_fill(padded.unsqueeze(-1), 0)


class Packed(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: int):
        super().__init__()
        self.net = kind(6, 8, 2, batch_first=True, bidirectional=True, **options)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = self.net(packed)
        return rnn.pad_packed_sequence(out, batch_first=True)[0], last


def sequences() -> Arguments:
    return {"x": torch.randn(3, 7, 6), "lengths": torch.tensor([4, 7, 2])}


# ---- sound


def whisper() -> nn.Module:
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=WORDS,
            num_mel_bins=8,
            d_model=WIDTH,
            max_source_positions=10,
            max_target_positions=16,
            decoder_start_token_id=1,
            suppress_tokens=None,
            begin_suppress_tokens=None,
            **LAYERS,
            **TOKENS,
        )
    )


def spectrum() -> Arguments:
    return {"input_features": torch.randn(2, 8, 20), "decoder_input_ids": text(2, 4)}


def wav2vec2() -> nn.Module:
    return transformers.Wav2Vec2ForCTC(
        transformers.Wav2Vec2Config(
            vocab_size=20,
            conv_dim=(8, 8),
            conv_kernel=(10, 3),
            conv_stride=(5, 2),
            num_feat_extract_layers=2,
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=2,
            **BODY,
        )
    )


def sound() -> Arguments:
    return {"input_values": torch.randn(2, 400), "attention_mask": (torch.arange(400) < 300).expand(2, -1)}


# ---- pictures


def picture(rows: int = 2, edge: int = 32) -> Tensor:
    return torch.randn(rows, 3, edge, edge)


def clip() -> nn.Module:
    return transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config={"vocab_size": WORDS, "max_position_embeddings": 16, **BODY, **TOKENS},
            vision_config={"image_size": 16, "patch_size": 8, **BODY},
            projection_dim=12,
        )
    )


TOWER = {"depth": 2, "num_heads": 2, "hidden_size": WIDTH, "patch_size": 4}


def qwen2_vision() -> nn.Module:
    config = qwen2_vl.Qwen2VLVisionConfig(embed_dim=WIDTH, mlp_ratio=2, **TOWER)
    return qwen2_vl.Qwen2VisionTransformerPretrainedModel(config)


def qwen2_5_vision() -> nn.Module:
    config = qwen2_5_vl.Qwen2_5_VLVisionConfig(
        intermediate_size=24, out_hidden_size=WIDTH, window_size=16, fullatt_block_indexes=[1], **TOWER
    )
    return qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel(config)


def patches(*sizes: tuple[int, int]) -> Arguments:
    count = sum(height * width for height, width in sizes)
    return {"hidden_states": torch.randn(count, 96), "grid_thw": torch.tensor([(1, *size) for size in sizes])}


def qwen2_vl_whole() -> nn.Module:
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    return transformers.Qwen2VLForConditionalGeneration(
        transformers.Qwen2VLConfig(
            text_config={"vocab_size": WORDS, "num_key_value_heads": 1, "rope_parameters": rope}
            | BODY
            | TOKENS,
            vision_config={"embed_dim": WIDTH, "mlp_ratio": 2, **TOWER},
            vision_start_token_id=3,
            vision_end_token_id=4,
            image_token_id=5,
            video_token_id=6,
        )
    )


def picture_in_words() -> Arguments:
    before, after = torch.randint(7, WORDS, (2, 1, 3))
    ids = torch.cat([before, torch.tensor([[3, 5, 5, 5, 5, 4]]), after], 1)
    given = patches((4, 4))
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": given["hidden_states"],
        "image_grid_thw": given["grid_thw"],
        "mm_token_type_ids": (ids == 5).int(),
    }


def resnet() -> nn.Module:
    models = torchvision().models
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)


class FasterRCNN(nn.Module):
    """torchvision's, of one picture after the other."""

    def __init__(self):
        super().__init__()
        models, ops = torchvision().models, torchvision().ops
        body = nn.Sequential(nn.Conv2d(3, 8, 7, 4, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        body.out_channels = 8
        self.net = models.detection.FasterRCNN(
            body,
            num_classes=3,
            min_size=32,
            max_size=48,
            rpn_anchor_generator=models.detection.anchor_utils.AnchorGenerator(((8, 16),), ((0.5, 1.0),)),
            box_roi_pool=ops.MultiScaleRoIAlign(["0"], 3, 2),
            rpn_post_nms_top_n_test=12,
            box_score_thresh=0.2,
        )

    def forward(self, pictures: Tensor) -> list[dict[str, Tensor]]:
        return self.net(list(pictures))


def detr() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], layer_type="basic", depths=[1, 1], out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone, d_model=WIDTH, num_queries=5, num_labels=4, **LAYERS
    )
    return transformers.DetrForObjectDetection(config)


def masked_picture() -> Arguments:
    mask = torch.ones(2, 32, 32, dtype=torch.long)
    mask[1, 20:] = 0
    return {"pixel_values": picture(), "pixel_mask": mask}


def unet() -> nn.Module:
    import diffusers  # takes seconds, which generate()'s tests do without

    return diffusers.UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=4,
        norm_num_groups=4,
    )


def noise() -> Arguments:
    prompt = torch.randn(2, 5, WIDTH)
    return {
        "sample": torch.randn(2, 4, 8, 8),
        "timestep": torch.randint(1000, ()),
        "encoder_hidden_states": prompt,
    }


REAL = {
    "gpt2": Real(gpt2, words),
    "llama": Real(lambda: decoder_of("Llama"), words),
    "mixtral": Real(mixtral, words),
    "qwen2 moe": Real(qwen2_moe, words),
    "bart": Real(bart, words_of_two),
    "t5": Real(t5, words_of_two),
    "sentence transformer": Real(Sentences, words),
    "padded encoder": Real(Padded, lambda: {"x": torch.randn(3, 6, WIDTH), "padded": kept(3, 6) == 0}),
    "packed lstm": Real(lambda: Packed(nn.LSTM), sequences, traced=False),
    "packed lstm with a projection": Real(lambda: Packed(nn.LSTM, proj_size=5), sequences, traced=False),
    "packed gru": Real(lambda: Packed(nn.GRU), sequences, traced=False),
    "whisper": Real(whisper, spectrum),
    "wav2vec2": Real(wav2vec2, sound),
    "clip": Real(clip, lambda: words() | {"pixel_values": picture(3, 16)}),
    "qwen2-vl's tower": Real(qwen2_vision, lambda: patches((4, 6))),
    "qwen2.5-vl's tower": Real(qwen2_5_vision, lambda: patches((4, 6), (8, 4)), compiled=False),
    "qwen2-vl": Real(qwen2_vl_whole, picture_in_words, compiled=False),
    "resnet": Real(resnet, lambda: {"x": picture()}),
    "detr": Real(detr, masked_picture),
    "unet": Real(unet, noise),
    "faster r-cnn": Real(FasterRCNN, lambda: {"pictures": picture(1)}, compiled=False),
}
