"""Overloads that no OpInfo sample calls from Python: called by name on the device and on the CPU."""

import operator

import heddle.torch  # noqa: F401
import pytest
import torch
from threads import count_right
from torch.autograd import forward_ad

aten = torch.ops.aten


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + 1))


def whole(*shape):
    return torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(sum(shape)))


def gates(count):
    """Parameters of one layer of a recurrent network, 4 inputs and 3 hidden."""
    return [numbers(count * 3, 4), numbers(count * 3, 3), numbers(count * 3), numbers(count * 3)]


X, ROWS, WHOLE = numbers(3, 4), numbers(2, 5, 8), whole(3, 4)
POSITIVE = numbers(3, 4).abs() + 0.1
HIDDEN = numbers(1, 2, 3)
STATE = (numbers(3), numbers(3).abs() + 0.5)
MHA = (8, 2, numbers(24, 8), numbers(24), numbers(8, 8), numbers(8))
FEED_FORWARD = (numbers(8), numbers(8), numbers(8), numbers(8), numbers(16, 8), numbers(16), numbers(8, 16))
EDGES = torch.tensor([0.0, 1.0, 2.0])
PICKS = [torch.tensor([0, 2]), torch.tensor([1, 3])]
PACKED = numbers(2, 2, 5, 4)

