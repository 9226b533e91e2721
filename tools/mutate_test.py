"""tools/mutate.py on a tree of a few lines: what it changes, and what it says of tests that notice it."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import mutate
import mutate_pack
import mutations
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
BUILD = """#!/bin/sh
mkdir -p out && c++ -o "out/$3" src/base/sum_test.cpp
"""


@pytest.fixture
def project(tmp_path: Path) -> mutate.Project:
    root = tmp_path / "root"
    folder = root / "src" / "base"
    folder.mkdir(parents=True)
    (folder / "sum.cpp").write_text(SOURCE)
    (folder / "sum_test.cpp").write_text(TEST)
    build = root / "build.sh"
    build.write_text(BUILD)
    build.chmod(0o755)
    programs = {"src/base": ("base_test",)}
    sim = mutate.Build("sim", Path("out"), (), ("./build.sh",), programs)
    tsan = mutate.Build("tsan", Path("out"), (), ("./build.sh",), programs, ("env",), {"STRICT": "1"})
    return mutate.Project(root, tmp_path / "copies", ("build.sh", "src"), sim, tsan, 2.0)


def ran(project, monkeypatch, tmp_path, *words: str, explained: str = "") -> tuple[int, dict]:
    """The exit status and what is in the file of --json."""
    out, reasons = tmp_path / "mutate.json", tmp_path / "explained.tsv"
    out.unlink(missing_ok=True)
    reasons.write_text("# a comment\n" + explained)
    monkeypatch.setattr(sys, "argv", ["mutate.py", "--json", str(out), *words])
    status = mutate.main(project, reasons)
    return status, json.loads(out.read_text()) if out.exists() else {}


def verdicts(told: dict) -> dict[int, tuple[str, str]]:
    return {each["line"]: (each["verdict"], each["by"]) for each in told["mutations"]}


# Of the lines 2, 3 and 4 of SOURCE.
EXPECTED = {
    2: ("killed", "sim/base_test failed"),
    3: ("killed", "sim/base_test did not end"),
    4: ("survived", ""),
}


def test_only_lines_of_the_product_that_are_code_are_changed(project):
    assert [(each.line, each.kind, each.after.strip()) for each in project.mutations()] == [
        (2, "comparison", "bool is_small(int a) { return a <= 10; }"),
        (3, "off by one", "int next(int a) { return a + 2; }"),
        (4, "comparison", "bool is_unused(int a) { return a != 7; }"),
    ]
    assert project.mutations(only=["other"]) == []
    assert project.mutations(only=["other", ""]) == project.mutations()


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
        ("  if (a.at != b.at) return a.at < b.at;", "comparison", "  if (a.at == b.at) return a.at < b.at;"),
    ],
)
def test_each_kind_changes_one_thing(before, kind, after):
    assert [(each.kind, each.after) for each in mutations.mutations_of("src/base/a.cpp", before)] == [
        (kind, after)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "// a == b",
        '  fail("a == b");',
        "template <class T>",
        "  static_assert(a == b);",
        "  x += 1.5;",
        "  all.reserve(n + 1);",
    ],
)
def test_what_is_no_step_of_the_program_stays(line):
    assert list(mutations.mutations_of("src/base/a.cpp", line)) == []


def test_what_other_systems_compile_is_not_changed():
    text = """
