"""The command line: heddle run | bench | doctor | inspect | sim | guard | crash-rate."""

from __future__ import annotations

import argparse
import sys

from ..errors import Error
from . import bench, crash_rate, doctor, guard, inspect, run, sim


def main(argv: list[str] | None = None) -> int:
    """Parses the arguments and runs the command; returns the exit code.

    What the user can mend gives 1 and one line on stderr.
    """
    parser = argparse.ArgumentParser(
        prog="heddle", description="Run, measure and look into models under Heddle."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (run, bench, doctor, inspect, sim, guard, crash_rate):
        module.add_parser(commands)
    options = parser.parse_args(argv)
    try:
        return options.execute(options)
    except (Error, OSError, ValueError) as error:
        print(f"heddle {options.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
