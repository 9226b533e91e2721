"""tools/broken.py on a tree of a few lines: which failure of a test counts as noticing a removal."""

import json
from pathlib import Path

import pytest
from broken_copy import Copy
from removals import Removal

# What the preset of that name is in the project: a program that the thread sanitizer watches.
PRESETS = {
    "version": 4,
    "configurePresets": [
        {
            "name": "tsan",
            "generator": "Ninja",
            "binaryDir": "${sourceDir}/build/tsan",
            "cacheVariables": {"CMAKE_CXX_COMPILER": "clang++-16"},
        }
    ],
}
LISTS = """cmake_minimum_required(VERSION 3.24)
project(small CXX)
enable_testing()
find_program(setarch setarch REQUIRED)
add_executable(small_test small_test.cpp)
target_compile_options(small_test PRIVATE -fsanitize=thread)
target_link_options(small_test PRIVATE -fsanitize=thread)
add_test(NAME small_test COMMAND ${setarch} -R $<TARGET_FILE:small_test>)
set_tests_properties(small_test PROPERTIES ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1;SMALL=1")
"""
# With the words and the last line of a doctest program.
PROGRAM = """#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
int main(int, char** words) {
  const char* name = words[1] + std::strlen("-tc=");
  int data = 0;
  if (std::strcmp(name, "races\\\\, and says so") == 0) {
    std::thread other([&] { ++data; });
    ++data;
    other.join();
  }
  std::printf("[doctest] test cases: %d |\\n", std::strcmp(name, "is not there") == 0 ? 0 : 1);
  if (std::getenv("SMALL") == nullptr) return 3;
  return std::strcmp(name, "fails") == 0 ? 1 : 0;
}
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    tree = tmp_path_factory.mktemp("tree")
    (tree / "CMakePresets.json").write_text(json.dumps(PRESETS))
    (tree / "CMakeLists.txt").write_text(LISTS)
    (tree / "small_test.cpp").write_text(PROGRAM)
    return Copy(tree / "log", tree)


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("races, and says so", (True, "")),
        ("fails", (False, "failed without a report of the thread sanitizer")),
        ("passes", (False, "passed")),
        ("is not there", (False, "no such test case")),
    ],
)
def test_what_the_thread_sanitizer_reports_is_a_failure_and_nothing_else(
    copy: Copy, case: str, verdict: tuple[bool, str]
) -> None:
    noticed, why = copy.fails(["tsan", "small_test", case])
    assert (noticed, "" if noticed else why) == verdict


def test_a_program_that_the_sanitizer_does_not_run_is_named(
    copy: Copy,
) -> None:
    copy.fails(["tsan", "small_test", "passes"])
    with pytest.raises(RuntimeError, match="ctest knows no test another_test in build/tsan"):
        copy.as_ctest_runs("build/tsan", "another_test")


@pytest.mark.parametrize(
    ("head", "refused"),
    [
        ("Removes: a lock\nTest: tsan batch_test 'a case'\n", ""),
        ("Removes: a lock\nTest: batch_test 'a case'\nTest: replay batch_sim_test coalescer\n", ""),
        ("Removes: a lock\nTest: tsan 'a case'\n", "none of the forms"),
        ("Removes: a lock\nTest: msan batch_test 'a case'\n", "none of the forms"),
        ("Removes: a lock\n", "at least one 'Test:'"),
        ("Test: batch_test 'a case'\n", "one line 'Removes:'"),
    ],
)
def test_a_head_that_is_none_of_the_forms_is_refused(tmp_path: Path, head: str, refused: str) -> None:
    patch = tmp_path / "a_lock.patch"
    patch.write_text(head + "\ndiff --git a/x b/x\nTest: of the patch's own lines\n")
    if not refused:
        assert Removal.read(patch).removes == "a lock"
        return
    with pytest.raises(ValueError, match=f"a_lock.patch.*{refused}"):
        Removal.read(patch)
