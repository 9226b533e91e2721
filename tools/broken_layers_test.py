"""tools/broken.py --jobs on a tree of a few lines: what a layer leaves behind, and what it says of tests."""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import broken
import broken_layers
import broken_pack
import pytest
from broken_layers import COPIED, NOT_RUN, NOTICED, OVERLAY, WRONG, Layers, Outcome, Report
from find_file import find_file
from removals import PATCHES, ROOT, Removal, applies, apply_without_git, patched
from skips import NO_MOUNTS, can_mount

PRESETS = {
    "version": 4,
    "configurePresets": [
        {"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}
    ],
}
LISTS = """cmake_minimum_required(VERSION 3.24)
project(small CXX)
add_executable(small_test small_test.cpp)
"""
HEADER = """inline int one() { return 1; }
inline int two() { return 2; }
inline int three() { return 3; }
"""
# With the words and the last line of a doctest program. The last case fails of its own accord.
PROGRAM = """#include <csignal>
#include <cstdio>
#include <cstring>
#include "numbers.h"
int main(int, char** words) {
  const char* name = words[1] + std::strlen("-tc=");
  std::printf("[doctest] test cases: 1 |\\n");
  if (std::strcmp(name, "one") == 0) return one() == 1 ? 0 : 1;
  if (std::strcmp(name, "is killed") == 0) std::raise(SIGKILL);
  return std::strcmp(name, "always fails") == 0 ? 1 : 0;
}
"""
PATCH = """Removes: what {name} is
{tests}

diff --git a/numbers.h b/numbers.h
--- a/numbers.h
+++ b/numbers.h
@@ -1,3 +1,3 @@
-inline int one() {{ return 1; }}
+inline int one() {{ return 7; }}
 inline int two() {{ return 2; }}
 inline int three() {{ return 3; }}
"""
needs_mounts = pytest.mark.skipif(not can_mount(), reason=NO_MOUNTS)


def removal(folder: Path, name: str, *cases: str) -> Removal:
    path = folder / f"{name}.patch"
    path.write_text(PATCH.format(name=name, tests="\n".join(f'Test: small_test "{case}"' for case in cases)))
    return Removal.read(path)


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Layers:
    root = tmp_path_factory.mktemp("root")
    (root / "CMakePresets.json").write_text(json.dumps(PRESETS))
    (root / "CMakeLists.txt").write_text(LISTS)
    (root / "small_test.cpp").write_text(PROGRAM)
    (root / "numbers.h").write_text(HEADER)
    return Layers(2, root, tmp_path_factory.mktemp("copies"))


def ran(layers: Layers, removals: list[Removal], file: Path, until: float | None = None) -> tuple[int, dict]:
    report = Report(file, {})
    report.removals = {each.name: Outcome() for each in removals}
    report.write()
    assert broken_layers.run(layers, removals, report, until) == ""
    return report.end(), json.loads(file.read_text())


@needs_mounts
@pytest.mark.parametrize("way", [OVERLAY, COPIED])
def test_removals_meet_the_unchanged_tree_and_leave_it_unchanged(
    layers, tmp_path, monkeypatch, capsys, way
) -> None:
    monkeypatch.setattr(broken_layers, "OVERLAY", way)
    names = ("first", "second", "third")
    removals = [removal(tmp_path, name, "one") for name in names]
    status, told = ran(layers, removals, tmp_path / "told.json")
    assert layers.way == way or "no overlays here" in capsys.readouterr().out
    assert [told["removals"][name]["verdict"] for name in names] == [NOTICED] * 3
    assert status == 0
    assert all(told["removals"][name]["building_s"] > 0 for name in names)
    # A layer whose tree kept the patch would not have taken the next one's.
    assert (layers.tree / "numbers.h").read_text() == HEADER
    assert list(layers.scratch.iterdir()) == []


@needs_mounts
def test_what_does_not_notice_is_wrong_and_what_fails_unchanged_judges_nothing(layers, tmp_path) -> None:
    removals = [removal(tmp_path, "noticed_by_one_only", "one", "another"),
                removal(tmp_path, "of_a_failing_test", "always fails"),
                removal(tmp_path, "of_a_killed_test", "is killed")]  # fmt: skip
    status, told = ran(layers, removals, tmp_path / "told.json")
    assert status == 1
    assert told["removals"]["noticed_by_one_only"]["verdict"] == WRONG
    assert told["removals"]["noticed_by_one_only"]["wrong"] == ["small_test another: passed"]
    assert told["removals"]["of_a_failing_test"]["verdict"] == NOT_RUN
    assert told["removals"]["of_a_failing_test"]["wrong"] == [
        "small_test 'always fails', without a removal: it fails"
    ]
    assert "ended with -9: it was killed" in told["removals"]["of_a_killed_test"]["wrong"][0]


@needs_mounts
def test_nothing_to_run_is_no_mistake(layers, tmp_path) -> None:
    assert ran(layers, [], tmp_path / "told.json") == (0, {"removals": {}, "unchanged": {}, "left out": {}})


@needs_mounts
def test_after_the_time_none_is_handed_out(layers, tmp_path) -> None:
    status, told = ran(layers, [removal(tmp_path, "late", "one")], tmp_path / "told.json", time.monotonic())
    assert status == 3
    assert told["removals"]["late"]["verdict"] == NOT_RUN
    assert told["unchanged"] == {}


@needs_mounts
def test_a_file_that_is_gone_from_the_tree_is_gone_from_the_built_one(layers, tmp_path) -> None:
    (layers.root / "other.h").write_text("")
    broken_layers.mirror(layers.root, layers.tree)
    before = (layers.tree / "numbers.h").stat().st_mtime_ns
    (layers.root / "other.h").unlink()
    broken_layers.mirror(layers.root, layers.tree)
    assert not (layers.tree / "other.h").exists()
    assert (layers.tree / "numbers.h").stat().st_mtime_ns == before


def test_without_namespaces_it_says_so(layers, monkeypatch) -> None:
    monkeypatch.setattr(broken_layers, "MOUNT", "echo mount: permission denied >&2; exit 32")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no program setpriv" in layers.refused()


@needs_mounts
def test_a_patch_that_does_not_apply_is_wrong(layers, tmp_path) -> None:
    stale = removal(tmp_path, "stale", "one")
    stale.path.write_text(stale.path.read_text().replace("int two()", "int other()"))
    status, told = ran(layers, [stale], tmp_path / "told.json")
    assert status == 1
    assert told["removals"]["stale"]["wrong"][0].startswith("does not apply: ")


@needs_mounts
def test_a_layer_that_is_killed_judges_nothing(layers, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(broken_layers, "MOUNT", "exit 137")
    outcome = layers.judged("killed", None, [["small_test", "one"]])
    assert outcome.verdict == NOT_RUN
    assert "its layer ended with 137" in outcome.wrong[0]


STARTS_A_LAYER = """import sys
from pathlib import Path
from broken_layers import Layers
root, copies, command = sys.argv[1:]
layers = Layers(1, Path(root), Path(copies))
assert layers.refused() == ""
layers.in_layer(["/bin/sh", "-c", command], Path(copies) / "log")
"""


def living(command: str) -> int:
    """Processes with this command."""
    found = 0
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += (
                each.read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace") == command
            )
    return found


def await_living(command: str, count: int) -> None:
    pause, end = threading.Event(), time.monotonic() + 60
    while living(command) != count:
        assert time.monotonic() < end, f"{living(command)} of {command}, not {count}"
        pause.wait(0.01)


@needs_mounts
def test_what_a_layer_runs_ends_with_the_tool_that_was_killed(tmp_path) -> None:
    (tmp_path / "root").mkdir()
    sleeps = f"sleep 1000.{os.getpid()}"  # no other process has this command
    words = [sys.executable, "-c", STARTS_A_LAYER, str(tmp_path / "root"), str(tmp_path / "copies"),
             f"setsid {sleeps} & {sleeps}"]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    with subprocess.Popen(words, env=environment) as process:
        try:
            await_living(sleeps, 2)
        finally:
            process.kill()
    await_living(sleeps, 0)


def test_more_goes_on_with_what_was_not_run(tmp_path, monkeypatch) -> None:
    file, asked = tmp_path / "told.json", []
    outcomes = {"first": Outcome(NOTICED, [], 3.0), "second": Outcome(), "gone": Outcome(WRONG, ["passed"])}
    Report(file, {}).write()
    report = Report(file, {})
    report.removals = dict(outcomes)
    report.write()

    def run(layers, removals, report, until) -> str:
        asked.extend(each.name for each in removals)
        return ""

    monkeypatch.setattr(broken_layers, "run", run)
    monkeypatch.setattr(broken, "Layers", lambda jobs: None)
    chosen = [removal(tmp_path, name, "one") for name in ("first", "second", "third")]
    arguments = argparse.Namespace(jobs=2, seconds=None, json=file, more=file, packed=None)
    assert broken.run_in_layers(chosen, {}, arguments) == 1  # for "gone", which stays wrong
    assert asked == ["second", "third"]
    assert json.loads(file.read_text())["removals"]["first"]["seconds"] == 3.0


def test_each_patch_changes_what_git_changes(tmp_path) -> None:
    for path in sorted(PATCHES.glob("*.patch")):
        each = Removal.read(path)
        trees = tmp_path / each.name / "git", tmp_path / each.name / "own"
        for tree in trees:
            for name in each.files():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
        assert applies(each, trees[0]) == ""
        apply_without_git(each, trees[1])
        for name in each.files():
            assert (trees[0] / name).read_bytes() == (trees[1] / name).read_bytes(), path.name
            assert (ROOT / name).read_bytes() != (trees[1] / name).read_bytes(), path.name


def test_a_part_goes_to_the_nearest_place_of_its_lines() -> None:
    text = "a\nb\n" * 10
    diff = "--- a/x\n+++ b/x\n@@ -13,2 +13,1 @@\n a\n-b\n"
    assert patched(text, diff) == "a\nb\n" * 6 + "a\n" + "a\nb\n" * 3
    with pytest.raises(ValueError, match="not there: \\['a', 'c'\\]"):
        patched(text, diff.replace("-b", "-c"))


@pytest.mark.parametrize(
    ("tests", "only", "never", "why"),
    [
        ([["small_test", "one"]], {"release"}, set(), ""),
        ([["sim", "small_test", "one"], ["torch", "x"]], {"sim", "release"}, set(), "needs torch"),
        ([["sim", "small_test", "one"], ["torch", "x"]], {"sim", "torch"}, {"sim"}, ""),
        ([["sim", "small_test", "one"]], {"sim", "torch"}, {"sim", "release"}, "needs sim alone"),
    ],
)
def test_kinds_and_their_complement_leave_out_each_other(tests, only, never, why) -> None:
    assert broken.why_left_out(Removal("a", Path(), "", tests), only, never) == why


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kinds", "msan"], "msan: none of release"),
        (["--jobs", "2", "--kinds", "sim,torch"], "--jobs has no layer for torch"),
        (["--seconds", "5"], "--packed, --seconds and --more belong to --jobs"),
    ],
)
def test_what_cannot_be_run_in_layers_is_refused(monkeypatch, capsys, words, said) -> None:
    monkeypatch.setattr(sys, "argv", ["broken.py", *words])
    with pytest.raises(SystemExit):
        broken.parsed()
    assert said in capsys.readouterr().err


