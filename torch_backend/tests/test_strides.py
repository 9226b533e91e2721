"""What is computed element by element lies as PyTorch's CPU lays it out: `view()` takes it as there."""

import heddle.torch
import pytest
import torch
from threads import count_right, run_threads
from torch.nn import functional as F

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
THREADS, TIMES = 8, 20


def numbers(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X = numbers(2, 3, 4, 5)
ROW, CHANNELS, TABLE = numbers(5), numbers(3, 1, 1), numbers(4, 6, seed=2)
ROWS, ONE_CHANNEL = numbers(6, 4, seed=3), numbers(2, 1, 4, 5)
WHOLE = torch.arange(24).view(4, 6)


def turned(x):
    """The same values in memory whose axes are in the opposite order."""
    return x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))


def last(x):
    return x.to(memory_format=LAST)


def into(make, *operands, op=torch.add):
    """The result, and the tensor of out=, which is the same one."""
    out = make(operands[0])
    result = op(*operands, out=out)
    assert result is out
    return out


# Each gets a function that brings a tensor to the device.
PROGRAMS = {
    # -- permuted, then seen by its memory
    "permute, add, permute, view": lambda on: (on(X).permute(0, 2, 3, 1) + 1).permute(0, 3, 1, 2).view(2, 60),
    "heads of an attention": lambda on: (
        torch.relu(on(X).transpose(1, 2) * 0.5).transpose(1, 2).view(2, 3, 20)
    ),
    "a table turned, seen as a line": lambda on: on(TABLE).t().neg().t().view(-1),
    "a chain": lambda on: torch.sigmoid(on(TABLE).t() * 2 - 1).exp().t().view(2, 12),
    # -- unary, binary, ternary
    "turned": lambda on: turned(on(X)).tanh(),
    "turned with turned": lambda on: turned(on(X)) * turned(on(X)),
    "turned with rows": lambda on: on(TABLE).t() + on(ROWS),
    "rows with turned": lambda on: on(ROWS) + on(TABLE).t(),
    "turned otherwise": lambda on: on(X).permute(1, 0, 2, 3) + on(numbers(2, 3, 5, 4)).permute(1, 0, 3, 2),
    "turned with a row": lambda on: on(numbers(5, 6)).t() + on(ROW),
    "turned with a column": lambda on: on(numbers(5, 6)).t() + on(numbers(6, 1)),
    "a row with turned": lambda on: on(ROW) - on(numbers(5, 6)).t(),
    "turned with one number on the device": lambda on: on(TABLE).t() * on(torch.tensor(2.0)),
    "turned with one number of the CPU": lambda on: on(TABLE).t() * torch.tensor(2.0),
    "one and the other turned, no more": lambda on: on(numbers(6, 1)) + on(numbers(1, 4)).t().t(),
    "where": lambda on: torch.where(on(TABLE).t() > 0, on(TABLE).t(), on(ROWS)),
    "where of rows under turned": lambda on: torch.where(on(TABLE).t() > 0, on(ROWS), 0.0),
    "lerp": lambda on: torch.lerp(on(ROWS), on(TABLE).t(), 0.3),
    "lerp by a tensor": lambda on: torch.lerp(on(TABLE).t(), on(ROWS), on(TABLE).t()),
    "addcmul": lambda on: torch.addcmul(on(TABLE).t(), on(TABLE).t(), on(numbers(6, 1)), value=2),
    "addcdiv": lambda on: torch.addcdiv(on(numbers(1, 4)), on(TABLE).t(), on(TABLE).t().abs() + 1),
    "clamp": lambda on: on(TABLE).t().clamp(-0.5, 0.5),
    "clamp by tensors": lambda on: on(TABLE).t().clamp(on(numbers(4) - 1), on(ROWS)),
    "comparison": lambda on: on(TABLE).t() > on(ROWS),
    "comparison with a number": lambda on: on(TABLE).t() >= 0.1,
    "logic": lambda on: torch.logical_not(on(TABLE).t() > 0),
    "bits": lambda on: on(WHOLE).t() & 5,
    "promotion": lambda on: on(WHOLE).t() + on(TABLE).t(),
    "promotion by a number": lambda on: on(WHOLE).t() * 1.5,
    "division of whole numbers": lambda on: on(WHOLE).t() / 4,
    "floor division": lambda on: on(WHOLE).t() // 5,
    "a number to the power of each": lambda on: torch.pow(2.0, on(TABLE).t()),
    "masked fill": lambda on: on(TABLE).t().masked_fill(on(TABLE).t() > 0, 3.0),
    # -- expanded, strided, small
    "expanded": lambda on: on(numbers(1, 3, 1, 5)).expand(2, 3, 4, 5) * 2,
    "expanded and turned": lambda on: on(TABLE).t().unsqueeze(0).expand(3, 6, 4) + 1,
    "expanded with turned": lambda on: on(ROW).expand(6, 5) + on(numbers(5, 6)).t(),
    "every second column": lambda on: on(TABLE)[:, ::2] + 1,
    "every second column, turned": lambda on: on(TABLE)[:, ::2].t() + 1,
    "a window, turned": lambda on: on(X)[:, 1:, :, 1:3].permute(3, 1, 0, 2) * on(X)[0, 0, 0, 0],
    "extents of one": lambda on: on(numbers(3, 1, 4)).transpose(0, 2) + 1,
    "extents of one with others": lambda on: on(numbers(3, 1, 4)).transpose(0, 2) + on(numbers(1, 5, 1)),
    "no elements": lambda on: on(numbers(0, 3)).t() + 1,
    "no elements but by another": lambda on: on(numbers(4, 1, 3)).transpose(0, 2) + on(numbers(1, 0, 1)),
    # -- channels last
    "channels last": lambda on: last(on(X)).relu(),
    "channels last, two": lambda on: last(on(X)) + last(on(X)),
    "channels last and rows": lambda on: last(on(X)) + on(X),
    "rows and channels last": lambda on: on(X) * last(on(X)),
    "channels last and a bias": lambda on: last(on(X)) + on(CHANNELS),
    "a bias and channels last": lambda on: on(CHANNELS) + last(on(X)),
    "channels last and a row": lambda on: last(on(X)) * on(ROW),
    "channels last of one channel": lambda on: last(on(ONE_CHANNEL)) + 1,
    "channels last of one place": lambda on: last(on(numbers(2, 3, 1, 1))) + 1,
    "channels last of a volume": lambda on: on(numbers(2, 3, 2, 2, 4)).to(memory_format=LAST_3D).exp(),
    "channels last, half": lambda on: last(on(X)).half() * 2,
    "a block": lambda on: F.gelu(last(on(X)) * on(CHANNELS) + 1).sigmoid() * 0.5,
    "hardswish": lambda on: F.hardswish(last(on(X))),
    "softplus": lambda on: F.softplus(last(on(X))),
    "prelu": lambda on: F.prelu(last(on(X)), on(numbers(3))),
    "log_sigmoid": lambda on: F.logsigmoid(last(on(X))),
    "a loss of each": lambda on: F.smooth_l1_loss(last(on(X)), last(on(X)) * 2, reduction="none"),
    "cross entropy of each": lambda on: F.binary_cross_entropy(
        last(on(X)).sigmoid(), last(on(X)).sigmoid(), on(ROW).abs(), reduction="none"
    ),
    "a loss of all": lambda on: F.mse_loss(last(on(X)), on(X) * 2),
    "dropout of none": lambda on: F.dropout(last(on(X)), 0.0, training=True),
    "dropout of all": lambda on: F.dropout(last(on(X)), 1.0, training=True),
    # -- copies and new tensors
    "clone": lambda on: on(X).permute(0, 2, 3, 1).clone(),
    "clone by rows": lambda on: on(X).permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format),
    "to another dtype": lambda on: on(X).permute(0, 2, 3, 1).to(torch.float64),
    "to another dtype, expanded": lambda on: on(ROW).expand(3, 5).to(torch.int32),
    "zeros_like": lambda on: torch.zeros_like(on(X).transpose(1, 3)),
    "ones_like of another dtype": lambda on: torch.ones_like(last(on(X)), dtype=torch.int64),
    "full_like": lambda on: torch.full_like(on(X).permute(3, 0, 1, 2), 7),
    "zeros_like, channels last": lambda on: torch.zeros_like(on(X), memory_format=LAST),
    "ones_like by rows": lambda on: torch.ones_like(last(on(X)), memory_format=torch.contiguous_format),
    "empty_like": lambda on: torch.empty_like(on(X).permute(0, 2, 3, 1)).fill_(2),
    # -- in place and out=
    "add_": lambda on: turned(on(X)).add_(1),
    "add_ of rows": lambda on: turned(on(X)).add_(on(X), alpha=2),
    "mul_ by a row": lambda on: turned(on(X)).mul_(on(ROW)),
    "sub_ of itself": lambda on: (lambda x: x.sub_(x))(turned(on(X))),
    "add_ into rows": lambda on: (on(X) * 1).add_(turned(on(X))),
    "clamp_, channels last": lambda on: last(on(X)).clamp_(min=0),
    "fill_": lambda on: turned(on(X)).fill_(3),
    "zero_": lambda on: turned(on(X)).zero_(),
    "out= turned": lambda on: into(lambda x: torch.empty_like(turned(x)), on(X), on(X) * 2),
    "out= by rows": lambda on: into(lambda x: x * 0, on(X), turned(on(X))),
    "out= over an operand": lambda on: into(lambda x: x, turned(on(X)), on(X), op=torch.sub),
    "out= of no size": lambda on: into(lambda x: torch.empty(0, device=x.device), turned(on(X)), on(X)),
    "out= of every second": lambda on: into(
        lambda x: torch.empty(2, 3, 4, 10, device=x.device)[..., ::2], turned(on(X)), on(X)
    ),
    "out= of two, no size": lambda on: torch.frexp(turned(on(X))),
}


