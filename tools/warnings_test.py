"""Where a warning is an error: in the presets, and in no build of a user."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = f"-DHEDDLE_PYTHON={sys.executable}"


def compilations(folder: Path, *options: str) -> dict[str, str]:
    """The command of each of our sources in a build configured so, by the source's path."""
    command = ["cmake", *options, "-B", str(folder), "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
               "-DHEDDLE_UNITY=OFF"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads((folder / "compile_commands.json").read_text())
    ours = {entry["file"]: entry["command"] for entry in listed if entry["file"].startswith(f"{ROOT}/")}
    return {path: command for path, command in ours.items() if not path.startswith(str(folder))}


@pytest.mark.parametrize(
    "options",
    [
        ("-S", ".", PYTHON),
        ("-S", ".", PYTHON, "-DSKBUILD=ON", "-DHEDDLE_TESTS=OFF"),
        ("-S", "torch_backend", f"-DPython_EXECUTABLE={sys.executable}"),
    ],
    ids=["library and tests", "Python package", "heddle-torch"],
)
def test_a_warning_does_not_end_a_users_build(tmp_path: Path, options: tuple[str, ...]) -> None:
    if "-DSKBUILD=ON" in options:
        nanobind = importlib.util.find_spec("nanobind")
        assert nanobind is not None
        assert nanobind.origin is not None
        options += (f"-Dnanobind_DIR={Path(nanobind.origin).parent / 'cmake'}",)
    commands = compilations(tmp_path, *options)
    assert len(commands) > 20
    assert not [path for path, command in commands.items() if "-Werror" in command]
    warned = [path for path, command in commands.items() if "-Wall -Wextra" in command]
    assert len(warned) > 20


def test_a_warning_ends_the_build_of_a_preset(tmp_path: Path) -> None:
    commands = compilations(tmp_path, "--preset", "release", PYTHON)
    assert len(commands) > 200
    assert not [path for path, command in commands.items() if "-Werror" not in command]
