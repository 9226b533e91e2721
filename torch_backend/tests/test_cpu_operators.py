"""Operators that PyTorch's CPU computes, by name: values, counts, threads, out=.

In the device's memory, or on copies where the host cannot address it (test_cpu_operators_on_cuda.py).
"""

import subprocess
import sys
from collections import Counter

import heddle.torch
import pytest
import torch
from opinfo_cases import Case, op_infos, out_cases, run_case, run_out
from opinfo_coverage import read_list
from threads import count_right, run_threads
from torch.nn import functional as F

aten = torch.ops.aten
# Elsewhere the device finds unique elements itself.
IN_PLACE = torch.heddle.device_names()[0] in ("host", "metal")


def numbers(*shape, dtype=torch.float32, seed=3):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def definite(n, seed=3):
    x = numbers(n, n, seed=seed)
    return x @ x.T + n * torch.eye(n)


def called(work):
    """What `work` adds to the counts."""
    before = Counter(torch.heddle.cpu_operators())
    work()
    return dict(Counter(torch.heddle.cpu_operators()) - before)


def same(call, *inputs):
    """The device's result and the CPU's agree."""
    got = call(*(x.to("heddle") for x in inputs))
    want = call(*inputs)
    for g, w in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (got, want)), strict=True):
        assert g.is_heddle
        torch.testing.assert_close(g.cpu(), w, check_stride=False)


# ---- names and counts


def test_each_call_is_counted_under_the_operators_name():
    x = definite(4).to("heddle")
    assert called(lambda: torch.linalg.svd(x)) == {"aten::_linalg_svd": 1}
    assert called(
        lambda: [torch.lgamma(x), x.clone().lgamma_(), torch.lgamma(x, out=torch.empty_like(x))]
    ) == {
        "aten::lgamma": 1,
        "aten::lgamma_": 1,
        "aten::lgamma.out": 1,
    }
    assert called(lambda: torch.relu(x)) == {}


def test_a_call_that_pytorch_refuses_raises_its_error_and_the_next_one_is_right():
    x = definite(4).to("heddle")
    for _ in range(2):
        with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
            torch.linalg.cholesky(-x)
        with pytest.raises(RuntimeError, match="must be batches of square matrices"):
            torch.linalg.cholesky(x[:3])
        with pytest.raises(RuntimeError, match="same device"):
            torch.linalg.solve(x, torch.ones(4))
        same(torch.linalg.cholesky, definite(4))


@pytest.mark.parametrize(
    ("operator", "call"),
    [
        ("_cholesky_solve_helper", lambda: same(torch.cholesky_solve, numbers(4, 2), definite(4))),
        (
            "_embedding_bag",
            lambda: same(
                lambda w, i, o: aten._embedding_bag(w, i, o, False, 0, False)[0],
                numbers(5, 3),
                torch.tensor([1, 2, 4, 4, 0]),
                torch.tensor([0, 2]),
            ),
        ),
        ("_linalg_eigvals", lambda: same(aten._linalg_eigvals, definite(4))),
        ("_logcumsumexp", lambda: same(lambda x: torch.logcumsumexp(x, 1), numbers(3, 4))),
        ("_unique", lambda: same(lambda x: aten._unique(x, True, True), torch.tensor([3, 1, 3]))),
        (
            "unique_dim",
            lambda: same(lambda x: torch.unique(x, dim=0), torch.tensor([[2, 1], [1, 1], [2, 1]])),
        ),
        (
            "unique_dim_consecutive",
            lambda: same(
                lambda x: aten.unique_dim_consecutive(x, 0)[0], torch.tensor([[2, 1], [2, 1], [1, 1]])
            ),
        ),
    ],
)
def test_operators_that_no_sample_names_run_and_are_counted(operator, call):
    assert called(call) == ({f"aten::{operator}": 1} if IN_PLACE or "unique" not in operator else {})


