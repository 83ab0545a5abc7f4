"""smollm2-135m against the greedy tokens that an independent implementation gave (``tests/golden``)."""

import functools
import json
from pathlib import Path

import pytest

from engine.models.registry import LoadedModel, load_model
from tests.engine.models.model_files import CPU, dense_logits

pytestmark = pytest.mark.smollm2
CASES = json.loads((Path(__file__).parents[2] / "golden/smollm2_greedy.json").read_text())["cases"]
TOLERANCE = 0.02


@functools.cache
def smollm2() -> LoadedModel:
    return load_model("smollm2-135m", CPU, max_seq_len=2048)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_prompts_tokenise_and_answers_decode_as_the_reference(case: dict):
    tokenizer = smollm2().tokenizer
    assert tokenizer.encode(case["prompt"]) == case["prompt_ids"]
    assert tokenizer.decode(case["prompt_ids"]) == case["prompt"]
    assert tokenizer.decode(case["greedy_ids"]) == case["text"]
    detokenizer = tokenizer.detokenizer()
    assert "".join(detokenizer.push(i) for i in case["greedy_ids"]) + detokenizer.finish() == case["text"]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_full_forward_chooses_the_reference_tokens(case: dict):
    expected = case["greedy_ids"]
    logits = dense_logits(smollm2().model, [*case["prompt_ids"], *expected[:-1]])[len(case["prompt_ids"]) - 1 :]
    compared = 0
    for row, token_id, margin in zip(logits, expected, case["margin"], strict=True):
        best = row.topk(2)
        assert float(best.values[0] - best.values[1]) == pytest.approx(margin, abs=2e-3)
        if margin >= TOLERANCE:
            assert int(best.indices[0]) == token_id
            compared += 1
        else:  # a tie: either of the two is right
            assert token_id in best.indices.tolist()
    assert compared >= len(expected) - 2


def test_the_chat_template_writes_the_conversation_of_the_first_case():
    prompt = smollm2().tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}])
    assert prompt == CASES[0]["prompt"]


def test_the_file_asks_for_no_bos_and_names_one_end():
    tokenizer = smollm2().tokenizer
    assert (tokenizer.bos_token_id, tokenizer.add_bos, tokenizer.eos_token_ids) == (1, False, {2})
    assert tokenizer.control_ids == set(range(17))
    assert tokenizer.token_text(2) == "<|im_end|>"
