"""Where the time of a round of few callers goes, from a trace of cuda_callers: medians in microseconds.

usage: caller_spans.py TRACE [--json]

TRACE is what `echo "8 0 1 0.03" | cuda_callers --model FILE --max_batch 256 --trace TRACE` leaves. It is of
callers whose batches run one after the other, such as eight. A round begins with a leader's run: `before`
its submission, the `submission` itself, until its result is `published`, and until the `next` leader's run
begins. The first rounds build graphs and are left out.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import statistics
import sys
from pathlib import Path

FIRST = 50  # rounds


def spans(events: list[dict], category: str, name: str) -> list[tuple[float, float, int]]:
    """(begin, end, thread), in order."""
    found = (e for e in events if (e["ph"], e.get("cat"), e["name"]) == ("X", category, name))
    return sorted((e["ts"], e["ts"] + e["dur"], e["tid"]) for e in found)


def rounds(events: list[dict]) -> list[dict[str, float]]:
    runs, submissions = spans(events, "batch", "run"), spans(events, "cuda", "submit")
    made = []
    for (begin, end, thread), (following, _, _) in itertools.pairwise(runs):
        first, last = (bisect.bisect_left(submissions, (at,)) for at in (begin, end))
        own = [each for each in submissions[first:last] if each[2] == thread]
        if len(own) != 1:
            continue
        submitted, over, _ = own[0]
        made.append(
            {
                "before": submitted - begin,
                "submission": over - submitted,
                "published": end - over,
                "next": following - end,
            }
        )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    made = rounds(json.loads(options.trace.read_text())["traceEvents"])[FIRST:]
    if not made:
        print(f"caller_spans.py: {options.trace} has no more than {FIRST} rounds", file=sys.stderr)
        return 1
    medians = {name: statistics.median(each[name] for each in made) for name in made[0]}
    told = {"rounds": len(made), **{name: round(us, 1) for name, us in medians.items()}}
    print(json.dumps(told) if options.json else "  ".join(f"{name} {us:g}" for name, us in told.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
