"""A model on two logical devices of one card, and on all cards: each call is answered once, by a reference.

Threads call and submit. Each device has to have its share of the runs. Where there are several cards, a
stranger's kernel loses the second at the end. Where CUDA goes on with the others, as the double does, they
answer from then on, and a thread may get one DeviceLostError with CUDA's name for it: for the call that it
had on that card. Where CUDA gives up the process, as driver 580 does on H100s, each call says so.
"""

from __future__ import annotations

import threading

import numpy as np
from program import TOLERANCE, arguments, encoder, error, finish, mlp
from wild import NAME, lose

import heddle
from heddle.cli.together import run_together

LEAST_SHARE = 1 / 4  # of what each device had if all had the same
PATIENCE = 60.0  # seconds


class Load:
    """Inputs of 1 to 3 rows, what the host makes of them, and how many threads ask how often."""

    def __init__(self, double: bool) -> None:
        self.threads, self.calls, self.width, length = (8, 12, 32, 6) if double else (64, 200, 256, 32)
        random = np.random.default_rng(5)
        shapes = {"mlp": (self.width,), "encoder": (length, self.width)}
        self.inputs = {
            name: [random.standard_normal((1 + i % 3, *shape), dtype=np.float32) for i in range(24)]
            for name, shape in shapes.items()
        }
        self.makers = {"mlp": mlp, "encoder": encoder}
        self.wanted = {}
        for name, make in self.makers.items():
            reference = make("host", self.width)
            self.wanted[name] = [reference(x) for x in self.inputs[name]]

    def on(self, devices, name: str) -> heddle.Model:
        return self.makers[name](None, self.width, devices=devices)

    def error(self, model: heddle.Model, name: str, i: int) -> float:
        """Of the i-th call of some thread; each fourth is a submission."""
        x, wanted = (of[name][i % len(self.inputs[name])] for of in (self.inputs, self.wanted))
        got = model.submit(x).result() if i % 4 == 3 else model(x)
        return error(got, wanted)


def shared(load: Load, devices, name: str) -> tuple[dict[str, object], list[str]]:
    """Of a model: what the threads got of it, and what each device compiled and ran for them.

    Runs are counted by the device's name, which logical devices of a card have in common.
    """
    model = load.on(devices, name)
    before = [device.stats() for device in model.devices]

    def body(thread: int, _: float) -> list[float]:
        return [load.error(model, name, 7 * thread + i) for i in range(load.calls)]

    results, seconds = run_together(load.threads, body)
    errors = [wrong for thread in results for wrong in thread]
    after = [device.stats() for device in model.devices]
    runs, compiled = (
        [now[key] - then[key] for now, then in zip(after, before, strict=True)]
        for key in ("calls", "compiles")
    )
    mistakes = [f"{name}: a call was wrong by {wrong:.2e}" for wrong in errors if not wrong <= TOLERANCE]
    asked = load.threads * load.calls
    stats = model.coalescing_stats()
    if len(errors) != asked or (stats is not None and stats["calls"] != asked):
        mistakes.append(f"{name}: {asked} calls: {len(errors)} came back, {stats} were counted")
    found = {"calls": len(errors), "calls_per_s": round(len(errors) / seconds), "compiled": compiled}
    if len({device.name for device in model.devices}) > 1:
        found["runs"] = runs
    if min(compiled) == 0 or min(runs) < LEAST_SHARE * sum(runs) / len(runs):
        mistakes.append(f"{name}: the devices compiled {compiled} and ran {runs}")
    return found | {"largest_error": max(errors)}, mistakes


class Losing:
    """Threads that call a model on all cards while one is lost, and go on."""

    def __init__(self, load: Load, double: bool) -> None:
        self.load, self.double = load, double
        self.model = load.on("cuda", "mlp")
        self.answered = threading.Semaphore(0)
        self.is_lost = threading.Event()

    def call(self, thread: int, _: float) -> tuple[int, list[str]]:
        """How many calls were right, and what the others said; as many calls after the loss as before."""
        right, said = 0, []
        for i in range(2 * self.load.calls):
            if i == self.load.calls:
                self.is_lost.wait(PATIENCE)
            try:
                wrong = self.load.error(self.model, "mlp", thread + i)
                right += wrong <= TOLERANCE
                if not wrong <= TOLERANCE:
                    said.append(f"a call was wrong by {wrong:.2e}")
            except heddle.DeviceLostError as lost:
                said.append(str(lost))
            self.answered.release()
        return right, said

    def lose(self) -> None:
        for _ in range(self.load.threads * self.load.calls // 2):
            self.answered.acquire(timeout=PATIENCE)
        lose(self.double, 1)
        self.is_lost.set()

    def judged(self) -> tuple[dict[str, object], list[str]]:
        loser = threading.Thread(target=self.lose)
        loser.start()
        results, _ = run_together(self.load.threads, self.call)
        loser.join()
        mistakes = []
        for thread, (right, said) in enumerate(results):
            if right + len(said) != 2 * self.load.calls:
                mistakes.append(f"thread {thread}: {right} of {2 * self.load.calls} were right: {said[:2]}")
            if any(NAME not in each for each in said):
                mistakes.append(f"thread {thread} on a lost card: {said[:3]}")
        calls = [device.stats()["calls"] for device in self.model.devices]
        goes_on = self.goes_on(mistakes)
        after = [device.stats()["calls"] for device in self.model.devices]
        if goes_on and (after[1] != calls[1] or after == calls):
            mistakes.append(f"runs before 20 calls, and after them: {calls}, {after}")
        if goes_on and max(len(said) for _, said in results) > 1:
            mistakes.append("a thread lost more than the call that it had on the lost card")
        if self.double and not goes_on:
            mistakes.append("the other card was lost as well")
        right = sum(right for right, _ in results)
        lost = sum(len(said) for _, said in results)
        return {"right": right, "lost_with_the_card": lost, "the_others_go_on": goes_on}, mistakes

    def goes_on(self, mistakes: list[str]) -> bool:
        """Whether calls after the loss are answered; all of them, or none."""
        lost = 0
        for i in range(20):
            try:
                wrong = self.load.error(self.model, "mlp", i)
                if not wrong <= TOLERANCE:
                    mistakes.append(f"a call after the loss was wrong by {wrong:.2e}")
            except heddle.DeviceLostError as error:
                lost += 1
                if NAME not in str(error):
                    mistakes.append(f"a call after the loss: {error}")
        if lost not in (0, 20):
            mistakes.append(f"{lost} of 20 calls after the loss failed")
        return lost == 0


def main() -> None:
    options = arguments(__doc__)
    load = Load(options.double)
    every = load.on("cuda", "mlp").devices
    found: dict[str, object] = {"threads": load.threads, "cards": len(every)}
    mistakes: list[str] = []
    places = {"one_card": [heddle.Device("cuda"), heddle.Device.open("cuda")]}
    if len(every) > 1:
        places["all_cards"] = every
    for place, devices in places.items():
        for name in load.makers:
            found[f"{name}, {place}"], more = shared(load, devices, name)
            mistakes += [f"{place}: {each}" for each in more]
    if len(every) > 1:
        found["a card lost"], more = Losing(load, options.double).judged()
        mistakes += more
    finish(found, mistakes)


if __name__ == "__main__":
    main()
