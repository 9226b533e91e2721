"""What tools/cores_check.py leaves of programs that tools/cores_pack.py laid down, and that fail or hang."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import cores_check
import pytest
from soak_test import FIGURES

TOOLS = Path(__file__).parent

FUZZ = """#!/bin/sh
for word; do
  case $word in -artifact_prefix=*) prefix=${word#*=};; -seed=*) seed=${word#*=};; -*) ;; *) break;; esac
done
case ${0##*/} in
  onnx) printf bad > "${prefix}crash-1"; echo 'ERROR: a property does not hold: its own rows'; exit 77;;
  tensors) exec sleep 1000;;
esac
case "$*" in *-merge=1*) shift $(($# - 1)); cp "$1"/* "$word"; exit 0;; esac
printf "$seed" > "$word/seed-$seed"
echo 'stat::number_of_executed_units: 17'
echo '#17 DONE   cov: 5 ft: 6'
"""
SEEDS = """#!/bin/sh
case $1 in
  --list-test-cases) printf 'simulated: holds\\nsimulated: fails, at times\\nsimulated: hangs\\n'
    printf 'simulated: has no seeds\\nschedules: all\\n'; exit 0;;
  *fails*) [ "$1" = '-tc=simulated: fails\\, at times' ] || exit 0
    echo "ERROR: seed 1000017: 1 == 2"; exit 1;;
  *hangs*) exec sleep 1000;;
  *'no seeds'*) exit 0;;