def test_a_packed_file_is_found_where_it_was_unpacked(tmp_path, monkeypatch) -> None:
    staged, packed, place = tmp_path / "staged", tmp_path / "packed", tmp_path / "unpacked"
    source = broken_pack.lay_file("pytest", "pytest/__init__.py", "lib/pytest.py", staged)
    packed.mkdir()
    broken_pack.compress(staged, packed / broken_pack.ARCHIVE, 0)
    with tarfile.open(packed / broken_pack.ARCHIVE) as archive:
        assert "lib/pytest.py" in archive.getnames()
    for variable in ("PATH", "LD_LIBRARY_PATH", "CPLUS_INCLUDE_PATH", "PYTHONPATH", "CMAKE_PREFIX_PATH",
                     "HEDDLE_SPIN_COMPILER"):  # fmt: skip
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    monkeypatch.setattr(broken_pack, "NEEDED", ("sh",))
    broken_pack.use(packed, place)
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(place / "site")
    monkeypatch.syspath_prepend(str(place / "site"))
    found = find_file("pytest", "lib/pytest.py")
    assert found == place / "lib" / "pytest.py"
    assert found.read_bytes() == source.read_bytes()
    monkeypatch.setattr(broken_pack, "NEEDED", ("sh", "no-such-tool"))
    with pytest.raises(SystemExit, match="this machine has no no-such-tool"):
        broken_pack.use(packed, place)
