"""Environment variables: each is in force, and a wrong value is refused by name."""

import os
import subprocess
import sys
import textwrap

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
        ("HEDDLE_IN_FLIGHT", "64"),
        ("HEDDLE_TUNE", "fast"),
        ("HEDDLE_CACHE_DIR", "here"),
    ],
)
def test_a_wrong_value_is_refused_with_variable_value_and_what_is_right(name, value):
    done = probe("1", **{name: value})
    assert done.returncode == 1
    assert "InvalidError" in done.stderr
    assert name in done.stderr
    assert f"'{value}'" in done.stderr
