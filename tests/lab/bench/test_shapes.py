import pytest
import torch

from engine import LLM, EngineConfig, SamplingParams
from engine.device import resolve_device
from engine.errors import ConfigError, RequestError
from engine.models.tiny import TINY_CONFIG
from lab.bench.shapes import SHAPES, NumberTokenizer, random_model, random_weights, shape_config, step_bytes

CPU = resolve_device("cpu", "float32")


@pytest.mark.parametrize(("name", "millions"), [("smollm2-135m", 134.5), ("llama-3.1-8b", 8030.3)])
def test_a_shape_has_the_parameters_of_its_namesake(name, millions):
    config = SHAPES[name]
    read = step_bytes(config, torch.float32, batch=1, cached_tokens=1) // 4
    unread = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    per_token = config.hidden_size + 2 * config.num_layers * config.kv_size
    assert (read + unread - per_token) / 1e6 == pytest.approx(millions, abs=0.1)


def test_a_step_reads_its_matrices_once_and_its_cache_a_sequence():
    # By hand: 3 layers of (64 + 2*32)*64 + 64*64 + 3*64*128 + 2*64, the last norm, a head of its own.
    matrices = 3 * (128 * 64 + 64 * 64 + 3 * 64 * 128 + 128) + 64 + 259 * 64
    assert step_bytes(TINY_CONFIG, torch.bfloat16, batch=1, cached_tokens=0) == 2 * (matrices + 64)
    cache = 2 * 3 * 32 * 10 * 5  # keys and values, layers, width, tokens, sequences
    assert step_bytes(TINY_CONFIG, torch.bfloat16, batch=5, cached_tokens=10) == 2 * (matrices + 5 * 64 + cache)


def test_random_weights_keep_the_logits_at_the_size_of_one():
    weights = random_weights(TINY_CONFIG, CPU)
    assert weights["norm.weight"].eq(1).all()
    assert weights["layers.0.down.weight"].std().item() == pytest.approx(128**-0.5, rel=0.05)
    again, other = random_weights(TINY_CONFIG, CPU), random_weights(TINY_CONFIG, CPU, seed=1)
    assert torch.equal(weights["lm_head.weight"], again["lm_head.weight"])
    assert not torch.equal(weights["lm_head.weight"], other["lm_head.weight"])


def test_a_random_model_is_served_without_a_copy_of_its_weights():
    weights = random_weights(TINY_CONFIG, CPU)
    loaded = random_model("tiny", weights, CPU, max_seq_len=32)
    assert loaded.model.embedding.data_ptr() == weights["embedding.weight"].data_ptr()
    with LLM(loaded, EngineConfig(device="cpu", max_seq_len=32)) as llm:
        [output] = llm.generate("3 14 258", SamplingParams(max_tokens=5))
    assert output.prompt_token_ids == (3, 14, 258)
    assert output.text == "".join(f"{token} " for token in output.token_ids)


def test_numbers_are_read_back():
    tokenizer = NumberTokenizer(100)
    assert tokenizer.encode(tokenizer.decode([7, 99, 0])) == [7, 99, 0]
    with pytest.raises(RequestError, match="must be numbers from 0 to 99 with spaces between, got '3 100'"):
        tokenizer.encode("3 100")


def test_an_unknown_shape_is_met_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"a shape is one of tiny, smollm2-135m, llama-3\.1-8b, got 'llama'"):
        shape_config("llama")
