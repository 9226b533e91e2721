"""heddle run, bench, doctor and inspect: what they print, write and return."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import build_mlp  # noqa: F401  (the module must import beside the commands)

import heddle
from heddle.cli.drawing import BOX_HEIGHT, BOX_WIDTH, draw
from heddle.cli.profile import spans_of_calls

ROOT = Path(__file__).resolve().parents[2]


def command(*words, env=None):
    return subprocess.run(
        [sys.executable, "-m", "heddle", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=env,
    )


@pytest.fixture(scope="module")
def affine_file(tmp_path_factory):
    """y = 2 x + 1 as an ONNX file."""
    from onnx import TensorProto, helper, save

    nodes = [helper.make_node("Mul", ["x", "two"], ["d"]), helper.make_node("Add", ["d", "one"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [
            helper.make_tensor("two", TensorProto.FLOAT, [], [2]),
            helper.make_tensor("one", TensorProto.FLOAT, [], [1]),
        ],
    )
    path = tmp_path_factory.mktemp("cli") / "affine.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_run_reads_npz_and_npy_and_writes_both(affine_file, tmp_path):
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    np.savez(tmp_path / "in.npz", x=x)
    np.save(tmp_path / "in.npy", x)
    for given in (tmp_path / "in.npz", f"x={tmp_path / 'in.npy'}", tmp_path / "in.npy"):
        done = command("run", affine_file, given, "--output", tmp_path / "out.npz", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["outputs"][0]["shape"] == [2, 8]
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], 2 * x + 1)
    assert command("run", affine_file, tmp_path / "in.npz", "--output", tmp_path / "out.npy").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), 2 * x + 1)


def test_run_makes_inputs_up_and_names_a_missing_dimension(affine_file):
    assert command("run", affine_file, "--dims", "batch=3").returncode == 0
    done = command("run", affine_file)
    assert done.returncode == 1
    assert "batch" in done.stderr


def test_a_missing_file_is_one_line_and_exit_code_one(tmp_path):
    done = command("run", tmp_path / "none.onnx")
    assert done.returncode == 1
    assert "none.onnx" in done.stderr
    assert "Traceback" not in done.stderr


def test_bench_sweeps_threads_batch_and_synchronisation(affine_file, tmp_path):
    plot = tmp_path / "out.png"
    done = command(
        "bench", affine_file, "--threads", 1, 2, "--batch", 1, 4,
        "--sync", "call", "every", "event", "end", "device",
        "--seconds", 0.02, "--rounds", 2, "--json", "--plot", plot,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert {(c["threads"], c["batch"], c["sync"]) for c in cells} == {
        (t, b, s) for t in (1, 2) for b in (1, 4) for s in ("call", "every", "event", "end", "device")
    }
    assert all(c["rows_per_s"] > 0 and c["p99_ms"] >= c["p50_ms"] > 0 for c in cells)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_bench_profile_shows_where_a_call_goes(affine_file):
    done = command("bench", affine_file, "--profile", "--batch", 2, 512, "--json")
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)["profiles"]
    assert [report["batch"] for report in reports] == [2, 512]
    for report in reports:
        assert [(row["op"], row["runs"]) for row in report["steps"]] == [("Elementwise", 1)]
        assert report["operators"][0]["ms"] == report["steps"][0]["ms"]
        assert 0 < report["steps"][0]["ms"] < report["call_ms"]
    table = command("bench", affine_file, "--profile", "--batch", 2)
    assert table.returncode == 0, table.stderr
    assert "Elementwise (step 1)" in table.stdout
    assert "between the steps" in table.stdout


def test_each_call_of_a_profile_has_its_span(affine_file):
    model = heddle.load(affine_file)
    spans = spans_of_calls(model, [np.ones((2, 8), np.float32)], 200)
    assert sum(span["cat"] == "api" and span["name"] == "call" for span in spans) == 200
    assert sum(span["cat"] == "host" for span in spans) == 200


def test_doctor_says_usable_with_zero_and_unknown_with_two():
    done = command("doctor", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["status"] == 0
    assert report["versions"]["heddle"] == heddle.__version__
    assert {v["name"] for v in report["environment"]} >= {"HEDDLE_THREADS", "HEDDLE_STREAM_EXHAUSTION"}
    assert report["limits"]["streams"] >= 32
    why = report["facts"]["processors"]  # "3: affinity 4 of 128, cgroup quota 3.5 -> 3"
    assert re.fullmatch(r"\d+: affinity \d+ of \d+(, cgroup quota [\d.]+ -> \d+)?", why)
    assert why in command("doctor").stdout
    assert "memory nodes" in report["facts"]
    assert report["onnx"]["oldest_opset"] == 7
    assert {"Attention", "Conv", "Softmax"} <= set(report["onnx"]["operators"])
    assert report["guard"] == {"state": "not loaded", "classes": 0, "replaced_by_others": 0}
    assert "guard against Apple's encoder race: not loaded" in command("doctor").stdout
    unknown = command("doctor", "--device", "abacus")
    assert unknown.returncode == 2
    assert "abacus" in unknown.stdout


def test_doctor_says_not_usable_with_one_when_the_environment_is_wrong():
    import os

    done = command("doctor", env={**os.environ, "HEDDLE_THREADS": "many"})
    assert done.returncode == 1
    assert "HEDDLE_THREADS" in done.stdout
    assert "'many'" in done.stdout


def test_doctor_names_what_is_unsafe():
    import os

    report = json.loads(command("doctor", "--json", env={**os.environ, "HEDDLE_THREADS": "64"}).stdout)
    assert any("64 computing threads" in risk["what"] for risk in report["risks"])


@pytest.mark.parametrize(
    ("device", "state", "installed", "replaced", "words"),
    [
        ("metal", "not loaded", ["torch"], 0, ["the guard is not loaded"]),
        ("metal", "loaded, not active", ["torch"], 0, ["the guard is loaded, not active"]),
        ("metal", "active", ["torch"], 0, []),
        ("metal", "active", ["torch"], 3, ["3 methods"]),
        ("metal", "not loaded", ["numpy"], 0, []),
        ("host", "not loaded", ["torch"], 0, []),
    ],
)
def test_doctor_warns_of_other_libraries_on_metal_without_the_guard(
    device, state, installed, replaced, words
):
    from heddle.cli.doctor import find_guard_risks

    guard = {"state": state, "classes": 9, "replaced_by_others": replaced}
    risks = find_guard_risks(device, guard, installed)
    assert len(risks) == len(words)
    assert all(word in risk["what"] for word, risk in zip(words, risks, strict=True))
    assert all(risk["why"] and risk["do"] for risk in risks)


def test_doctor_prints_what_a_metal_device_tells(capsys):
    from heddle.cli.doctor import print_report
    from heddle.cli.torch_faults import examine

    print_report(
        {
            "pytorch": examine("2.9.1"),
            "device": "metal",
            "verdict": "usable",
            "versions": {},
            "missing_devices": {},
            "onnx": {"oldest_opset": 7, "newest_opset": 23, "operators": []},
            "facts": {"system": "Version 15.7", "chip": "Apple M4 Max", "Metal family": "Apple9"},
            "defences": [{"fault": "a fault (seen: 15.7)", "defence": "what is done"}],
            "defences_shown_on": "a double",
            "guard": {"state": "active", "classes": 9, "replaced_by_others": 0},
            "environment": [],
            "risks": [],
        }
    )
    printed = capsys.readouterr().out
    for part in (
        "15.7",
        "M4 Max",
        "Apple9",
        "shown on a double",
        "defence: what is done",
        "active, 9 classes",
    ):
        assert part in printed


def test_doctor_says_where_the_defences_of_metal_were_shown():
    double = ROOT / "build" / "release" / "on_the_double" / "libheddle.so.0"
    on_the_double = os.environ | {"LD_PRELOAD": str(double), "HEDDLE_DEVICE": "metal"}
    report = json.loads(command("doctor", "--json", env=on_the_double).stdout)
    assert report["device"] == "metal"
    assert report["defences"]
    assert report["defences_shown_on"] == "a double of Metal on Linux, not on a Mac"
    assert "defences_shown_on" not in json.loads(command("doctor", "--device", "host", "--json").stdout)


@pytest.mark.parametrize(
    ("mac", "has", "has_not"),
    [
        ("14.0-M1", {"product terms", "lone gathers", "blit size"}, {"fused attention", "long sorts of i64"}),
        ("26.0-M4", {"fused attention", "long sorts of i64", "blit size"}, {"product terms", "lone gathers"}),
    ],
)
def test_doctor_names_each_limit_of_the_mac_at_hand_and_what_is_done(mac, has, has_not):
    double = ROOT / "build" / "release" / "on_the_double" / "libheddle.so.0"
    this_mac = {"LD_PRELOAD": str(double), "HEDDLE_DEVICE": "metal", "HEDDLE_METAL_DOUBLE_MAC": mac}
    report = json.loads(command("doctor", "--json", env=os.environ | this_mac).stdout)
    named = {each["fault"].split(":")[0]: each["defence"] for each in report["defences"]}
    assert has <= set(named)
    assert not has_not & set(named)
    assert named["blit size"] == "copies are cut into pieces of 2 GB"
    printed = command("doctor", env=os.environ | this_mac).stdout
    for name in has:
        assert f"  {name}: " in printed
        assert f"    defence: {named[name]}" in printed


def test_inspect_shows_ports_and_graph(affine_file):
    done = command("inspect", affine_file, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["batch", 8]}]
    assert report["batchable"] is True
    assert report["operators"] == {"Elementwise": 1}
    assert report["source_operators"] == {"Mul": 1, "Add": 1}
    assert report["fusions"] == [{"times": 1, "nodes": ["Elementwise"], "sources": {"Add": 1, "Mul": 1}}]
    assert report["dims"] == {"batch": 1}
    assert report["not_measured"] is None


def test_inspect_estimates_and_measures_each_node(affine_file):
    report = json.loads(command("inspect", affine_file, "--dims", "batch=4", "--json").stdout)
    assert [step["op"] for step in report["profile"]["steps"]] == ["Elementwise"]
    (node,) = report["plan"]["nodes"]
    assert (node["op"], node["name"], node["outputs"]) == ("Elementwise", "y", ["f32[4, 8]"])
    rates = report["plan"]["rates"]
    assert all(rate > 0 for rate in rates.values())
    # Two operators over 32 elements; reads and writes 32 floats each.
    assert (node["flops"], node["bytes"]) == (64, 256)
    roof = max(64 / rates["flops_per_s"], 256 / rates["cached_bytes_per_s"])
    assert node["estimated_s"] == pytest.approx(rates["step_s"] + roof)
    assert 0 < node["measured_s"] < report["profile"]["call_ms"] / 1e3
    shown = command("inspect", affine_file, "--dims", "batch=4")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"Elementwise \(step 1\) +(\d+\.\d+ +){3}\d+\.\d%  y f32\[4, 8\]", shown.stdout)


def test_inspect_names_the_dimension_that_is_none_and_the_one_that_needs_a_number(affine_file, tmp_path):
    unknown = command("inspect", affine_file, "--dims", "rows=4")
    assert unknown.returncode == 1
    assert "rows" in unknown.stderr
    assert "batch" in unknown.stderr

    from onnx import TensorProto, helper, save

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "length"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "rows", ports[:1], ports[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "rows.onnx")
    bare = command("inspect", tmp_path / "rows.onnx")
    assert bare.returncode == 0, bare.stderr
    assert "not measured: give numbers to the free dimensions: --dims length=N" in bare.stdout
    assert "GRAPH BEFORE OPTIMISATION  1 nodes: Softmax" in bare.stdout
    asked = command("inspect", tmp_path / "rows.onnx", "--dims", "batch=2")
    assert asked.returncode == 1
    assert "length" in asked.stderr
    assert command("inspect", tmp_path / "rows.onnx", "--dims", "length=2").returncode == 0


def test_inspect_tells_what_was_fused_and_what_the_arena_reuses_of_a_real_model(minilm, tmp_path):
    svg = tmp_path / "minilm.svg"
    done = command("inspect", minilm, "--dims", "seq=16", "--json", "--svg", svg)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    before, after = (sum(report[key].values()) for key in ("source_operators", "operators"))
    assert before > 3 * after
    # Every node before is folded away, or one that a node after stands for; every node after stands for some.
    stood_for = [op for each in report["replacements"] for op in each["sources"]]
    assert len(stood_for) + report["folded_away"] == before
    assert sum(len(each["nodes"]) for each in report["replacements"]) == after
    assert stood_for.count("Erf") == report["source_operators"]["Erf"] == 6
    attention = [row for row in report["fusions"] if "Attention" in row["nodes"]]
    assert sum(row["times"] for row in attention) == report["operators"]["Attention"] == 6
    assert all(row["sources"]["Softmax"] == 1 for row in attention)
    # Six layers write to the same places in turn.
    plan = report["plan"]
    assert 0 < plan["arena_bytes"] < plan["arena_bytes_apart"] / 4
    assert plan["slot_bytes"] >= plan["arena_bytes"]
    assert plan["launches"] == ""
    timed = [node for node in plan["nodes"] if node["step"] is not None]
    assert [node["step"] for node in timed] == list(range(1, len(timed) + 1))
    assert {(node["step"], node["op"]) for node in timed} == {
        (step["step"], step["op"]) for step in report["profile"]["steps"]
    }
    assert all(node["measured_s"] > 0 and node["estimated_s"] > 0 for node in timed)
    assert svg.read_text().count(" ms</text>") == len(timed)

    short = command("inspect", minilm, "--dims", "seq=16", "--short").stdout
    assert f"FUSIONS  {before} nodes -> {after}" in short
    assert "reuse saves" in short
    assert len(short.splitlines()) < 70


def test_inspect_names_the_kernels_and_the_pieces_of_each_step(exported):
    """Eight threads: 100 columns in eight pieces would go to oneDNN's reference."""
    words = ("inspect", exported / "conv1d.onnx", "--dims", "length=104")
    eight = os.environ | {"HEDDLE_THREADS": "8"}
    report = json.loads(command(*words, "--json", env=eight).stdout)
    steps = {node["step"]: node["path"] for node in report["plan"]["nodes"] if node["op"] == "Conv"}
    assert len(steps) == 2
    for path in steps.values():
        divided = r"\d rows( x \d panels)?|\d panels"
        kernels = r"oneDNN [\w:]+(, [\w:]+)* in [2-8] pieces"
        assert re.fullmatch(rf"{kernels}; ({divided}) over [2-8] cores, \d+ % of 8 busy", path)
        assert "ref:" not in path
    shown = command(*words, env=eight).stdout
    lines = re.findall(r"^  Conv \(steps? ([\d, ]+)\): (.*)$", shown, re.MULTILINE)
    assert {int(step): path for numbers, path in lines for step in numbers.split(", ")} == steps