#if defined(__linux__)
a == 1;
#else
a == 2;
#if defined(HEDDLE_SIM)
a == 3;
#endif
#endif
#if defined(__x86_64__)
a == 4;
#elif defined(__aarch64__)
a == 5;
#else
a == 6;
#endif
#if !defined(__linux__)
a == 7;
#elif defined(HEDDLE_SIM)
a == 8;
#endif
"""
    found = mutations.mutations_of("src/base/a.cpp", text)
    assert [each.after for each in found] == [f"a != {number};" for number in (1, 4, 6, 8)]


def test_what_a_test_notices_or_hangs_in_is_killed_and_the_rest_survives(
    project, monkeypatch, tmp_path, capsys
):
    status, told = ran(project, monkeypatch, tmp_path, "--count", "9", "--seed", "3")
    assert status == 0
    assert verdicts(told) == EXPECTED
    assert told["verdicts"] == {"killed": 2, "survived": 1, "explained": 0, "does not compile": 0}
    said = capsys.readouterr().out
    assert "3 of the 3 chosen were tried" in said
    assert "score of all: 2 of 3, 66.7% (95 % interval 20.8% to 93.8%)" in said
    assert (project.root / "src" / "base" / "sum.cpp").read_text() == SOURCE


def test_workers_judge_what_one_does_each_in_a_copy_of_its_own(project, monkeypatch, tmp_path):
    told = ran(project, monkeypatch, tmp_path, "--jobs", "3")[1]
    assert verdicts(told) == EXPECTED
    changed = [project.folder / "sim" / f"worker{number}" / "src" / "base" / "sum.cpp" for number in range(3)]
    assert sorted(path.read_text() != SOURCE for path in changed) == [True, True, True]


def test_a_copy_is_made_the_unchanged_one_before_each_mutation(project, monkeypatch, tmp_path):
    """Its programs, too: a program of the mutation before would give that one's verdict."""
    assert verdicts(ran(project, monkeypatch, tmp_path, "--count", "3", "--seed", "1")[1]) == EXPECTED
    (project.folder / "sim" / "worker0" / "out" / "base_test").write_text("left over")
    (project.folder / "sim" / "worker0" / "left over").write_text("left over")
    judges = mutate.Judges(project, project.sim, 1)
    assert judges.prepare(project.mutations()) == ""
    assert mutate.stamps(judges.copies[0].tree) == judges.known


def test_no_mutation_is_handed_out_after_the_time(project, monkeypatch, tmp_path, capsys):
    assert ran(project, monkeypatch, tmp_path, "--seconds", "0") == (0, {})
    assert "0 of the 3 chosen were tried" in capsys.readouterr().out


def test_a_survivor_that_is_a_lock_or_an_order_is_asked_of_the_thread_sanitizer(
    project, monkeypatch, tmp_path, capsys
):
    """Its tests are the same here, and stricter by what the build puts into the environment."""
    test = TEST.replace(
        "return is_small", 'if (getenv("STRICT") && is_unused(7) != 1) return 1;\n  return is_small'
    )
    (project.root / "src" / "base" / "sum_test.cpp").write_text("#include <cstdlib>\n" + test)
    assert verdicts(ran(project, monkeypatch, tmp_path)[1]) == EXPECTED
    before = (tmp_path / "mutate.json").rename(tmp_path / "before.json")
    assert ran(project, monkeypatch, tmp_path, "--again", str(before), "--tsan") == (1, {})
    assert "there is nothing to change" in capsys.readouterr().out  # the survivor is a comparison
    monkeypatch.setattr(mutate, "TSAN_KINDS", ("comparison",))
    told = ran(project, monkeypatch, tmp_path, "--again", str(before), "--tsan")[1]
    assert verdicts(told) == EXPECTED | {4: ("killed", "tsan/base_test failed")}
    assert told["verdicts"]["killed"] == 3


def test_survivors_of_an_earlier_run_are_asked_about_again_where_their_line_is_now(
    project, monkeypatch, tmp_path
):
    ran(project, monkeypatch, tmp_path)
    earlier = (tmp_path / "mutate.json").rename(tmp_path / "earlier.json")
    (project.root / "src" / "base" / "sum.cpp").write_text("// a line more\n" + SOURCE)
    test = project.root / "src" / "base" / "sum_test.cpp"
    test.write_text(TEST.replace("return is_small", "return is_unused(7) && is_small"))
    told = ran(project, monkeypatch, tmp_path, "--again", str(earlier))[1]
    assert verdicts(told) == {2: EXPECTED[2], 3: EXPECTED[3], 5: ("killed", "sim/base_test failed")}
    assert told["verdicts"]["killed"] == 3


