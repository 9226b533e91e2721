"""Runs PyTorch's OpInfo database on the device and writes what came out.

    python torch_backend/tools/opinfo_report.py [--find] [--document docs/pytorch.md] [--only NAME ...]
    python torch_backend/tools/opinfo_report.py --denominator [--document docs/pytorch.md]
    python torch_backend/tools/opinfo_report.py --mps [--document docs/pytorch.md]

--find tries every OpInfo and rewrites tests/opinfo_scope.tsv (a case is in scope when at least half of its
samples run and none is wrong before it is entered by hand or found right) and tests/opinfo_operators.tsv.
Without it, the cases in scope are run. --denominator and --mps run nothing: one counts the OpInfos in scope,
and those of tests/opinfo_excluded.tsv by their reasons; the other the forward operators of PyTorch's MPS
backend that have a kernel, and those of tests/mps_excluded.tsv by theirs. --document puts the table between
the marks in that file. Exit code 1 when a result is wrong.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import heddle.torch
import mps_coverage
import opinfo_cases
import opinfo_coverage
import torch
from opinfo_cases import Case, Outcome

BEGIN, END = "<!-- opinfo: begin -->", "<!-- opinfo: end -->"
DENOMINATOR_BEGIN, DENOMINATOR_END = "<!-- op_db: begin -->", "<!-- op_db: end -->"
MPS_BEGIN, MPS_END = "<!-- mps: begin -->", "<!-- mps: end -->"


def find(device: str, only: list[str]) -> dict[Case, Outcome]:
    found = {}
    for case in opinfo_cases.supported_cases():
        if only and case.name not in only:
            continue
        try:
            outcome = opinfo_cases.run_case(case, device)
        except Exception as error:  # the sample itself cannot be moved: sparse, quantised
            print(f"{case}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        if outcome.ran > outcome.refused:
            found[case] = outcome
        for wrong in outcome.wrong[:2]:
            print(f"{case}: {wrong[:300]}", flush=True)
    return found


def write_scope(found: dict[Case, Outcome]) -> None:
    lines = ["# OpInfo\tdtype\tsamples that run\tsamples refused (NotImplementedError)"]
    for case, outcome in sorted(found.items(), key=lambda item: str(item[0])):
        dtype = str(case.dtype).removeprefix("torch.")
        lines.append(f"{case.name}\t{dtype}\t{outcome.ran}\t{outcome.refused}")
    opinfo_cases.SCOPE.write_text("\n".join(lines) + "\n")


def write_operators(cases: list[Case], device: str) -> None:
    registered = {name for name in heddle.torch._C.operators() if opinfo_coverage.is_functional(name)}
    before = opinfo_coverage.read_list()
    unknown = {name for name in heddle.torch._C.operators_unknown() if name in before}
    reasons = {name: reason for name, (case, reason) in before.items() if case == "-"}
    runs: dict[str, Case] = {}
    for case in cases:
        if len(runs) == len(registered):
            break
        for name in opinfo_coverage.operators_of(case, device) & registered:
            runs.setdefault(name, case)
    named = {name: str(case) for name, case in runs.items()} | {name: before[name][0] for name in unknown}
    lines = ["# operator\ta case that runs it, or -\twhy none does"]
    lines += [
        f"{name}\t{named[name]}" if name in named else f"{name}\t-\t{reasons.get(name, '')}"
        for name in sorted(registered | unknown)
    ]
    opinfo_coverage.LIST.write_text("\n".join(lines) + "\n")


def table(found: dict[Case, Outcome]) -> str:
    """One line per OpInfo: its dtypes, samples, refusals, failures."""
    by_name = defaultdict(list)
    for case, outcome in found.items():
        by_name[case.name].append((case, outcome))
    ran = sum(outcome.ran for outcome in found.values())
    refused = sum(outcome.refused for outcome in found.values())
    wrong = sum(len(outcome.wrong) for outcome in found.values())
    lines = [
        f"{len(by_name)} OpInfos, {len(found)} cases of OpInfo and dtype, {ran} samples: **{wrong} failed**; "
        f"{refused} samples are refused with `NotImplementedError`.",
        "",
        "| OpInfo | dtypes | samples | refused | failed |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, cases in sorted(by_name.items()):
        dtypes = " ".join(str(case.dtype).removeprefix("torch.") for case, _ in cases)
        figures = [
            sum(o.ran for _, o in cases),
            sum(o.refused for _, o in cases),
            sum(len(o.wrong) for _, o in cases),
        ]
        lines.append(f"| `{name}` | {dtypes} | " + " | ".join(map(str, figures)) + " |")
    without = [(name, reason) for name, (case, reason) in opinfo_coverage.read_list().items() if case == "-"]
    lines += ["", f"Operators that no OpInfo case runs: {len(without)}.", ""]
    if without:
        lines += ["| operator | because |", "| --- | --- |"]
        lines += [f"| `{name}` | {reason} |" for name, reason in without]
    return "\n".join(lines)


def reasons_table(what: str, reasons: Counter[str]) -> list[str]:
    rows = [f"| {count} | {reason} |" for reason, count in sorted(reasons.items())]
    return [f"| {what} | because |", "| --- | --- |", *rows]


def denominator() -> str:
    """Every OpInfo of PyTorch, in scope or by the reason why it is not."""
    scope = {case.name for case in opinfo_cases.read_scope()}
    reasons = Counter(opinfo_coverage.read_excluded().values())
    lines = [
        f"PyTorch's op_db has {len(opinfo_cases.op_infos())} OpInfos: {len(scope)} are in scope, "
        f"{reasons.total()} are not.",
        "",
        *reasons_table("OpInfos not in scope", reasons),
    ]
    return "\n".join(lines)


def of_mps() -> str:
    """Every forward operator of PyTorch's MPS backend, with a kernel here or by the reason why not."""
    named, excluded = mps_coverage.of_this_pytorch(), mps_coverage.read_excluded()
    reasons = Counter(excluded.get(name, "none") for name in named if not mps_coverage.has_kernel(name))
    version = ".".join(torch.__version__.split(".")[:2])
    lines = [
        f"PyTorch {version}'s MPS backend has {len(named)} forward operators: {len(named) - reasons.total()} "
        f"have a kernel here, {reasons.total()} do not.",
        "",
        *reasons_table("operators of MPS without a kernel", reasons),
    ]
    return "\n".join(lines)


