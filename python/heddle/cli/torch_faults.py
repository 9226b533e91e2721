"""What is known to go wrong when several threads use PyTorch's mps device, by version of PyTorch.

The one source of `heddle doctor`'s section on PyTorch and of the table in docs/pytorch-mps.md
(``python -m heddle.cli.torch_faults`` prints it). From public reports as of TABLE_DATE; nothing here was run
by us on a Mac. PyTorch is never imported.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from dataclasses import dataclass

TABLE_DATE = "2026-11-21"
NEWEST_RELEASE = "2.14.0"  # the newest one that the reports speak of


@dataclass(frozen=True)
class Fault:
    what: str
    why: str
    do: str
    reports: str
    since: str  # the first version known or reported to have it
    before: str | None = None  # the first without it; None: no release is known to be without


FAULTS = (
    Fault(
        "two threads that run operators may kill the process (a signal in Metal, no exception), or hang it",
        "threads share one stream, and some operators take its encoder outside the stream's queue",
        "one thread for all calls: heddle.torch.guard_mps() or heddle.BatchQueue",
        "predecessor on 2.9.1; Wan2GP#2014 on 2.13; pytorch#197805 on 2.14.0 (8 of 8 runs) and "
        "2.15.0.dev20260919; "
        "repairs #197836 and #198039 open",
        since="1.12",
    ),
    Fault(
        "two threads that meet a kernel for the first time may corrupt memory",
        "the shader library's caches are maps without a lock",
        "one thread for all calls, or run every kernel once before threads start",
        "pytorch#167541, #197805, #197837; a lock came with nightlies after 2.15.0.dev20260919",
        since="2.9",
        before="2.15.0.dev20260920",
    ),
    Fault(
        "torch.nonzero (and printing a tensor, which calls it) from two threads aborts the process",
        "synchronize() was called outside the stream's queue",
        "update PyTorch",
        "pytorch#100285 on 2.0.0; repaired by #108996, merged 2023-09-13",
        since="1.12",
        before="2.2",
    ),
    Fault(
        "torch.mps.synchronize() and Event.synchronize() stop every Python thread while they wait",
        "they keep the GIL",
        "poll Event.query(), or wait in heddle.torch.guard_mps()'s thread by .cpu()",
        "by reading PyTorch's sources, the newest of which was not seen",
        since="2.0",
    ),
    Fault(
        "torch.mps.synchronize() never returns after a kernel trapped",
        "the GPU's fault does not reach the waiting thread",
        "bound the wait: heddle.BatchQueue(hang_after=...)",
        "pytorch#144634, reported 2025-01, open",
        since="2.5",
    ),
    Fault(
        "memory grows with every new input shape, gigabytes after some hundred",
        "one compiled graph per shape is kept for good",
        "round lengths and batch sizes to a few (BatchQueue's buckets= and preferred=); call "
        "torch.mps.empty_cache(), which frees graphs only in versions with #181485",
        "pytorch#132596 on 2.4.0, #181213, #181485",
        since="2.4",
    ),
    Fault(
        "Tensor.record_stream does nothing: memory may be reused while another stream reads it",
        "the device was built for one stream",
        "keep the tensor until the other stream is synchronised",
        "pytorch#193464, which closed 2026-09-07 with a review remark about a dead lock unsettled",
        since="1.12",
        before="2.15",
    ),
    Fault(
        "threads cannot have streams of their own: there is no public way to make or choose one",
        "the API (torch.mps.Stream, stream, set_stream) came after 2.14.0; events stay on the default stream "
        "(#194111)",
        "batch instead of using streams",
        "pytorch#190375, #191415, #194111",
        since="1.12",
        before="2.15",
    ),
    Fault(
        "pin_memory() may hand out memory that queued work still writes to",
        "the unified-memory allocator of 2026-07 forgot what is in flight",
        "torch.mps.synchronize() before pinning",
        "pytorch#193819, repaired 2026-08; whether 2.14.0 has the repair is not known here",
        since="2.14.0.dev20260713",
        before="2.15",
    ),
    Fault(
        "a forked child that uses the device aborts",
        "Metal does not survive a fork",
        "start processes with spawn",
        "stash#1032",
        since="1.12",
    ),
)


def parse(version: str) -> tuple[int, ...]:
    """Comparable: "2.14.0.dev20260713" comes before "2.14.0", "2.13.0+cpu" is 2.13.0."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise ValueError(f"{version!r} is no version")
    numbers = tuple(int(part or 0) for part in match.groups())
    early = re.match(r"\.?(dev|a|b|rc)(\d+)", version[match.end() :])
    stage = ("dev", "a", "b", "rc").index(early[1]) if early else 4
    return (*numbers, stage, int(early[2]) if early else 0)


def known_faults(version: str) -> list[Fault]:
    """Those that the version has, as far as is known."""
    here = parse(version)
    return [
        fault
        for fault in FAULTS
        if parse(fault.since) <= here and (fault.before is None or here < parse(fault.before))
    ]


def is_newer_than_the_table(version: str) -> bool:
    return parse(version) > parse(NEWEST_RELEASE)


def installed_version() -> str | None:
    """PyTorch's, without importing it; None when it is not installed."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def examine(version: str | None) -> dict:
    """What `heddle doctor` reports."""
    if version is None:
        return {"version": None, "faults": []}
    faults = [{"what": fault.what, "why": fault.why, "do": fault.do} for fault in known_faults(version)]
    return {"version": version, "faults": faults, "newer_than_table": is_newer_than_the_table(version)}


def print_section(report: dict, on_a_mac: bool = sys.platform == "darwin") -> None:
    if report["version"] is None:
        print("PyTorch: not installed")
        return
    where = "" if on_a_mac else " (on a Mac; this is none)"
    print(f"PyTorch {report['version']}: faults known of its mps device under threads{where}")
    if report["newer_than_table"]:
        print(f"  newer than the table of {TABLE_DATE}: a fault listed here may have been repaired")
    for fault in report["faults"]:
        print(f"  {fault['what']}\n    because {fault['why']}\n    do: {fault['do']}")


def table() -> str:
    """The table of docs/pytorch-mps.md."""
    lines = [
        "| versions | what happens | because | what to do | reports |",
        "| --- | --- | --- | --- | --- |",
    ]
    for fault in FAULTS:
        until = f"before {fault.before}" if fault.before else "no repaired release known"
        row = (f"from {fault.since}, {until}", fault.what, fault.why, fault.do, fault.reports)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
