"""What tools/sim_seeds.py says of planted programs: that hold, fail, hang, or run fewer seeds than before."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sim_seeds import WITHOUT

TOOLS = Path(__file__).parent

HOLDS = """#!/bin/sh
[ "$1" = --list-test-cases ] && { echo 'simulated: holds, and is counted'; echo 'schedules: all'; exit 0; }
echo "$HEDDLE_SIM_FIRST" >> FOLDER/first
echo "MESSAGE: 500 seeds: 9 simulations a second of 7 steps"
"""
FAILS = """#!/bin/sh
[ "$1" = --list-test-cases ] && { echo 'simulated: fails, at times'; exit 0; }
[ "$HEDDLE_SIM_FIRST" = 2000001 ] && { echo 'ERROR: seed 2000017: 1 == 2'; exit 1; }
echo "MESSAGE: 500 seeds: 9 simulations a second of 7 steps"
"""
HANGS = """#!/bin/sh
[ "$1" = --list-test-cases ] && { echo 'simulated: hangs'; exit 0; }
exec sleep 1000
"""
RUNS_FEWER = """#!/bin/sh
[ "$1" = --list-test-cases ] && { echo 'simulated: runs fewer'; exit 0; }
[ "$HEDDLE_SIM_FIRST" = 1000001 ] && seeds=500
echo "MESSAGE: ${seeds:-499} seeds: 9 simulations a second of 7 steps"
"""
RUNS_NONE = """#!/bin/sh
echo 'simulated: runs none'
"""
KNOWN = "#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in sorted(WITHOUT))


class Ran:
    def __init__(self, folder: Path, programs: dict[str, str], *words: str, known: str = KNOWN) -> None:
        for name, text in (programs | {"0_sim_test": known} if programs else {}).items():
            path = folder / "sim" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("FOLDER", str(folder)))
            path.chmod(0o755)
        out = folder / "out.json"
        done = subprocess.run(
            [sys.executable, TOOLS / "sim_seeds.py", "--builds", folder, "--workers", "2", "--json", out,
             *words], capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        self.code, self.said = done.returncode, done.stdout + done.stderr
        self.figures: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}


def test_each_round_has_seeds_of_its_own_and_what_programs_say_they_ran_is_the_sum(tmp_path: Path) -> None:
    ran = Ran(tmp_path, {"a_sim_test": HOLDS}, "--floor", "2000")
    assert ran.code == 0, ran.said
    assert sorted((tmp_path / "first").read_text().split()) == ["1000001", "2000001", "3000001", "4000001"]
    assert ran.figures["seeds"] == 2000
    assert ran.figures["of_case"] == {"a_sim_test: simulated: holds, and is counted": 2000}
    assert ran.figures["wrong"] == []
    assert "2,000 of 2,000     500  a_sim_test: simulated: holds, and is counted" in ran.said
    assert "2,000  a_sim_test\n" in ran.said


def test_a_floor_that_is_missed_is_a_failure(tmp_path: Path) -> None:
    ran = Ran(tmp_path, {"a_sim_test": HOLDS}, "--floor", "2001")
    assert ran.code == 1
    assert ran.figures["wrong"] == ["2,000 seeds, and at least 2,001 are asked for"]
    assert "error: 2,000 seeds, and at least 2,001 are asked for" in ran.said


def test_a_seed_that_fails_is_named_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    ran = Ran(tmp_path, {"a_sim_test": HOLDS, "b_sim_test": FAILS}, "--floor", "500")
    assert ran.code == 1
    again = "HEDDLE_SIM_SEED=2000017 build/sim/b_sim_test -tc='simulated: fails\\, at times'"
    assert ran.figures["wrong"] == [f"b_sim_test: simulated: fails, at times: failed: {again}"]
    assert "1 == 2" in ran.said
    assert ran.figures["seeds"] == 3500


@pytest.mark.parametrize(
    ("program", "words", "wrong"),
    [
        (HANGS, ("--limit", "0.5", "--rounds", "1"),
         "simulated: hangs: hangs: HEDDLE_SIM_FIRST=1000001 build/sim/b_sim_test -tc='simulated: hangs'"),
        (RUNS_FEWER, (), "simulated: runs fewer: 499 seeds in one round, 500 in another"),
        (RUNS_NONE, (), "simulated: runs none: ran no seed"),
    ],
)  # fmt: skip
def test_a_case_that_hangs_or_runs_fewer_seeds_than_before_or_none_is_a_failure(
    tmp_path: Path, program: str, words: tuple[str, ...], wrong: str
) -> None:
    ran = Ran(tmp_path, {"a_sim_test": HOLDS, "b_sim_test": program}, "--floor", "500", *words)
    assert ran.code == 1
    assert ran.figures["wrong"] == [f"b_sim_test: {wrong}"]


def test_a_case_known_for_no_seeds_that_no_program_has_is_a_failure(tmp_path: Path) -> None:
    first, *others = sorted(WITHOUT)
    known = "#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in [*others, first + " today"])
    ran = Ran(tmp_path, {"a_sim_test": HOLDS}, "--floor", "500", known=known)
    assert ran.code == 1
    assert ran.figures["wrong"] == [
        f"0_sim_test: {first} today: ran no seed",
        f"WITHOUT of tools/sim_seeds.py names '{first}', and no case has that name",
    ]


def test_rounds_that_are_not_over_in_time_are_a_failure(tmp_path: Path) -> None:
    ran = Ran(tmp_path, {"a_sim_test": HOLDS, "b_sim_test": HANGS}, "--floor", "500", "--seconds", "2",
              "--workers", "1", "--rounds", "2")  # fmt: skip
    assert ran.code == 1
    assert ran.figures["wrong"] == [
        "a_sim_test: simulated: holds, and is counted: 1 of 2 rounds were over in time",
        "b_sim_test: simulated: hangs: 0 of 2 rounds were over in time",
    ]


def test_without_a_build_there_is_nothing_to_count(tmp_path: Path) -> None:
    ran = Ran(tmp_path, {})
    assert ran.code == 2
    assert "there are no simulations" in ran.said