def _cases():
    """A case of OpInfo's for each of these operators that has one; a case may be of several."""
    there = set(heddle.torch._C.operators_on_cpu())
    for operator, (case, _) in read_list().items():
        name, _, dtype = case.rpartition("-")
        if operator in there and name in op_infos():
            yield Case(name, getattr(torch, dtype))


CASES = list(dict.fromkeys(_cases()))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_samples_have_the_cpus_values(case, device):
    outcome = run_case(case, device)
    assert not outcome.wrong, "\n".join(outcome.wrong[:5])
    assert outcome.ran > 0
    assert outcome.refused == 0, sorted(outcome.refusals)


@pytest.mark.parametrize("case", out_cases(CASES), ids=str)
def test_out_has_the_cpus_values(case, device):
    outcome = run_out(case, device)
    assert not outcome.wrong, "\n".join(outcome.wrong)
    assert outcome.ran > 0


# ---- memory


def test_what_is_written_is_written_where_it_lies():
    x = numbers(6, 4)
    there = x.to("heddle")
    address = there.data_ptr()
    there[1::2].digamma_()
    there.T[2:, 0].lgamma_()
    x[1::2].digamma_()
    x.T[2:, 0].lgamma_()
    assert there.data_ptr() == address
    torch.testing.assert_close(there.cpu(), x)


def test_tensors_of_one_memory_share_it_on_the_cpu_too():
    x = numbers(6, 8) + 1
    there = x.to("heddle")
    for view in (
        lambda x: x[2:, 1::3],
        lambda x: x.T[3],
        lambda x: x[:, :1].expand(-1, 5),
        lambda x: x.unfold(1, 3, 1),
        lambda x: x.as_strided((3, 2, 2), (1, 1, 9), 4),
    ):
        same(lambda x, view=view: torch.special.zeta(view(x), view(x) + x[0, 0]), x)
        same(lambda x, view=view: torch.complex(view(x), view(x)).angle(), x)
    for each in (x, there):
        torch.lgamma(each[1:3, ::2], out=each[3:5, 1::2])
        torch.special.i0e(each[5], out=each[5])
        torch.digamma(each[:, 4:], out=each[:, :4])
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            each[:1].expand(3, 8).lgamma_()
    torch.testing.assert_close(there.cpu(), x)


def test_out_is_resized_with_a_warning_and_keeps_the_cpus_rules():
    x = definite(4)
    there = x.to("heddle")
    small, wide = torch.empty(2, device="heddle"), torch.empty(4, 4, dtype=torch.float64, device="heddle")
    with pytest.warns(UserWarning, match="was resized"):
        assert torch.special.i0e(there, out=small) is small
    torch.special.i0e(there, out=wide)
    for out in (small, wide):
        torch.testing.assert_close(out.cpu().float(), torch.special.i0e(x))
    strided = torch.zeros(4, 8, device="heddle")[:, ::2]
    torch.linalg.inv(there, out=strided)
    torch.testing.assert_close(strided.cpu(), torch.linalg.inv(x))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.special.i0e(there, out=torch.empty(4, 4, dtype=torch.int64, device="heddle"))
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        torch.special.i0e(there[1:], out=there[:-1])
    with pytest.raises(RuntimeError):
        torch.special.i0e(there, out=torch.empty(4, 4))


def test_pairs_of_out_tensors_are_written():
    x = definite(5)
    values, vectors = torch.empty(0, device="heddle"), torch.empty(0, device="heddle")
    torch.linalg.eigh(x.to("heddle"), out=(values, vectors))
    torch.testing.assert_close(values.cpu(), torch.linalg.eigvalsh(x))
    torch.testing.assert_close((vectors * values @ vectors.mT).cpu(), x)


def test_tensors_without_elements_have_the_cpus_results():
    same(lambda x: torch.linalg.qr(x), torch.empty(0, 4))
    same(torch.lgamma, torch.empty(0))
    same(lambda x: torch.unique(x), torch.empty(0, dtype=torch.int64))
    same(lambda x: torch.bincount(x), torch.empty(0, dtype=torch.int64))


# ---- order and threads


