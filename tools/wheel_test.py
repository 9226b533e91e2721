"""Versions agree, and heddle-torch asks for the heddle that it is built with."""

import re
from importlib import metadata
from pathlib import Path

import heddle

ROOT = Path(__file__).resolve().parent.parent


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_every_file_that_tells_the_version_tells_the_same() -> None:
    header = "".join(
        re.search(rf"HEDDLE_VERSION_{part} (\d+)", text("include/heddle/heddle.h"))[1] + "."
        for part in ("MAJOR", "MINOR", "PATCH")
    )
    found = {
        "heddle.h": header.rstrip("."),
        "CMakeLists.txt": re.search(r"project\(heddle VERSION (\S+)", text("CMakeLists.txt"))[1],
        "pyproject.toml": re.search(r'^version = "(.+)"', text("pyproject.toml"), re.MULTILINE)[1],
        "heddle_torch": re.search(
            r"VERSION (\S+)", text("torch_backend/CMakeLists.txt").split("project(")[1]
        )[1],
        "package": metadata.version("heddle"),
        "libheddle": heddle.__version__,
    }
    assert set(found.values()) == {heddle.__version__}, found


def test_heddle_torch_is_built_with_and_asks_for_one_version_of_heddle() -> None:
    wanted = f"heddle=={heddle.__version__}"
    assert text("torch_backend/pyproject.toml").count(f'"{wanted}"') == 2
