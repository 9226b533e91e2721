"""Speech, translation and language in one process: threads call three models on one device at once.

Tiny models of the three kinds, with random weights: wav2vec2's (sound to letters), BART's (an encoder, and
a decoder that writes a word after the other) and GPT-2's (the words so far to the next). With 1, 4 and 8
threads for each of them, all three at once, every answer is what PyTorch's CPU gives. Then it prints

  - calls a second of each model by its number of threads, alone, and while as many call each of the others;
  - fairness: what a model keeps of its rate alone while all three run; the smallest of the three over the
    largest. 1 is fair, and 0 is a model that starves.
"""

import argparse
import copy
import json
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import heddle.torch  # noqa: F401  (registers the device; an installed heddle-torch does so by itself)
import torch
from torch import Tensor, nn

WIDTH, WORDS, LETTERS = 64, 200, 32
BEGIN, WRITTEN = 1, 4  # the word that a translation begins with, and how many it writes
REQUESTS = 4  # different ones, of each model
LONGEST = 40  # times --seconds, until each model had a call of each of its threads


def block(kind: type[nn.Module], **options: bool) -> nn.Module:
    return kind(WIDTH, 4, 4 * WIDTH, batch_first=True, activation="gelu", **options)


def encoder(**options: bool) -> nn.Module:
    return nn.TransformerEncoder(block(nn.TransformerEncoderLayer, **options), 2, enable_nested_tensor=False)


def causal(length: int, device: torch.device) -> Tensor:
    return torch.full((length, length), -torch.inf, device=device).triu(1)


class Embedding(nn.Module):
    """Words and their places."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)

    def forward(self, words: Tensor) -> Tensor:
        return self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))


class Speech(nn.Module):
    """As wav2vec2: convolutions over the sound, an encoder, a letter for each piece."""

    def __init__(self) -> None:
        super().__init__()
        steps = [(1, 10, 5), (WIDTH, 3, 2), (WIDTH, 3, 2), (WIDTH, 3, 2)]
        layers = [(nn.Conv1d(c, WIDTH, size, stride), nn.GELU()) for c, size, stride in steps]
        self.pieces = nn.Sequential(*(layer for pair in layers for layer in pair))
        self.encoder, self.head = encoder(), nn.Linear(WIDTH, LETTERS)

    def forward(self, sound: Tensor) -> Tensor:
        return self.head(self.encoder(self.pieces(sound).transpose(1, 2)))


class Translation(nn.Module):
    """As BART: reads a sentence, and writes the likeliest word after the words that it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.encoder = Embedding(), encoder()
        self.decoder = nn.TransformerDecoder(block(nn.TransformerDecoderLayer), 2)

    def forward(self, words: Tensor) -> Tensor:
        read, written = self.encoder(self.embedding(words)), words.new_full((1, 1), BEGIN)
        for _ in range(WRITTEN):
            mask = causal(written.shape[1], words.device)
            found = self.decoder(self.embedding(written), read, tgt_mask=mask, tgt_is_causal=True)
            scores = nn.functional.linear(found, self.embedding.words.weight)
            written = torch.cat([written, scores[:, -1:].argmax(-1)], 1)
        return scores


class Language(nn.Module):
    """As GPT-2: each word sees those before it, and its head is the table of the words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks = Embedding(), encoder(norm_first=True)

    def forward(self, words: Tensor) -> Tensor:
        mask = causal(words.shape[1], words.device)
        found = self.blocks(self.embedding(words), mask=mask, is_causal=True)
        return nn.functional.linear(found, self.embedding.words.weight)


MODELS = {"speech": Speech, "translation": Translation, "language": Language}


def requests(name: str) -> list[Tensor]:
    if name == "speech":
        return [torch.randn(1, 1, 1600) for _ in range(REQUESTS)]
    length = {"translation": 12, "language": 24}[name]
    return [torch.randint(3, WORDS, (1, length)) for _ in range(REQUESTS)]


class Served:
    """A model on the device, and what PyTorch's CPU answers."""

    def __init__(self, name: str, compiled: bool) -> None:
        module = MODELS[name]().eval().requires_grad_(False)
        self.asked = requests(name)
        with torch.inference_mode():
            self.expected = [module(x) for x in self.asked]
        on_device = copy.deepcopy(module).to("heddle")
        self.module = torch.compile(on_device, backend="heddle") if compiled else on_device

    def answer(self, number: int) -> Tensor:
        with torch.inference_mode():
            return self.module(self.asked[number].to("heddle")).cpu()