def test_work_of_another_stream_is_waited_for_and_later_work_waits():
    x = definite(64)
    stream = torch.Stream("heddle")
    there = x.to("heddle")
    for _ in range(20):
        with stream:
            product = there @ there
        found = torch.lgamma(product)
        with stream:
            product.zero_()
            total = found + product
        torch.testing.assert_close(total.cpu(), torch.lgamma(x @ x), rtol=1e-4, atol=1e-3)


WORK = {
    "svd": lambda x: torch.linalg.svdvals(x),
    "solve": lambda x: torch.linalg.solve(x, x.T),
    "eigh": lambda x: torch.linalg.eigvalsh(x),
    "cholesky": lambda x: torch.linalg.cholesky(x),
    "qr": lambda x: torch.linalg.qr(x).R,
    "fft": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]),
    "lgamma": lambda x: x.lgamma_(),
    "unique": lambda x: torch.unique((x * 8).round()),
    "cummax": lambda x: torch.cummax(x, 0).values,
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 0),
    "mode": lambda x: torch.mode((x * 4).round(), 1).values,
    "histogram": lambda x: torch.histogram(x, 10).hist,
    "zeta": lambda x: torch.special.zeta(x + 2, x + 1),
    "embedding_bag": lambda x: F.embedding_bag((x.long() % 4), x),
    "out": lambda x: torch.linalg.inv(x, out=torch.empty(0, device=x.device)),
}


def test_eight_threads_get_the_sequential_values_and_every_call_is_counted(device):
    threads, rounds = 8, 3
    names = list(WORK)

    def run(where):
        def call(thread, i):
            name = names[i % len(names)]
            return WORK[name](definite(6 + i % 5, seed=100 * thread + i).to(where))

        return call

    times = rounds * len(names)
    alone = called(lambda: [run(device)(0, i) for i in range(times)])
    right = []
    together = called(
        lambda: right.append(count_right(threads, times, run(device), run("cpu"), rtol=1e-3, atol=1e-3))
    )
    assert right == [threads * times]
    assert together == {name: threads * count for name, count in alone.items()}
    assert len(alone) >= 12


def test_threads_that_write_apart_in_one_tensor_lose_nothing():
    threads, rows = 8, 16
    x = numbers(threads * rows, 5) + 1
    there = x.to("heddle")

    def body(thread):
        for row in range(thread, threads * rows, threads):
            there[row].lgamma_()

    counted = called(lambda: run_threads(threads, body))
    assert counted == {"aten::lgamma_": threads * rows}
    torch.testing.assert_close(there.cpu(), x.lgamma())


# ---- complex numbers


def test_complex_views_share_memory_with_their_real_halves():
    x = numbers(3, 4, 2)
    there = x.to("heddle")
    z = torch.view_as_complex(there)
    assert z.dtype is torch.complex64
    assert z.data_ptr() == there.data_ptr()
    z.imag.zero_()
    z.real[0] = 2.0
    x[..., 1] = 0
    x[0, :, 0] = 2
    assert torch.equal(there.cpu(), x)
    assert torch.equal(torch.view_as_real(z).cpu(), x)


def test_complex_tensors_are_copied_converted_and_conjugated():
    z = torch.view_as_complex(numbers(3, 4, 2))
    there = z.to("heddle")
    for got, want in (
        (there, z),
        (there.conj(), z.conj()),
        (there.conj().imag, z.conj().imag),
        (there.mT.contiguous(), z.mT),
        (there.to(torch.complex128), z.to(torch.complex128)),
        (torch.zeros_like(there).copy_(there.conj()), z.conj()),
        (there.real.to(torch.complex64), z.real.to(torch.complex64)),
        (there[0, 1:].clone(), z[0, 1:]),
        (there * 2j + there.conj(), z * 2j + z.conj()),
        (there @ there.mH, z @ z.mH),
        (torch.ones(2, 2, dtype=torch.complex64, device="heddle"), torch.ones(2, 2, dtype=torch.complex64)),
    ):
        assert got.is_heddle
        torch.testing.assert_close(got.cpu(), want.resolve_conj(), check_stride=False)
    assert there[1, 2].item() == z[1, 2].item()


