"""Apply each removal of tests/broken to a copy of the tree, and demand that the test it names fails there.

usage: broken.py [--list | --applies] [--kinds K,K | --except-kinds K,K] [--json FILE] [WORD ...]
       broken.py --jobs N [--packed DIR] [--seconds S] [--more FILE] [--kinds K,K] [--json FILE] [WORD ...]

Without words all patches are run, with words those whose name contains one of them. --applies only checks
that each patch has a header and applies to this tree. tests/broken/README.md says what a patch looks like,
and what the kinds of its tests are. --kinds takes the removals all of whose tests are of these kinds, and
--except-kinds all the others.

--jobs has N removals at once, each in a layer over one built tree (tools/broken_layers.py), of the kinds
release, cuda, avx2, sim and replay. --packed takes what tools/broken_pack.py laid down. None is handed out
after --seconds; --more goes on with those that an earlier file of --json has not run.

Exits with 1 when a patch does not apply, a build fails, or a test passes without what it tests; else with 3
when a removal was not run.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import broken_layers
import broken_pack
from broken_copy import Copy
from broken_layers import NOT_RUN, Layers, Outcome, Report
from removals import KINDS, LAYERED_KINDS, PATCHES, ROOT, Removal, applies
from verdict import tell_verdict


def run(removal: Removal, copy: Copy) -> list[str]:
    """What is wrong, empty when every named test noticed the removal."""
    copy.refresh()
    refused = applies(removal, copy.tree)
    return [f"does not apply: {refused.strip()}"] if refused else copy.wrong(removal)


def run_in_turn(chosen: list[Removal], only_applies: bool, file: Path | None) -> int:
    log = ROOT / "build" / "logs" / "broken_runs.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    copy = Copy(log)
    outcome = {}
    for removal in chosen:
        begin, copy.building_s = time.monotonic(), 0.0
        if only_applies:
            refused = applies(removal, ROOT, "--check")
            wrong = [f"does not apply: {refused.strip()}"] if refused else []
        else:
            wrong = run(removal, copy)
        outcome[removal.name] = wrong
        verdict = "error" if wrong else "applies" if only_applies else "noticed"
        building = f", {copy.building_s:5.1f} s of it building" if copy.building_s else ""
        took = time.monotonic() - begin
        print(f"{removal.name:<32} {took:6.1f} s{building}  {verdict}", flush=True)
        for line in wrong:
            print(f"    {line}", flush=True)
    return tell_verdict(outcome, file)


def run_in_layers(chosen: list[Removal], left_out: dict[str, str], arguments: argparse.Namespace) -> int:
    until = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    report = Report(arguments.json, left_out)
    if arguments.more:
        earlier = json.loads(arguments.more.read_text(encoding="utf-8"))["removals"]
        report.removals = {name: Outcome(**each) for name, each in earlier.items()}
        chosen = [each for each in chosen if report.removals.get(each.name, Outcome()).verdict == NOT_RUN]
    report.removals = {each.name: Outcome() for each in chosen} | report.removals
    report.write()
    if arguments.packed:
        broken_pack.use(arguments.packed.resolve(), ROOT / "build" / "broken" / "needs")
    if wrong := broken_layers.run(Layers(arguments.jobs), chosen, report, until):
        print(wrong)
        return 1
    return report.end()


def parsed() -> argparse.Namespace:
    def kinds(words: str) -> set[str]:
        chosen = set(words.split(","))
        if unknown := sorted(chosen - set(KINDS)):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: none of {', '.join(KINDS)}")
        return chosen

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="run the patches whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="name the patches and what they remove")
    parser.add_argument("--applies", action="store_true", help="only check headers and that patches apply")
    parser.add_argument("--json", type=Path, help="write the outcome of each patch to this file")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--kinds", type=kinds, help="removals all of whose tests are of these, with commas")
    either.add_argument("--except-kinds", type=kinds, help="the removals that --kinds leaves out")
    parser.add_argument("--jobs", type=int, help="so many at once, in layers: Linux, root")
    parser.add_argument("--packed", type=Path, metavar="DIR", help="what tools/broken_pack.py laid down")
    parser.add_argument("--seconds", type=float, metavar="S", help="from the start; none is handed out later")
    parser.add_argument("--more", type=Path, metavar="FILE", help="those that this file has not run")
    arguments = parser.parse_args()
    if arguments.jobs is None and (arguments.packed or arguments.seconds or arguments.more):
        parser.error("--packed, --seconds and --more belong to --jobs")
    if arguments.jobs is not None and arguments.except_kinds:
        parser.error(f"--jobs runs removals of {', '.join(LAYERED_KINDS)}: --kinds takes fewer")
    if arguments.jobs is not None and arguments.kinds and arguments.kinds - set(LAYERED_KINDS):
        parser.error(f"--jobs has no layer for {', '.join(sorted(arguments.kinds - set(LAYERED_KINDS)))}")
    removals = [Removal.read(path) for path in sorted(PATCHES.glob("*.patch"))]
    arguments.chosen = [
        r for r in removals if not arguments.words or any(word in r.name for word in arguments.words)
    ]
    if not arguments.chosen and arguments.words:
        parser.error(
            f"no patch of {PATCHES.relative_to(ROOT)} has a name with {' or '.join(arguments.words)}"
        )
    return arguments


def why_left_out(removal: Removal, only: set[str], never: set[str]) -> str:
    """Empty: it is run."""
    others = sorted(removal.kinds() - only)
    if others:
        return f"needs {', '.join(others)}"
    return f"needs {', '.join(sorted(removal.kinds()))} alone" if removal.kinds() <= never else ""


def main() -> int:
    arguments = parsed()
    only = arguments.kinds or set(KINDS if arguments.jobs is None else LAYERED_KINDS)
    told = {each.name: why_left_out(each, only, arguments.except_kinds or set()) for each in arguments.chosen}
    left_out = {name: why for name, why in told.items() if why}
    chosen = [each for each in arguments.chosen if each.name not in left_out]
    if arguments.list:
        for removal in chosen:
            print(f"{removal.name:<32} {removal.removes}")
        return 0
    for name, why in left_out.items():
        print(f"{name:<50} left out: {why}")
    if left_out:
        print(f"{len(left_out)} left out, {len(chosen)} to run", flush=True)
    if arguments.jobs is not None:
        return run_in_layers(chosen, left_out, arguments)
    return run_in_turn(chosen, arguments.applies, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
