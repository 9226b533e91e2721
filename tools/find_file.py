"""Print where an installed Python distribution keeps the file whose path ends in the given suffix.

usage: find_file.py DISTRIBUTION SUFFIX      (used by cmake/HeddlePython.cmake)
"""

import os
import sys
from importlib import metadata
from pathlib import Path


def find_file(distribution: str, suffix: str) -> Path | None:
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        path = Path(os.path.normpath(str(file.locate())))
        if path.as_posix().endswith("/" + suffix) and path.exists():
            return path
    return None


if __name__ == "__main__":
    found = find_file(sys.argv[1], sys.argv[2])
    if found is None:
        sys.exit(1)
    print(found)
