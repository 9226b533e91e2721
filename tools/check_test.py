"""What make test counts: a test that was skipped, and a program that ran nothing, are failures."""

import subprocess
import sys
from pathlib import Path

import check
import counts
import pytest
import skips
import stage
from counts import Count

OUTCOMES = {
    "test_passes": "def test_passes(): pass",
    "test_fails": "def test_fails(): assert False",
    "test_cannot_run_here": "def test_cannot_run_here(): pytest.skip('no such processor')",
    "test_is_left_out": "@pytest.mark.skip(reason='broken')\ndef test_is_left_out(): pass",
    "test_lacks_a_library": "def test_lacks_a_library(): pytest.importorskip('no_such_library')",
    "test_is_expected_to_fail": "@pytest.mark.xfail\ndef test_is_expected_to_fail(): assert False",
    "test_fails_in_its_fixture": "@pytest.fixture\ndef broken(): assert False\n"
    "def test_fails_in_its_fixture(broken): pass",
    "a module lacks a library": "pytest.importorskip('no_such_library')\ndef test_of_a_module(): pass",
}


def junit_of(folder: Path, *names: str) -> Path:
    """The report of a real run of pytest over the named outcomes, each in a file of its own."""
    for i, name in enumerate(names):
        (folder / f"test_{i}.py").write_text(f"import pytest\n{OUTCOMES[name]}\n")
    report = folder / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "."]
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return report


@pytest.mark.parametrize("name", [name for name in OUTCOMES if name != "test_passes"])
def test_what_did_not_pass_counts_as_failed(tmp_path: Path, name: str) -> None:
    count, refused = counts.count_pytest(junit_of(tmp_path, "test_passes", name), allowed=set())
    assert count == Count(passed=1, failed=1)
    skipped = name not in ("test_fails", "test_fails_in_its_fixture")
    assert len(refused) == skipped


def test_a_test_skipped_for_an_allowed_reason_is_neither(tmp_path: Path) -> None:
    report = junit_of(tmp_path, "test_passes", "test_cannot_run_here", "test_is_left_out")
    count, refused = counts.count_pytest(report, allowed={"no such processor"})
    assert count == Count(passed=1, failed=1)
    assert len(refused) == 1
    assert "test_is_left_out" in refused[0]
    assert "broken" in refused[0]


def test_a_refused_skip_fails_the_stage_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    junit_of(tmp_path, "test_lacks_a_library")
    for module in (check, stage):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(stage, "LOGS", tmp_path / "logs")
    monkeypatch.setitem(check.STAGES, "pytest", lambda log: check.run_pytest(log, "."))
    count = check.run_stage("pytest")
    assert (count.passed, count.failed) == (0, 1)
    shown = capsys.readouterr().out
    assert "FAILED (1)" in shown
    assert "test_lacks_a_library" in shown
    assert "could not import 'no_such_library'" in shown


CTEST = """<testsuite><testcase name="a_test" status="{status}">
<system-out>{output}</system-out></testcase></testsuite>"""
CLOSING = "[doctest] test cases: {0} | {1} passed | {2} failed | 7 skipped"


@pytest.mark.parametrize(
    ("status", "output", "count"),
    [
        ("run", CLOSING.format(5, 5, 0), Count(5, 0)),
        ("fail", CLOSING.format(5, 3, 2), Count(3, 2)),
        ("fail", CLOSING.format(5, 5, 0), Count(5, 1)),  # a sanitizer's report at the end
        ("fail", "killed", Count(0, 1)),
        ("notrun", "", Count(0, 1)),
        ("run", CLOSING.format(0, 0, 0), Count(0, 1)),
    ],
)
def test_every_program_of_ctest_is_counted_by_its_cases(
    tmp_path: Path, status: str, output: str, count: Count
) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(CTEST.format(status=status, output=output))
    assert counts.count_doctest(report) == count


def test_a_machine_may_skip_tests_of_what_it_has_not_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, always = "this processor has no bf16 instructions", "this Python has a GIL"
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(skips, "can_mount", lambda: True)
    monkeypatch.setattr(skips, "processor", lambda: "flags : avx2 avx512f")
    assert skips.allowed_skips() == {reason, always}
    monkeypatch.setattr(skips, "processor", lambda: "flags : avx2 avx512f avx512_bf16")
    assert skips.allowed_skips() == {always}
    monkeypatch.setattr(skips, "can_mount", lambda: False)
    assert skips.allowed_skips() == {always, skips.NO_MOUNTS}


def test_no_stage_is_left_out_for_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(check, "run_stage", lambda name: ran.append(name) or Count(1, 0))
    monkeypatch.setattr(check.SetUp, "COMMAND", ("true",))
    monkeypatch.setattr(sys, "argv", ["check.py", "--long"])
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert check.main() == 0
    assert ran == list(check.STAGES)