def results(program, device):
    """Twice: the second time every graph is there."""
    given = []

    def bring(x):
        given.append(x.to(device).clone())
        return given[-1]

    return [program(bring) for _ in range(2)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_strides_are_the_cpu_s(name, device):
    for mine, theirs in zip(results(PROGRAMS[name], device), results(PROGRAMS[name], "cpu"), strict=True):
        a, b = (each if isinstance(each, tuple) else (each,) for each in (mine, theirs))
        for got, wanted in zip(a, b, strict=True):
            assert got.stride() == wanted.stride() or wanted.numel() == 0  # where they say nothing
            torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-5)


def test_eight_threads_compute_what_one_does(device):
    """In every layout that the programs have, each thread with tensors of its own and one that all read."""
    shared = numbers(5, 4, 3)
    there = turned(shared.to(device))

    def step(x, whole):
        y = (x.permute(2, 0, 1) + whole.permute(2, 0, 1)).relu()
        z = torch.where(x > 0, y.permute(1, 2, 0), whole)
        z.mul_(2).add_(x.clone())
        return torch.lerp(z, whole, 0.5).permute(2, 1, 0).contiguous().view(3, 20)

    def given(thread, time):
        x = numbers(5, 4, 3, seed=100 * thread + time)
        return turned(x) if (thread + time) % 2 else x

    done = count_right(
        THREADS,
        TIMES,
        lambda thread, time: step(given(thread, time).to(device), there),
        lambda thread, time: step(given(thread, time), turned(shared)),
    )
    assert done == THREADS * TIMES


