"""Judge the tree by the rules of docs/design.md and CONTRIBUTING.md, and say where and why it breaks them.

usage: tidy.py [--root DIR] [--locks]

Prints one line per finding, `path:line: rule: what is wrong`, and exits with 1 when there is any.
--locks prints the table rows that docs/concurrency.md needs for the locks and atomics of the tree.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tidy_rules import bans, documents, globals_and_locks, layers, metal_api, sizes
from tidy_rules.tree import Finding, Tree

RULES = [
    *layers.RULES,
    *sizes.RULES,
    *bans.RULES,
    *globals_and_locks.RULES,
    *documents.RULES,
    *metal_api.RULES,
]


def findings(tree: Tree) -> list[Finding]:
    return sorted({finding for rule in RULES for finding in rule(tree)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--locks", action="store_true", help="print rows for docs/concurrency.md")
    arguments = parser.parse_args()
    tree = Tree.read(arguments.root)
    if arguments.locks:
        for lock in globals_and_locks.locks(tree):
            print(f"| `{lock.path}` | `{lock.name}` | {lock.kind} |  |")
        return 0
    found = findings(tree)
    for finding in found:
        print(finding)
    print(f"tidy: {len(tree.files)} files, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