def test_a_draw_goes_on_where_an_earlier_run_ended(project, monkeypatch, tmp_path):
    first = ran(project, monkeypatch, tmp_path, "--count", "1", "--seed", "5")[1]
    before = (tmp_path / "mutate.json").rename(tmp_path / "before.json")
    told = ran(project, monkeypatch, tmp_path, "--more", str(before))[1]
    assert len(first["mutations"]) == 1
    assert told["mutations"][0] == first["mutations"][0]
    assert len(told["mutations"]) == 3
    assert verdicts(told) == EXPECTED
    assert told["seed"] == 5


def test_an_explained_survivor_is_counted_apart_and_a_killed_one_says_so(project, monkeypatch, tmp_path):
    rows = [(*each.place(), "a reason") for each in project.mutations()]
    told = ran(project, monkeypatch, tmp_path, explained="".join("\t".join(row) + "\n" for row in rows))[1]
    seen = verdicts(told)
    assert seen[4] == ("explained", "a reason")
    assert seen[2] == (
        "killed",
        "sim/base_test failed, although tools/mutate_explained.tsv says that no test can",
    )
    assert {name: (score["killed"], score["of"]) for name, score in told["scores"].items()} == {
        "of all": (2, 3),
        "without explained": (2, 2),
    }


def test_every_explanation_is_of_one_mutation_that_there_is():
    told = mutations.explanations(Path(mutate.__file__).with_name("mutate_explained.tsv"))
    there = Counter(each.place() for each in mutate.Project().mutations())
    assert {place: there[place] for place in told if there[place] != 1} == {}


def test_an_explanation_without_a_reason_is_an_error(tmp_path):
    file = tmp_path / "explained.tsv"
    file.write_text("src/base/a.cpp\t{\ta < b\ta <= b\t\n")
    with pytest.raises(ValueError, match="between tabs"):
        mutations.explanations(file)


def test_a_mutation_that_does_not_compile_is_no_verdict_on_the_tests(project):
    judges = mutate.Judges(project, project.sim, 1)
    assert judges.prepare(project.mutations()) == ""
    wrong = mutations.Mutation(
        "src/base/sum.cpp", 3, "off by one", SOURCE.splitlines()[2], "int next(int a) {"
    )
    judges.judge([wrong], None, lambda mutation: None)
    assert wrong.verdict == "does not compile"


def test_tests_that_fail_without_a_mutation_judge_none(project, monkeypatch, tmp_path, capsys):
    (project.root / "src" / "base" / "sum_test.cpp").write_text("int main() { return 1; }\n")
    assert ran(project, monkeypatch, tmp_path, "--jobs", "2") == (1, {})
    assert "base_test fails without a mutation" in capsys.readouterr().out


# Fails each time that it finds no file, and leaves one: each other run.
UNSURE = """#include <cstdio>
#include <cstdlib>
#include <string>
#include "sum.cpp"
int main() {
  const std::string mark = std::string(getenv("TMPDIR")) + "/mark";
  if (std::remove(mark.c_str()) != 0) {
    std::fclose(std::fopen(mark.c_str(), "w"));
    return 1;
  }
  return is_small(9) && !is_small(10) ? 0 : 1;
}
"""


def test_a_program_that_fails_now_and_then_kills_what_it_fails_for_twice(
    project, monkeypatch, tmp_path, capsys
):
    (project.root / "src" / "base" / "sum_test.cpp").write_text(UNSURE)
    told = ran(project, monkeypatch, tmp_path)[1]
    assert "sim/base_test failed unchanged, and passed when it was tried again" in capsys.readouterr().out
    assert verdicts(told) == {2: EXPECTED[2], 3: ("survived", ""), 4: ("survived", "")}


def test_a_changed_test_is_what_the_next_run_asks(project, monkeypatch, tmp_path):
    assert verdicts(ran(project, monkeypatch, tmp_path)[1]) == EXPECTED
    (project.root / "src" / "base" / "sum_test.cpp").write_text(TEST.replace("next(i);", "i + 1;"))
    assert verdicts(ran(project, monkeypatch, tmp_path)[1])[3] == ("survived", "")


