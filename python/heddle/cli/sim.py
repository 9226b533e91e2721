"""heddle sim: replay a plan on the simulated device, by its seed, and say what happened."""

from __future__ import annotations

import json
from pathlib import Path

from heddle import _heddle
from heddle.errors import InvalidError

NOT_AS_IT_SHOULD = 1


def add_parser(commands) -> None:
    parser = commands.add_parser("sim", help="replay a plan on the simulated device, and say what happened")
    parser.add_argument("--seed", type=int, required=True, help="decides every order and time of the device")
    parser.add_argument(
        "--plan",
        default="",
        help="a file of lines 'scenario NAME' and 'fault NAME NTH', or a scenario's name",
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(execute=execute)


def plan_text(plan: str) -> str:
    """The lines of a plan; a name alone, of no file, is that of a scenario."""
    path = Path(plan)
    if plan and path.is_file():
        return path.read_text(encoding="utf-8")
    if plan and (path.suffix or len(path.parts) > 1):
        raise InvalidError(f"there is no plan '{plan}': it is neither a file nor a scenario's name")
    return f"scenario {plan}" if plan else ""


def lines_of(report: dict) -> list[str]:
    faults = ", ".join(
        f"{fault['fault']} {fault['nth']}{'+' if fault['lasting'] else ''}" for fault in report["faults"]
    )
    lines = [
        f"seed {report['seed']}, scenario {report['scenario']}: {report['meaning']}",
        f"faults: {faults or 'none'}",
        "",
        f"{'virtual ms':>12}  queue  submission  event",
    ]
    for event in report["events"]:
        queue = event["queue"] or "-"
        submission = event["submission"] or "-"
        what = f"{event['event']:<10} {event['detail']}".rstrip()
        lines.append(f"{event['at_ns'] / 1e6:12.6f}  {queue:>5}  {submission:>10}  {what}")
    lines += [
        "",
        f"{report['operations']} operations handed in, "
        f"{report['values_right']} of {report['values_checked']} downloads right",
        f"violation: {report['violation'] or 'none'}",
        f"error: {report['error']}: {report['message']}" if report["error"] else "error: none",
    ]
    return lines


def is_right(report: dict) -> bool:
    return (
        not report["error"]
        and not report["violation"]
        and report["values_right"] == report["values_checked"] > 0
    )


def execute(options) -> int:
    if not 0 <= options.seed < 1 << 64:
        raise InvalidError(f"a seed is a number from 0 to {(1 << 64) - 1}, not {options.seed}")
    text = _heddle.replay(options.seed, plan_text(options.plan))
    report = json.loads(text)
    print(json.dumps(report, indent=1) if options.json else "\n".join(lines_of(report)))
    return 0 if is_right(report) else NOT_AS_IT_SHOULD
