"""Environment variables: each is in force, and a wrong value is refused by name."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run(program: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **variables},
    )


def probe(expression: str, **variables: str) -> subprocess.CompletedProcess:
    return run(f"import heddle; d = heddle.Device(); print({expression})", **variables)


def kept_in(**variables: str) -> str:
    """What the host says about how it cuts products."""
    done = probe("dict(d.facts)['products']", **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_products_are_cut_by_rule_or_as_measured_and_kept_where_the_environment_says(tmp_path):
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    assert kept_in(HEDDLE_TUNE="off", HEDDLE_CACHE_DIR=here) == "cut by rule"
    for tune in ("", "on", "all"):
        said = kept_in(HEDDLE_TUNE=tune, HEDDLE_CACHE_DIR=here, XDG_CACHE_HOME=there)
        assert said.startswith(f"cut as measured, kept in {here}/products-")
    homes = {"HEDDLE_TUNE": "on", "HEDDLE_CACHE_DIR": "", "HOME": here}
    assert f" {there}/heddle/products-" in kept_in(**homes, XDG_CACHE_HOME=there)
    assert f" {here}/.cache/heddle/products-" in kept_in(**homes, XDG_CACHE_HOME="relative")
    homes["HOME"] = ""
    assert kept_in(**homes, XDG_CACHE_HOME="") == "cut as measured, for this process only"


def test_a_file_of_measured_ways_that_cannot_be_read_is_told_once_by_the_log(tmp_path):
    variables = {"HEDDLE_TUNE": "on", "HEDDLE_CACHE_DIR": str(tmp_path)}
    path = kept_in(**variables).removeprefix("cut as measured, kept in ")
    with open(path, "w") as file:
        file.write("heddle products 1\n")
    program = textwrap.dedent("""
        import heddle
        said = []
        heddle.set_log(lambda level, message: said.append((level, message)))
        heddle.Device()
        heddle.Device()
        print([message for level, message in said if level == "warning"])
    """)
    done = run(program, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(path) == 1
    assert "measured anew" in done.stdout


FILL = "[heddle.Stream() for _ in range(d.streams)] and 'shared'"


@pytest.mark.parametrize(
    ("variables", "expression", "expected"),
    [
        ({"HEDDLE_THREADS": "1"}, "d.threads", "1"),
        ({"HEDDLE_STREAMS": "5"}, "d.streams", "5"),
        ({"HEDDLE_STREAM_EXHAUSTION": "share", "HEDDLE_STREAMS": "3"}, FILL, "shared"),
        ({"HEDDLE_IN_FLIGHT": "7"}, "d.in_flight", "7"),
        ({"HEDDLE_SLICES": "7"}, "d.slices", "7"),
        ({"HEDDLE_SLICES": "0", "HEDDLE_THREADS": "2"}, "d.slices", "2"),
        ({"HEDDLE_IN_FLIGHT": "128"}, "(d.in_flight, d.streams)", "(128, 129)"),
        ({"HEDDLE_IN_FLIGHT": "1024", "HEDDLE_STREAMS": "1024"}, "(d.in_flight, d.streams)", "(1024, 1024)"),
        (
            {"HEDDLE_MEMORY_FRACTION": "0.5"},
            "0.45 < d.stats()['memory_limit'] / d.stats()['recommended_max_memory'] < 0.55",
            "True",
        ),
    ],
)
def test_each_variable_is_in_force(variables, expression, expected):
    done = probe(expression, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"HEDDLE_STREAM_EXHAUSTION": "fail", "HEDDLE_STREAMS": "3"}, "ExhaustedError"),
        (
            {"HEDDLE_STREAM_EXHAUSTION": "wait", "HEDDLE_STREAM_WAIT_MS": "20", "HEDDLE_STREAMS": "3"},
            "DeadlineError",
        ),
    ],
)
def test_exhaustion_modes_follow_the_environment(variables, error):
    done = probe(FILL, **variables)
    assert done.returncode == 1
    assert error in done.stderr


def test_the_wait_for_a_stream_is_as_long_as_the_environment_says():
    program = textwrap.dedent("""
        import time, heddle
        held = [heddle.Stream(), heddle.Stream()]
        begin = time.monotonic()
        try:
            heddle.Stream()
        except heddle.DeadlineError:
            print(time.monotonic() - begin)
    """)
    variables = {
        "HEDDLE_STREAM_EXHAUSTION": "wait",
        "HEDDLE_STREAM_WAIT_MS": "20",
        "HEDDLE_STREAMS": "3",
    }
    done = run(program, **variables)
    assert done.returncode == 0, done.stderr
    assert 0.02 <= float(done.stdout) < 20  # the limit where none is given is 30 s


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEDDLE_THREADS", "many"),
        ("HEDDLE_STREAMS", "1"),
        ("HEDDLE_STREAM_EXHAUSTION", "panic"),
        ("HEDDLE_STREAM_WAIT_MS", "-5"),
        ("HEDDLE_EXECUTABLE_MIB", "1.5"),
        ("HEDDLE_MEMORY_FRACTION", "2"),
        ("HEDDLE_IN_FLIGHT", "1025"),
        ("HEDDLE_SLICES", "1025"),
        ("HEDDLE_STREAMS", "1025"),
        ("HEDDLE_NUMA", "on"),
        ("HEDDLE_TUNE", "fast"),
        ("HEDDLE_CUDA_GRAPHS", "some"),
        ("HEDDLE_CUDA_NVRTC", "all"),
        ("HEDDLE_CACHE_DIR", "here"),
    ],
)
def test_a_wrong_value_is_refused_with_variable_value_and_what_is_right(name, value):
    done = probe("1", **{name: value})
    assert done.returncode == 1
    assert "InvalidError" in done.stderr
    assert name in done.stderr
    assert f"'{value}'" in done.stderr


@pytest.mark.parametrize("value", ["auto", "off"])
def test_copies_by_memory_node_are_a_setting_and_plans_say_where_they_are(value):
    program = textwrap.dedent("""
        import sys, heddle
        sys.path.insert(0, {here!r})
        from conftest import build_affine
        model = build_affine()
        nodes = dict(heddle.Device().facts)["memory nodes"]
        weights = model.plan([(1, 8)], heddle.measure_rates())["weights"]
        assert (weights == "") == (nodes == "1" or {value!r} == "off"), (nodes, weights)
        print("fine")
    """).format(here=str(Path(__file__).parent), value=value)
    done = run(program, HEDDLE_NUMA=value)
    assert done.stdout.strip() == "fine", done.stderr


def test_a_device_can_be_opened_without_copies_by_memory_node_and_no_other_word_is_taken():
    program = textwrap.dedent("""
        import heddle
        assert heddle.Device.open("host", numa="off").threads >= 1
        try:
            heddle.Device.open("host", numa="on")
        except heddle.InvalidError as error:
            print(error)
    """)
    done = run(program)
    assert "numa must be 'auto' or 'off', not 'on'" in done.stdout, done.stderr


CONFINED = """
import os
import heddle
{after_the_import}
device = heddle.Device("host")
print(device.threads, dict(device.facts)["processors"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="macOS places threads itself")
@pytest.mark.parametrize("by_taskset", [True, False])
def test_a_process_on_one_processor_uses_one_also_when_confined_after_the_import(by_taskset):
    one = min(os.sched_getaffinity(0))
    program = CONFINED.format(after_the_import="" if by_taskset else f"os.sched_setaffinity(0, {{{one}}})")
    launcher = ["taskset", "-c", str(one)] if by_taskset else []
    done = subprocess.run(
        [*launcher, sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 1: affinity 1 of ")


def test_130_threads_call_a_model_on_a_device_of_128_calls_at_once():
    program = textwrap.dedent("""
        import sys, threading
        import numpy as np
        import heddle
        sys.path.insert(0, {here!r})
        from conftest import build_affine
        device = heddle.Device.open("host", in_flight=128)
        assert (device.in_flight, device.streams) == (128, 129)
        model = build_affine(device=device)
        x = [np.full((1 + who % 3, 8), who, np.float32) for who in range(130)]
        expected = [model(each) for each in x]
        right = [0] * 130

        def call(who):
            for _ in range(20):
                right[who] += bool((model(x[who]) == expected[who]).all())

        threads = [threading.Thread(target=call, args=(who,)) for who in range(130)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sum(right))
    """).format(here=str(Path(__file__).parent))
    done = run(program)
    assert done.stdout.strip() == str(130 * 20), done.stderr
