"""transformers' generate(): the tokens and logits of the CPU, from eight threads that share a model."""

import copy

import pytest
import real_models
import torch
import transformers
from recompiled import needed, recompilations
from threads import count_right

WORDS, NEW, THREADS = 64, 5, 8


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS,
            n_positions=32,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def words(thread):
    ids = torch.randint(3, real_models.WORDS, (2, 3 + thread % 4))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def sound(thread):
    return {"input_features": torch.randn(1 + thread % 2, 8, 20)}


MODELS = {
    "gpt2": (gpt2, words, None),
    "gpt2 with a static cache": (gpt2, words, "static"),
    "llama": (llama, words, None),
    "llama with a static cache": (llama, words, "static"),
    "mixtral": (real_models.mixtral, words, None),
    "bart": (real_models.bart, words, None),
    "t5": (real_models.t5, words, None),
    "whisper": (real_models.whisper, sound, None),
}


def said(module, arguments, cache, device="cpu", **sampling):
    """Tokens, then the logits that each was chosen by."""
    made = module.generate(
        **{name: x.to(device) for name, x in arguments.items()},
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        pad_token_id=0,
        cache_implementation=cache,
        return_dict_in_generate=True,
        output_logits=True,
        **({"do_sample": False} | sampling),
    )
    return torch.cat([made.sequences.flatten().cpu().float(), torch.stack(made.logits).cpu().flatten()])


@pytest.mark.parametrize("name", MODELS)
def test_eight_threads_generate_what_the_cpu_does(name, device):
    make, arguments, cache = MODELS[name]
    reference = make().eval().requires_grad_(False)
    module = copy.deepcopy(reference).to(device)
    given = [arguments(thread) for thread in range(THREADS)]
    done = count_right(
        THREADS,
        1,
        lambda thread, _: said(module, given[thread], cache, device),
        lambda thread, _: said(reference, given[thread], cache),
    )
    assert done == THREADS


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_eight_threads_generate_with_a_compiled_model_what_the_cpu_does(make, cache, device):
    torch._dynamo.reset()
    reference = make().eval().requires_grad_(False)
    module = copy.deepcopy(reference).to(device)
    module.forward = torch.compile(module.forward, backend="heddle")
    given = [words(0) for _ in range(THREADS)]

    def call(thread, _):
        return said(module, given[thread], cache, device)

    def expected(thread, _):
        return said(reference, given[thread], cache)

    with recompilations() as reasons:
        assert count_right(1, 1, call, expected) == 1
        assert reasons  # for the prompt and its tokens: what is looked for below is heard
        reasons.clear()
        assert count_right(1, 2, call, expected) == 2
        assert reasons == []  # none for a token
        assert count_right(THREADS, 2, call, expected) == 2 * THREADS
    assert needed(reasons) == []  # none for a thread


def sampler(module, cache, device):
    """What the thread's stream samples: each stream has a sequence of random numbers of its own."""
    prompt = words(0)
    streams = [torch.Stream(device) for _ in range(THREADS)]

    def sample(thread, _=0, module=module):
        with streams[thread]:
            return said(module, prompt, cache, device, do_sample=True, top_k=20)

    return sample


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_eight_threads_sample_from_a_seed_what_their_streams_sample_alone(make, cache, device):
    sample = sampler(make().eval().requires_grad_(False).to(device), cache, device)
    torch.heddle.manual_seed(9)
    alone = [sample(thread) for thread in range(THREADS)]
    assert len({tuple(each.tolist()) for each in alone}) == THREADS
    torch.heddle.manual_seed(9)
    assert count_right(THREADS, 1, sample, lambda thread, _: alone[thread]) == THREADS


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_compiled_model_samples_from_a_seed_what_the_eager_one_does(
    make, cache, device, built, fresh_dynamo
):
    eager = make().eval().requires_grad_(False).to(device)
    compiled = copy.deepcopy(eager)
    compiled.forward = torch.compile(compiled.forward, backend="heddle")
    sample = sampler(eager, cache, device)
    torch.heddle.manual_seed(9)
    alone = [sample(thread) for thread in range(THREADS)]
    assert len({tuple(each.tolist()) for each in alone}) == THREADS
    assert not built
    torch.heddle.manual_seed(9)
    for thread in range(THREADS):
        torch.testing.assert_close(sample(thread, module=compiled), alone[thread], rtol=1e-4, atol=1e-4)
    assert built  # the model's forward ran compiled
    torch.heddle.manual_seed(9)
    done = count_right(
        THREADS, 1, lambda thread, _: sample(thread, module=compiled), lambda thread, _: alone[thread]
    )
    assert done == THREADS