def test_halves_that_are_no_numbers_become_numbers():
    inf, nan = torch.inf, torch.nan
    z = torch.tensor([complex(nan, 1), complex(2, inf), complex(-inf, nan), complex(0.5, -0.0)])
    same(torch.nan_to_num, z)
    same(lambda z: torch.nan_to_num(z, 1.5, 2.5, -2.5), z)
    same(lambda z: z.clone().nan_to_num_(posinf=4), z)


def test_drawn_complex_numbers_have_both_halves():
    z = torch.randn(1000, dtype=torch.complex64, device="heddle").cpu()
    for half in (z.real, z.imag):
        assert abs(half.var().item() - 0.5) < 0.1


@pytest.mark.parametrize("onesided", [True, False])
def test_stft_and_back_gives_the_signal(onesided):
    signal = numbers(2, 1000) - 0.5
    window = torch.hann_window(64)

    def there_and_back(x, w):
        spectrum = torch.stft(x, 64, 16, window=w, return_complex=True, onesided=onesided)
        return torch.istft(spectrum, 64, 16, window=w, onesided=onesided, length=1000)

    got = there_and_back(signal.to("heddle"), window.to("heddle"))
    torch.testing.assert_close(got.cpu(), signal, rtol=1e-4, atol=1e-5)
    same(lambda x, w: torch.stft(x, 64, window=w, return_complex=True), signal, window)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kaisers_window_is_the_cpus(dtype):
    for arguments in ((9,), (9, False), (8, True, 4.0), (0,)):
        got = torch.kaiser_window(*arguments, dtype=dtype, device="heddle")
        assert got.is_heddle
        torch.testing.assert_close(got.cpu(), torch.kaiser_window(*arguments, dtype=dtype))


# ---- what draws, and libraries that may come


@pytest.mark.parametrize("dims", [2, 3])
def test_fractional_pooling_takes_the_places_that_the_samples_say(dims):
    x, samples = numbers(2, 3, *[9] * dims), numbers(2, 3, dims, seed=4)
    pool = F.fractional_max_pool2d if dims == 2 else F.fractional_max_pool3d
    same(lambda x, s: pool(x, 2, output_size=4, _random_samples=s, return_indices=True), x, samples)


# Where torchvision is not there, its operators' names are told with code of the test's own.
TORCHVISION = """
import importlib.util
import torch
if importlib.util.find_spec("torchvision"):
    import torchvision
else:
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    def nms(dets, scores, iou_threshold):
        assert dets.device.type == "cpu"
        kept = []
        for i in scores.argsort(descending=True).tolist():
            corners = torch.maximum(dets[i, :2], dets[kept, :2]), torch.minimum(dets[i, 2:], dets[kept, 2:])
            shared = (corners[1] - corners[0]).clamp(min=0).prod(1)
            area = (dets[:, 2:] - dets[:, :2]).prod(1)
            if not (shared / (area[i] + area[kept] - shared) > iou_threshold).any():
                kept.append(i)
        return torch.tensor(kept)
    library.impl("nms", nms, "CPU")
corner = torch.rand(40, 2) * 10
boxes, scores = torch.cat([corner, corner + 2 + torch.rand(40, 2) * 4], 1), torch.rand(40)
kept = torch.ops.torchvision.nms(boxes.to("heddle"), scores.to("heddle"), 0.4)
assert kept.is_heddle and 1 < len(kept) < 40
assert torch.equal(kept.cpu(), torch.ops.torchvision.nms(boxes, scores, 0.4))
assert torch.heddle.cpu_operators() == {"torchvision::nms": 1}
print("right")
"""


def test_boxes_are_chosen_as_on_the_cpu_by_a_library_that_comes_later():
    done = subprocess.run(
        [sys.executable, "-c", TORCHVISION], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == "right\n", done.stderr
