"""Serving a trace in virtual time: exact lengths, reuse, pauses, refusals, interrupts, and the clock."""

import tracemalloc

import pytest

from lab.replay.cost_model import DEFAULT, parse_costs
from lab.replay.serve import refusal_of, replay
from lab.replay.settings import GraphSettings, ReplaySettings
from tests.lab.replay.traces import hashed, plain

BUSY = plain(*[(0.5 * at, 40 + 13 * (at % 7), 5 + 11 * (at % 5)) for at in range(60)])


def serve(trace, progress=None, **settings):
    settings = ReplaySettings(**settings)
    trace = settings.timed(trace)
    return replay(trace, settings.config(trace), settings.costs, progress=progress)


@pytest.mark.parametrize("policy", ["guaranteed_no_evict", "static_batch"])
@pytest.mark.parametrize("chunking", [None, "fcfs"])
def test_every_request_ends_with_its_exact_tokens_and_gives_its_blocks_back(policy, chunking):
    found = serve(BUSY, policy=policy, chunking=chunking, max_batch_size=8, max_num_tokens=128).summary()
    assert found["finished"] == found["requests"] == 60
    assert found["generated_tokens"] == sum(request.output_len for request in BUSY.requests)
    assert found["computed_prompt_tokens"] == found["prompt_tokens"]
    assert found["blocks_leaked"] == found["paused"] == 0


def test_a_pool_too_small_for_all_makes_requests_pause_and_compute_their_prompts_again():
    found = serve(BUSY, policy="max_utilization", num_blocks=24, max_batch_size=8, max_num_tokens=256).summary()
    assert found["finished"] == 60
    assert found["generated_tokens"] == sum(request.output_len for request in BUSY.requests)
    assert found["paused"] > 0
    assert found["computed_prompt_tokens"] > found["prompt_tokens"]
    assert found["blocks_leaked"] == 0


def test_without_pauses_a_small_pool_makes_requests_wait():
    few = serve(BUSY, num_blocks=24, max_batch_size=8)
    many = serve(BUSY, max_batch_size=64)
    assert few.summary()["paused"] == 0
    assert few.max_wait_steps > many.max_wait_steps
    assert few.columns["free_blocks"].min() >= 0


def test_blocks_with_equal_ids_are_computed_once():
    trace = hashed(
        (0, 1536, 4, [1, 2, 3]),
        (60_000, 2100, 4, [1, 2, 3, 4, 5]),
        (120_000, 1536, 4, [1, 2, 3]),
        (180_000, 1024, 4, [9, 2]),
    )
    found = serve(trace, max_num_tokens=4096)
    computed = found.columns["context_rows"][found.columns["contexts"] > 0].tolist()
    assert computed[:2] == [1536, 2100 - 1536]
    assert 1 <= computed[2] <= 512, "at least one token is always computed"
    assert computed[3] == 1024, "an id counts only behind the same beginning"
    assert int(found.columns["reused"].sum()) == found.summary()["prompt_tokens"] - sum(computed)
    assert found.summary()["blocks_leaked"] == 0


def test_reuse_can_be_turned_off():
    trace = hashed((0, 1536, 4, [1, 2, 3]), (60_000, 1536, 4, [1, 2, 3]))
    found = serve(trace, reuse=False).summary()
    assert found["computed_prompt_tokens"] == found["prompt_tokens"]


def test_what_is_generated_matches_no_prompt():
    trace = hashed(*[(60_000 * at, 512, 600, [at]) for at in range(4)])
    assert serve(trace).summary()["computed_prompt_tokens"] == 2048


def test_a_request_that_can_never_fit_is_refused_with_the_numbers_and_the_others_are_served():
    trace = plain((0, 100, 10), (1, 500, 10), (2, 30, 100))
    found = serve(trace, max_seq_len=300, num_blocks=10)
    assert [str(refusal) for refusal in found.refusals] == [
        "line 3: the request needs 510 tokens, and max_seq_len is 300",
    ]
    assert found.summary()["finished"] == 2
    assert serve(trace, num_blocks=10).refusals[0].needed == 32
    config = ReplaySettings(chunking=None, max_num_tokens=256).config(trace)
    assert str(refusal_of(trace.requests[1], config)) == (
        "line 3: the request needs 500 rows in one step (no chunking), and max_num_tokens is 256"
    )


