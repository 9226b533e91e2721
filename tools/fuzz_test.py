"""The fuzz targets' run: each has inputs to begin with, and a failure is told with what repeats it."""

from pathlib import Path

import fuzz
import fuzz_coverage
import pytest


def test_each_target_has_inputs_to_begin_with_and_nothing_is_left_of_others() -> None:
    targets = set(fuzz.targets())
    assert targets
    assert {folder.name for folder in (fuzz.SOURCES / "corpus").iterdir()} == targets
    assert {words.stem for words in (fuzz.SOURCES / "dictionaries").iterdir()} <= targets


PROGRAM = """#!/bin/sh
echo 'stat::number_of_executed_units: 17' >&2
echo '#17 DONE   cov: 5 ft: 6' >&2
[ -z "$FAILS" ] && exit 0
echo 'ERROR: a property does not hold: its own rows' >&2
echo 'Test unit written to here/crash-1' >&2
exit 77
"""


@pytest.mark.parametrize("fails", ["", "yes"])
def test_a_failure_is_told_with_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    program = tmp_path / "tensors"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr(fuzz, "PROGRAMS", tmp_path)
    monkeypatch.setenv("FAILS", fails)
    outcome = fuzz.run("tensors", 1, -1, tmp_path / "corpus")
    assert (outcome.runs, outcome.edges) == (17, 5)
    assert bool(outcome.wrong) == bool(fails)
    if fails:
        assert "its own rows" in outcome.wrong
        assert outcome.wrong.endswith("here/crash-1")


def test_a_program_that_ran_nothing_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensors").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "tensors").chmod(0o755)
    monkeypatch.setattr(fuzz, "PROGRAMS", tmp_path)
    assert fuzz.run("tensors", 1, -1, tmp_path / "corpus").wrong


def test_lines_are_counted_by_folder_and_tests_are_left_out() -> None:
    def file(name: str, count: int, covered: int) -> dict[str, object]:
        return {"filename": name, "summary": {"lines": {"count": count, "covered": covered}}}

    files = [
        file("/root/src/onnx/a.cpp", 7, 5),
        file("/root/src/onnx/operators/b.cpp", 2, 2),
        file("/root/src/onnx/a_test.cpp", 9, 0),
        file("/root/src/api/b.cpp", 3, 1),
        file("/root/src/base/c.h", 4, 4),
        file("/usr/include/c++/12/vector", 5, 5),
    ]
    assert fuzz_coverage.by_folder(files, Path("/root")) == {
        "src/onnx": {"lines": 9, "reached": 7},
        "src/api": {"lines": 3, "reached": 1},
    }
