"""A ten-turn chat of smollm2: each turn's prompt is the whole talk so far, and next to nothing is computed again."""

import pytest

from engine import LLM, EngineConfig, KVCacheConfig
from tests.equivalence.margin import assert_equal_by_margin, reference_cases

pytestmark = pytest.mark.smollm2

NUM_ANSWERED = 20
QUESTIONS = (
    "What is the capital of France?",
    "And which river flows through it?",
    "Name a famous tower there.",
    "Who built that tower?",
    "In which year was it finished?",
    "How tall is it?",
    "What is it made of?",
    "How many people visit it each year?",
    "Is there a restaurant on it?",
    "Thank you. Say goodbye in French.",
)


def config(*, reuse):
    return EngineConfig(device="cpu", max_seq_len=1024, kv_cache=KVCacheConfig(enable_block_reuse=reuse))


def turn(question):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


class CachedTokens:
    """Adds up what reservations credited."""

    total = 0

    def emit(self, stage, step, value):
        self.total += sum(tokens for _, tokens in getattr(value, "credits", ()))


def test_ten_turns_compute_a_fifth_of_their_prompts_and_say_the_same():
    talk, cases = [], []
    with LLM("smollm2-135m", config(reuse=False)) as llm:
        for question in QUESTIONS:
            talk += llm.tokenizer.encode(turn(question))
            (case,) = reference_cases(llm, [talk], [NUM_ANSWERED])
            cases.append(case)
            talk = [*talk, *case.greedy_ids, *llm.tokenizer.encode("<|im_end|>\n")]
    cached = CachedTokens()
    with LLM("smollm2-135m", config(reuse=True)) as llm:
        llm.set_probe(cached)
        compared = assert_equal_by_margin(llm, cases, together=False)
        llm.check()
    assert compared >= 0.9 * len(QUESTIONS) * NUM_ANSWERED
    num_prompt_tokens = sum(len(case.prompt_ids) for case in cases)
    assert num_prompt_tokens - cached.total <= 0.2 * num_prompt_tokens
