"""Random operators draw from the distribution that they name. Seeds are fixed: a test passes always or never.

A sample of N numbers is compared with its distribution by Kolmogorov and Smirnov (continuous ones) or by chi
squared (discrete ones). The bounds are passed by chance once in 10,000 seeds.
"""

import math

import pytest
import torch

N = 40_000
KS_BOUND = 2.2 / math.sqrt(N)


def ks_distance(numbers, cdf):
    x = numbers.double().cpu().flatten().sort().values
    below = torch.arange(len(x), dtype=torch.float64) / len(x)
    expected = cdf(x)
    return max((expected - below).abs().max().item(), (expected - below - 1 / len(x)).abs().max().item())


def assert_drawn_with(probabilities, kinds):
    """Chi squared against its normal approximation, at four deviations."""
    expected = torch.tensor(probabilities, dtype=torch.float64)
    counts = torch.bincount(kinds.cpu().long().flatten(), minlength=len(expected)).double()
    assert len(counts) == len(expected)
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], expected[expected > 0] * counts.sum()
    freedom = len(expected) - 1
    assert ((counts - expected) ** 2 / expected).sum() <= freedom + 4 * math.sqrt(2 * freedom)


def made(device, dtype=torch.float32):
    return torch.full((N,), math.nan, dtype=dtype, device=device)


def normal_cdf(x, mean=0.0, deviation=1.0):
    return 0.5 * (1 + torch.erf((x - mean) / (deviation * math.sqrt(2))))


CONTINUOUS = {
    "uniform_": (lambda x: x.uniform_(-2, 3), lambda x: (x + 2) / 5, 0.5, 25 / 12),
    "rand": (lambda x: torch.rand(N, dtype=x.dtype, device=x.device), lambda x: x, 0.5, 1 / 12),
    "rand_like": (torch.rand_like, lambda x: x, 0.5, 1 / 12),
    "normal_": (lambda x: x.normal_(3, 2), lambda x: normal_cdf(x, 3, 2), 3, 4),
    "randn": (lambda x: torch.randn(N, dtype=x.dtype, device=x.device), normal_cdf, 0, 1),
    "normal": (
        lambda x: torch.normal(-1.0, 0.5, (N,), dtype=x.dtype, device=x.device),
        lambda x: normal_cdf(x, -1, 0.5),
        -1,
        0.25,
    ),
    "normal of tensors": (
        lambda x: torch.normal(torch.full_like(x, 2.0), torch.full_like(x, 0.5)),
        lambda x: normal_cdf(x, 2, 0.5),
        2,
        0.25,
    ),
    "log_normal_": (
        lambda x: x.log_normal_(0.5, 0.25),
        lambda x: normal_cdf(x.log(), 0.5, 0.25),
        math.exp(0.5 + 0.25**2 / 2),
        math.expm1(0.25**2) * math.exp(1 + 0.25**2),
    ),
    "exponential_": (lambda x: x.exponential_(0.5), lambda x: -torch.expm1(-0.5 * x), 2, 4),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_numbers_have_their_distribution_and_moments(name, dtype, device):
    draw, cdf, mean, variance = CONTINUOUS[name]
    numbers = draw(made(device, dtype))
    assert numbers.dtype == dtype
    assert ks_distance(numbers, cdf) < KS_BOUND
    numbers = numbers.cpu().double()
    assert abs(numbers.mean() - mean) < 4 * math.sqrt(variance / N)
    assert abs(numbers.var() / variance - 1) < 4 * math.sqrt(8 / N)


def test_cauchys_numbers_have_their_distribution(device):  # and no moments
    numbers = made(device, torch.float64).cauchy_(1, 2)
    assert ks_distance(numbers, lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi) < KS_BOUND


@pytest.mark.parametrize("training", [False, True])
def test_rrelu_multiplies_what_is_negative_by_a_slope(training, device):
    x = made(device).normal_()
    y = torch.nn.functional.rrelu(x, 0.25, 0.75, training)
    slopes = (y / x).cpu()
    assert (slopes[x.cpu() > 0] == 1).all()
    below = slopes[x.cpu() < 0]
    if training:
        assert ks_distance(below, lambda s: (s - 0.25) / 0.5) < 2.2 / math.sqrt(len(below))
    else:
        torch.testing.assert_close(below, torch.full_like(below, 0.5))


@pytest.mark.parametrize(("dtype", "step"), [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)])
def test_narrow_uniform_numbers_are_spread_evenly_and_stay_below_the_end(dtype, step, device):
    numbers = made(device, dtype).uniform_().cpu().double()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert ks_distance(numbers, lambda x: x) < KS_BOUND + step


