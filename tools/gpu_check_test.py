"""tools/gpu_check.sh on the CUDA double: what it leaves, and what it says of phases that fail or hang."""

import json
import os
import re
import subprocess
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import gpu_check
import gpu_findings
import pytest
from gpu_phases import NOT_FOREIGN, Phase

TOOL = Path(__file__).with_name("gpu_check.sh")
DOUBLE = TOOL.parent.parent / "build" / "release" / "cuda_double" / "libcuda.so.1"
PHASES = ("facts", "module", "setup", "conformance", "chains", "stress", "memcheck", "racecheck",
          "racecheck_windows", "initcheck", "initcheck_windows", "memcheck_products", "racecheck_products",
          "initcheck_products", "products", "python", "mixed_shapes", "coalesced",
          "ragged", "lost", "several", "exact", "exits", "real_models", "bench", "bench_bf16",
          "figure")  # fmt: skip

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="there is no CUDA there"),
    pytest.mark.skipif(
        sys.platform != "darwin" and not DOUBLE.exists(), reason="needs cmake --build --preset cuda"
    ),
]

SANITIZER = """#!/bin/bash
[ "$1 $3 $4 $5" = "--tool --error-exitcode 9 --print-limit" ] || exit 3
[ "$2" != initcheck ] || [ "$HEDDLE_TEST_LIBRARIES" = off ] || exit 4
shift 6
"$@" || exit
echo '========= ERROR SUMMARY: 0 errors'
"""


class Checked:
    def __init__(self, folder: Path, *phases: str, **environment: str) -> None:
        settings = {"HEDDLE_PYTHON": sys.executable, "HEDDLE_TUNE": "off"}
        self.done = subprocess.run(
            [TOOL, "--double", folder, *phases], env=os.environ | settings | environment, capture_output=True,
            text=True, check=False, timeout=300,
        )  # fmt: skip
        self.result: dict[str, Any] = json.loads((folder / "result.json").read_text())
        self.phases = {phase.pop("phase"): phase for phase in self.result["phases"]}
        with tarfile.open(folder / "logs.tar.gz") as archive:
            self.logs = {Path(name).name for name in archive.getnames()}


