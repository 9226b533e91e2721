"""Compare the headers of tests/metal_double with Apple's, and compile what is for a Mac against Apple's.

usage: metal_headers.py SDK [--compiler CLANG] [--json] [--double FOLDER] [--list FILE] [--source FILE ...]

SDK is a folder like Xcode's MacOSX.sdk: on a Mac, "$(xcrun --show-sdk-path)". Elsewhere it needs usr/include
with c++/v1, and System/Library/Frameworks with the four frameworks and what they include.

Names: every class, protocol, method, property, enumerator, function and type that the double declares must be
in the SDK as it is there, and docs/metal-api.md must give the SDK's versions. Sources: the Metal driver, the
guard, the programs for a Mac and the tests of both, and src/base where the SDK has its <stop_token>, must
compile with the project's warnings and no diagnostic, and call nothing unguarded that macOS 14.0 lacks. Exit
code 1 when something differs or does not compile.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apple_headers import declared, differences

ROOT = Path(__file__).resolve().parent.parent
TARGET = "arm64-apple-macos14.0"
LANGUAGE = ["-std=c++20", "-x", "objective-c++", "-fno-objc-arc", "-fblocks", "-fobjc-exceptions"]
# libc++ before LLVM 20, and so Apple's, calls <stop_token> experimental. Its locks take part in Clang's
# analysis where that is asked for; in later ones they always do.
DEFINED = ["-D_LIBCPP_ENABLE_EXPERIMENTAL=1", "-D_LIBCPP_ENABLE_THREAD_SAFETY_ANNOTATIONS=1",
           '-DHEDDLE_VERSION="0"', "-DHEDDLE_METAL=1"]  # fmt: skip
DOCTEST = ("/opt/homebrew/include", "/usr/local/include", "/usr/include")


def warnings() -> list[str]:
    """Those of Clang in cmake/HeddleFlags.cmake."""
    text = (ROOT / "cmake" / "HeddleFlags.cmake").read_text(encoding="utf-8")
    found: list[str] = []
    for name in ("HEDDLE_WARNINGS", "clang_warnings"):
        match = re.search(rf"set\({name}\s([^)]*)\)", text)
        assert match, f"cmake/HeddleFlags.cmake sets no {name}"
        found += match.group(1).split()
    return [*found, "-Wunguarded-availability", "-Wno-nullability-completeness"]


def for_a_mac(sdk: Path) -> list[Path]:
    """What is compiled on a Mac in Objective-C++, and the locks; the double and its tests are Linux's."""
    listed = sorted(path for folder in ("src/drivers/metal", "agx_guard", "tests", "bench")
                    for path in (ROOT / folder).rglob("*.mm"))  # fmt: skip
    on_the_double = (ROOT / "agx_guard").glob("*_test.mm")
    left_out = {*on_the_double, ROOT / "agx_guard" / "test_gpu.mm"}
    if (sdk / "usr" / "include" / "c++" / "v1" / "stop_token").exists():
        left_out |= set((ROOT / "src" / "base").glob("*_test.cpp"))
        listed += sorted((ROOT / "src" / "base").glob("*.cpp"))
    return [
        path for path in listed if path not in left_out and ROOT / "tests/metal_double" not in path.parents
    ]


class Sdk:
    def __init__(self, folder: Path, compiler: str, scratch: Path) -> None:
        self.compiler, self.scratch = compiler, scratch
        self.flags = ["-target", TARGET, "-isysroot", str(folder), *LANGUAGE]
        found = next((Path(each) / "doctest" for each in DOCTEST if (Path(each) / "doctest").is_dir()), None)
        if found:  # alone: nothing else of that folder may stand in for the SDK
            (scratch / "doctest").symlink_to(found)

    def declares(self) -> declared.Declared:
        return declared.dump(self.compiler, self.flags, self.scratch)

    def double(self, folder: Path) -> declared.Declared:
        return declared.dump(self.compiler, [*self.flags, "-isystem", str(folder)], self.scratch)

    def compile(self, source: Path) -> list[str]:
        """What the compiler has to say, at best nothing."""
        folders = [f"-I{ROOT / each}" for each in (".", "src", "include", "agx_guard")]
        command = [self.compiler, *self.flags, *warnings(), *DEFINED, *folders, "-isystem", str(self.scratch),
                   "-fsyntax-only", "-fno-color-diagnostics", str(source)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        told = [line for line in done.stderr.splitlines() if re.search(r"(error|warning): ", line)]
        return told or ([f"{source}: exit code {done.returncode}"] if done.returncode else [])


def check(options: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch:
        sdk = Sdk(options.sdk.resolve(), options.compiler, Path(scratch))
        theirs, ours = sdk.declares(), sdk.double(options.double)
        named = [*differences.types(ours, theirs), *differences.values(ours, theirs)]
        dated = list(differences.versions(options.list.read_text(encoding="utf-8"), theirs))
        sources = for_a_mac(options.sdk) if options.source is None else options.source
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            told = dict(zip(map(str, sources), pool.map(sdk.compile, sources), strict=True))
    members = sum(not member.implicit for each in ours.types.values() for member in each.members.values())
    return {
        "sdk": str(options.sdk),
        "types": len(ours.types),
        "members": members,
        "enumerators": sum(bool(differences.OURS.match(name)) for name in ours.enumerators),
        "names_that_differ": named,
        "versions_that_differ": dated,
        "sources": len(told),
        "sources_that_compile": sum(not lines for lines in told.values()),
        "diagnostics": {name.removeprefix(f"{ROOT}/"): lines for name, lines in told.items() if lines},
    }


def report(result: dict[str, object]) -> None:
    named, dated, diagnostics = (
        result[key] for key in ("names_that_differ", "versions_that_differ", "diagnostics")
    )
    assert isinstance(named, list)
    assert isinstance(dated, list)
    assert isinstance(diagnostics, dict)
    for line in [*named, *dated]:
        print(line)
    for lines in diagnostics.values():
        print("\n".join(lines))
    print(f"{result['sdk']}: {result['types']} types, {result['members']} methods and properties, "
          f"{result['enumerators']} enumerators: {len(named)} differ; {len(dated)} versions differ; "
          f"{result['sources_that_compile']} of {result['sources']} files compile without a warning"
          )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the Metal double's headers with Apple's.")
    parser.add_argument("sdk", type=Path, metavar="SDK")
    parser.add_argument("--compiler", default="clang++" if sys.platform == "darwin" else "clang++-16")
    parser.add_argument("--json", action="store_true", help="print JSON in place of sentences")
    parser.add_argument("--double", type=Path, default=ROOT / "tests" / "metal_double" / "include")
    parser.add_argument(
        "--list", type=Path, default=ROOT / "docs" / "metal-api.md", help="names and versions"
    )
    parser.add_argument("--source", type=Path, nargs="*", help="compile these in place of all")
    options = parser.parse_args()
    if not (options.sdk / "System" / "Library" / "Frameworks").is_dir():
        parser.error(f"{options.sdk} is no SDK: it has no System/Library/Frameworks")
    try:
        result = check(options)
    except ValueError as error:
        print(f"metal_headers.py: headers do not compile:\n{error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        report(result)
    return (
        1 if any(result[key] for key in ("names_that_differ", "versions_that_differ", "diagnostics")) else 0
    )


if __name__ == "__main__":
    sys.exit(main())