DISCRETE = {
    "bernoulli_": (lambda x: x.bernoulli_(0.3), [0.7, 0.3]),
    "bernoulli": (lambda x: torch.bernoulli(torch.full_like(x, 0.1)), [0.9, 0.1]),
    "bernoulli_ of a tensor": (lambda x: x.bernoulli_(torch.full((N,), 0.8, device=x.device)), [0.2, 0.8]),
    "randint": (lambda x: torch.randint(7, (N,), device=x.device), [1 / 7] * 7),
    "randint from": (lambda x: torch.randint(-3, 5, (N,), device=x.device) + 3, [1 / 8] * 8),
    "randint_like": (lambda x: torch.randint_like(x, 5), [1 / 5] * 5),
    "random_ of bool": (lambda x: torch.zeros(N, dtype=torch.bool, device=x.device).random_(), [0.5, 0.5]),
    "random_ of uint8": (
        lambda x: torch.zeros(N, dtype=torch.uint8, device=x.device).random_(),
        [1 / 256] * 256,
    ),
    "geometric_, five and more as one": (
        lambda x: x.geometric_(0.75).clamp(max=5) - 1,
        [0.75, 0.75 / 4, 0.75 / 16, 0.75 / 64, 1 / 256],
    ),
    "multinomial": (
        lambda x: torch.multinomial(torch.tensor([1.0, 0.0, 3.0, 4.0], device=x.device), N, replacement=True),
        [1 / 8, 0, 3 / 8, 4 / 8],
    ),
    "first of multinomial without replacement": (
        lambda x: torch.multinomial(torch.tensor([[1.0, 2.0, 5.0]], device=x.device).expand(N, 3), 2)[:, 0],
        [1 / 8, 2 / 8, 5 / 8],
    ),
    "second of multinomial without replacement": (
        lambda x: torch.multinomial(torch.tensor([[1.0, 2.0, 5.0]], device=x.device).expand(N, 3), 2)[:, 1],
        [2 / 8 * 1 / 6 + 5 / 8 * 1 / 3, 1 / 8 * 2 / 7 + 5 / 8 * 2 / 3, 1 / 8 * 5 / 7 + 2 / 8 * 5 / 6],
    ),
    "dropout1d": (
        lambda x: torch.nn.functional.dropout1d(torch.ones(N, 1, 1, device=x.device), 0.2) / 1.25,
        [0.2, 0.8],
    ),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_numbers_have_their_probabilities(name, device):
    draw, probabilities = DISCRETE[name]
    assert_drawn_with(probabilities, draw(made(device)))


def test_every_order_of_a_permutation_is_as_likely(device):
    orders = torch.stack([torch.randperm(4, device=device).cpu() for _ in range(2400)])
    assert torch.equal(orders.sort(dim=1).values, torch.arange(4).expand(2400, 4))
    kinds = (orders * torch.tensor([64, 16, 4, 1])).sum(1).unique(return_inverse=True)[1]
    assert_drawn_with([1 / 24] * 24, kinds)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.nn.functional.dropout(x, 0.5, training=True),
        torch.poisson,
        lambda x: torch.binomial(x, x / 2),
    ],
    ids=["dropout", "poisson", "binomial"],
)
def test_distributions_that_are_not_there_are_refused(draw, device):
    with pytest.raises(NotImplementedError, match="aten::"):
        draw(torch.ones(4, device=device))


# ---- sequences


def drawn_on(stream, device):
    with torch.heddle.stream(stream):
        return torch.rand(N, dtype=torch.float64, device=device)


def test_streams_draw_independent_numbers_from_one_seed(device):
    torch.manual_seed(21)
    streams = [torch.heddle.default_stream(), torch.heddle.Stream(), torch.heddle.Stream()]
    numbers = torch.stack([drawn_on(stream, device).cpu() for stream in streams])
    assert len(numbers.unique()) == 3 * N
    for each in numbers:
        assert ks_distance(each, lambda x: x) < KS_BOUND
    apart = torch.corrcoef(numbers) - torch.eye(3)
    assert apart.abs().max() < 4 / math.sqrt(N)


def test_numbers_drawn_in_pieces_are_those_drawn_at_once(device):
    torch.manual_seed(22)
    whole = torch.rand(64, device=device).cpu()
    torch.manual_seed(22)
    pieces = [torch.rand(size, device=device).cpu() for size in (2, 6, 16, 40)]
    assert torch.equal(torch.cat(pieces), whole)


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
def test_no_number_is_drawn_twice(draw, device):
    numbers = torch.cat(
        [draw(size, dtype=torch.float64, device=device).cpu() for size in (1, 3, 5, 1000, 7, 1000)]
    )
    assert len(numbers.unique()) == len(numbers)
    following = numbers[:-1] - numbers.mean(), numbers[1:] - numbers.mean()
    assert abs((following[0] * following[1]).mean() / numbers.var()) < 4 / math.sqrt(len(numbers))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_bernoulli_draws_into_the_tensor_that_is_given(dtype, device):
    p = torch.tensor([0.0, 0.3, 0.8, 1.0], device=device)[:, None].expand(4, N)
    out = torch.empty(0, dtype=dtype, device=device)
    assert torch.bernoulli(p, out=out) is out
    assert out.shape == p.shape
    for row, chance in zip(out, (0.0, 0.3, 0.8, 1.0), strict=True):
        assert_drawn_with([1 - chance, chance], row)
    one, other = (torch.Generator(device).manual_seed(4) for _ in range(2))
    again = torch.bernoulli(p, generator=one)
    assert torch.equal(torch.bernoulli(p, generator=other, out=torch.empty_like(p)), again)


def test_multinomial_draws_into_the_tensor_that_is_given(device):
    weights = torch.tensor([1.0, 0.0, 3.0, 4.0], device=device)
    out = torch.empty(0, dtype=torch.int64, device=device)
    assert torch.multinomial(weights, N, replacement=True, out=out) is out
    assert_drawn_with([1 / 8, 0, 3 / 8, 1 / 2], out)
    rows = torch.multinomial(torch.stack([weights, weights + 1]), 3, out=out)
    assert rows.shape == (2, 3)
    assert all(len(set(row)) == 3 for row in rows.tolist())
    with pytest.raises(RuntimeError, match="multinomial expects Long tensor out, got: Float"):
        torch.multinomial(weights, 1, out=torch.empty(1, device=device))
    with pytest.raises(RuntimeError, match="same device"):
        torch.multinomial(weights, 1, out=torch.empty(1, dtype=torch.int64))
