"""A translator's encoder, a speech network and a language model in one process: eight threads call each of
them on one device, and every answer is what one thread alone gets."""

from concurrent.futures import ThreadPoolExecutor

import heddle.torch  # noqa: F401  (registers the device; an installed heddle-torch does so by itself)
import torch
from torch import nn

layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
models = {
    "translate": (nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (1, 12, 64)),
    "speech": (nn.Sequential(nn.Conv1d(80, 64, 3), nn.GELU(), nn.Conv1d(64, 32, 3)), (1, 80, 50)),
    "language": (nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (1, 32, 64)),  # a prefill
}
causal = nn.Transformer.generate_square_subsequent_mask(32)


@torch.inference_mode()
def call(name: str, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    more = {"mask": causal.to(x.device), "is_causal": True} if name == "language" else {}
    return module.eval()(x, **more).cpu()


if __name__ == "__main__":
    requests = [(name, torch.randn(shape)) for name, (_, shape) in models.items() for _ in range(40)]
    expected = [call(name, models[name][0], x) for name, x in requests]
    on_device = {name: module.to("heddle") for name, (module, _) in models.items()}
    with ThreadPoolExecutor(24) as threads:
        answers = list(threads.map(lambda r: call(r[0], on_device[r[0]], r[1].to("heddle")), requests))
    for answer, reference in zip(answers, expected, strict=True):
        torch.testing.assert_close(answer, reference, rtol=1e-4, atol=1e-4)
    print(f"{len(answers)} answers from 24 threads, all right")
