"""Which lines a target of libFuzzer's reaches, from what it prints and from the tables in its file.

-print_full_coverage=1 prints, for each function in the order of the program's table of blocks, the lines of
the blocks that were not reached (U) and of those that were (C), without a file's name. The table, the section
__sancov_pcs, has pairs of an address and flags, 1 for a function's first block; its addresses are what the
loader is told to put there. llvm-symbolizer knows the file of an address.
"""

import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

RELATIVE = 8  # R_X86_64_RELATIVE: the addend is the address
LEFT_OUT = re.compile(r"compiler-rt/lib/|/usr/lib/|/usr/include/|^\?\?$")  # libFuzzer does not print them
SYMBOLIZER = "llvm-symbolizer-16"


def sections(elf: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Name, address, offset and size of each section of a little-endian 64-bit file."""
    start, size, count, names = *struct.unpack_from("<Q", elf, 0x28), *struct.unpack_from("<3H", elf, 0x3A)
    headers = [struct.unpack_from("<2I4Q2I2Q", elf, start + i * size) for i in range(count)]
    words = headers[names][4]
    for name, _, _, address, offset, length, *_ in headers:
        end = elf.index(b"\0", words + name)
        yield elf[words + name : end].decode(), address, offset, length


def functions(program: Path) -> list[int]:
    """Addresses of the functions of the table, in its order."""
    elf = program.read_bytes()
    of = {name: place for name, *place in sections(elf)}
    address, offset, length = of["__sancov_pcs"]
    _, relocations, bytes_of_relocations = of[".rela.dyn"]
    entries = {}
    for where, info, addend in struct.iter_unpack(
        "<QQq", elf[relocations : relocations + bytes_of_relocations]
    ):
        at = where - address
        if info & 0xFFFFFFFF == RELATIVE and 0 <= at < length and at % 16 == 0:
            (flags,) = struct.unpack_from("<Q", elf, offset + at + 8)
            if flags & 1:
                entries[at] = addend
    return [entries[at] for at in sorted(entries)]


def files_of(program: Path, addresses: list[int]) -> list[str]:
    asked = "".join(f"{address:#x}\n" for address in addresses)
    command = [SYMBOLIZER, f"--obj={program}", "--no-inlines", "--output-style=GNU", "--functions=none"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    return [line.rsplit(":", 1)[0] for line in done.stdout.splitlines() if line]


def lines_reached(program: Path, listing: str, root: Path) -> tuple[set[str], set[str]]:
    """Of the program's own sources, as path:line: those that were reached, and all."""
    after = listing.partition("FULL COVERAGE:\n")[2].splitlines()
    rows = [line.split() for line in after if line[:1] in ("U", "C")]
    files = [file for file in files_of(program, functions(program)) if not LEFT_OUT.search(file)]
    if len(rows) != 2 * len(files):
        raise ValueError(f"{program}: it printed {len(rows) // 2} functions, and its table has {len(files)}")
    reached, known = set(), set()
    for i, file in enumerate(files):
        if not file.startswith(f"{root}/"):
            continue
        name = file.removeprefix(f"{root}/")
        for kind, *numbers in rows[2 * i : 2 * i + 2]:
            lines = {f"{name}:{number}" for number in numbers if number != "0"}
            known |= lines
            reached |= lines if kind == "C" else set()
    return reached, known