def put_into(document: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    before, _, rest = document.read_text().partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise SystemExit(f"{document} has no {begin} ... {end}")
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--find", action="store_true")
    parser.add_argument("--denominator", action="store_true")
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--device", default="heddle")
    parser.add_argument("--document", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    for asked, text, *marks in (
        (options.denominator, denominator, DENOMINATOR_BEGIN, DENOMINATOR_END),
        (options.mps, of_mps, MPS_BEGIN, MPS_END),
    ):
        if asked:
            print(text())
            if options.document:
                put_into(options.document, text(), *marks)
            return 0
    begin = time.monotonic()
    if options.find:
        found = find(options.device, options.only)
        if not options.only:
            write_scope(found)
            write_operators(list(found), options.device)
    else:
        cases = [case for case in opinfo_cases.read_scope() if not options.only or case.name in options.only]
        found = {case: opinfo_cases.run_case(case, options.device) for case in cases}
        for case, outcome in found.items():
            for wrong in outcome.wrong[:2]:
                print(f"{case}: {wrong[:300]}")
    wrong = sum(len(outcome.wrong) for outcome in found.values())
    ran = sum(outcome.ran for outcome in found.values())
    print(f"{len(found)} cases, {ran} samples, {wrong} wrong, {time.monotonic() - begin:.0f} s")
    if options.document:
        put_into(options.document, table(found))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
