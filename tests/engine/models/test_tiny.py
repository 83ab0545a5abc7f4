import pytest
import torch

from engine.models.registry import load_model
from tests.engine.models.model_files import CPU, dense_logits


def greedy(loaded, prompt: str, count: int) -> tuple[list[int], list[float]]:
    ids, margins = loaded.tokenizer.encode(prompt), []
    start = len(ids)
    for _ in range(count):
        best = dense_logits(loaded.model, ids)[-1].topk(2)
        ids.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
    return ids[start:], margins


def test_tiny_is_under_one_megabyte_and_needs_no_file():
    model = load_model("tiny", CPU, max_seq_len=64).model
    assert sum(parameter.nbytes for parameter in model.parameters()) < 1_000_000


def test_the_seed_decides_the_weights_and_their_hash():
    first, again, other = (load_model("tiny", CPU, seed=seed, max_seq_len=64) for seed in (3, 3, 4))
    assert first.weight_hash == again.weight_hash != other.weight_hash
    for one, two in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("prompt", ["hello", "The capital of France is", "a"])
def test_tiny_writes_varied_readable_text_with_clear_choices(prompt: str):
    loaded = load_model("tiny", CPU, max_seq_len=128)
    ids, margins = greedy(loaded, prompt, 64)
    assert len(set(ids)) >= 10
    assert sorted(margins)[len(margins) // 2] > 0.5
    assert loaded.tokenizer.decode(ids).isascii()


def test_tiny_has_grouped_queries_and_a_chat_template():
    loaded = load_model("tiny", CPU, max_seq_len=64)
    assert loaded.config.num_heads > loaded.config.num_kv_heads > 1
    assert 2 <= loaded.config.num_layers <= 4
    prompt = loaded.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert loaded.tokenizer.encode(prompt)[0] == 257
