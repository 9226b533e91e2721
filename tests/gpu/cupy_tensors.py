"""CuPy's arrays on the GPU go in and come out without a copy, on streams of their own, from 8 threads.

Where there is no CuPy it says so, and nothing is wrong.
"""

from __future__ import annotations

import numpy as np
from program import arguments, error, finish, mistakes_of, mlp

import heddle
from heddle.cli.together import run_together

try:
    import cupy
except Exception as missing:  # also where it is there and its libraries are not
    cupy, why = None, str(missing).strip().splitlines()[0]

THREADS, ROUNDS, WIDTH = 8, 100, 512


def main() -> None:
    double = arguments(__doc__).double
    if cupy is None or double:
        finish({"cupy": f"no cupy: {why}" if cupy is None else "the double has no CuPy beside it"}, [])
    model, reference = mlp("cuda", WIDTH), mlp("host", WIDTH)
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((1 + i % 4, WIDTH), dtype=np.float32) for i in range(16)]
    wanted = [reference(x) for x in inputs]

    def body(thread: int, _: float) -> list[float]:
        errors = []
        with cupy.cuda.Stream(non_blocking=True):
            for i in range(ROUNDS):
                k = (thread + i) % len(inputs)
                # Copied on this stream a moment ago, and read on it without a word to it.
                x = cupy.asarray(inputs[k])
                y = model(x)
                assert isinstance(y, cupy.ndarray), type(y)
                errors.append(error(y.get(), wanted[k]))
                del x
        return errors

    results, seconds = run_together(THREADS, body)
    errors = [wrong for thread in results for wrong in thread]
    mistakes = mistakes_of(errors, THREADS * ROUNDS)
    there = heddle.to_device(inputs[0], "cuda")
    seen = [cupy.from_dlpack(there) for _ in range(2)]
    if seen[0].data.ptr != seen[1].data.ptr:
        mistakes.append("a tensor went out by a copy")
    if not np.array_equal(seen[0].get(), inputs[0]):
        mistakes.append("a tensor went out with other values")
    told = {"cupy": cupy.__version__, "calls": len(errors), "seconds": round(seconds, 3)}
    finish(told | {"largest_error": max(errors)}, mistakes)


if __name__ == "__main__":
    main()
