"""Install a build into a folder of its own, build tests/consumer against it, and run it.

usage: check_install.py BUILD_FOLDER

Shows that find_package(heddle) works, that the installed header needs nothing else, and that libheddle finds
oneDNN and protobuf beside itself: the consumer runs without LD_LIBRARY_PATH and the virtual environment.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MUST_EXIST = [
    "include/heddle/heddle.h",
    "lib*/**/libheddle.so",
    "lib*/**/libdnnl.so.3",
    "lib*/**/libprotobuf-lite.so.*",
    "lib*/**/heddle-config.cmake",
    "lib*/**/heddle-config-version.cmake",
    "share/doc/heddle/LICENSE",
    "share/doc/heddle/LICENSES.md",
    "share/doc/heddle/libdnnl.so.3.license.txt",
    "share/doc/heddle/libprotobuf-lite.so.*.license.txt",
]


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"'{' '.join(words)}' failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def needed_from_outside(library: Path, prefix: Path, env: dict[str, str]) -> list[str]:
    """Libraries that the loader finds neither in the prefix nor among the system's own, or not at all."""
    strange = []
    for line in run("ldd", library, env=env).splitlines():
        name, _, place = line.strip().partition(" => ")
        path = place.split(" (")[0]
        if place and not path.startswith((str(prefix), "/lib/", "/usr/lib/", "/lib64/")):
            strange.append(f"{name} => {path}")
    return strange


def check(build: Path, work: Path) -> str:
    prefix = work / "prefix"
    run("cmake", "--install", build, "--prefix", prefix)
    missing = [pattern for pattern in MUST_EXIST if not list(prefix.glob(pattern))]
    if missing:
        sys.exit(f"the install tree lacks {', '.join(missing)}")
    headers = [path.relative_to(prefix).as_posix() for path in prefix.glob("include/**/*") if path.is_file()]
    if headers != ["include/heddle/heddle.h"]:
        sys.exit(f"heddle.h is the only header to install, but there are {headers}")

    env = {"PATH": os.environ["PATH"], "HOME": str(work)}
    library = next(prefix.glob("lib*/**/libheddle.so"))
    strange = needed_from_outside(library, prefix, env)
    if strange:
        sys.exit(f"libheddle.so needs libraries from outside the install tree: {'; '.join(strange)}")

    consumer = work / "consumer"
    shutil.copytree(ROOT / "tests" / "consumer", consumer)
    run(
        "cmake",
        "-G",
        "Ninja",
        "-S",
        consumer,
        "-B",
        consumer / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        env=env,
    )
    run("cmake", "--build", consumer / "build", env=env)
    return run(consumer / "build" / "consumer", env=env)


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="heddle-install-") as work:
        print(check(Path(sys.argv[1]).resolve(), Path(work)), end="")
    print("install tree ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
