"""transformers' generate(): the tokens and logits of the CPU, from eight threads that share a model."""

import copy

import pytest
import torch
import transformers
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


MODELS = {"gpt2": (gpt2, None), "llama": (llama, None), "llama with a static cache": (llama, "static")}


def said(module, ids, cache):
    """Tokens, then the logits that each was chosen by."""
    made = module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW,
        do_sample=False,
        pad_token_id=0,
        cache_implementation=cache,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return torch.cat([made.sequences.flatten().cpu().float(), torch.stack(made.logits).cpu().flatten()])


@pytest.mark.parametrize("name", MODELS)
def test_eight_threads_generate_what_the_cpu_does(name, device):
    make, cache = MODELS[name]
    reference = make().eval().requires_grad_(False)
    module = copy.deepcopy(reference).to(device)
    prompts = torch.randint(1, WORDS, (THREADS, 2, 6))

    def prompt(thread, _):
        return prompts[thread, :, : 3 + thread % 4]

    done = count_right(
        THREADS,
        1,
        lambda *which: said(module, prompt(*which).to(device), cache),
        lambda *which: said(reference, prompt(*which), cache),
    )
    assert done == THREADS
