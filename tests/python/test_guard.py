"""heddle guard, heddle.guard, heddle crash-rate: on small programs; on the AGX double where it is built."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import heddle
from heddle.cli.crash_rate import find_interval
from heddle.cli.crash_report import find_report, find_signal, sign

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = Path(os.environ.get("AGX_GUARD_LIBRARY", ROOT / "build/release/guard/libagx_guard.so")).parent
on_the_double = pytest.mark.skipif(
    not (DOUBLE / "agx_guard_stress").exists(), reason="needs cmake --build --preset metal-double"
)
IPS = """{"app_name":"python3.12","bug_type":"309"}
{"pid": 4711, "exception": {"type": "EXC_BAD_ACCESS", "signal": "SIGSEGV",
 "subtype": "KERN_INVALID_ADDRESS at 0x00000000000005c8"},
 "usedImages": [{"name": "AGXMetalG16X"}, {"name": "libtorch_cpu.dylib"}],
 "threads": [{"frames": []}, {"triggered": true, "frames": [
  {"imageIndex": 0, "symbol": "-[AGXG16XFamilyComputeContext setComputePipelineState:]"},
  {"imageIndex": 1, "imageOffset": 74565}]}]}"""


def command(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "heddle", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    ("hits", "runs", "low", "high"),
    [(0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0), (1, 2, 0.0945, 0.9055)],
)
def test_intervals_are_wilsons(hits, runs, low, high):
    assert find_interval(hits, runs) == pytest.approx((low, high), abs=1e-4)
    for bound in find_interval(hits, runs):
        # Wilson's bounds are the rates from which the one seen is just 1.96 standard errors away.
        assert (hits / runs - bound) ** 2 == pytest.approx(1.959964**2 * bound * (1 - bound) / runs, abs=1e-9)


def test_a_signal_is_told_from_an_exit_code():
    assert find_signal(-signal.SIGSEGV) == signal.SIGSEGV
    assert find_signal(128 + signal.SIGABRT) == signal.SIGABRT
    assert find_signal(3) is None
    assert find_signal(0) is None


def test_signatures_leave_out_what_differs_between_runs():
    assert sign(139, "SIGNAL 11 at 0x5c8\n") == "SIGSEGV at 0x5c8"
    assert sign(139, "SIGNAL 11 at 0x7f00deadbeef\n") == "SIGSEGV at a wild address"
    said = "commit: failed assertion `commit an already committed command buffer'\nSIGNAL 6 at 0x1234\n"
    assert sign(134, said).endswith("failed assertion `commit an already committed command buffer'")
    assert sign(2, "usage") == "exit code 2"


def test_a_crash_report_of_macos_is_found_by_process_and_read(tmp_path):
    (tmp_path / "python3.12-2026-11-21-101112.ips").write_text(IPS)
    (tmp_path / "half-written.ips").write_text('{"app_name":"python"}\n{"pid": 47')
    report = find_report(4711, 0.0, tmp_path)
    assert report["exception"] == "EXC_BAD_ACCESS SIGSEGV"
    assert sign(-signal.SIGSEGV, "", report) == (
        "SIGSEGV at 0x5c8 in AGXMetalG16X -[AGXG16XFamilyComputeContext setComputePipelineState:] "
        "< libtorch_cpu.dylib 0x12345"
    )
    assert find_report(4712, 0.0, tmp_path) is None


def test_crash_rate_tells_crashes_failures_and_clean_runs_apart(tmp_path):
    script = tmp_path / "moody.py"
    script.write_text(
        "import os, pathlib, signal, sys\n"
        f"n = len(list(pathlib.Path({str(tmp_path)!r}).glob('run*')))\n"
        f"pathlib.Path({str(tmp_path)!r}, f'run{{n}}').touch()\n"
        "if n % 3 == 0: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "if n % 3 == 1: sys.exit(4)\n"
    )
    done = command("crash-rate", sys.executable, script, "--runs", 6, "--without-only", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["without"]
    assert (result["crashed"], result["failed"], result["clean"], result["hung"]) == (2, 2, 2, 0)
    assert result["signatures"] == {"SIGSEGV": 2, "exit code 4": 2}
    assert result["rate"] == pytest.approx(1 / 3)


def test_a_program_that_does_not_end_counts_as_hung():
    stuck = "import threading; threading.Event().wait()"
    done = command(
        "crash-rate",
        "--runs",
        1,
        "--timeout",
        1,
        "--without-only",
        "--json",
        "--",
        sys.executable,
        "-c",
        stuck,
    )
    assert json.loads(done.stdout)["without"]["hung"] == 1, done.stderr


def test_what_is_missing_is_said_in_one_line():
    for words, why in [
        (("guard", sys.executable), "libagx_guard was not found (AGX_GUARD_LIBRARY=/nowhere)"),
        (("crash-rate", "true"), "libagx_guard was not found"),
        (("crash-rate", "true", "--runs", 0), "at least one run is needed"),
        (("guard",), "a program is needed"),
        (("guard", "no-such-program"), "'no-such-program' is no program on the PATH"),
    ]:
        done = command(*words, AGX_GUARD_LIBRARY="/nowhere")
        assert done.returncode == 1
        assert why in done.stderr
        assert done.stderr.count("\n") == 1


def test_without_a_guard_there_are_no_numbers():
    assert not heddle.guard.is_active()
    assert heddle.guard.statistics() == {}
    assert heddle.guard.uninstall() is False


@on_the_double
def test_guard_runs_a_program_with_the_guard_inserted():
    stress, library = DOUBLE / "agx_guard_stress", str(DOUBLE / "libagx_guard.so")
    done = command("guard", stress, "null", 2, 100, AGX_GUARD_LIBRARY=library)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "guard=on ADDS UP" in done.stdout


@on_the_double
def test_crash_rate_shows_what_the_guard_is_good_for():
    stress, library = DOUBLE / "agx_guard_stress", str(DOUBLE / "libagx_guard.so")
    done = command("crash-rate", stress, "raw", 2, 300, "--runs", 3, "--json", AGX_GUARD_LIBRARY=library)
    result = json.loads(done.stdout)
    assert result["without"]["crashed"] == 3
    assert result["with"]["clean"] == 3
    assert result["with"]["guard_seen"] == 3
    assert result["with"]["guard"]["calls"] > 0


@on_the_double
def test_install_guards_a_process_before_and_after_its_device_exists():
    script = f"""
import ctypes, heddle
assert heddle.guard.install() == "waiting"
assert heddle.guard.is_active()
metal = ctypes.CDLL({str(DOUBLE / "libagx_metal.so")!r})
metal.MTLCreateSystemDefaultDevice()
assert heddle.guard.install() == "installed"
assert heddle.guard.install() == "already"
assert heddle.guard.statistics()["methods_guarded"] > 40
assert heddle.guard.replaced_by_others() == 0
assert heddle.guard.uninstall() and not heddle.guard.is_active()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"AGX_GUARD_LIBRARY": str(DOUBLE / "libagx_guard.so")},
    )
    assert done.returncode == 0, done.stderr