esac
echo "$HEDDLE_SIM_FIRST" >> FOLDER/first
echo "MESSAGE: 500 seeds: 9 simulations a second of 7 steps"
sleep 0.05
"""
SOAK = f"""#!/bin/sh
echo '{json.dumps(FIGURES)}' > "$HEDDLE_SOAK_JSON"
[ "$HEDDLE_SOAK_SEED" = 1 ] && exit 0
echo "seed $HEDDLE_SOAK_SEED is wrong"
exit 1
"""


class Checked:
    def __init__(self, folder: Path, out: str, *words: str | Path) -> None:
        self.out = folder / out
        self.done = subprocess.run(
            [sys.executable, TOOLS / "cores_check.py", self.out, *words, "--packed", folder / "packed",
             "--workers", "3"], capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        self.left = sorted(path.name for path in self.out.iterdir())

    def result(self, phase: str) -> Any:
        return json.loads((self.out / f"{phase}.json").read_text())

    def archived(self, name: str) -> dict[str, bytes]:
        with tarfile.open(self.out / name) as tar:
            files = ((each.name, tar.extractfile(each)) for each in tar.getmembers())
            return {name: file.read() for name, file in files if file is not None}


def pack(folder: Path, only: str = "") -> None:
    """Planted programs, as the tool lays them down."""
    for place, text in (("asan/fuzz_every/fuzz_every", FUZZ), ("sim/base_sim_test", SEEDS),
                        ("release/stress_test", SOAK)):  # fmt: skip
        path = folder / "build" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("FOLDER", str(folder)))
        path.chmod(0o755)
    words: list[str | Path] = [folder / "packed", "--built", "--builds", folder / "build", "--only", only]
    subprocess.run([sys.executable, TOOLS / "cores_pack.py", *words], check=True, capture_output=True)


def test_fuzz_targets_that_fail_or_hang_are_told_with_their_inputs_and_the_others_get_the_time(
    tmp_path: Path,
) -> None:
    pack(tmp_path, "onnx,tensors,environment")
    checked = Checked(tmp_path, "out", "fuzz", "--seconds", "4", "--grace", "0.5")
    assert checked.done.returncode == 1
    assert checked.left == ["corpus.tar.xz", "failures.tar.xz", "fuzz.json"]
    result = checked.result("fuzz")
    targets = {each["name"]: each for each in result["targets"]}
    assert set(targets) == {"onnx", "tensors", "environment"}
    assert [each["what"] for each in targets["onnx"]["failures"]] == ["failed"] * 3  # and is given up
    assert "its own rows" in targets["onnx"]["failures"][0]["tail"]
    assert {each["what"] for each in targets["tensors"]["failures"]} == {"hangs"}
    environment = targets["environment"]
    assert not environment["failures"]
    assert (environment["edges"], environment["features"]) == (5, 6)
    assert environment["runs"] == 17 * environment["slices"] > 17
    assert environment["cpu_s"] > 0
    kept = checked.archived("failures.tar.xz")
    assert kept["artifacts/onnx-1-crash-1"] == b"bad"
    assert b"its own rows" in kept["logs/onnx-1-log"]


def test_a_further_call_goes_on_from_the_inputs_and_the_cpu_seconds_of_the_one_before(tmp_path: Path) -> None:
    pack(tmp_path, "environment,replay")
    first = Checked(tmp_path, "first", "fuzz", "--seconds", "1.2")
    assert (first.done.returncode, first.left) == (0, ["corpus.tar.xz", "fuzz.json"]), first.done.stderr
    second = Checked(tmp_path, "second", "fuzz", "--seconds", "1.2", "--corpus", first.out / "corpus.tar.xz")
    assert second.done.returncode == 0
    before, after = ({each["name"]: each for each in checked.result("fuzz")["targets"]}
                     for checked in (first, second))  # fmt: skip
    for name, target in after.items():
        assert target["cpu_s"] == pytest.approx(before[name]["cpu_s"] + target["cpu_s_here"])
        assert target["slices"] > before[name]["slices"] > 0
        assert target["runs"] == 17 * target["slices"]
        # Each slice had a seed of its own, and what it found is there.
        seeds = range(1, target["slices"] + 1)
        found = second.archived("corpus.tar.xz")
        assert {f"corpus/{name}/seed-{seed}" for seed in seeds} <= set(found)


def test_seeds_are_counted_no_range_runs_twice_and_failures_are_told_with_their_seed(tmp_path: Path) -> None:
    pack(tmp_path, "base_sim_test")
    checked = Checked(tmp_path, "out", "seeds", "--seconds", "4", "--limit", "0.5", "--round", "3")
    assert checked.done.returncode == 1
    result = checked.result("seeds")
    firsts = (tmp_path / "first").read_text().split()
    assert len(firsts) == len(set(firsts)) > 1
    assert sorted(map(int, firsts)) == [1_000_000 * (3 + i) + 1 for i in range(len(firsts))]
    assert 0 <= 500 * len(firsts) - result["seeds"] <= 3 * 500  # those under way at the end are cut
    assert list(result["of_case"]) == ["base_sim_test: simulated: holds"]
    assert result["without_seeds"] == ["simulated: has no seeds"]
    assert result["rounds"][0] == 3
    assert result["rounds"][1] > 4
    failures = {each["case"]: each for each in result["failures"]}
    assert failures["simulated: fails, at times"]["seed"] == 1000017
    assert "1 == 2" in failures["simulated: fails, at times"]["tail"]
    assert failures["simulated: hangs"]["what"] == "hangs"


def test_each_worker_has_a_soak_of_its_own_seed_and_a_failure_is_told(tmp_path: Path) -> None:
    pack(tmp_path)
    checked = Checked(tmp_path, "out", "soak", "--seconds", "1")
    assert checked.done.returncode == 1
    soaks = checked.result("soak")["soaks"]
    assert [(each["seed"], each["what"]) for each in soaks] == [(1, ""), (2, "failed"), (3, "failed")]
    assert checked.archived("soak_failures.tar.xz") == {
        "1.log": b"seed 2 is wrong\n",
        "2.log": b"seed 3 is wrong\n",
    }
    assert soaks[0]["figures"]["ends"] == FIGURES["ends"]
    assert sum(each["operations"] for each in soaks[0]["figures"]["rounds"]) == 400


def test_rounds_of_a_soak_become_fewer_and_lose_no_operation_and_no_peak() -> None:
    rounds = [{"at_s": float(i), "took_s": 0.5, "operations": 3, "threads": 2, "books": 1, "heap": i % 700,
               "rss": 9, "fault": ""} for i in range(1300)]  # fmt: skip
    fewer = cores_check.fewer(rounds)
    assert len(fewer) <= cores_check.ROUNDS_MOST
    assert sum(each["operations"] for each in fewer) == 3900
    assert max(each["heap"] for each in fewer) == 699
    assert cores_check.fewer([]) == []
