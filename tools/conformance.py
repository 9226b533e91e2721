"""Run ONNX's node tests through heddle.onnx_backend: passed, out of scope or failed, per operator.

usage: conformance.py [--only OPERATOR,OPERATOR] [--test WORD] [--json FILE] [--document FILE] [--failed]

The tests run in a child process, one after the other; one that hangs or kills the child counts as failed, and
a new child goes on with the next. A test that is out of scope (tools/conformance_scope.py says why) must be
refused with heddle's UnsupportedError or InvalidError. Exit code 1 when a test failed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
import time
import warnings
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx
from conformance_scope import WIDER, why_out_of_scope
from onnx import TensorProto, numpy_helper
from tqdm import tqdm

PASSED, OUT_OF_SCOPE, FAILED = "passed", "out of scope", "failed"
TIMEOUT_S = 30.0
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Outcome:
    """What running one test gave. `kind`: passed, refused, wrong (values or an unexpected error), died."""

    kind: str
    message: str = ""
    bound: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Result:
    name: str
    operator: str
    verdict: str
    why: str
    bound: list[str]
    seconds: float


def collect_cases() -> list:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return sorted(load_model_tests(kind="node"), key=lambda case: case.name)


def operator_of(case, by_name: dict) -> str:
    """The operator under test; a test of a function's expansion belongs to the function."""
    plain = by_name.get(re.sub(r"_expanded.*", "", case.name), case)
    node = plain.model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def as_array(value):
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def run_case(case) -> Outcome:
    """Prepares, runs and compares with the test's own tolerance, or that of WIDER."""
    from onnx.backend.test.runner import Runner

    import heddle
    import heddle.onnx_backend

    prepared = None
    atol = WIDER[case.name][0] if case.name in WIDER else case.atol
    begin = time.perf_counter()
    try:
        prepared = heddle.onnx_backend.prepare(case.model)
        for inputs, expected in case.data_sets:
            got = prepared.run([as_array(value) for value in inputs])
            Runner.assert_similar_outputs(
                [as_array(value) for value in expected], got, rtol=case.rtol, atol=atol
            )
        outcome = Outcome("passed")
    except (heddle.UnsupportedError, heddle.InvalidError) as error:
        outcome = Outcome("refused", str(error))
    except Exception as error:  # whatever a test does wrong is that test's result
        outcome = Outcome("wrong", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
    outcome.bound = sorted(prepared.bound) if prepared else []
    outcome.seconds = time.perf_counter() - begin
    return outcome


def work(cases: list, pipe) -> None:
    """The child: a number in, an outcome out. Numpy's warnings are the tests' own."""
    warnings.simplefilter("ignore")
    while (index := pipe.recv()) is not None:
        pipe.send(run_case(cases[index]))


class Child:
    """A process that runs tests. It is forked, so that the cases are made once."""

    def __init__(self, cases: list) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(cases, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def run(self, index: int) -> Outcome:
        """The outcome; kind "died" means that this child is gone."""
        self.pipe.send(index)
        try:
            if self.pipe.poll(TIMEOUT_S):
                return self.pipe.recv()
            self.process.kill()
            return Outcome("died", f"not over after {TIMEOUT_S:.0f} s")
        except EOFError:
            self.process.join()
            return Outcome("died", f"the process ended with {self.process.exitcode}")

    def end(self) -> None:
        if self.process.is_alive():
            self.pipe.send(None)
        self.process.join()


def judge(outcome: Outcome, reason: str | None) -> tuple[str, str]:
    """Verdict and its explanation."""
    if outcome.kind == "passed":
        return PASSED, ""
    if reason and outcome.kind == "refused":
        return OUT_OF_SCOPE, reason
    if reason:
        return FAILED, f"out of scope ({reason}), yet not refused: {outcome.message}"
    return FAILED, f"{outcome.kind}: {outcome.message}"


def run(cases: list, operators: list[str]) -> list[Result]:
    results = []
    tqdm.monitor_interval = 0  # a thread would make fork unsafe
    child = Child(cases)
    for index, case in enumerate(tqdm(cases, unit="test", leave=False, disable=not sys.stderr.isatty())):
        outcome = child.run(index)
        if outcome.kind == "died":
            child = Child(cases)
        verdict, why = judge(outcome, why_out_of_scope(case.model, operators[index]))
        results.append(
            Result(case.name, operators[index], verdict, why, outcome.bound, round(outcome.seconds, 4))
        )
    child.end()
    return results


def figures(results: list[Result]) -> dict[str, int]:
    """Whole numbers that the document ends with. An operator passes when every official test of it does."""
    per_operator = defaultdict(Counter)
    for result in results:
        per_operator[result.operator][result.verdict] += 1
    count = Counter(result.verdict for result in results)
    return {
        "tests": len(results),
        "passed": count[PASSED],
        "out_of_scope": count[OUT_OF_SCOPE],
        "failed": count[FAILED],
        "bound": sum(bool(r.bound) for r in results if r.verdict == PASSED),
        "operators": len(per_operator),
        "operators_run": sum(bool(c[PASSED]) for c in per_operator.values()),
        "operators_passed": sum(c[PASSED] == c.total() for c in per_operator.values()),
    }


def document(results: list[Result]) -> str:
    """docs/conformance.md."""
    rows = defaultdict(Counter)
    reasons: dict[str, list[Result]] = defaultdict(list)
    n = figures(results)
    for result in results:
        rows[result.operator][result.verdict] += 1
        if result.verdict == OUT_OF_SCOPE:
            reasons[result.why].append(result)
    lines = [
        "# Conformance",
        "",
        f"The node tests of the `onnx` package ({onnx.__version__}), run through its backend interface",
        "(`heddle.onnx_backend`) on the host device. `make conformance` runs them and writes this page.",
        "",
        "- **passed**: shape and dtype as expected, values within the test's own tolerance (but for the",
        "  tests of the third table).",
        "- **out of scope**: refused with an error that says what is not supported; the reasons are below.",
        "- **failed**: anything else.",
        "",
        f"**{n['passed']} of {n['tests']} tests pass: {n['passed'] - n['bound']} as they are, "
        f"{n['bound']} with inputs bound as constants.**",
        "To Heddle a value that decides a shape (the `shape` of Reshape, the `axes` of ReduceSum, the trip",
        "count of Loop) is part of the model, while the tests give it as an input: such an input is made a",
        "constant, as exporters write it. The column *bound* counts the passed tests where that was done.",
        f"Of {n['operators']} operators, {n['operators_passed']} pass every official test, and "
        f"{n['operators_run'] - n['operators_passed']} more pass some.",
        "A test of an operator's expansion into a function counts for the operator.",
        "",
        "| operator | tests | passed | bound | out of scope | failed |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    bound = Counter(r.operator for r in results if r.verdict == PASSED and r.bound)
    for name in sorted(rows):
        c = rows[name]
        cells = (c.total(), c[PASSED], bound[name], c[OUT_OF_SCOPE], c[FAILED])
        lines.append(f"| {name} | " + " | ".join(str(n) if n else "" for n in cells) + " |")
    lines += ["", "| out of scope because | tests | of operators |", "| --- | ---: | --- |"]
    for reason, those in sorted(reasons.items()):
        names = ", ".join(sorted({result.operator for result in those}))
        lines.append(f"| {reason} | {len(those)} | {names} |")
    lines += ["", "| wider tolerance | absolute | because |", "| --- | ---: | --- |"]
    lines += [f"| {name} | {atol:g} | {why} |" for name, (atol, why) in sorted(WIDER.items())]
    failed = [result for result in results if result.verdict == FAILED]
    if failed:
        lines += ["", "| failed test | why |", "| --- | --- |"]
        lines += [f"| {r.name} | {' '.join(r.why.split()).replace('|', '/')[:200]} |" for r in failed]
    share = 100 * n["passed"] / max(1, n["passed"] + n["failed"])
    lines += [
        "",
        "| figure | |",
        "| --- | ---: |",
        f"| operators tested | {n['operators']} |",
        f"| of these with some test passed | {n['operators_run']} |",
        f"| of these with every official test passed | {n['operators_passed']} |",
        f"| tests | {n['tests']} |",
        f"| passed | {n['passed']} |",
        f"| of these with inputs bound | {n['bound']} |",
        f"| out of scope | {n['out_of_scope']} |",
        f"| failed in scope | {n['failed']} |",
        f"| passed, as a share of the tests in scope | {share:.1f} % |",
        "",
    ]
    return "\n".join(lines)


def show(results: list[Result], every: bool) -> None:
    failed = [result for result in results if result.verdict == FAILED]
    per_operator = Counter(result.operator for result in failed)
    for name, count in sorted(per_operator.items()):
        first = next(result for result in failed if result.operator == name)
        print(f"{name}: {count} failed, {first.name}: {first.why[:220]}")
        if every:
            for result in failed:
                if result.operator == name and result is not first:
                    print(f"    {result.name}: {result.why[:220]}")
    n = figures(results)
    print(
        f"{n['operators_passed']} of {n['operators']} operators pass every test; "
        f"{n['passed']} tests passed, {n['out_of_scope']} out of scope, {n['failed']} failed"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="operators, separated by commas")
    parser.add_argument("--test", default="", help="tests whose name contains this word")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the page; needs all tests")
    parser.add_argument("--failed", action="store_true", help="print every failed test, not one an operator")
    arguments = parser.parse_args()
    chosen = [name for name in arguments.only.split(",") if name]
    if arguments.document and (chosen or arguments.test):
        parser.error("--document is about all tests; leave --only and --test out")
    cases = collect_cases()
    by_name = {case.name: case for case in cases}
    operators = {case.name: operator_of(case, by_name) for case in cases}
    if unknown := set(chosen) - set(operators.values()):
        parser.error(f"no test is about {', '.join(sorted(unknown))}")
    cases = [c for c in cases if (not chosen or operators[c.name] in chosen) and arguments.test in c.name]
    results = run(cases, [operators[case.name] for case in cases])
    show(results, arguments.failed)
    if arguments.json:
        report = {"figures": figures(results), "tests": [asdict(result) for result in results]}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if arguments.document:
        arguments.document.write_text(document(results), encoding="utf-8")
    return 1 if any(result.verdict == FAILED for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