CASES = {
    "__lshift__.Scalar": [(WHOLE, 2)],
    "__lshift__.Tensor": [(WHOLE, WHOLE)],
    "__rshift__.Scalar": [(WHOLE, 1)],
    "__rshift__.Tensor": [(WHOLE, WHOLE)],
    "_addmm_activation": [(numbers(5), X, numbers(4, 5))],
    "_batch_norm_no_update": [(ROWS[:, :3], numbers(3), numbers(3), *STATE, 0.1, 1e-5)],
    "_convolution": [
        (ROWS, numbers(4, 5, 3), numbers(4), [1], [1], [1], False, [0], 1, False, False, True, True)
    ],
    "_index_put_impl": [(X, PICKS, numbers(2)), (X, PICKS, numbers(2), True)],
    "_native_batch_norm_legit.no_stats": [(ROWS, None, None, True, 0.1, 1e-5)],
    "_native_batch_norm_legit_no_training": [(ROWS[:, :3], None, None, *STATE, 0.1, 1e-5)],
    "_native_multi_head_attention": [(ROWS, ROWS, ROWS, *MHA), (ROWS, ROWS, ROWS, *MHA, None, True, False)],
    "_reshape_copy": [(X, [2, 6])],
    "_scaled_dot_product_flash_attention_for_cpu": [
        (PACKED, PACKED, PACKED),
        (PACKED, PACKED, PACKED, 0.0, True),
        (numbers(2, 4, 3, 4), PACKED, PACKED, 0.0, True),  # two query heads share a key head
    ],
    "_thnn_fused_gru_cell": [],
    "_thnn_fused_lstm_cell": [],
    "_transformer_encoder_layer_fwd": [
        (ROWS, *MHA[:2], *MHA[2:], gelu, first, 1e-5, *FEED_FORWARD, numbers(8))
        for gelu in (False, True)
        for first in (False, True)
    ],
    "_unsafe_index.Tensor": [(X, PICKS)],
    "_unsafe_index_put": [(X, PICKS, numbers(2))],
    "_weight_norm_interface": [(ROWS, numbers(2, 1, 1), 0), (ROWS, numbers(1, 1, 8), 2)],
    "_upsample_bicubic2d_aa": [(numbers(1, 2, 8, 8), [4, 5], False)],
    "_upsample_nearest_exact2d": [(numbers(1, 2, 4, 4), [7, 6])],
    "_upsample_nearest_exact3d": [(numbers(1, 2, 3, 4, 4), [5, 7, 6])],
    "all.dims": [(WHOLE, [0, 1]), (WHOLE, [1], True)],
    "any.dims": [(WHOLE, [0, 1]), (WHOLE, [1], True)],
    "arange.start": [],
    "bitwise_and.Scalar": [(WHOLE, 5)],
    "bitwise_and.Scalar_Tensor": [(5, WHOLE)],
    "bitwise_left_shift.Scalar_Tensor": [(3, WHOLE)],
    "bitwise_left_shift.Tensor_Scalar": [(WHOLE, 3)],
    "bitwise_or.Scalar": [(WHOLE, 5)],
    "bitwise_or.Scalar_Tensor": [(5, WHOLE)],
    "bitwise_right_shift.Scalar_Tensor": [(90, WHOLE)],
    "bitwise_right_shift.Tensor_Scalar": [(WHOLE, 1)],
    "bitwise_xor.Scalar": [(WHOLE, 5)],
    "bitwise_xor.Scalar_Tensor": [(5, WHOLE)],
    "bucketize.Scalar": [],
    "clamp_max": [(X, 0.5), (WHOLE, 3)],
    "col2im": [(numbers(1, 12, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])],
    "convolution_overrideable": [],
    "copysign.Scalar": [(X, -2.0)],
    "count_nonzero.dim_IntList": [(WHOLE, [0]), (WHOLE, [0, 1])],
    "div.Scalar_mode": [(X, 0.3)],
    "fill.Tensor": [(X, torch.tensor(2.5))],
    "floor_divide.Scalar": [(X, 0.7), (WHOLE, -2)],
    "fmod.Scalar": [(X, 0.7), (WHOLE, -2)],
    "gru.input": [(ROWS[..., :4], HIDDEN, gates(3), True, 1, 0.0, False, False, True)],
    "gt.Scalar": [(X, 0.1)],
    "isin.Scalar_Tensor": [(3, WHOLE)],
    "isin.Tensor_Scalar": [(WHOLE, 3)],
    "lerp.Tensor": [(X, numbers(4), POSITIVE)],
    "lift_fresh_copy": [(X,)],
    "lstm.input": [(ROWS[..., :4], [HIDDEN, HIDDEN], gates(4), True, 1, 0.0, False, False, True)],
    "norm.Scalar": [(X, 2), (X, 3)],
    "norm.ScalarOpt_dim_dtype": [],
    "norm.ScalarOpt_dtype": [],
    "pow.Scalar": [(2.0, X), (3, WHOLE)],
    "reflection_pad2d": [(numbers(1, 2, 4, 4), [1, 2, 1, 1])],
    "reflection_pad3d": [(numbers(1, 2, 4, 4, 4), [1, 2, 1, 1, 2, 1])],
    "remainder.Scalar_Tensor": [(5.5, POSITIVE), (-7, WHOLE + 1)],
    "replication_pad3d": [(numbers(1, 2, 3, 4, 4), [1, 2, 1, 1, 2, 1])],
    "rnn_relu.input": [(ROWS[..., :4], HIDDEN, gates(1), True, 1, 0.0, False, False, True)],
    "rnn_tanh.input": [(ROWS[..., :4], HIDDEN, gates(1), True, 1, 0.0, False, False, True)],
    "scatter.value": [(X, 1, torch.tensor([[0, 2], [1, 3]]), 9.0)],
    "scatter.value_reduce": [],
    "searchsorted.Scalar": [(EDGES, 1.5)],
    "select_copy.int": [(X, 1, 2)],
    "slice_copy.Tensor": [(X, 1, 1, 4, 2)],
    "special_xlog1py.other_scalar": [(X, 0.5)],
    "special_xlog1py.self_scalar": [(2.0, POSITIVE)],
    "split_copy.Tensor": [(X, 3, 1)],
    "squeeze_copy.dims": [(numbers(1, 3, 1), [0, 2])],
    "upsample_nearest2d": [(numbers(1, 2, 4, 4), [7, 6])],
    "upsample_nearest3d": [(numbers(1, 2, 3, 4, 4), [5, 7, 6])],
    "xlogy.Scalar_Other": [(X, 2.0)],
    "xlogy.Scalar_Self": [(2.0, POSITIVE)],
    "zero": [(X,)],
}
NAMED = {  # arguments by name
    "_addmm_activation": ((numbers(5), X, numbers(4, 5)), {"use_gelu": True}),
    "_scaled_dot_product_flash_attention_for_cpu": (  # the third query sees no key
        (PACKED, PACKED, PACKED),
        {"attn_mask": numbers(5, 5).index_fill(0, torch.tensor(2), -torch.inf), "scale": -0.7},
    ),
    "arange.start": ((2, 9), {"dtype": torch.int64}),
    "bucketize.Scalar": ((1.5, EDGES), {"right": True}),
    "div.Scalar_mode": ((WHOLE, -2), {"rounding_mode": "floor"}),
    "norm.ScalarOpt_dim_dtype": ((X, 2, [1], True), {"dtype": torch.float32}),
    "norm.ScalarOpt_dtype": ((X, 2), {"dtype": torch.float32}),
    "scatter.value_reduce": ((X, 1, torch.tensor([[0, 2], [1, 3]]), 2.0), {"reduce": "multiply"}),
}
# Not the CPU's: what the same operator is called there.
ELSEWHERE = {
    "convolution_overrideable": (
        "convolution",
        (ROWS, numbers(4, 5, 3), numbers(4), [1], [1], [1], False, [0], 1),
    ),
    "_thnn_fused_gru_cell": ("gru_cell", None),
    "_thnn_fused_lstm_cell": ("lstm_cell", None),
}
COMPARED_FIRST = {  # what follows the first result means nothing without gradients
    "_native_batch_norm_legit_no_training",
    "_batch_norm_no_update",
}