def test_inspect_counts_a_loops_nodes_once(tmp_path):
    from onnx import TensorProto, helper, save

    body = helper.make_graph(
        [
            helper.make_node("Softmax", ["s"], ["t"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [64, 512]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, [64, 512]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        "loop",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 512])],
        [helper.make_tensor("n", TensorProto.INT64, [], [100])],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "loop.onnx")
    report = json.loads(command("inspect", tmp_path / "loop.onnx", "--json").stdout)
    (loop,) = [node for node in report["plan"]["nodes"] if node["op"] == "Loop"]
    assert loop["estimated_s"] is None
    measured = report["profile"]
    assert [(s["op"], s["runs"]) for s in measured["steps"] if s["depth"] == 1] == [("Softmax", 100)]
    assert loop["measured_s"] >= max(s["ms"] for s in measured["steps"] if s["depth"] == 1) / 1e3
    assert sum(step["ms"] for step in measured["steps"]) <= measured["call_ms"]


def test_inspect_draws_every_node_once_apart_from_the_others(affine_file, tmp_path):
    done = command("inspect", affine_file, "--svg", tmp_path / "graph.svg")
    assert done.returncode == 0, done.stderr
    assert ">Elementwise</text>" in (tmp_path / "graph.svg").read_text()

    graph = heddle.GraphBuilder("branches")
    x = graph.input("x", "f32", ["batch", 4])
    branches = [
        graph.add("Softmax", graph.add("CumSum", x, graph.constant(np.int64(1))), axis=a) for a in (0, 1)
    ]
    graph.output(graph.add("Concat", *branches, axis=1), "y")
    text = graph.build().graph()
    drawing = ElementTree.fromstring(draw(text, "branches"))
    svg = "{http://www.w3.org/2000/svg}"
    places = [(float(r.get("x")), float(r.get("y"))) for r in drawing.iterfind(f"{svg}g/{svg}rect")]
    labels = [t.text for t in drawing.iterfind(f"{svg}g/{svg}text[@font-weight]")]
    assert sorted(labels) == sorted(["inputs", *re.findall(r" = (\w+)\(", text), "outputs"])
    for i, (ax, ay) in enumerate(places):
        for bx, by in places[:i]:
            assert abs(ax - bx) >= BOX_WIDTH or abs(ay - by) >= BOX_HEIGHT
