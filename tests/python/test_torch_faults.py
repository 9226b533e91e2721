"""What heddle doctor says of PyTorch's mps device under threads, and the page that says the same."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from heddle.cli import torch_faults

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "pytorch-mps.md"


def has(version, words):
    return any(words in fault.what for fault in torch_faults.known_faults(version))


def test_versions_are_compared_as_releases_are():
    ordered = [
        "1.12",
        "2.0.1",
        "2.2",
        "2.9.1",
        "2.13.0",
        "2.14.0.dev20260713",
        "2.14.0rc1",
        "2.14.0",
        "2.14.1",
    ]
    assert all(torch_faults.parse(a) < torch_faults.parse(b) for a, b in itertools.pairwise(ordered))
    assert torch_faults.parse("2.13.0+cpu") == torch_faults.parse("2.13")
    with pytest.raises(ValueError, match="no version"):
        torch_faults.parse("unknown")


@pytest.mark.parametrize(
    ("words", "without", "within"),
    [
        (
            "two threads that run operators",
            ["1.11"],
            ["1.12", "2.9.1", "2.13.0+cpu", "2.14.0", "2.15.0.dev20260919"],
        ),
        ("meet a kernel for the first time", ["2.8.0", "2.15.0"], ["2.9.1", "2.14.0", "2.15.0.dev20260919"]),
        ("torch.nonzero", ["2.2.0", "2.13.0"], ["2.0.0", "2.1.2"]),
        ("pin_memory", ["2.13.0", "2.15.0"], ["2.14.0.dev20260801", "2.14.0"]),
    ],
)
def test_each_version_has_the_faults_of_its_range(words, without, within):
    assert [has(version, words) for version in without] == [False] * len(without)
    assert [has(version, words) for version in within] == [True] * len(within)


def test_the_page_holds_the_table_as_it_is():
    text = PAGE.read_text()
    inside = text.split("<!-- torch_faults: begin -->\n")[1].split("\n<!-- torch_faults: end -->")[0]
    assert inside == torch_faults.table()
    assert torch_faults.TABLE_DATE in text


def test_doctor_lists_the_faults_of_the_installed_version():
    done = subprocess.run(
        [sys.executable, "-m", "heddle", "doctor", "--json"], capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout)["pytorch"]
    version = torch_faults.installed_version()
    assert report["version"] == version
    assert [fault["what"] for fault in report["faults"]] == [
        fault.what for fault in torch_faults.known_faults(version)
    ]


def test_doctor_says_when_pytorch_is_absent_or_newer_than_the_table(capsys):
    torch_faults.print_section(torch_faults.examine(None))
    torch_faults.print_section(torch_faults.examine("2.99.0"), on_a_mac=True)
    absent, newer, *rest = capsys.readouterr().out.splitlines()
    assert absent == "PyTorch: not installed"
    assert newer == "PyTorch 2.99.0: faults known of its mps device under threads"
    assert "newer than the table" in rest[0]
    assert sum("do: " in line for line in rest) == len(torch_faults.known_faults("2.99.0"))


def test_pytorch_is_not_imported_for_it():
    code = """import sys, heddle.cli.torch_faults as t
t.examine(t.installed_version())
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