def overload(name):
    base, _, which = name.partition(".")
    return getattr(getattr(aten, base), which or "default")


def on(device, value):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return [on(device, each) for each in value] if isinstance(value, list) else value


def flat(results):
    results = results if isinstance(results, tuple | list) else [results]
    return [each for each in results if isinstance(each, torch.Tensor)]


def compare(name, op, arguments, named, device, reference=None):
    expected = flat((reference or op)(*arguments, **named))
    where = {"device": device} if name.startswith("arange") else {}
    there = {which: on(device, each) for which, each in named.items()}
    got = flat(op(*[on(device, each) for each in arguments], **there, **where))
    count = 1 if name in COMPARED_FIRST else len(expected)
    assert len(got) >= count
    compared = 0
    for mine, theirs in zip(got[:count], expected[:count], strict=True):
        assert mine.dtype == theirs.dtype
        if theirs.numel() or mine.numel():
            torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-4)
            compared += 1
    assert compared


def cells(name):
    """The fused cells take products already made: what the composite does with them."""
    count = 3 if "gru" in name else 4
    w_ih, w_hh, b_ih, b_hh = gates(count)
    x, h = numbers(2, 4), numbers(2, 3)
    if "gru" in name:
        return (x @ w_ih.t(), h @ w_hh.t(), h, b_ih, b_hh), torch.gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)
    c = numbers(3, 2).t()
    cell = torch.lstm_cell(x, (h, c), w_ih, w_hh, b_ih, b_hh)
    return (x @ w_ih.t(), h @ w_hh.t(), c, b_ih, b_hh), cell


