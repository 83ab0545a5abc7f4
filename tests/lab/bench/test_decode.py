import pytest

from engine.errors import ConfigError
from lab.bench.decode import decode_rate, prompt_ids, require_positive


def test_prompts_differ_and_stay_inside_the_vocabulary():
    prompts = prompt_ids(8, 16, 300)
    assert len({tuple(prompt) for prompt in prompts}) == 8
    assert all(len(prompt) == 16 and all(0 <= token < 300 for token in prompt) for prompt in prompts)


def test_every_request_decodes_to_its_length(tiny_llm):
    rate, tokens = decode_rate(tiny_llm, prompt_ids(3, 8, 256), 6)
    assert rate > 0
    assert [len(row) for row in tokens] == [6, 6, 6]
    assert not tiny_llm.has_unfinished


def test_a_count_below_one_is_named():
    with pytest.raises(ConfigError, match="rounds must be at least 1, got 0"):
        require_positive(batch=1, rounds=0)
