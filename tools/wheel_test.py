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


def test_the_extra_cuda_brings_what_the_driver_looks_for_and_its_licence_is_named() -> None:
    (line,) = re.findall(r"^cuda = \[(.+)\]$", text("pyproject.toml"), re.MULTILINE)
    requirements = re.findall(r'"([\w-]+)>=(\d+),<(\d+); sys_platform == \'linux\'"', line)
    assert requirements == [("nvidia-cublas", "13", "14"), ("nvidia-cudnn-cu13", "9", "10")]
    # The packages of CUDA 13 lie below nvidia/cu13, beside heddle; cuDNN's have a folder of their own.
    for folder in ("nvidia/cu13/lib", "nvidia/cudnn/lib"):
        assert f'"{folder}"' in text("src/drivers/cuda/libraries/library_search.cpp")
    for package, *_ in requirements:
        assert f"`{package}`" in text("LICENSES.md").partition("`heddle[cuda]`")[2]


def test_heddle_itself_asks_for_nothing_of_nvidias() -> None:
    asked = metadata.requires("heddle") or []
    assert [each for each in asked if "nvidia" in each and "extra ==" not in each] == []
    assert [each for each in asked if "nvidia" in each], "the installed heddle has no extra cuda"
