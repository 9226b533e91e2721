"""What torch.onnx writes of a module, by either exporter, becomes the fused nodes, and gives its values."""

import functools
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import heddle

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.onnx._internal.exporter._registration import ONNXRegistry  # noqa: E402

# Half of an export's time: each parses the sources of all operators anew.
ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))

WIDTH, HEADS = 32, 4
SHAPES = {"Shape", "Gather", "Slice", "Concat", "Reshape", "Cast", "Range", "Expand", "Unsqueeze", "Squeeze"}


class Module(nn.Module):
    """A function of its inputs and of parts that hold weights."""

    def __init__(self, body: Callable, **parts: nn.Module) -> None:
        super().__init__()
        self.body = body
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs):
        return self.body(self, *inputs)


class SelfAttention(nn.Module):
    """Projections, attention by `attend`, and the way back. `groups` heads of keys and values."""

    def __init__(self, attend: Callable, groups: int = HEADS) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.attend, self.groups, self.size = attend, groups, size
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, groups * size)
        self.value = nn.Linear(WIDTH, groups * size)
        self.out = nn.Linear(WIDTH, WIDTH)

    def split(self, x, heads: int):
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    def repeat(self, x):
        if self.groups == HEADS:
            return x
        batch, _, length, size = x.shape
        each = HEADS // self.groups
        wide = x[:, :, None].expand(batch, self.groups, each, length, size)
        return wide.reshape(batch, HEADS, length, size)

    def forward(self, x, *mask):
        q = self.split(self.query(x), HEADS)
        k = self.repeat(self.split(self.key(x), self.groups))
        v = self.repeat(self.split(self.value(x), self.groups))
        y = self.attend(q, k, v, *mask)
        return self.out(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], WIDTH))


