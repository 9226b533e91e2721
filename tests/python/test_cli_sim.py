"""heddle sim: the same seed and plan, the same report; what a plan asks for happens, and is named."""

import json
import subprocess
import sys

import pytest


def sim(*words):
    return subprocess.run(
        [sys.executable, "-m", "heddle", "sim", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def report(*words, returns=0):
    done = sim(*words, "--json")
    assert done.returncode == returns, done.stderr
    return json.loads(done.stdout)


def plan_of(tmp_path, *lines):
    path = tmp_path / "plan.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_equal_seeds_print_the_same_and_others_something_else():
    first = sim("--seed", 7)
    assert first.returncode == 0, first.stderr
    assert sim("--seed", 7).stdout == first.stdout
    assert sim("--seed", 8).stdout != first.stdout
    assert "violation: none" in first.stdout
    assert "error: none" in first.stdout


def test_an_error_prints_the_same_in_every_process_and_on_every_machine(tmp_path):
    plan = plan_of(tmp_path, "fault allocation 1+")
    first = sim("--seed", 6, "--plan", plan)
    assert "device 'replay' has no 128 bytes more" in first.stdout
    assert "limit 1073741824" in first.stdout
    assert sim("--seed", 6, "--plan", plan).stdout == first.stdout


@pytest.mark.parametrize("scenario", ["mix", "copies", "runs", "events"])
def test_each_scenario_tells_its_operations_in_the_order_of_virtual_time(scenario):
    told = report("--seed", 3, "--plan", scenario)
    assert told["scenario"] == scenario
    assert told["operations"] == 28
    assert told["values_right"] == told["values_checked"] >= 4
    times = [event["at_ns"] for event in told["events"]]
    assert times == sorted(times)
    kinds = [event["event"] for event in told["events"]]
    assert kinds.count("told") == kinds.count("submitted") > 20
    assert kinds.count("begun") == kinds.count("ended") > 10


def test_a_broken_rule_is_named():
    told = report("--seed", 5, "--plan", "missing-dependency", returns=1)
    assert told["violation"].startswith("missing dependency between queues")
    assert told["error"] == "internal"
    assert "violated" in [event["event"] for event in told["events"]]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("queue 2", "device_lost"),
        ("device 2", "device_lost"),
        ("compile 1", "unavailable"),
        ("lost 1", "deadline"),
        ("lost 1+", "deadline"),
        ("hang 1+", "deadline"),
    ],
)
def test_a_fault_of_the_plan_comes_and_gives_its_error(tmp_path, fault, error):
    plan = plan_of(tmp_path, "scenario mix  # three streams", "", f"fault {fault}")
    told = report("--seed", 1, "--plan", plan, returns=1)
    assert told["error"] == error
    assert told["violation"] == ""
    planned = [f"{each['fault']} {each['nth']}{'+' if each['lasting'] else ''}" for each in told["faults"]]
    assert planned == [fault]
    assert report("--seed", 1, "--plan", plan, returns=1) == told


def test_a_late_completion_is_a_second_late_and_changes_no_value(tmp_path):
    told = report("--seed", 1, "--plan", plan_of(tmp_path, "fault late 3"))
    assert told["values_right"] == told["values_checked"] > 0
    assert told["events"][-1]["at_ns"] > 1e9


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["scenario nothing"], ["nothing", "mix", "missing-dependency"]),
        (["fault nothing 1"], ["nothing", "allocation", "late"]),
        (["fault queue"], ["queue", "from 1 on"]),
        (["do something"], ["do something", "scenario NAME"]),
    ],
)
def test_an_unknown_word_of_a_plan_is_named_with_those_that_exist(tmp_path, lines, words):
    done = sim("--seed", 1, "--plan", plan_of(tmp_path, *lines))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words)


def test_a_plan_that_is_no_file_and_no_scenario_and_a_seed_out_of_range_are_named():
    for words in (["--plan", "none.txt"], ["--plan", "none"]):
        done = sim("--seed", 1, *words)
        assert done.returncode == 1
        assert "none" in done.stderr
    done = sim("--seed", -1)
    assert done.returncode == 1
    assert "-1" in done.stderr
