"""cmake/HeddleAppleNeeds.cmake as a script, with made-up answers: what a Mac lacks is named."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "cmake" / "HeddleAppleNeeds.cmake"


def judge(folder: Path, **answers: str) -> tuple[int, str]:
    defined = [f"-D{name}={value}" for name, value in answers.items()]
    done = subprocess.run(["cmake", *defined, "-P", str(SCRIPT)], cwd=folder, capture_output=True, text=True,
                          check=False, timeout=60)  # fmt: skip
    return done.returncode, " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("target", "libcxx", "tests", "told"),
    [
        ("14.0", "190102", "ON", "will do"),
        ("15.5", "170006", "OFF", "will do"),
        ("13.3", "190102", "ON", "CMAKE_OSX_DEPLOYMENT_TARGET is '13.3': Heddle needs macOS 14.0 or newer"),
        ("", "190102", "ON", "CMAKE_OSX_DEPLOYMENT_TARGET is ''"),
        ("14.0", "160006", "OFF", "std::stop_token came with 170000. Install Xcode 15.4 or newer"),
        (
            "14.0",
            "170006",
            "ON",
            "std::jthread, which the tests use, came with 180000. Install Xcode 16 or newer",
        ),
        ("14.0", "", "OFF", "libc++ ''"),
    ],
)
def test_what_a_mac_lacks_is_named_with_what_to_install(
    tmp_path: Path, target: str, libcxx: str, tests: str, told: str
) -> None:
    code, said = judge(tmp_path, HEDDLE_TARGET=target, HEDDLE_LIBCXX=libcxx, HEDDLE_WITH_TESTS=tests)
    assert told in said
    assert (code == 0) == (told == "will do")


@pytest.mark.parametrize(("version", "told"), [("190102", "libc++ 190102 for macOS 14.0"), ("", "libc++ ''")])
def test_the_version_of_libcxx_is_asked_of_the_compiler(tmp_path: Path, version: str, told: str) -> None:
    include = tmp_path / "include"
    include.mkdir()
    (include / "version").write_text(f"#define _LIBCPP_VERSION {version}\n" if version else "")
    compiler = tmp_path / "compiler"
    real = shutil.which("c++")
    compiler.write_text(f'#!/bin/sh\nexec {real} -nostdinc++ -I{include} "$@"\n')
    compiler.chmod(0o755)
    code, said = judge(tmp_path, HEDDLE_TARGET="14.0", HEDDLE_COMPILER=str(compiler))
    assert told in said
    assert (code == 0) == bool(version)


def test_on_a_mac_the_build_asks_before_anything_else() -> None:
    text = (ROOT / "CMakeLists.txt").read_text()
    assert text.index("HeddleAppleNeeds.cmake") < text.index("\nproject(")
    assert text.index("heddle_apple_needs(") < text.index("find_package(")
