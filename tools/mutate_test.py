"""tools/mutate.py on a tree of a few lines: what it changes, and what it says of tests that notice it."""

import json
import subprocess
import sys
from pathlib import Path

import mutate
import pytest

SOURCE = """// not code: a < b, x + 1
bool is_small(int a) { return a < 10; }
int next(int a) { return a + 1; }
bool is_unused(int a) { return a == 7; }
const char* said() { return "1 < 2 && 3"; }
"""
# Knows nothing of is_unused(). An endless loop where next() jumps over 4.
TEST = """#include "sum.cpp"
int main() {
  for (int i = 1; i != 4;) i = next(i);
  return is_small(9) && !is_small(10) ? 0 : 1;
}
"""


@pytest.fixture
def project(tmp_path: Path) -> mutate.Project:
    root, copy = tmp_path / "root", tmp_path / "copy"
    folder = root / "src" / "base"
    folder.mkdir(parents=True)
    (folder / "sum.cpp").write_text(SOURCE)
    (folder / "sum_test.cpp").write_text(TEST)
    build = root / "build.sh"
    build.write_text("#!/bin/sh\nmkdir -p out && c++ -o out/$1 src/base/sum_test.cpp\n")
    build.chmod(0o755)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return mutate.Project(root, copy, {"src/base": ("base_test",)}, (), ("./build.sh",), Path("out"), 5.0,
                          tmp_path / "log")  # fmt: skip


def judged(project: mutate.Project, kind: str, word: str) -> mutate.Mutation:
    project.refresh()
    found = [each for each in project.mutations() if each.kind == kind and word in each.before]
    assert len(found) == 1
    assert project.is_sound(found) == ""
    project.judge(found[0])
    return found[0]


def test_only_lines_of_the_product_that_are_code_are_changed(project):
    assert [(each.line, each.kind, each.after.strip()) for each in project.mutations()] == [
        (2, "comparison", "bool is_small(int a) { return a <= 10; }"),
        (3, "off by one", "int next(int a) { return a + 2; }"),
        (4, "comparison", "bool is_unused(int a) { return a != 7; }"),
    ]
    assert project.mutations(only="other") == []


@pytest.mark.parametrize(
    ("before", "kind", "after"),
    [
        ("  turn_.store_release(kFree);", "order", "  turn_.store_relaxed(kFree);"),
        ("  word_.or_seq_cst(1);", "order", "  word_.or_acq_rel(1);"),
        ("  auto state = state_.lock();", "lock", "  auto state = &*state_.lock();"),
        (
            "  const auto held = shared_->state.lock();",
            "lock",
            "  const auto held = &*shared_->state.lock();",
        ),
        ("  shared_->changed.notify_all();", "notify", "  {}"),
        ("  return a && !b;", "logic", "  return a || !b;"),
        ("  return n - 1;", "off by one", "  return n - 2;"),
        ("  while (i >= 0) --i;", "comparison", "  while (i > 0) --i;"),
    ],
)
def test_each_kind_changes_one_thing(before, kind, after):
    assert [(each.kind, each.after) for each in mutate.mutations_of("src/base/a.cpp", before)] == [
        (kind, after)
    ]


@pytest.mark.parametrize(
    "line",
    ["// a == b", '  fail("a == b");', "template <class T>", "  static_assert(a == b);", "  x += 1.5;"],
)
def test_what_is_no_step_of_the_program_stays(line):
    assert list(mutate.mutations_of("src/base/a.cpp", line)) == []


def test_a_mutation_that_a_test_notices_is_killed(project):
    killed = judged(project, "comparison", "is_small")
    assert (killed.verdict, killed.by) == ("killed", "base_test failed")


def test_a_mutation_that_hangs_is_killed_too(project):
    killed = judged(project, "off by one", "next")
    assert (killed.verdict, killed.by) == ("killed", "base_test did not end")


def test_a_mutation_that_nothing_notices_survives_and_leaves_no_trace(project):
    survivor = judged(project, "comparison", "is_unused")
    assert (survivor.verdict, survivor.by) == ("survived", "")
    for tree in (project.root, project.copy):
        assert (tree / "src" / "base" / "sum.cpp").read_text() == SOURCE


def test_a_mutation_that_does_not_compile_is_no_verdict_on_the_tests(project):
    project.refresh()
    wrong = mutate.Mutation("src/base/sum.cpp", 3, "off by one", SOURCE.splitlines()[2], "int next(int a) {")
    project.judge(wrong)
    assert wrong.verdict == "does not compile"


def test_tests_that_fail_without_a_mutation_judge_none(project, monkeypatch, capsys):
    (project.root / "src" / "base" / "sum_test.cpp").write_text("int main() { return 1; }\n")
    monkeypatch.setattr(sys, "argv", ["mutate.py"])
    assert mutate.main(project) == 1
    assert "base_test failed without a mutation" in capsys.readouterr().out


def test_the_whole_run_counts_and_writes_what_it_found(project, monkeypatch, tmp_path, capsys):
    out = tmp_path / "mutate.json"
    monkeypatch.setattr(sys, "argv", ["mutate.py", "--count", "9", "--seed", "3", "--json", str(out)])
    assert mutate.main(project) == 0
    written = json.loads(out.read_text())
    assert written["verdicts"] == {"killed": 2, "survived": 1, "does not compile": 0}
    assert [each["line"] for each in written["mutations"] if each["verdict"] == "survived"] == [4]
    assert "2 killed, 1 survived, 0 does not compile" in capsys.readouterr().out


def test_a_seed_chooses_the_same_again_and_every_kind(project):
    found = mutate.Project().mutations()
    first, again, other = (mutate.choose(found, 12, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert {each.kind for each in first} == set(mutate.KINDS)
