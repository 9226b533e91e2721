"""PyTorch's tensors on the GPU go in and come out without a copy, on streams of their own, from 8 threads."""

from __future__ import annotations

import torch
from program import arguments, finish, mistakes_of, mlp

import heddle
from heddle.cli.together import run_together

THREADS, ROUNDS, WIDTH = 8, 200, 512


def main() -> None:
    if arguments(__doc__).double:
        finish({}, ["the double has no PyTorch beside it"])
    torch.backends.cuda.matmul.allow_tf32 = False
    model, reference = mlp("cuda", WIDTH), mlp("host", WIDTH)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1 + i % 4, WIDTH, generator=generator) for i in range(16)]
    wanted = [torch.from_numpy(reference(x.numpy())).cuda() for x in inputs]
    torch.cuda.synchronize()

    def body(thread: int, _: float) -> list[float]:
        errors = []
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(ROUNDS):
                k = (thread + i) % len(inputs)
                # Made on this stream a moment ago, and read on it without a word to it.
                x = inputs[k].cuda(non_blocking=True) * 2
                x *= 0.5
                y = model(x)
                assert isinstance(y, torch.Tensor), type(y)
                assert y.device.type == "cuda", y.device
                errors.append(((y - wanted[k]).abs().max() / wanted[k].abs().max()).item())
                del x
        return errors

    results, seconds = run_together(THREADS, body)
    errors = [wrong for thread in results for wrong in thread]
    mistakes = mistakes_of(errors, THREADS * ROUNDS)
    there = heddle.to_device(inputs[0].numpy(), "cuda")
    seen = [torch.from_dlpack(there).data_ptr() for _ in range(2)]
    if seen[0] != seen[1]:
        mistakes.append("a tensor went out by a copy")
    if not torch.equal(torch.from_dlpack(there).cpu(), inputs[0]):
        mistakes.append("a tensor went out with other values")
    finish({"calls": len(errors), "seconds": round(seconds, 3), "largest_error": max(errors)}, mistakes)


if __name__ == "__main__":
    main()
