"""The two sides of bench/cuda/figure.py: Heddle's callers in C++, and peers of figure_peers.py.

Each is a process that measures when it is asked and is idle in between, so that sides can take turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import figure_peers
import ratios

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "build" / "models" / "torch"
THREADS = (1, 2, 4, 8, 16)  # that PyTorch's best is looked for among
LANES = (2, 4, 8)  # the same for callers with batches of ours
KINDS = ("eager", "compiled", "graph")
Side = Callable[[], float]


class Failed(Exception):
    """A side gave no figure; what it said."""


class Child:
    def __init__(self, name: str, command: list[str], env: dict[str, str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | env, cwd=ROOT
        )

    def ask(self, line: str) -> dict:
        try:
            print(line, file=self.process.stdin, flush=True)
            told = self.process.stdout.readline()
        except BrokenPipeError:
            told = ""
        if not told:
            raise Failed(f"{self.name} ended with {self.process.wait()} when asked {line}")
        answer = json.loads(told)
        if "error" in answer:
            raise Failed(f"{self.name}, {line}: {answer['error']}")
        return answer

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # one that has ended took its last line with it
            self.process.stdin.close()
        self.process.wait()


class Sides:
    """Processes by what they run; each is started when it is asked and there is none, and ended by end()."""

    def __init__(self, options) -> None:
        self.options = options
        self.children: dict[tuple[str, ...], Child] = {}
        self.tried: dict[str, float] = {}
        self.mistakes: list[str] = []
        self.left_out: list[str] = []  # settings, of a peer that works with others

    def child(self, *key: str, env: dict[str, str] | None = None) -> Child:
        # A peer that many threads have ended still has an answer for few.
        if key not in self.children or self.children[key].process.poll() is not None:
            program = [sys.executable, str(ROOT / "bench" / "cuda" / "figure_peers.py")]
            command = [*program, *key[1:]] if key[0] == "peer" else list(key)
            name = " ".join(word.rpartition("/")[2] for word in key)
            self.children[key] = Child(name, command, env or {})
        return self.children[key]

    def end(self) -> None:
        for key in list(self.children):
            self.drop(key)

    def drop(self, key: tuple[str, ...]) -> None:
        """Ends it: who asks again asks a new one."""
        child = self.children.pop(key, None)
        if child is not None:
            child.end()

    def callers(
        self, work: str, n: int, outstanding: int = 0, rows: int = 1, models: int = 1, cards: str = "one",
        ragged: bool = True, seconds: float | None = None, queue: int = 0,
    ) -> dict:  # fmt: skip
        """A measurement of cuda_callers, whole; on one card or on all."""
        double = self.options.double
        words = ["--model", str(MODELS / f"{work}.onnx"), "--device" if cards == "one" else "--devices"]
        words += ["cuda", "--max_batch", "256", "--models", str(models), "--pool", "8" if double else "256"]
        if work == "minilm_torch" and ragged:
            words += ["--lengths", "4:8" if double else "{}:{}".format(*figure_peers.LENGTHS)]
        words += ["--queue", str(queue)] * (queue > 0)
        asked = f"{n} {outstanding} {rows} {seconds or self.options.seconds}"
        return self.child(str(self.options.program), *words).ask(asked)

    def rate(self, kind: str, work: str, threads: int, rows: int = 1, seconds: float | None = None) -> float:
        place = "cpu" if self.options.double else "cuda"
        asked = {"threads": threads, "rows": rows, "seconds": seconds or self.options.seconds}
        key = ("peer", kind, work, place)
        try:
            return self.child(*key).ask(json.dumps(asked))["rows_per_s"]
        except Failed:
            self.drop(key)  # a capture that was lost may spoil what the process does next
            raise

    def first_try(self, name: str, side: Side) -> float | None:
        """Which also warms up; None: it fails, and `mistakes` says so."""
        try:
            self.tried[name] = side()
        except Failed as failed:
            self.mistakes.append(str(failed))
            return None
        return self.tried[name]

    def best(
        self, kinds: tuple[str, ...], work: str, threads: tuple[int, ...], rows: int = 1
    ) -> dict[str, Side]:
        """Of each kind that works the best number of threads. One that fails ends its process only."""
        found: dict[str, Side] = {}
        for kind in kinds if not self.options.double else kinds[:1]:
            rates: dict[int, float] = {}
            mistakes = len(self.mistakes)
            for n in threads if not self.options.double else threads[:1]:
                name = f"{work}, {kind}, {n} threads x {rows} rows"
                rate = self.tried.get(name) or self.first_try(name, self.peer(kind, work, n, rows))
                if rate is not None:
                    rates[n] = rate
            if rates:
                self.left_out += self.mistakes[mistakes:]
                del self.mistakes[mistakes:]
                n = max(rates, key=rates.__getitem__)
                found[f"{kind}, {n} threads"] = self.peer(kind, work, n, rows)
        return found

    def peer(self, kind: str, work: str, threads: int, rows: int = 1) -> Side:
        return lambda: self.rate(kind, work, threads, rows)

    def best_callers(self, work: str, rows: int) -> int:
        """Of callers with batches."""
        lanes = LANES[:1] if self.options.double else LANES
        return max(lanes, key=lambda n: self.callers(work, n, rows=rows)["rows_per_s"])

    def in_turn(self, sides: dict[str, Side]) -> dict[str, list[float]]:
        return ratios.in_turn(sides, self.options.rounds)
