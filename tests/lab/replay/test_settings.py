import pytest

from engine.errors import ConfigError
from lab.replay.settings import GraphSettings, ReplaySettings
from tests.lab.replay.traces import hashed, plain

PLAIN = plain((0, 100, 10), (500, 17, 33))
HASHED = hashed((0, 600, 10, [1, 2]), (1000, 512, 2, [1]))


def test_by_default_pool_and_sequence_length_hold_the_whole_trace():
    config = ReplaySettings().config(PLAIN)
    assert config.max_seq_len == 110
    assert config.kv_cache.num_blocks == 7 + 4
    assert config.kv_cache.tokens_per_block == 16
    assert not config.kv_cache.enable_block_reuse, "nothing is known of what the prompts hold"


def test_a_trace_with_ids_has_its_own_block_size_and_reuses_blocks():
    config = ReplaySettings().config(HASHED)
    assert config.kv_cache.tokens_per_block == 512
    assert config.kv_cache.num_blocks == 2 + 2
    assert config.kv_cache.enable_block_reuse


def test_whatever_is_given_wins():
    graphs = GraphSettings(buckets=(1, 4), prefill_buckets=(64,), padding=False)
    settings = ReplaySettings(
        num_blocks=99, max_seq_len=300, max_batch_size=4, max_num_tokens=64, policy="static_batch", chunking=None,
        reuse=True, graphs=graphs,
    )  # fmt: skip
    config = settings.config(PLAIN)
    assert (config.kv_cache.num_blocks, config.max_seq_len, config.scheduler.max_batch_size) == (99, 300, 4)
    assert (config.scheduler.capacity_policy, config.scheduler.chunking) == ("static_batch", None)
    assert (config.cuda_graph.batch_sizes, config.cuda_graph.prefill_num_tokens) == ((1, 4), (64,))
    assert not config.cuda_graph.enable_padding
    assert config.kv_cache.enable_block_reuse


def test_what_is_served_is_said_in_full():
    assert ReplaySettings().sentences(PLAIN)[:3] == (
        "plain.csv: 2 requests, the last one after 0.5 virtual s",
        "pool: 11 blocks of 16 tokens, max_seq_len 110, block reuse off (the trace does not say what its prompts hold)",
        "a step: at most 256 requests and 8192 rows, policy guaranteed_no_evict, chunking fcfs, overlap off",
    )
    assert "block reuse on" in ReplaySettings().sentences(HASHED)[1]
    assert ReplaySettings().sentences(HASHED)[3].startswith("cost model, microseconds of a step (")


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_a_speed_must_be_a_positive_number(speed):
    with pytest.raises(ConfigError, match="speed must be a finite number"):
        ReplaySettings(speed=speed).timed(PLAIN)


def test_a_speed_that_leaves_the_virtual_clock_is_refused_with_one_that_does_not():
    with pytest.raises(ConfigError, match=r"virtual microseconds, got 1e-300, .* use a speed of 5e-13 or more"):
        ReplaySettings(speed=1e-300).timed(PLAIN)
    assert ReplaySettings(speed=5e-13).timed(PLAIN).requests[1].arrival_us == pytest.approx(1e18)


def test_the_engines_own_errors_come_through():
    with pytest.raises(ConfigError, match=r"chunking needs SchedulerConfig\.max_num_tokens"):
        ReplaySettings(max_batch_size=8, max_num_tokens=16).config(PLAIN)
