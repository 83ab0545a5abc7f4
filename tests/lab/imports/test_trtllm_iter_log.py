import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TraceError
from engine.inputs.padding import round_up_to_bucket
from lab.imports.trtllm_iter_log import read_iter_log

BUCKETS = (1, 2, 4, 8)


def line(number, scheduled, states, *, rank=0, times="host_step_time = 4.5ms, prev_device_step_time = N/A", sign=": "):
    return (
        f"[11/30/2026-09:00:12] [TRT-LLM] [I] iter = {number}, global_rank = {rank}, rank = {rank}, "
        f"currank_total_requests = {scheduled}/{scheduled}, {times}, timestamp = 2026-11-30 09:00:12, "
        f"num_scheduled_requests{sign}{scheduled}, states = {states}"
    )


def states(contexts, context_tokens, generation_tokens, more=""):
    counts = f"'num_ctx_tokens': {context_tokens}, 'num_generation_tokens': {generation_tokens}"
    return f"{{'num_ctx_requests': {contexts}, {counts}{more}}}"


def read(*lines, **options):
    return read_iter_log(lines, "server.log", **{"buckets": BUCKETS, **options}).steps


def test_an_iteration_is_read_out_of_a_server_s_log():
    noise = "[11/30/2026-09:00:11] [TRT-LLM] [W] iter is a word here"
    (step,) = read(noise, line(4, 3, states(1, 210, 2)), noise)
    assert (step.step, step.rows, step.requests, step.num_contexts, step.context_rows) == (4, 212, 3, 1, 210)
    assert (step.host_us, step.path, step.draft_len) == (4500.0, None, 0)


def test_older_and_newer_spellings_are_read_too():
    old = line(4, 2, states(0, 0, 2), times="elapsed_time = 0.0045s")
    new = (
        "[_torch][RANK 0] iter = 5, global_rank = 0, rank = 0, num_scheduled_requests = 2, kv_cache_util = 0.1, "
        f"host_step_time = 4.5ms, states = {states(0, 0, 2, ', ' + repr('cached_kv_tokens') + ': 63')}"
    )
    assert [(step.step, step.rows, step.host_us) for step in read(old, new)] == [(4, 2, 4500.0), (5, 2, 4500.0)]


def test_an_idle_iteration_is_a_step_without_rows_whatever_its_states_say():
    (step,) = read(line(4, 0, "{}"))
    assert (step.rows, step.requests) == (0, 0)


def test_of_several_ranks_one_is_taken():
    lines = [line(at, 2 + rank, states(0, 0, 2 + rank), rank=rank) for at in (1, 2) for rank in (0, 1)]
    assert [step.rows for step in read(*lines)] == [2, 2]
    assert [step.rows for step in read(*lines, rank=1)] == [3, 3]
    with pytest.raises(TraceError, match=r"rank 7 must have iterations in the log, got 'ranks 0, 1'; choose one"):
        read(*lines, rank=7)


@pytest.mark.parametrize(
    ("generations", "tokens", "rows", "draft_len"),
    [
        (3, 3, 3, 0),
        (3, 4, 3, 0),  # padded to the bucket of four
        (3, 12, 12, 3),  # three drafts each; also a padded batch with two
        (3, 20, 15, 4),  # padded to four, with four drafts each
        (5, 8, 5, 0),
        (9, 9, 9, 0),  # above the largest bucket
        (3, 7, 7, 0),  # drafts of unequal length
    ],
)
def test_padding_and_drafts_are_told_apart_by_the_buckets(generations, tokens, rows, draft_len):
    (step,) = read(line(1, generations, states(0, 0, tokens)))
    assert (step.rows, step.draft_len, step.requests) == (rows, draft_len, generations)


@given(st.integers(1, 12), st.integers(0, 6))
def test_a_batch_that_was_padded_to_its_bucket_comes_back_with_its_own_rows(generations, more):
    bucket = round_up_to_bucket(generations, BUCKETS) or generations
    (step,) = read(line(1, generations, states(0, 0, bucket)))
    assert (step.rows, step.draft_len) == (generations, 0)
    (step,) = read(line(1, generations, states(0, 0, generations + more)))
    assert generations <= step.rows <= generations + more
    assert step.rows == generations * (1 + step.draft_len) or step.draft_len == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (line(4, "many", states(0, 0, 2)), "num_scheduled_requests must be a number"),
        (line(4, 2, "{}"), "states must be {...} with num_ctx_requests, num_ctx_tokens, num_generation_tokens"),
        (line(4, 2, "unknown"), "got 'none'; num_ctx_requests is missing or too large"),
        (line(4, 2, states(3, 30, 0)), "of 2 scheduled requests, num_ctx_requests must be at most all"),
        (line(4, 2, states(2, 1, 0)), "got (2, 1, 0)"),
        (line(4, 3, states(1, 10, 1)), "got (1, 10, 1)"),
        (line(3, 2, states(0, 0, 2)), "iter must grow, and the one before was 3, got 3; cut the file where"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_what_was_required_and_what_was_got(text, words):
    with pytest.raises(TraceError, match=re.escape(words)) as caught:
        read(line(3, 2, states(0, 0, 2)), "something else", text)
    assert str(caught.value).startswith("server.log, line 3: ")


def test_only_the_first_iterations_are_taken_when_so_asked():
    assert len(read(*[line(at, 2, states(0, 0, 2)) for at in range(9)], limit=4)) == 4
