"""One graph serves an operator's calls of all lengths, once a second length was met."""

import copy

import heddle.torch
import pytest
import torch
import torch.nn.functional as F
import transformers
from threads import count_right

LENGTHS = (5, 9, 2, 1, 17, 0, 33, 8, 6, 64, 65)
HEADS, SIZE = 3, 8
WEIGHT = torch.randn(SIZE, SIZE)


def rows(length):
    return torch.arange(length * SIZE, dtype=torch.float32).sin().reshape(length, SIZE)


def attention(x):
    heads = x.reshape(1, -1, 1, SIZE).expand(1, -1, HEADS, SIZE).transpose(1, 2).contiguous()
    return F.scaled_dot_product_attention(heads[:, :, -1:], heads, heads)


OPERATORS = {
    "cat": lambda x: torch.cat([x, x[:1]]),
    "add": lambda x: x + x,
    "add of one row": lambda x: x + x[:1].sum(0),
    "product with a weight": lambda x: x @ WEIGHT.to(x.device),
    "product with itself": lambda x: x @ x.t(),
    "mean": lambda x: x.mean(0),
    "softmax": lambda x: torch.softmax(x @ x.t(), -1),
    "layer_norm": lambda x: F.layer_norm(x, (SIZE,)),
    "gather": lambda x: x[torch.argsort(x[:, 0])],
    "logsigmoid": lambda x: F.logsigmoid(x.flatten()),
    "transposed": lambda x: x.t().contiguous() * 2,
    "cumsum": lambda x: x.cumsum(0),
    "masked": lambda x: x.masked_fill(x > 0.5, -1),
    "masked_scatter": lambda x: x.masked_scatter(x > 0.5, 2 * x),
    "pooled": lambda x: F.max_pool1d(x.t()[None], 2, ceil_mode=True) if len(x) > 1 else x,
    "attention": lambda x: attention(x) if len(x) else x,
}


def same(got, wanted):
    torch.testing.assert_close(got.cpu(), wanted, equal_nan=True)


def graphs():
    return heddle.torch._C.cache_stats()["graphs"]


@pytest.mark.parametrize("name", OPERATORS)
def test_lengths_give_the_values_of_the_cpu(name, device):
    for length in LENGTHS:
        x = rows(length)
        same(OPERATORS[name](x.to(device)), OPERATORS[name](x))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_third_length_builds_no_graph(name, device):
    heddle.torch._C.clear_cache()
    for length in (20, 21):
        OPERATORS[name](rows(length).to(device))
    before = graphs()
    for length in range(22, 30):
        x = rows(length)
        same(OPERATORS[name](x.to(device)), OPERATORS[name](x))
    assert graphs() == before


def test_an_operator_that_has_to_know_an_extent_gets_a_graph_for_each(device):
    for length in (4, 6, 7, 9):
        x = rows(length).reshape(1, 1, length, SIZE)
        for size in ((3, 5), (4, 5)):
            got = F.interpolate(x.to(device), size=size, mode="bilinear")
            torch.testing.assert_close(got.cpu(), F.interpolate(x, size=size, mode="bilinear"))


def test_eight_threads_with_lengths_of_their_own_get_the_values_of_the_cpu(device):
    names = list(OPERATORS)

    def call(place, thread, step):
        return OPERATORS[names[(thread + step) % len(names)]](
            rows(2 + (7 * thread + 3 * step) % 61).to(place)
        )

    done = count_right(8, 60, lambda *which: call(device, *which), lambda *which: call("cpu", *which))
    assert done == 8 * 60


REFUSED = {
    "cat": lambda x: torch.cat([x, x[:, 1:]]),
    "add": lambda x: x + x[1:],
    "product": lambda x: x @ x,
    "layer_norm": lambda x: F.layer_norm(x, (SIZE + 1,)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x[1:]),
    "pooling": lambda x: F.max_pool1d(x.t()[None], 60),
    "narrow": lambda x: torch.narrow_copy(x, 0, 2, 60),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_cpu_refuses_is_refused_at_every_length(name, device):
    for length in (5, 9, 17, 33):
        x = rows(length)
        with pytest.raises((RuntimeError, IndexError)) as wanted:
            REFUSED[name](x)
        with pytest.raises(type(wanted.value)):
            REFUSED[name](x.to(device))


class GraphsATurn:
    """What generate() tells of each token, the prompt first: how many graphs there were by then."""

    def __init__(self):
        self.built = []

    def put(self, _):
        self.built.append(graphs())

    def end(self):
        pass


@pytest.mark.parametrize("cache", [None, "static"])
def test_tokens_build_no_graph_once_the_cache_was_seen_to_grow(cache, device):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    reference = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    module = copy.deepcopy(reference).to(device)
    ids = torch.arange(1, 12)[None]
    turns = GraphsATurn()

    def said(model, streamer=None):
        ours = ids.to(model.device)
        return model.generate(
            ours,
            attention_mask=torch.ones_like(ours),
            max_new_tokens=24,
            do_sample=False,
            pad_token_id=0,
            cache_implementation=cache,
            streamer=streamer,
        ).cpu()

    heddle.torch._C.clear_cache()  # of extents that other tests were seen to vary
    assert torch.equal(said(module, turns), said(reference))
    assert len(turns.built) == 25
    # Not the prompt, a first and a second length of the cache, and the last, which fills with True.
    assert turns.built[4:-1] == [turns.built[4]] * 20
