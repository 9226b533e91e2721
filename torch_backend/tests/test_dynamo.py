"""torch.compile(module, backend="heddle"): values, weights that change, gradients, threads."""

import pytest
import torch
from compile_nets import NETS, assert_same, encoder, mlp
from heddle.torch import dynamo
from heddle.torch.fused_layers import native_multi_head_attention
from threads import count_right, run_threads
from torch import nn

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiled(module):
    return torch.compile(module, backend="heddle")


@pytest.mark.parametrize("name", NETS)
def test_gives_what_the_module_gives(name):
    net = NETS[name]
    module, fast = net.module(), compiled(net.module())
    with torch.no_grad():
        for rows, length in ((3, 12), (5, 12), (5, 17)):
            arguments = net.call(rows, length)
            assert_same(fast(*arguments), module(*arguments))


def test_is_registered():
    assert "heddle" in torch._dynamo.list_backends()


def test_device_tensors(device):
    module = mlp().eval()
    fast = compiled(mlp().eval().to(device))
    fast.load_state_dict(module.state_dict(), strict=False)
    fast._orig_mod.load_state_dict(module.state_dict())
    x = torch.randn(4, 32)
    with torch.no_grad():
        result = fast(x.to(device))
        assert result.device.type == device
        assert_same(result.cpu(), module(x))


# ---- weights


def double_in_place(linear):
    linear.weight.mul_(2)


def assign_parameter(linear):
    linear.weight = nn.Parameter(linear.weight * 2)


def assign_data(linear):
    linear.weight.data = linear.weight.data * 2


def load_state(linear):
    linear.load_state_dict({"weight": linear.weight * 2, "bias": linear.bias})


@pytest.mark.parametrize("change", [double_in_place, assign_parameter, assign_data, load_state])
def test_results_follow_a_changed_weight(change, built):
    module = nn.Linear(8, 8).eval()
    fast = compiled(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        before = fast(x)
        assert_same(fast(x), before)
        assert len(built) == 1
        change(module)
        assert_same(fast(x), module(x))
        assert not torch.allclose(fast(x), before)


def test_a_weight_that_keeps_changing_is_passed_along(built):
    module = nn.Linear(8, 8).eval()
    fast = compiled(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(8):
            module.weight.mul_(1.5)
            assert_same(fast(x), module(x))
    assert len(built) == 2 + dynamo.CHANGES_OF_A_WEIGHT


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return x * self.seen


def test_a_buffer_that_the_module_writes(built):
    module = Counting().eval()
    fast = compiled(module)
    with torch.no_grad():
        for i in range(1, 6):
            assert_same(fast(torch.ones(3)), torch.full((3,), float(i)))
    assert module.seen == 5
    assert len(built) == 1


def test_weights_of_inference_mode_are_passed_along():
    with torch.inference_mode():
        module = nn.Linear(4, 4).eval()
        fast = compiled(module)
        x = torch.randn(2, 4)
        for _ in range(3):
            assert_same(fast(x), module(x))
            module.weight.mul_(2)  # leaves no version


# ---- gradients


def test_refuses_to_record_gradients():
    fast = compiled(nn.Linear(4, 4))
    with pytest.raises(Exception, match="is for inference"):
        fast(torch.zeros(2, 4))
    with torch.no_grad():
        assert not fast(torch.zeros(2, 4)).requires_grad


# ---- shapes and breaks


def test_free_extents(built):
    module = mlp().eval()
    fast = torch.compile(module, backend="heddle", dynamic=True)
    with torch.no_grad():
        for rows in (3, 7, 5, 64):
            x = torch.randn(rows, 32)
            assert_same(fast(x), module(x))
    assert len(built) == 1


class Sizes(nn.Module):
    def forward(self, x, n: int):
        rows = x.shape[0]
        return x.reshape(rows * 2, -1) * n, rows + n, torch.arange(rows) // 2


def test_sizes_and_integers_among_the_arguments():
    module = Sizes().eval()
    fast = torch.compile(module, backend="heddle", dynamic=True)
    with torch.no_grad():
        for rows, n in ((3, 4), (6, 5), (9, 11)):
            x = torch.randn(rows, 4)
            assert_same(fast(x, n), module(x, n))


def test_results_lie_where_the_code_has_them(device):
    """No tensor goes into the graph, and it makes one result for the CPU."""

    def counted(lengths):
        first, second = lengths.tolist()
        x = torch.arange(first, device=device)
        return x, torch.arange(second, device=device), x * 2, torch.arange(second) + first

    fast = torch.compile(counted, backend="heddle", dynamic=False)
    with torch.no_grad():
        for pair in ((3, 4), (6, 5)):
            for got, wanted in zip(fast(torch.tensor(pair)), counted(torch.tensor(pair)), strict=True):
                assert got.device == wanted.device
                assert torch.equal(got.cpu(), wanted.cpu())


def test_a_graph_that_computes_nothing_gives_its_arguments_back(built):
    class Kept(nn.Module):
        def forward(self, x, y):
            return y, x

    fast = compiled(Kept().eval())
    x, y = torch.randn(2, 3)
    with torch.no_grad():
        for _ in range(2):
            got = fast(x, y)
            assert_same(got, (y, x))


def test_writes_to_parts_of_what_the_graph_made():
    def shifted(x, start):
        x = x + 1
        x[0] += start
        x[1].copy_(x[0, :1])
        return x

    fast = torch.compile(shifted, backend="heddle")
    x = torch.randn(3, 4)
    with torch.no_grad():
        assert_same(fast(x, torch.tensor(2)), shifted(x, torch.tensor(2)))


def test_extents_of_several_parts_are_added_up():
    def joined(*parts):
        whole = torch.cat(parts)
        return whole.new_ones(whole.shape[0] + 1) * whole.shape[0]

    fast = torch.compile(joined, backend="heddle", dynamic=True)
    with torch.no_grad():
        for lengths in ((2, 3, 4, 5), (7, 3, 2, 6)):
            parts = [torch.randn(length) for length in lengths]
            assert_same(fast(*parts), joined(*parts))


def test_conversions_that_the_tracer_adds():
    x = 3 * torch.randn(4, 5)
    with torch.no_grad():  # by name, as PyTorch's decompositions do it, of renorm() in 16 bits for one
        got = compiled(lambda x: torch.ops.prims.convert_element_type(x, torch.int32))(x)
        assert torch.equal(got, x.int())
        half = x.half()
        got = compiled(lambda x: torch.renorm(x, 2, 0, 1.0))(half)
        torch.testing.assert_close(got, torch.renorm(half, 2, 0, 1.0))


class Breaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        if x.sum().item() > 0:
            x = -x
        return self.second(x)


def test_graph_breaks():
    module = Breaking().eval()
    fast = compiled(module)
    with torch.no_grad():
        for x in (torch.ones(2, 4), -torch.ones(2, 4), torch.randn(2, 4)):
            assert_same(fast(x), module(x))


def test_options_reach_the_model():
    fast = torch.compile(mlp().eval(), backend="heddle", options={"coalesce": False, "max_batch": 2})
    with torch.no_grad():
        assert fast(torch.zeros(3, 32)).shape == (3, 8)
    with pytest.raises(Exception, match="mode 'max-autotune'"):
        torch.compile(nn.Linear(2, 2).eval(), backend="heddle", mode="max-autotune")(torch.zeros(1, 2))


# ---- layers that PyTorch fuses


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}])
def test_encoder_layers_in_inference_mode(options):
    module = encoder(**options).eval()
    fast = compiled(module)
    x = torch.randn(3, 7, 32)
    padded = torch.arange(7)[None] >= torch.tensor([7, 5, 6])[:, None]
    with torch.inference_mode():
        assert_same(fast(x), module(x))
        wanted = module(x, src_key_padding_mask=padded)[~padded]
        assert_same(fast(x, src_key_padding_mask=padded)[~padded], wanted)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_attention_with_its_weights(average, masked):
    layer = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    query, key, value = torch.randn(3, 2, 5, 32).unbind(0)
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]) if masked else None
    packed = (layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias)
    with torch.no_grad():
        wanted = layer(query, key, value, key_padding_mask=padded, average_attn_weights=average)
        got = native_multi_head_attention(
            query, key, value, 32, 4, *packed, padded, True, average, 1 if masked else None
        )
        assert_same(got, wanted)