@pytest.mark.parametrize("name", list(CASES))
@torch.inference_mode()
def test_an_overload_agrees_with_the_cpu(name, device):
    op = overload(name)
    calls = [(arguments, {}) for arguments in CASES[name]] + ([NAMED[name]] if name in NAMED else [])
    if name.startswith("_thnn"):
        arguments, expected = cells(name)
        compare(name, op, arguments, {}, device, lambda *_: expected)
        return
    if name in ELSEWHERE:
        reference, arguments = ELSEWHERE[name]
        compare(name, op, arguments, {}, device, overload(reference))
        return
    assert calls
    for arguments, named in calls:
        if name == "div.Scalar_mode" and "rounding_mode" not in named:
            named = {"rounding_mode": None}
        compare(name, op, arguments, named, device)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.nn.functional.max_pool2d(x, 2),
        lambda x: torch.nn.functional.layer_norm(x, (6,)),
        lambda x: torch.nn.functional.linear(x, x[0, 0]),
    ],
    ids=["max_pool2d", "layer_norm", "linear"],
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_tangent_goes_through_operators_that_are_taken_whole(call, mode):
    x, tangent = torch.randn(1, 2, 4, 6), torch.randn(1, 2, 4, 6)

    def tangents(where):
        with forward_ad.dual_level(), mode():
            dual = forward_ad.make_dual(x.to(where), tangent.to(where))
            return forward_ad.unpack_dual(call(dual)).tangent.cpu()

    torch.testing.assert_close(tangents("heddle"), tangents("cpu"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("eps", [None, 0.3, 0.5, 0.69, 1.0])
def test_logit_takes_bounds_that_cross_as_the_cpu_does(eps, dtype):
    x = (torch.linspace(-0.5, 1.5, 33) if dtype.is_floating_point else torch.arange(-1, 3)).to(dtype)
    torch.testing.assert_close(x.to("heddle").logit(eps).cpu(), x.logit(eps), equal_nan=True)


IN_PLACE = {
    "x <<= 2": (WHOLE, lambda x: operator.ilshift(x, 2)),
    "x >>= 1": (WHOLE, lambda x: operator.irshift(x, 1)),
    "x <<= tensor": (WHOLE, lambda x: operator.ilshift(x, on(x.device, WHOLE))),
    "x >>= row": (WHOLE, lambda x: operator.irshift(x, on(x.device, WHOLE[0]))),
    "columns <<= 1": (WHOLE, lambda x: operator.ilshift(x.t(), 1)),
    "bytes <<= 3": (WHOLE.to(torch.uint8), lambda x: operator.ilshift(x, 3)),
}


@pytest.mark.parametrize("what", IN_PLACE)
def test_shifts_in_place_write_to_their_target(what, device):
    given, shift = IN_PLACE[what]
    mine, theirs = given.to(device), given.clone()
    place = mine.data_ptr()
    assert shift(mine).data_ptr() == place
    shift(theirs)
    assert torch.equal(mine.cpu(), theirs)


def test_shifts_in_place_refuse_what_the_cpu_refuses(device):
    for x in (on(device, WHOLE), WHOLE.clone()):
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            operator.ilshift(x, on(x.device, whole(2, 3, 4)))
        with pytest.raises(RuntimeError, match=r"can't be cast|integral dtype"):
            operator.irshift(x, on(x.device, X))
        assert torch.equal(x.cpu(), WHOLE)


def test_eight_threads_shift_in_place(device):
    def work(t, i):
        x = torch.full((5,), t + 1, device=device)
        x <<= i
        x >>= 1
        return x

    assert count_right(8, 10, work, lambda t, i: torch.full((5,), ((t + 1) << i) >> 1)) == 80


TARGETS = {
    "adaptive_avg_pool2d": lambda where: ((numbers(2, 3, 8, 6).to(where), [4, 3]), (2, 3, 4, 3)),
    "adaptive_avg_pool3d": lambda where: ((numbers(1, 2, 4, 4, 6).to(where), [2, 2, 3]), (1, 2, 2, 2, 3)),
}


@pytest.mark.parametrize("shape", ["none", "right"])
@pytest.mark.parametrize("name", TARGETS)
@torch.inference_mode()
def test_pools_write_into_the_tensor_that_is_given(name, shape, device):
    results = []
    for where in (device, "cpu"):
        arguments, right = TARGETS[name](where)
        out = torch.empty(right if shape == "right" else 0, device=where)
        assert getattr(aten, name).out(*arguments, out=out) is out
        results.append(out.cpu())
        with pytest.raises(RuntimeError, match="xpected"):
            getattr(aten, name).out(*arguments, out=torch.empty(0, dtype=torch.int64, device=where))
    torch.testing.assert_close(*results)


RANGES = [(0, 5), (0, 5.9), (5, 0, -2), (1, 2, 0.25), (0, 0), (-3, 3, 2), (0.5, 3)]
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.int32]


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("given", RANGES, ids=str)
def test_a_range_with_its_end_is_written_into_a_tensor(given, dtype, device):
    if not dtype.is_floating_point and len(given) > 2 and int(given[2]) == 0:
        with pytest.raises(RuntimeError, match="step must be nonzero"):  # the end of a process on the CPU
            torch.range(*given, out=torch.empty(0, dtype=dtype, device=device))
        return
    if dtype == torch.uint8 and given[0] < 0:
        given = (3, 9, 2)
    out = torch.empty(0, dtype=dtype, device=device)
    assert torch.range(*given, out=out) is out
    torch.testing.assert_close(out.cpu(), torch.range(*given, out=torch.empty(0, dtype=dtype)))
    if len(out) == 6:
        table = torch.empty(2, 3, dtype=dtype, device=device)
        assert torch.equal(torch.range(*given, out=table).flatten(), out)


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, 5, 0), "step must be nonzero"),
        ((0, 5, -1), "inconsistent with step sign"),
        ((5, 0), "inconsistent with step sign"),
        ((0, float("inf")), "unsupported range"),
    ],
)
def test_a_range_that_the_cpu_refuses_is_refused(given, words, device):
    for where in (device, "cpu"):
        with pytest.raises(RuntimeError, match=words):
            torch.range(*given, out=torch.empty(0, device=where))


CIRCULAR = [
    ((2, 5), (1, 2)),
    ((2, 3, 4), (1, -2)),
    ((1, 2, 3, 4), (-1, 4, 0, 3)),  # more than is left
    ((2, 0, 3, 4), (4, 4, 3, 3)),
    ((1, 2, 2, 3, 4), (1, 1, 0, 2, -1, 1)),
    ((1, 2, 5), (0, 0)),
    ((1, 2, 5), (6, 1)),
    ((1, 2, 5), (-3, -3)),
    ((1, 2, 3, 4), (1, 1)),
]


@pytest.mark.parametrize(("shape", "pads"), CIRCULAR, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64], ids=str)
def test_borders_that_wrap_around_are_the_cpus(shape, pads, dtype, device):
    x = torch.randn(shape, dtype=dtype)
    results = []
    for where in ("cpu", device):
        moved = x.to(where, copy=True)
        try:
            padded = torch.ops.aten._pad_circular(moved, pads)
        except RuntimeError as error:
            results.append(str(error))
            continue
        results.append((padded.tolist(), padded.shape, padded.stride()))
        padded.zero_()
        assert torch.equal(moved.cpu(), x)  # what was padded lies elsewhere
    assert results[0] == results[1]


def test_borders_around_what_a_negative_border_left_nothing_of_are_refused(device):
    with pytest.raises(
        RuntimeError, match="wrapping around more than once"
    ):  # the CPU reads what is not there
        torch.nn.functional.pad(torch.ones(1, 2, 3, device=device), (-3, 3), mode="circular")