def test_a_tensor_that_has_the_size_it_is_to_get_stays_as_it_is(device):
    for on in (device, "cpu"):
        x = turned(X.to(on))
        before = x.stride()
        assert x.resize_(X.shape).stride() == before
        assert x.resize_as_(X.to(on)).stride() == before
        torch.testing.assert_close(x.cpu(), X, rtol=0, atol=0)


# ---- compiled

COMPILED = (
    "permute, add, permute, view",
    "heads of an attention",
    "turned",
    "turned with rows",
    "where",
    "comparison with a number",
    "a window, turned",
    "channels last and a bias",
    "channels last of one channel",
    "a block",
    "to another dtype",
    "clone by rows",
    "zeros_like",
    "clamp_, channels last",
)


def function_of(program):
    """Of the tensors that the program brings, and those."""
    given = []
    program(lambda x: given.append(x.clone()) or given[-1])

    def call(*tensors):
        left = iter(tensors)
        return program(lambda _: next(left))

    return call, given


@pytest.mark.parametrize("where", ["heddle", "cpu"])
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_program_gives_the_cpu_s_strides(name, where, device, fresh_dynamo):
    call, given = function_of(PROGRAMS[name])
    there = device if where == "heddle" else "cpu"
    with torch.inference_mode():
        wanted = call(*(x.clone() for x in given))
        got = torch.compile(call, backend="heddle")(*(x.to(there, copy=True) for x in given))
    assert got.device.type == where
    assert got.stride() == wanted.stride()
    torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-5)


def test_a_compiled_program_of_any_extent_gives_them(device, fresh_dynamo, built):
    def call(x, y):
        return (x.permute(0, 2, 3, 1) + 1, y.transpose(0, 1) * 2, x.to(memory_format=LAST).relu())

    compiled = torch.compile(call, backend="heddle", dynamic=True)
    with torch.inference_mode():
        for n in (2, 5, 7):
            x, y = numbers(n, 4, n + 9, 6), numbers(n + 20, n)
            results = compiled(x.to(device), y.to(device))
            for got, wanted in zip(results, call(x, y), strict=True):
                assert got.stride() == wanted.stride()
                torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-5)
    assert len(built) == 1


class Turns(torch.nn.Module):
    def forward(self, x):
        rows_last = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
        return (x.permute(0, 2, 1) + 1, x.permute(1, 0, 2) + 1, rows_last * 2)


def test_callers_of_a_compiled_module_are_joined_and_get_them(device):
    module = Turns().eval()
    with heddle.torch.compile(module, numbers(2, 3, 4)) as compiled:
        assert compiled.batchable
        inputs = [numbers(n, 3, 4, seed=n) for n in range(1, THREADS + 1)]
        for where in ("cpu", device):
            moved = [x.to(where) for x in inputs]
            gotten = run_threads(THREADS, lambda i, moved=moved: [compiled(moved[i]) for _ in range(TIMES)])
            for x, times in zip(inputs, gotten, strict=True):
                wanted = module(x)
                for results in times:
                    for got, each in zip(results, wanted, strict=True):
                        assert got.stride() == each.stride()
                        torch.testing.assert_close(got.cpu(), each, rtol=1e-5, atol=1e-5)
