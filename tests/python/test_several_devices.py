"""A model on several devices of one kind: `devices=`."""

import textwrap
from pathlib import Path

import pytest
from test_cuda import ON_CUDA, python

import heddle


def test_a_model_on_two_logical_devices_of_a_card_uses_both_and_gives_each_caller_its_own_rows():
    program = f"""
        import sys
        import numpy as np
        import heddle
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from conftest import run_together

        pair = [heddle.Device("cuda"), heddle.Device.open("cuda")]
        graph = heddle.GraphBuilder("pair")
        weight = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
        graph.output(graph.add("MatMul", graph.input("x", "f32", ["batch", 64]), graph.constant(weight)), "y")
        model = graph.build(devices=pair)
        assert len(model.devices) == 2, model.devices
        x = [np.random.default_rng(i).standard_normal((1 + i % 3, 64)).astype(np.float32) for i in range(8)]

        def call(thread, _):
            return sum(np.allclose(model(x[thread]), x[thread] @ weight, 1e-4, 1e-4) for _ in range(40))

        right, _ = run_together(8, call)
        assert right == [40] * 8, right
        assert model.submit(x[0]).result().shape == (1, 32)
        compiled = [device.stats()["compiles"] for device in pair]  # runs are counted by card
        assert min(compiled) > 0, compiled
        print("right", sum(right))
    """
    done = python("-c", textwrap.dedent(program), env=ON_CUDA)
    assert done.returncode == 0, done.stderr
    assert "right 320" in done.stdout


def test_devices_that_do_not_go_together_are_refused_by_name():
    graph = heddle.GraphBuilder("doubled")
    x = graph.input("x", "f32", ["batch"])
    graph.output(graph.add("Add", x, x), "y")
    with pytest.raises(heddle.InvalidError, match="not on both"):
        graph.build("host", devices=["host"])
    with pytest.raises(heddle.InvalidError, match="names none"):
        graph.build(devices=[])
