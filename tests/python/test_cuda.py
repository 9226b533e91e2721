"""The device cuda in whole programs, on the double of NVIDIA's driver: LD_LIBRARY_PATH says where that is.

HEDDLE_TEST_CARD=1: on a real GPU instead, with the kernels that the library was built with.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = ROOT / "build" / "release" / "cuda_double"
LIBRARIES = DOUBLE / "libraries"
CARD = "HEDDLE_TEST_CARD" in os.environ
ON_CUDA = ({} if CARD else {"LD_LIBRARY_PATH": str(DOUBLE), "HEDDLE_CUDA_IMAGE": str(DOUBLE / "kernels")}) | {
    "HEDDLE_DEVICE": "cuda"
}
BY_NAME = ON_CUDA | {"HEDDLE_DEVICE": "host"}  # where --device has to name it


def python(*words, env):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | env,
    )


def heddle_command(*words, env=ON_CUDA):
    return python("-m", "heddle", *words, env=env)


def test_eight_threads_share_one_model_and_each_gets_its_own_rows():
    program = f"""
        import sys
        import numpy as np
        import heddle
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from conftest import build_mlp, run_together

        assert heddle.Device().name == "cuda", heddle.Device().name
        model, host = build_mlp(), build_mlp(heddle.Device("host"))
        x = [np.random.default_rng(i).standard_normal((1 + i % 3, 512)).astype(np.float32) for i in range(8)]
        wanted = [host(each) for each in x]

        def call(thread, _):
            return sum(np.allclose(model(x[thread]), wanted[thread], 1e-4, 1e-4) for _ in range(20))

        right, _ = run_together(8, call)
        assert right == [20] * 8, right
        print("right", sum(right))
    """
    done = python("-c", textwrap.dedent(program), env=ON_CUDA)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "right 160"


def test_doctor_computes_on_the_gpu_and_names_it():
    done = heddle_command("doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["device"]) == (0, "cuda"), done.stderr
    assert "cuda" in report["devices"]
    assert report["missing_devices"] == {}
    assert {"GPU", "compute capability", "CUDA of the driver"} <= set(report["facts"])


@pytest.mark.skipif(CARD, reason="of the double's cuBLASLt")
def test_doctor_names_the_version_and_the_file_of_the_cublaslt_that_it_found(tmp_path):
    (tmp_path / "lib64").symlink_to(LIBRARIES)
    for environment, folder in (
        ({"HEDDLE_CUDA_LIBRARIES": f"/nowhere:{LIBRARIES}", "CUDA_HOME": str(tmp_path)}, LIBRARIES),
        ({"CUDA_HOME": str(tmp_path)}, tmp_path / "lib64"),
    ):
        done = heddle_command("doctor", "--json", env=ON_CUDA | environment)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["facts"]["cuBLASLt"] == f"13.1.1, {folder}/libcublasLt.so.13"


@pytest.mark.skipif(CARD, reason="of the double's cuBLASLt")
@pytest.mark.parametrize(
    ("library", "files", "in_wheels"),
    [
        ("cuBLASLt", ("libcublasLt.so.13", "libcublasLt.so.12"), "/nvidia/cu13/lib"),
        ("cuDNN", ("libcudnn.so.9",), "/nvidia/cudnn/lib"),
        ("NVRTC", ("libnvrtc.so.13", "libnvrtc.so.12"), "/nvidia/cuda_nvrtc/lib"),
    ],
)
def test_doctor_says_where_a_library_was_looked_for_and_what_was_there(library, files, in_wheels, tmp_path):
    def fact(**environment):
        done = heddle_command("doctor", "--json", env=ON_CUDA | environment)
        assert done.returncode == 0, done.stdout
        return json.loads(done.stdout)["facts"][library]

    said = fact(HEDDLE_CUDA_LIBRARIES="/nowhere/a:/nowhere/b", CUDA_HOME="/nowhere/c")
    assert said.startswith(f"none: {' or '.join(files)} was not found")
    places = [said.index(each) for each in ("/nowhere/a,", "/nowhere/b,", "/nowhere/c/lib64,", in_wheels)]
    assert places == sorted(places), said
    (tmp_path / files[0]).write_text("no library")
    said = fact(HEDDLE_CUDA_LIBRARIES=str(tmp_path))
    assert f"{tmp_path}/{files[0]}: " in said


def test_folders_of_libraries_that_are_no_paths_are_refused_by_name():
    done = heddle_command("doctor", "--json", env=ON_CUDA | {"HEDDLE_CUDA_LIBRARIES": "/usr/lib:lib64"})
    assert done.returncode == 1
    verdict = json.loads(done.stdout)["verdict"]
    assert "HEDDLE_CUDA_LIBRARIES is '/usr/lib:lib64'; it takes folders' paths from / on" in verdict


@pytest.mark.skipif(CARD, reason="what a machine without a GPU says")
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"HEDDLE_CUDA_IMAGE": ""}, "made without nvcc"),
        ({"HEDDLE_CUDA_IMAGE": "/nowhere", "LD_LIBRARY_PATH": ""}, "libcuda.so.1"),
    ],
)
def test_doctor_says_which_file_is_missing(environment, said):
    done = heddle_command("doctor", "--json", env=ON_CUDA | environment)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert "cuda" not in report["devices"]
    assert said in report["missing_devices"]["cuda"]
    assert said in report["verdict"]
    shown = heddle_command("doctor", "--device", "host", env=ON_CUDA | environment)
    assert shown.returncode == 0, shown.stderr
    assert f"not on this machine: cuda: {report['missing_devices']['cuda']}" in shown.stdout


@pytest.mark.skipif(CARD, reason="of a machine without a GPU")
def test_doctor_says_what_a_driver_that_is_too_old_lacks(tmp_path):
    maps = Path("/proc/self/maps").read_text().splitlines()
    other = next(line.split()[-1] for line in maps if line.endswith("/libc.so.6"))
    (tmp_path / "libcuda.so.1").symlink_to(other)
    done = heddle_command("doctor", "--json", env=ON_CUDA | {"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 1
    said = json.loads(done.stdout)["missing_devices"]["cuda"]
    assert "too old: libcuda.so.1 has no cuGetProcAddress_v2" in said
    assert "CUDA 12" in said


@pytest.mark.skipif(CARD, reason="of the double")
@pytest.mark.parametrize(
    ("device", "environment", "said"),
    [
        ("cuda:1", {}, "there is no CUDA device 1; this machine has 1, numbered from 0 to 0"),
        ("cuda", {"HEDDLE_CUDA_IMAGE": "/nowhere"}, "no kernels for GPUs can be read from '/nowhere'"),
        ("cuda", {"HEDDLE_CUDA_IMAGE": __file__}, "cuModuleLoadData of the kernels"),
    ],
)
def test_what_cannot_be_opened_is_refused_by_name(device, environment, said):
    done = heddle_command("doctor", "--device", device, "--json", env=ON_CUDA | environment)
    assert done.returncode == 1
    assert said in json.loads(done.stdout)["verdict"]


@pytest.mark.parametrize(
    ("graphs", "said"),
    [
        ("off", "off"),
        ("on", "up to 64 MiB"),
        ("", "up to 64 MiB"),
        ("all", "up to 64 MiB, also beside others that use CUDA"),
    ],
)
def test_graphs_can_be_switched_off_and_doctor_says_so(graphs, said):
    done = heddle_command("doctor", "--json", env=ON_CUDA | {"HEDDLE_CUDA_GRAPHS": graphs})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["facts"]["graphs"] == said


def test_run_bench_and_inspect_take_the_device_by_its_name(tmp_path):
    from onnx import TensorProto, helper, save

    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"])],
        "softmax",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
    )
    path = tmp_path / "softmax.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    np.save(tmp_path / "x.npy", x)
    words = (tmp_path / "x.npy", "--device", "cuda", "--output", tmp_path / "out.npz")
    done = heddle_command("run", path, *words, env=BY_NAME)
    assert done.returncode == 0, done.stderr
    wanted = np.exp(x - x.max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], wanted, rtol=1e-5)
    words = ("--json", "--seconds", "0.05", "--threads", "1", "4", "--rounds", "1")
    benched = heddle_command("bench", path, "--device", "cuda", *words, env=BY_NAME)
    assert benched.returncode == 0, benched.stderr
    described = json.loads(benched.stdout)["device"]
    inspected = heddle_command("inspect", path, "--device", "cuda", "--json", env=BY_NAME)
    assert inspected.returncode == 0, inspected.stderr
    report = json.loads(inspected.stdout)
    assert report["device"] == described
    (node,) = report["plan"]["nodes"]
    assert node["path"] == "softmax_held"
    assert node["estimated_s"] > 0
    assert all(rate > 0 for name, rate in report["plan"]["rates"].items() if name != "step_s")


def test_inspect_says_which_kernels_each_node_is(tmp_path):
    from onnx import TensorProto, helper, numpy_helper, save

    weight = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Mul", ["product", "x"], ["scaled"]),
        helper.make_node("Tanh", ["scaled"], ["bent"]),
        helper.make_node("Softmax", ["bent"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "gate", ports[:1], ports[1:], [numpy_helper.from_array(weight, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "gate.onnx")
    done = heddle_command("inspect", tmp_path / "gate.onnx", "--dims", "batch=200", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)["plan"]
    product, chain, softmax = (node["path"] for node in plan["nodes"])
    assert product.removeprefix("cuBLASLt, else ").startswith("product_")  # where there is one
    kernel = chain.removesuffix(", a chain of 2 operators")
    assert kernel in (("chain_f32 (no NVRTC)", "compiled_chain_f32") if CARD else ("chain_f32 (no NVRTC)",))
    assert softmax == "softmax_held"
    assert [node["step"] for node in plan["nodes"]] == [1, 2, 3]
    assert plan["slot_bytes"] >= plan["arena_bytes"] > 0
    # Beside others that use CUDA a library's calls become no graph.
    assert plan["launches"].startswith(("a graph, once", "step by step: it calls a library"))


@pytest.mark.skipif(CARD, reason="of the double's cuBLASLt")
def test_what_one_process_has_measured_the_next_one_takes_from_the_file(tmp_path):
    program = """
        import numpy as np
        import heddle

        def build(device):
            graph = heddle.GraphBuilder("product")
            x = graph.input("x", "f32", ["batch", 8])
            weight = np.arange(32, dtype=np.float32).reshape(8, 4)
            graph.output(graph.add("MatMul", x, graph.constant(weight)), "y")
            return graph.build(device)

        device = heddle.Device()
        x = np.random.default_rng(1).standard_normal((130, 8)).astype(np.float32)
        assert np.allclose(build(device)(x), build(heddle.Device("host"))(x), 1e-4, 1e-4)
        print(dict(device.facts)["cuBLASLt's algorithms"])
    """
    tuned = {"HEDDLE_CUDA_LIBRARIES": str(LIBRARIES), "HEDDLE_CACHE_DIR": str(tmp_path)}

    def said(tune):
        done = python("-c", textwrap.dedent(program), env=ON_CUDA | tuned | {"HEDDLE_TUNE": tune})
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert said("off") == "by rule: HEDDLE_TUNE is off"
    assert list(tmp_path.glob("cublaslt-*")) == []
    first, second = said("on"), said("on")
    (kept,) = tmp_path.glob("cublaslt-*.txt")
    assert (first, second) == (f"kept in {kept}: 0", f"kept in {kept}: 1")


@pytest.mark.skipif(CARD, reason="of the double's NVRTC")
def test_a_chain_that_one_process_compiled_the_next_one_takes_from_the_file(tmp_path):
    program = """
        import numpy as np
        import heddle

        def build(device):
            graph = heddle.GraphBuilder("chain")
            x = graph.input("x", "f32", ["batch", 8])
            graph.output(graph.add("Tanh", graph.add("Mul", x, x)), "y")
            return graph.build(device)

        device = heddle.Device()
        x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
        assert np.allclose(build(device)(x), build(heddle.Device("host"))(x), 1e-5, 1e-5)
        facts = dict(device.facts)
        print(facts["NVRTC"], facts.get("NVRTC's kernels"), sep="; ")
    """
    settings = {
        "HEDDLE_CUDA_LIBRARIES": str(LIBRARIES),
        "HEDDLE_CACHE_DIR": str(tmp_path),
        "HEDDLE_TUNE": "off",
    }

    def said(nvrtc):
        done = python("-c", textwrap.dedent(program), env=ON_CUDA | settings | {"HEDDLE_CUDA_NVRTC": nvrtc})
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert said("off") == "off; None"
    kernels = tmp_path / "kernels"
    for before in (0, 1, 1):
        assert said("on") == f"13.0, {LIBRARIES}/libnvrtc.so.13; kept in {kernels}: {before}"
    (kept,) = kernels.iterdir()
    assert kept.suffix == ".kernel"
