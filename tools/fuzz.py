"""Run the targets of tests/fuzz, programs of libFuzzer's, for some seconds each, and judge them.

usage: fuzz.py [--build] [--seconds N] [--runs N] [--jobs N] [--only TARGET,TARGET] [--keep] [--json FILE]
               [--coverage FILE]

Each target begins with its committed corpus and a fixed seed. With --runs, a faster machine tries no input
that a slower one with more seconds does not. What it finds is kept in build/fuzz/corpus with --keep, and
forgotten otherwise. A failure prints its end and the command that repeats it. --coverage also
prints how many lines of src/onnx and src/api the targets reach together (fuzz_coverage.py); with --build it
builds the preset coverage for that.
"""

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import fuzz_coverage

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tests" / "fuzz"
PROGRAMS = ROOT / "build" / "asan" / "fuzz"
FOUND = ROOT / "build" / "fuzz"
SEED = 1
# A claim of more memory than there is is refused, as in tests/hostile.
SANITIZERS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "LSAN_OPTIONS": f"suppressions={ROOT}/tests/sanitizers/lsan.supp:print_suppressions=0",
}
LIMITS = (
    "-timeout=30",
    "-rss_limit_mb=3072",
    "-malloc_limit_mb=3072",
    "-max_len=4096",
    "-print_final_stats=1",
    "-print_funcs=0",
)


@dataclass
class Outcome:
    target: str
    wrong: str  # empty: nothing
    runs: int = 0
    edges: int = 0


def targets() -> list[str]:
    return sorted(path.name.removesuffix("_fuzz.cpp") for path in SOURCES.glob("*_fuzz.cpp"))


def build(preset: str) -> bool:
    configure = ["cmake", "--preset", preset]
    compile_all = [
        "cmake",
        "--build",
        f"build/{preset}",
        "-j",
        str(os.cpu_count() or 2),
        "--target",
        "fuzz_targets",
    ]
    return all(
        subprocess.run(words, cwd=ROOT, check=False).returncode == 0 for words in (configure, compile_all)
    )


@functools.cache
def launcher() -> tuple[str, ...]:
    # Clang's sanitizers do not know every place where recent kernels put things. Containers may refuse it.
    fixed = ("setarch", "-R")
    if shutil.which(fixed[0]) is None:
        return ()
    return () if subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode else fixed


def command(target: str, *options: str, programs: Path | None = None) -> list[str]:
    words = SOURCES / "dictionaries" / f"{target}.dict"
    return [
        *launcher(),
        str((programs or PROGRAMS) / target),
        *LIMITS,
        *([f"-dict={words}"] if words.exists() else []),
        *options,
    ]


def call(words: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    """`more`: of the environment."""
    environment = {**os.environ, **SANITIZERS, "HEDDLE_TUNE": "off", **more}
    return subprocess.run(
        words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip


def last_number(pattern: str, output: str) -> int:
    found = re.findall(pattern, output)
    return int(found[-1]) if found else 0


def run(target: str, seconds: int, most_runs: int, corpus: Path) -> Outcome:
    """`most_runs`: -1 for as many as there is time for."""
    committed = SOURCES / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    limits = (
        f"-max_total_time={seconds}",
        f"-runs={most_runs}",
        f"-seed={SEED}",
        f"-artifact_prefix={FOUND}/{target}-",
    )
    words = command(target, *limits, str(corpus), *([str(committed)] if committed.exists() else []))
    done = call(words)
    runs = last_number(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    edges = last_number(r"cov: (\d+)", done.stderr)
    if done.returncode == 0 and runs > 0:
        return Outcome(target, "", runs, edges)
    kept = re.findall(r"Test unit written to (\S+)", done.stderr)
    again = " ".join([*command(target), *kept[-1:]])
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("#", "stat::", "INFO:"))]
    return Outcome(target, "\n".join([*lines[-60:], f"again: {again}"]), runs, edges)


def coverage(names: Sequence[str], corpora: dict[str, Path]) -> fuzz_coverage.Counts:
    with tempfile.TemporaryDirectory() as folder:
        for target in names:
            inputs = [str(each) for each in (SOURCES / "corpus" / target, corpora[target]) if each.exists()]
            words = command(target, "-runs=0", *inputs, programs=fuzz_coverage.PROGRAMS)
            done = call(words, LLVM_PROFILE_FILE=str(Path(folder) / f"{target}.profraw"))
            if done.returncode != 0:
                raise RuntimeError(f"{target} did not end rightly on its inputs: {done.stderr[-2000:]}")
        return fuzz_coverage.by_folder(fuzz_coverage.files_counted(names, Path(folder)), ROOT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", action="store_true", help="build them first, in the preset asan")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=-1, help="of each target, at most")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="targets, separated by commas")
    parser.add_argument("--keep", action="store_true", help="what is found, in build/fuzz/corpus")
    parser.add_argument("--json", type=Path, help="what is wrong, by target")
    parser.add_argument("--coverage", type=Path, help="also print lines reached, and write them as JSON")
    arguments = parser.parse_args()
    presets = ["asan"] if arguments.coverage is None else ["asan", "coverage"]
    if arguments.build and not all(build(preset) for preset in presets):
        return 1
    names = [name for name in arguments.only.split(",") if name] or targets()
    unknown = [name for name in names if name not in targets()]
    if unknown:
        parser.error(f"no target named {', '.join(unknown)}; there are {', '.join(targets())}")
    FOUND.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as apart:
        begin = FOUND / "corpus" if arguments.keep else Path(apart)
        corpora = {name: begin / name for name in names}
        with ThreadPoolExecutor(arguments.jobs) as pool:
            outcomes = list(
                pool.map(lambda name: run(name, arguments.seconds, arguments.runs, corpora[name]), names)
            )
        for outcome in outcomes:
            verdict = "FAILED" if outcome.wrong else "ok"
            print(f"{outcome.target:<14} {outcome.runs:>9} runs  {outcome.edges:>6} edges  {verdict}")
        for outcome in outcomes:
            if outcome.wrong:
                print(f"\n{outcome.target}:\n{outcome.wrong}")
        if arguments.json:
            arguments.json.write_text(json.dumps({each.target: each.wrong for each in outcomes}, indent=1))
        if arguments.coverage:
            table = coverage(names, corpora)
            for folder, row in table.items():
                share = 100 * row["reached"] / max(row["lines"], 1)
                print(f"{folder:<14} {row['reached']} of {row['lines']} lines reached, {share:.1f} %")
            arguments.coverage.write_text(json.dumps(table, indent=1))
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
