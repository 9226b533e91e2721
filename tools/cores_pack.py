"""Lay down what tools/cores_check.py runs on a machine of many cores, without compiler and network.

usage: cores_pack.py [DIR] [--built] [--tsan] [--only PROGRAM,PROGRAM] [--preset N]

Builds the fuzz targets (preset asan), the simulations (sim) and the stress tests (release; with --tsan also
those of the preset tsan), or takes what is built (--built). DIR (.cores/, which git ignores) then has them
without their symbols for debuggers, with the libraries that a Linux on x86-64 may lack: programs.tar.xz,
packed with xz's --preset (2). It is carried there beside the tree. --only: of all of them, for a look.
"""

from __future__ import annotations

import argparse
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import fuzz

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = "programs.tar.xz"
LIMIT = 56 << 20  # bytes that can be carried beside the tree
# Each Linux for x86-64 has these, as new as Debian 12's or newer.
USUAL = re.compile(r"^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s))\.so")


@dataclass(frozen=True)
class Group:
    """Programs of one build."""

    name: str  # of their folder in the archive
    preset: str
    target: str  # of ninja
    patterns: tuple[str, ...]  # of the programs, in the folder of the build
    names: tuple[str, ...] = ()  # by which its one program is started

    def programs(self, builds: Path) -> list[Path]:
        return sorted(path for each in self.patterns for path in (builds / self.preset).glob(each))


FUZZ = Group("fuzz", "asan", "fuzz_every", ("fuzz_every/fuzz_every",), tuple(fuzz.targets()))
SEEDS = Group("seeds", "sim", "sim_tests", ("*_sim_test", "simulated_test", "fault_points_test"))
SOAK = Group("soak", "release", "stress_test", ("stress_test",))
SOAK_TSAN = Group("soak_tsan", "tsan", "stress_test", ("stress_test",))


def build(group: Group) -> None:
    for words in (
        ["cmake", "--preset", group.preset],
        ["ninja", "-C", f"build/{group.preset}", group.target],
    ):
        subprocess.run(["nice", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def is_compiled(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(program: Path) -> list[Path]:
    """Those that a machine may lack."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*(\S+) => (\S+)", said, re.MULTILINE)
    missing = [name for name, where in found if where == "not"]
    if missing:
        raise SystemExit(f"cores_pack.py: {program} needs {', '.join(missing)}, which is not here")
    return [Path(where) for name, where in found if not USUAL.match(name)]


def lay(source: Path, target: Path, group: Path, builds: Path) -> None:
    """The program as `target`; its libraries in lib/ of the group, if its build made them, or of all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    if not is_compiled(source):
        return
    # Names stay, so that a report of a sanitizer's has them.
    subprocess.run(["strip", "--strip-debug", target], check=True)
    for library in libraries(source):
        place = (group if library.is_relative_to(builds) else group.parent) / "lib" / library.name
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            shutil.copy(library, place)
            place.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", place], check=True)


def lay_group(group: Group, builds: Path, staged: Path, only: list[str]) -> None:
    folder = staged / group.name
    for program in group.programs(builds):
        if not group.names:
            if not only or program.name in only:
                lay(program, folder / program.name, folder, builds)
            continue
        names = [name for name in group.names if not only or name in only]
        if names:
            lay(program, folder / "all" / program.name, folder, builds)
        for name in names:
            (folder / name).symlink_to(Path("all") / program.name)


def compress(folder: Path, archive: Path, preset: int) -> None:
    """One stream, whose dictionary has room for what programs share."""
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": 64 << 20}]

    def plain(each: tarfile.TarInfo) -> tarfile.TarInfo:
        each.uid = each.gid = each.mtime = 0
        each.uname = each.gname = ""
        return each

    part = archive.with_suffix(".part")
    with (
        lzma.open(part, "wb", format=lzma.FORMAT_XZ, filters=filters) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=plain)
    part.replace(archive)


def commit() -> str:
    def said(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return said("rev-parse", "HEAD") + (" and changes" if said("status", "--porcelain") else "")


def pack(groups: list[Group], builds: Path, folder: Path, only: list[str], preset: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        staged = Path(name)
        for group in groups:
            lay_group(group, builds, staged, only)
        if not any(staged.iterdir()):
            raise SystemExit(f"cores_pack.py: there are no such programs below {builds}")
        folder.mkdir(parents=True, exist_ok=True)
        compress(staged, folder / ARCHIVE, preset)
    (folder / "commit").write_text(commit() + "\n", encoding="utf-8")


def told_size(folder: Path, size: int, limit: int) -> int:
    """Says how large the archive is; the exit status, which is 1 where it cannot be carried."""
    print(f"{folder}: {size / (1 << 20):.1f} MiB")
    if size > limit:
        print(f"{Path(sys.argv[0]).name}: that is more than {limit >> 20} MiB", file=sys.stderr)
    return 0 if size <= limit else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / ".cores")
    parser.add_argument("--built", action="store_true", help="what is built, as it is")
    parser.add_argument("--tsan", action="store_true", help="also the soak under the thread sanitizer")
    parser.add_argument("--only", default="", help="programs, separated by commas")
    parser.add_argument("--preset", type=int, default=2, choices=range(10), metavar="N", help="xz's")
    parser.add_argument("--builds", type=Path, default=ROOT / "build", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    groups = [FUZZ, SEEDS, SOAK, *([SOAK_TSAN] if arguments.tsan else [])]
    if not arguments.built:
        for group in groups:
            build(group)
    only = [name for name in arguments.only.split(",") if name]
    pack(groups, arguments.builds.resolve(), arguments.folder, only, arguments.preset)
    return told_size(arguments.folder, (arguments.folder / ARCHIVE).stat().st_size, LIMIT)


if __name__ == "__main__":
    sys.exit(main())
