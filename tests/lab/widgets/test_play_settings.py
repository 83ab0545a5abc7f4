"""Settings as typed: prompts with arrivals, lists of sizes, and what cannot be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError, RequestError
from lab.widgets.play_settings import Batching, Settings, sizes


def test_a_line_is_an_arrival_step_and_a_prompt_or_a_prompt_alone():
    settings = Settings(prompts="0: one\n\n 12:two: three\nfour\n")
    assert settings.arrivals() == [(0, "one"), (12, "two: three"), (0, "four")]


@pytest.mark.parametrize(
    ("prompts", "message"), [(" \n", "at least one prompt"), ("3: ", "got '3: ' without a prompt")]
)
def test_prompts_that_cannot_be_read_are_said(prompts, message):
    with pytest.raises(RequestError, match=message):
        Settings(prompts=prompts).arrivals()


@given(st.lists(st.integers(1, 999), max_size=6), st.sampled_from([", ", ",", " ", "; "]))
def test_a_list_of_sizes_is_read_however_it_is_separated(numbers, separator):
    text = separator.join(map(str, numbers))
    assert sizes("buckets", text) == tuple(numbers)
    assert sizes("buckets", f"({text})") == tuple(numbers)


def test_a_word_among_sizes_is_named():
    with pytest.raises(ConfigError, match=r"prefill must be whole numbers such as `1, 2, 4`, got '8k' in '4, 8k'"):
        Settings(prefill="4, 8k").config()
    with pytest.raises(ConfigError, match="blocks must be one number or empty, got '8, 9'"):
        Settings(blocks="8, 9").config()


def test_every_field_reaches_the_configuration():
    batching = Batching(max_batch_size=2, max_num_tokens=32, policy="max_utilization", chunking="fcfs")
    settings = Settings(
        batching=batching, max_tokens=5, padding=False, buckets="1 2", prefill="16,32", blocks="20", overlap=True
    )
    config = settings.config()
    assert (config.scheduler.max_batch_size, config.scheduler.max_num_tokens) == (2, 32)
    assert (config.scheduler.capacity_policy, config.scheduler.chunking) == ("max_utilization", "fcfs")
    assert (config.cuda_graph.batch_sizes, config.cuda_graph.prefill_num_tokens) == ((1, 2), (16, 32))
    assert (config.cuda_graph.enabled, config.cuda_graph.enable_padding) == (True, False)
    assert (config.kv_cache.num_blocks, config.overlap, settings.params().max_tokens) == (20, True, 5)
    assert Settings(buckets="").config().cuda_graph.batch_sizes is None
    assert Settings().config().kv_cache.num_blocks is None