# ---- threads


def test_eight_threads_compile_at_once():
    modules = [mlp(16 + 8 * i).eval() for i in range(8)]
    x = torch.randn(3, 32)

    def body(i):
        with torch.no_grad():
            fast = compiled(modules[i])
            for _ in range(3):
                assert_same(fast(x), modules[i](x))
        return 3

    assert sum(run_threads(8, body)) == 24


def test_eight_threads_share_one_compiled_module(built):
    module = mlp().eval()
    fast = torch.compile(module, backend="heddle", dynamic=True)
    rows = torch.randn(8, 20, 3, 32)

    def expected(thread, i):
        with torch.no_grad():
            return module(rows[thread, i])

    def work(thread, i):
        with torch.no_grad():
            return fast(rows[thread, i])

    assert count_right(8, 20, work, expected) == 160


def test_threads_see_a_weight_change():
    module = nn.Linear(8, 8).eval()
    fast = compiled(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        fast(x)
        for _ in range(2):
            module.weight.mul_(2)
            wanted = module(x)
            assert count_right(8, 5, lambda *_: _call(fast, x), lambda *_, w=wanted: w) == 40


def _call(fast, x):
    with torch.no_grad():
        return fast(x)


# ---- without a backend


def test_a_module_of_the_device_is_compiled_by_heddle_where_no_backend_is_named(built, device):
    reference = mlp().eval()
    module = mlp().eval()
    module.load_state_dict(reference.state_dict())
    fast = torch.compile(module.to(device))
    with torch.inference_mode():
        wanted = [reference(torch.full((4, 32), float(t))) for t in range(8)]
        fast(torch.zeros(4, 32, device=device))

    def call(thread):
        with torch.inference_mode():
            return fast(torch.full((4, 32), float(thread), device=device)).cpu()

    got = run_threads(8, call)
    assert len(built) == 1
    for each, right in zip(got, wanted, strict=True):
        assert_same(each, right)


def test_what_a_graph_makes_on_the_device_is_heddle_s_too(built, device):
    @torch.compile
    def made():
        return torch.ones(3, 2, device=device) + 1

    with torch.no_grad():
        assert_same(made().cpu(), torch.full((3, 2), 2.0))
    assert len(built) == 1


def test_a_module_of_the_cpu_stays_inductor_s(built, monkeypatch):
    import torch._inductor.compile_fx

    graphs = []

    def compile_fx(graph, _, **__):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", compile_fx)
    module = mlp().eval()
    with torch.no_grad():
        assert_same(torch.compile(module)(torch.ones(4, 32)), module(torch.ones(4, 32)))
    assert len(graphs) == 1
    assert built == []


def test_settings_of_inductor_are_refused_for_a_module_of_the_device(device):
    fast = torch.compile(mlp().eval().to(device), mode="max-autotune")
    with torch.no_grad(), pytest.raises(Exception, match="max_autotune"):
        fast(torch.ones(4, 32, device=device))