def test_the_clock_moves_by_the_cost_of_each_step_and_an_idle_engine_jumps_to_the_next_arrival():
    costs = parse_costs(["graph.fixed=1000", "graph.per_row=0", "graph.per_kv_token=0", "eager.fixed=5000",
                         "eager.per_row=10", "eager.per_kv_token=0"])  # fmt: skip
    found = serve(plain((0, 100, 3), (1_000_000, 50, 2)), costs=costs)
    columns = found.columns
    assert columns["start_us"].tolist() == [0, 6000, 7000, 1_000_000_000, 1_000_005_500]
    assert columns["cost_us"].tolist() == [6000, 1000, 1000, 5500, 1000]
    assert [(one.first_token_us, one.finished_us) for one in found.endings] == [(6000, 8000), (5500, 6500)]


def test_a_request_is_seen_only_when_the_clock_has_reached_it():
    costs = parse_costs(["graph.fixed=1000", "eager.fixed=5000", "eager.per_row=0"])
    found = serve(plain((0, 16, 50), (20, 16, 1)), costs=costs)
    joined = found.columns["start_us"][found.columns["contexts"] > 0]
    assert joined[0] == 0
    assert 20_000 <= joined[1] < 22_500


def test_the_longest_wait_is_counted_in_steps_without_a_row():
    found = serve(plain((0, 16, 5), (0, 16, 7), (0, 16, 1)), max_batch_size=1)
    assert found.max_wait_steps == 5 + 7


def test_buckets_decide_padding_and_what_falls_off():
    trace = plain(*[(0, 16, 20)] * 3)
    padded = serve(trace, graphs=GraphSettings(buckets=(4, 8))).columns
    decode = padded["contexts"] == 0
    assert set(padded["computed_rows"][decode]) == {4}
    assert set(padded["padding"][decode]) == {1}
    exact = serve(trace, graphs=GraphSettings(buckets=(4, 8), padding=False)).columns
    assert set(exact["path"].tolist()) == {2}
    assert set(exact["padding"].tolist()) == {0}


def test_prefill_buckets_pad_rows():
    columns = serve(plain((0, 100, 2)), graphs=GraphSettings(prefill_buckets=(64, 128))).columns
    assert columns["computed_rows"][0] == 128
    assert columns["path"][0] == 1


def test_an_interrupt_ends_the_replay_with_what_there_is():
    def stop(_):
        raise KeyboardInterrupt

    found = serve(BUSY, progress=stop)
    assert found.is_interrupted
    summary = found.summary()
    assert 1 <= summary["finished"] < 60
    assert summary["generated_tokens"] > 0
    assert summary["blocks_leaked"] == 0, "what still ran was ended"


def test_progress_counts_every_finished_request():
    seen = []
    serve(BUSY, progress=seen.append)
    assert sum(seen) == 60


def test_overlap_serves_the_same_requests():
    found = serve(BUSY, overlap=True, max_batch_size=8).summary()
    assert found["finished"] == 60
    assert found["generated_tokens"] == sum(request.output_len for request in BUSY.requests)
    assert found["blocks_leaked"] == 0


def test_speed_brings_arrivals_closer():
    trace = plain((0, 16, 1), (1000, 16, 1))
    assert ReplaySettings(speed=4).timed(trace).requests[1].arrival_us == 250_000


def test_a_prompt_of_124_000_tokens_is_never_made():
    trace = hashed(*[(0, 124_000, 2, [1000 * at + block for block in range(243)]) for at in range(6)])
    settings = ReplaySettings(max_num_tokens=16_384, costs=DEFAULT)
    config = settings.config(trace)
    serve(plain((0, 16, 1)))  # whatever is imported and cached on first use
    tracemalloc.start()
    found = replay(trace, config, DEFAULT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.summary()["finished"] == 6
    assert peak < 4_000_000, f"{peak} bytes; one of the prompts alone is 5,000,000"