def written_out(q, k, v, mask=None):
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    scores = scores if mask is None else scores + mask
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def sdpa(q, k, v, mask=None):
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def causal(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def layer_norm(m, x):
    centered = x - x.mean(-1, keepdim=True)
    return centered / torch.sqrt(centered.pow(2).mean(-1, keepdim=True) + 1e-5) * m.a.weight + m.a.bias


def rms_norm(m, x):
    return m.a.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def gelu_erf(_, x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def gelu_tanh(_, x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def excite(m, x):
    gate = m.widen(torch.relu(m.narrow(functional.adaptive_avg_pool2d(m.a(x), 1))))
    return m.a(x) * functional.hardsigmoid(gate)


def conv(inputs: int = 4, outputs: int = 4, **more) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 3, padding=1, **more)


def norm() -> nn.Module:
    made = nn.BatchNorm2d(4)
    nn.init.normal_(made.running_mean, 0, 0.2)
    nn.init.uniform_(made.running_var, 0.5, 1.5)
    nn.init.uniform_(made.weight, 0.5, 1.5)
    nn.init.normal_(made.bias)
    return made


def linear(inputs: int = WIDTH, outputs: int = WIDTH) -> nn.Module:
    return nn.Linear(inputs, outputs)


@dataclass(frozen=True)
class Case:
    """`fused`: what the optimised graph holds, shape arithmetic left out, and nothing else."""

    name: str
    make: Callable[[], nn.Module]
    inputs: str  # of "text", "image", and "mask" behind them
    fused: dict[str, int]


def attention(name: str, attend: Callable, inputs: str, linears: int = 2, groups: int = HEADS) -> Case:
    return Case(name, lambda: SelfAttention(attend, groups), inputs, {"Linear": linears, "Attention": 1})


def activation(name: str, function: Callable, op: str) -> Case:
    return Case(name, lambda: Module(lambda _, x: function(x)), "text", {op: 1})


CASES = (
    attention("attention written out", written_out, "text"),
    attention("attention written out, masked", written_out, "text mask"),
    attention("sdpa", sdpa, "text"),
    attention("sdpa, masked", sdpa, "text mask"),
    attention("sdpa, causal", causal, "text"),
    attention("grouped heads written out", written_out, "text", 4, 2),
    attention("grouped heads, sdpa", sdpa, "text", 4, 2),
    Case("layer norm", lambda: nn.LayerNorm(WIDTH), "text", {"LayerNormalization": 1}),
    Case("layer norm written out", lambda: Module(layer_norm, a=nn.LayerNorm(WIDTH)), "text",
         {"LayerNormalization": 1}),
    Case("rms norm written out", lambda: Module(rms_norm, a=nn.LayerNorm(WIDTH)), "text",
         {"RMSNormalization": 1}),
    Case("rms norm", lambda: nn.RMSNorm(WIDTH, eps=1e-6), "text", {"RMSNormalization": 1}),
    activation("gelu", functional.gelu, "Gelu"),
    activation("gelu tanh", lambda x: functional.gelu(x, approximate="tanh"), "Gelu"),
    Case("gelu written out", lambda: Module(gelu_erf), "text", {"Gelu": 1}),
    Case("gelu tanh written out", lambda: Module(gelu_tanh), "text", {"Gelu": 1}),
    activation("silu", functional.silu, "Silu"),
    activation("silu written out", lambda x: x * torch.sigmoid(x), "Silu"),
    activation("hard-swish", functional.hardswish, "HardSwish"),
    activation("hard-swish written out", lambda x: x * functional.relu6(x + 3) / 6, "HardSwish"),
    Case("squeeze-excite",
         lambda: Module(excite, a=conv(), narrow=nn.Conv2d(4, 2, 1), widen=nn.Conv2d(2, 4, 1)),
         "image", {"Conv": 3, "GlobalAveragePool": 1, "Mul": 1}),
    Case("conv, norm, hard-swish", lambda: nn.Sequential(conv(bias=False), norm(), nn.Hardswish()),
         "image", {"Conv": 1}),
    Case("conv, norm, relu6", lambda: nn.Sequential(conv(), norm(), nn.ReLU6()), "image", {"Conv": 1}),
    Case("conv, norm, silu", lambda: nn.Sequential(conv(), norm(), nn.SiLU()), "image", {"Conv": 1}),
    Case("conv, leaky relu", lambda: nn.Sequential(conv(), nn.LeakyReLU(0.1)), "image", {"Conv": 1}),
    Case("conv, norm, residual, relu",
         lambda: Module(lambda m, x: torch.relu(m.b(m.a(x)) + x), a=conv(bias=False), b=norm()),
         "image", {"Conv": 1}),
    Case("transposed conv, norm, relu",
         lambda: nn.Sequential(nn.ConvTranspose2d(4, 4, 2, 2), norm(), nn.ReLU()), "image",
         {"ConvTranspose": 1}),
    Case("linear, gelu, linear, residual",
         lambda: Module(lambda m, x: x + m.b(functional.gelu(m.a(x))), a=linear(), b=linear()),
         "text", {"Linear": 2}),
    Case("linear, relu", lambda: nn.Sequential(linear(), nn.ReLU()), "text", {"Linear": 1}),
    Case("element-wise chain",
         lambda: Module(lambda _, x: torch.exp(-torch.abs(x)) * 2 + torch.tanh(x)), "text",
         {"Elementwise": 1}),
    Case("a transposed weight", lambda: Module(lambda m, x: torch.matmul(x, m.a.weight.t()), a=linear()),
         "text", {"Linear": 1}),
    Case("transposes around a linear",
         lambda: Module(lambda m, x: m.a(x.transpose(0, 1)).transpose(0, 1), a=linear()), "text",
         {"Linear": 1}),
)  # fmt: skip


def arrays(inputs: str, batch: int, length: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng([batch, length])
    if inputs == "image":
        return (random.standard_normal((batch, 4, length + 3, length), dtype=np.float32),)
    x = random.standard_normal((batch, length, WIDTH), dtype=np.float32)
    if inputs == "text":
        return (x,)
    seen = np.arange(length) < random.integers(1, length + 1, (batch, 1))
    return x, np.where(seen, 0, np.finfo(np.float32).min).astype(np.float32)[:, None, None, :]


def axes(inputs: str) -> list[dict[int, str]]:
    image = {0: "batch", 2: "height", 3: "width"}
    text = [{0: "batch", 1: "length"}, {0: "batch", 3: "length"}]
    return [image] if inputs == "image" else text[: len(inputs.split())]


def export(module: nn.Module, inputs: str, exporter: str) -> bytes:
    example = tuple(map(torch.from_numpy, arrays(inputs, 3, 6)))
    names = ["x", "mask"][: len(example)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporters' own
        if exporter == "dynamo":
            symbols = {name: torch.export.Dim(name, min=2) for axis in axes(inputs) for name in axis.values()}
            shapes = tuple({i: symbols[name] for i, name in axis.items()} for axis in axes(inputs))
            # The body of a Module takes any number of inputs, whose shapes are one argument's.
            shapes = (shapes,) if isinstance(module, Module) else shapes
            if isinstance(module, SelfAttention) and len(example) > 1:
                shapes = (shapes[0], shapes[1:])
            program = torch.onnx.export(
                module, example, input_names=names, dynamic_shapes=shapes, dynamo=True, verbose=False
            )
            return program.model_proto.SerializeToString()
        file = io.BytesIO()
        dynamic = dict(zip(names, axes(inputs), strict=True))
        torch.onnx.export(
            module, example, file, input_names=names, output_names=["y"], dynamic_axes=dynamic,
            opset_version=17, dynamo=False,
        )  # fmt: skip
        return file.getvalue()


# The older exporter does not know nn.RMSNorm.
EXPORTS = [
    pytest.param(case, exporter, id=f"{case.name}-{exporter}")
    for case in CASES
    for exporter in ("dynamo", "script")
    if (case.name, exporter) != ("rms norm", "script")
]


@pytest.mark.parametrize(("case", "exporter"), EXPORTS)
def test_the_fused_node_stands_for_the_exported_form(case, exporter):
    torch.manual_seed(3)
    module = case.make().eval()
    model = heddle.load(export(module, case.inputs, exporter))
    graph = model.graph()
    found = Counter(re.findall(r" = (\w+)\(", graph))
    assert {op: n for op, n in found.items() if op not in SHAPES} == case.fused, graph
    for batch, length in ((2, 5), (1, 9), (4, 16)):
        inputs = arrays(case.inputs, batch, length)
        with torch.no_grad():
            want = module(*map(torch.from_numpy, inputs)).numpy()
        got = model(*inputs)
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
