"""tools/mac_check.sh on the doubles: what its archive holds, and what it says of phases that fail."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).with_name("mac_check.sh")
PROBES = TOOL.parent.parent / "build" / "release" / "limit_probes"
PHASES = ("system", "setup", "build", "tests", "conformance", "threads", "probes", "doctor", "guard_build",
          "guard_classes", "crash_rate_null", "crash_rate_raw", "cost", "figures")  # fmt: skip

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="there is one"),
    pytest.mark.skipif(
        sys.platform != "darwin" and not PROBES.exists(), reason="needs cmake --build --preset metal-double"
    ),
]


class Checked:
    """One run: the archive's files by name, without its folder's."""

    def __init__(self, folder: Path, code: int) -> None:
        self.code = code
        with tarfile.open(f"{folder}.tar.gz") as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            opened = {
                member.name.removeprefix("heddle-mac/"): archive.extractfile(member) for member in members
            }
            self.files = {name: file.read().decode() for name, file in opened.items() if file}
        self.result: dict[str, Any] = json.loads(self.files["result.json"])
        self.phases = {phase.pop("phase"): phase for phase in self.result["phases"]}

    def json(self, name: str) -> Any:
        return json.loads(self.files[name])


def begin(folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    settings = {"HEDDLE_PYTHON": sys.executable, "MAC_CHECK_RUNS": "2", "HEDDLE_TUNE": "off"}
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            [TOOL, "--double", folder / "heddle-mac"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=os.environ | settings | environment,
        )


def check(folder: Path, **environment: str) -> Checked:
    return Checked(folder / "heddle-mac", begin(folder, **environment).wait(timeout=300))


def test_one_archive_has_each_phases_log_and_what_it_found(tmp_path: Path) -> None:
    done = check(tmp_path, HEDDLE_METAL_DOUBLE_MAC="26.0-M4")
    assert {name: phase["status"] for name, phase in done.phases.items()} == dict.fromkeys(PHASES, "ok")
    assert done.code == 0
    assert len(done.result["commit"]) == 40
    assert {f"{name}.log" for name in PHASES} <= set(done.files)
    assert "1 passed" in done.files["conformance.log"]
    assert "1 passed" in done.files["threads.log"]
    outcomes = {probe["limit"]: probe["outcome"] for probe in done.json("probes.json")["probes"]}
    assert outcomes["bool concatenation"] == "aborted"
    assert outcomes["lone gathers"] == "right"
    assert done.json("doctor.json")["device"] == "metal"
    assert done.json("guard_report.json")["classes"]
    for kind in ("null", "raw"):
        assert done.json(f"crash_rate_{kind}.json")["with"]["clean"] == 2
    assert done.json("crash_rate_raw.json")["without"]["crashed"] == 2
    assert done.json("encoding_turns_bench.json")["one_model"]["us"] > 0
    assert done.json("cost_with.json") != done.json("cost_without.json")


def test_a_phase_that_fails_stops_those_that_need_it_and_no_others(tmp_path: Path) -> None:
    cmake = tmp_path / "cmake"
    cmake.write_text("#!/bin/sh\necho no compiler here\nexit 7\n")
    cmake.chmod(0o755)
    only = "system,build,conformance,probes,guard_build,guard_classes,doctor"
    done = check(tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}", MAC_CHECK_ONLY=only)
    assert done.code == 1
    assert done.phases["build"] == {"status": "failed", "exit": 7, "seconds": done.phases["build"]["seconds"]}
    assert "no compiler here" in done.files["build.log"]
    for name, needed in (("conformance", "build"), ("probes", "build"), ("guard_classes", "guard_build")):
        assert done.phases[name] == {"status": "not run", "needs": needed}
    assert done.phases["system"]["status"] == done.phases["doctor"]["status"] == "ok"


def test_a_phase_that_does_not_end_is_ended_and_named(tmp_path: Path) -> None:
    (tmp_path / "uname").write_text("#!/bin/sh\necho begun\nexec sleep 1000\n")
    (tmp_path / "uname").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = check(tmp_path, PATH=path, MAC_CHECK_ONLY="system,setup", MAC_CHECK_LIMIT="1")
    assert done.code == 1
    assert done.phases["system"]["status"] == "out of time"
    assert done.phases["system"]["seconds"] < 15
    assert done.files["system.log"] == "begun\n"
    assert "setup" in done.phases


def test_an_interruption_leaves_an_archive_of_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "uname").write_text(f"#!/bin/sh\necho begun > {tmp_path}/begun\nexec sleep 1000\n")
    (tmp_path / "uname").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    started = begin(tmp_path, PATH=path, MAC_CHECK_ONLY="system,setup")
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert started.poll() is None
        assert time.monotonic() < deadline
        os.sched_yield()
    # Not SIGINT: tests in the background ignore it, and a shell cannot trap what it was told to ignore.
    started.send_signal(signal.SIGTERM)
    done = Checked(tmp_path / "heddle-mac", started.wait(timeout=60))
    assert done.code == 1
    assert done.phases["system"]["status"] == "interrupted"
    assert done.phases["setup"] == {"status": "not run", "needs": "no interruption"}


@pytest.mark.parametrize(
    ("words", "only", "told"),
    [
        (["--double", "a", "b"], "", "usage:"),
        (["--quick"], "", "usage:"),
        (["--double", "new"], "bild", "names 'bild'"),
        (["--double", "."], "", "is not empty"),
        ([], "", "needs macOS on Apple silicon"),
    ],
)
def test_what_it_cannot_do_is_said_before_anything_is_done(
    tmp_path: Path, words: list[str], only: str, told: str
) -> None:
    (tmp_path / "mine").write_text("")
    done = subprocess.run([TOOL, *words], cwd=tmp_path, env=os.environ | {"MAC_CHECK_ONLY": only},
                          capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
    assert done.returncode == 2
    assert told in done.stderr
    assert (tmp_path / "mine").exists()