def program(folder: Path, name: str, text: str) -> str:
    """A program of that name, and the PATH that finds it first."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_each_phase_says_what_it_found(tmp_path: Path) -> None:
    path = program(tmp_path / "bin", "compute-sanitizer", SANITIZER)
    checked = Checked(tmp_path / "out", PATH=path)
    assert {name: phase["status"] for name, phase in checked.phases.items()} == dict.fromkeys(PHASES, "ok")
    assert checked.done.returncode == 0
    assert len(checked.result["commit"]) == 40
    assert {f"{name}.log" for name in PHASES} <= checked.logs
    left = {"result.json", "logs.tar.gz", "gpu_bench.json", "gpu_bench_bf16.json", "gpu_figure.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == left
    found = {name: phase["findings"] for name, phase in checked.phases.items()}
    assert found["facts"]["device"] == "cuda"
    for suite in ("conformance", "stress", "memcheck"):
        assert found[suite]["test cases"] == {"total": 1, "passed": 1, "failed": 0}
    assert found["memcheck"]["summary"] == ["0 errors"]
    assert found["memcheck"]["ended"] == ["a queue does its commands in order"]
    assert "2 passed" in found["python"]["pytest"]
    for name in ("mixed_shapes", "coalesced", "ragged", "lost", "several", "exact", "exits", "real_models"):
        assert found[name]["right"], found[name]
    assert found["mixed_shapes"]["calls"] == 20
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in found["lost"]["said"]
    assert found["exits"]["ends"] == {"as it should": 2}
    silero = found["real_models"]["models"]["silero-16k-op15"]
    assert silero["f32"] < 1e-3
    assert {name for name, wrong in silero.items() if isinstance(wrong, float)} == {
        "f32",
        "tf32",
        "bf16",
        "f16",
    }
    assert found["bench"]["works"][0]["model"] == "mlp"
    assert found["bench_bf16"]["works"][0]["dtype"] == "bf16"
    assert found["several"]["cards"] == 2
    assert found["several"]["mlp, one_card"]["calls"] == 96
    assert found["exact"]["encoder, exact"]["of_other_bits"] == 0
    assert found["exact"]["encoder, not exact"]["of_other_bits"] > 0
    figures = {figure["row"]: figure["bar"] for figure in found["figure"]["figures"]}
    assert list(figures.values()) == [0.6, 1.9]
    assert list(figures)[1] == "mlp, 4 callers: 2 cards / one"


def test_a_phase_that_fails_or_hangs_is_named_and_stops_those_that_need_it_only(tmp_path: Path) -> None:
    hanging = program(tmp_path / "bin", "compute-sanitizer", "#!/bin/bash\necho begun\nexec sleep 1000\n")
    program(tmp_path / "heddle", "__init__.py", "print('no module for this machine')\nraise SystemExit(7)\n")
    chosen = ("module", "mixed_shapes", "conformance", "memcheck")
    checked = Checked(tmp_path / "out", *chosen, PATH=hanging, PYTHONPATH=str(tmp_path),
                      GPU_CHECK_SECONDS="8")  # fmt: skip
    assert checked.done.returncode == 1
    assert checked.phases["module"]["status"] == "failed"
    assert checked.phases["module"]["exit"] == 7
    assert checked.phases["module"]["tail"] == "no module for this machine\n"
    assert checked.phases["mixed_shapes"] == {"status": "not run", "needs": "module"}
    assert checked.phases["conformance"]["status"] == "ok"
    assert checked.phases["memcheck"]["status"] == "out of time"
    assert checked.phases["memcheck"]["seconds"] < 20
    assert checked.phases["memcheck"]["tail"] == "begun\n"
    assert "memcheck.log" in checked.logs


@pytest.mark.parametrize(
    ("words", "told"), [(["out", "bild"], "no phase is called bild"), (["."], "is not empty")]
)
def test_what_it_cannot_do_is_said_before_anything_is_done(
    tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "mine").write_text("")
    done = subprocess.run([TOOL, "--double", tmp_path / words[0], *words[1:]], capture_output=True, text=True,
                          env=os.environ | {"HEDDLE_PYTHON": sys.executable}, check=False)  # fmt: skip
    assert done.returncode == 2
    assert told in done.stderr
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize(("tolerance", "code"), [("2e-4", 0), ("-1", 1)])
def test_callers_in_cpp_count_calls_and_end_at_a_wrong_answer(tolerance: str, code: int) -> None:
    root = TOOL.parent.parent
    words = ["--model", root / "build/models/torch/mlp.onnx", "--device", "host", "--pool", "4"]
    done = subprocess.run(
        [root / "build/release/bench/cuda_callers", *words, "--tolerance", tolerance],
        input="4 0 1 0.05\n2 3 1 0.05\n1 0 8 0.05\nwake\n", capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each.get("rows") for each in said] == ([1, 1, 8, None] if code == 0 else [])
    assert all(each["calls"] >= 1 for each in said[:3])


def test_what_is_timed_runs_in_its_order_and_brings_what_it_needs() -> None:
    phases = [
        Phase(name, [], 1, gpu_findings.json_line, needs, after, alone)
        for name, needs, after, alone in (
            ("module", (), (), False),
            ("export", (), (), False),
            ("stress", (), (), False),
            ("bench", ("module",), ("export",), True),
            ("start", (), (), True),
        )
    ]

    def picked(*words: str) -> list[str]:
        return [phase.name for phase in gpu_check.pick(phases, list(words))]

    assert picked() == ["module", "export", "stress", "bench", "start"]
    assert picked("figures") == ["module", "export", "bench", "start"]
    assert picked("start", "stress") == ["stress", "start"]
    with pytest.raises(ValueError, match="bild"):
        picked("bild")


def of_figure_sides(code: str) -> subprocess.CompletedProcess:
    root = TOOL.parent.parent
    places = os.pathsep.join(str(root / "bench" / name) for name in ("cuda", "models"))
    return subprocess.run(
        [sys.executable, "-c", "import sys\nimport figure_sides\n" + code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": places},
    )


def test_a_side_that_has_ended_is_told_and_leaves_the_rows_after_it_alone():
    done = of_figure_sides("""
child = figure_sides.Child("gone", [sys.executable, "-c", ""], {})
child.process.wait()
try:
    child.ask("{}")
except figure_sides.Failed as said:
    print(said)
child.end()
""")
    assert (done.returncode, done.stdout) == (0, "gone ended with 0 when asked {}\n"), done.stderr


def test_a_side_that_one_question_ends_answers_the_next():
    done = of_figure_sides("""
peer = "for line in sys.stdin:\\n    if '0' in line: sys.exit(6)\\n    print('{}', flush=True)"
sides = figure_sides.Sides(None)
key = (sys.executable, "-c", "import sys\\n" + peer)
print(sides.child(*key).ask("1"))
try:
    sides.child(*key).ask("0")
except figure_sides.Failed as said:
    print(str(said).rpartition(" ended ")[2])
print(sides.child(*key).ask("1"))
sides.end()
""")
    assert done.stdout == "{}\nwith 6 when asked 0\n{}\n", done.stderr


def test_no_case_that_waits_for_the_doubles_events_runs_on_a_card():
    cases = (TOOL.parent.parent / "tests" / "driver_conformance" / "event_test.cpp").read_text(
        encoding="utf-8"
    )
    names = re.findall(r'DRIVER_TEST\(\w+,\s*"([^"]+)"', cases)
    patterns = NOT_FOREIGN.removeprefix("-tce=").split(",")
    assert len(names) >= 3
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)] == []
