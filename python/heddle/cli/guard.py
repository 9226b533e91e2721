"""heddle guard: run a program with the guard against Apple's GPU driver race inserted."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from heddle import guard
from heddle.errors import InvalidError

# macOS drops DYLD_INSERT_LIBRARIES for programs in these folders.
PROTECTED = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/System/")


def add_parser(commands) -> None:
    parser = commands.add_parser("guard", help="run a program with the guard against Apple's GPU driver race")
    parser.add_argument("--library", action="store_true", help="print where the guard's library lies")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    parser.set_defaults(execute=execute)


def find_program(command: list[str]) -> str:
    """The program's path; a warning when macOS will not let anything be inserted into it."""
    program = shutil.which(command[0])
    if program is None:
        raise InvalidError(f"'{command[0]}' is no program on the PATH")
    if sys.platform == "darwin" and os.path.realpath(program).startswith(PROTECTED):
        print(
            f"heddle guard: macOS inserts nothing into {program}; use an interpreter of your own "
            "(Homebrew, a venv of it, conda)",
            file=sys.stderr,
        )
    return program


def execute(options) -> int:
    if options.library:
        print(guard.library())
        return 0
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise InvalidError("a program is needed: heddle guard python my_program.py")
    program = find_program(command)
    environment = guard.guarded_environment(dict(os.environ))
    sys.stdout.flush()
    os.execve(program, command, environment)