def test_a_hang_is_told_by_the_slowest_unchanged_run_under_the_same_load(project):
    slow = TEST.replace("int main() {", "#include <unistd.h>\nint main() {\n  usleep(400000);")
    (project.root / "src" / "base" / "sum_test.cpp").write_text(slow)
    judges = mutate.Judges(project, project.sim, 2)
    assert judges.prepare(project.mutations()) == ""
    assert judges.limits["base_test"] >= mutate.TIMES * 0.4


def test_a_seed_draws_the_same_again_and_a_shorter_draw_is_its_start():
    found = mutate.Project().mutations()
    first, again, other = (mutations.choose(found, 200, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert {each.kind for each in found} == set(mutations.KINDS)
    assert len({each.path for each in first}) > len({each.path for each in found}) // 3
    assert mutations.choose(found, 10**6, 1)[:5] == mutations.choose(found, 5, 1)


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [(0, 0, 0.0, 1.0), (6, 10, 0.3127, 0.8318), (10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775)],
)
def test_the_interval_is_wilsons(hits, tries, low, high):
    assert mutations.wilson(hits, tries) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_a_program_is_mirrored_while_the_one_in_its_place_still_runs(project):
    unchanged, copy = (mutate.Copy(project, mutate.SIM, name, 1) for name in ("unchanged", "worker0"))
    for tree, program in ((unchanged.tree, "true"), (copy.tree, "sleep")):
        tree.mkdir(parents=True)
        shutil.copy(str(shutil.which(program)), tree / "program")
    with subprocess.Popen([copy.tree / "program", "5"]) as running:
        copy.mirror(unchanged, mutate.stamps(unchanged.tree))
        running.kill()
    assert subprocess.run([copy.tree / "program", "60"], timeout=30, check=False).returncode == 0


def test_rules_of_a_build_name_no_folder_above_it(tmp_path):
    project = mutate.Project(tmp_path, tmp_path / "copies")
    copy = mutate.Copy(project, mutate.SIM, "unchanged", 1)
    rules = copy.tree / "build" / "sim" / "build.ninja"
    rules.parent.mkdir(parents=True)
    rules.write_text(
        f"build a.o: CXX {copy.tree}/src/a.cpp\n  INCLUDES = -I{copy.tree}/src -I{copy.tree}\n"
        f"build build.ninja: RERUN_CMAKE | {copy.tree}/CMakeLists.txt\n  pool = console\n\n"
        f"build x: RUN {copy.tree}/build/sim/y\n  COMMAND = cd {copy.tree}/build/sim && y\n"
    )
    copy.relate()
    assert rules.read_text() == (
        "build a.o: CXX ../../src/a.cpp\n  INCLUDES = -I../../src -I../..\n\n"
        "build x: RUN y\n  COMMAND = cd . && y\n"
    )


def test_packed_tools_are_taken_where_the_machine_has_none(tmp_path, monkeypatch):
    packed, path = tmp_path / "packed", tmp_path / "path"
    (packed / "include").mkdir(parents=True)
    path.mkdir()
    (path / "ninja").write_text("#!/bin/sh\necho of the machine\n")
    (path / "ninja").chmod(0o755)
    for tool, place in (("cmake", "cmake/data/bin"), ("ninja", "ninja-1.data/scripts")):
        with zipfile.ZipFile(packed / f"{tool}-1-any.whl", "w") as archive:
            archive.writestr(f"{place}/{tool}", f"#!/bin/sh\necho packed {tool}\n")
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/before")
    mutate_pack.use(packed, tmp_path / "unpacked")
    said = {tool: subprocess.run([tool], capture_output=True, text=True, check=True).stdout.strip()
            for tool in mutate_pack.TOOLS}  # fmt: skip
    assert said == {"cmake": "packed cmake", "ninja": "of the machine"}
    assert os.environ["CPLUS_INCLUDE_PATH"] == f"{packed}/include:/before"