def check(models: dict[str, Served], threads: int) -> int:
    """So many threads for each model, all at once, each with every request; the number of right answers."""

    def one(model: Served) -> int:
        for number, expected in enumerate(model.expected):
            torch.testing.assert_close(model.answer(number), expected, rtol=1e-4, atol=1e-4)
        return len(model.expected)

    with ThreadPoolExecutor(threads * len(models)) as pool:
        return sum(pool.map(one, [model for model in models.values() for _ in range(threads)]))


def rates(models: dict[str, Served], threads: int, seconds: float) -> dict[str, float]:
    """Calls a second of each model that ended while so many threads called each of them."""
    calls = {name: [0] * threads for name in models}
    start, over = threading.Barrier(threads * len(models) + 1), threading.Event()

    def caller(name: str, thread: int) -> None:
        number = thread
        start.wait()
        while not over.is_set():
            models[name].answer(number % REQUESTS)
            number += 1
            calls[name][thread] += 1

    callers = [
        threading.Thread(target=caller, args=(name, thread)) for name in models for thread in range(threads)
    ]
    for each in callers:
        each.start()
    start.wait()
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds * LONGEST:
        if elapsed >= seconds and all(sum(each) >= threads for each in calls.values()):
            break
        time.sleep(seconds / 20)
    done = {name: sum(each) / elapsed for name, each in calls.items()}
    over.set()
    for each in callers:
        each.join()
    return done


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def measure(models: dict[str, Served], threads: int, seconds: float, rounds: int) -> dict:
    alone, together = [], []
    for _ in range(rounds):
        alone.append({name: rates({name: each}, threads, seconds)[name] for name, each in models.items()})
        together.append(rates(models, threads, seconds))
    kept = [[each[name] / by_itself[name] for name in models]
            for each, by_itself in zip(together, alone, strict=True)]  # fmt: skip
    fairness = statistics.median(min(each) / max(each) for each in kept)
    return {"alone": medians(alone), "together": medians(together), "fairness": fairness}


def main() -> None:
    as_it_is = argparse.RawDescriptionHelpFormatter
    command = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_is)
    command.add_argument("--compiled", action="store_true", help="with torch.compile; else eager")
    command.add_argument("--threads", type=int, nargs="+", default=[1, 4, 8])
    command.add_argument("--seconds", type=float, default=1.0, help="of a measurement")
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--json", type=Path, help="write the figures there")
    options = command.parse_args()
    torch.manual_seed(7)
    models = {name: Served(name, options.compiled) for name in MODELS}
    answers = sum(check(models, threads) for threads in options.threads)
    mode = "compiled" if options.compiled else "eager"
    print(f"calls/s, {mode}, device heddle ({torch.heddle.get_device_name()})")
    columns = [f"{name}, {how}" for how in ("alone", "all at once") for name in MODELS]
    print(f"\n| threads for each | {' | '.join(columns)} | fairness |")
    print("| --- " * (2 + 2 * len(MODELS)) + "|")
    figures = {}
    for threads in options.threads:
        found = measure(models, threads, options.seconds, options.rounds)
        figures[threads] = found
        cells = [f"{found[how][name]:.0f}" for how in ("alone", "together") for name in MODELS]
        print(f"| {threads} | {' | '.join(cells)} | {found['fairness']:.2f} |", flush=True)
    if options.json:
        told = {"mode": mode, "answers": answers, "threads": figures}
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(
        f"\n{answers} answers from {', '.join(map(str, options.threads))} threads for each model, all right"
    )


if __name__ == "__main__":
    main()
