"""The two tests of the steady path: each condition alone blocks, and when all hold nothing does."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.inputs.steady import (
    RecordingFacts,
    SteadyRecord,
    SteadyRefusal,
    SteadyRows,
    UseFacts,
    why_not_record,
    why_not_use,
)
from engine.llm_request import LlmRequest, RequestSpec

GOOD = RecordingFacts(
    is_warmup=False,
    num_contexts=0,
    num_extends=0,
    num_generations=3,
    num_padding=0,
    num_host_tokens=0,
    num_previous_samples=3,
    num_rows=3,
)
REQUESTS = tuple(LlmRequest(RequestSpec(request_id, (1,), SamplingParams())) for request_id in range(6))
TWIN = LlmRequest(RequestSpec(0, (1,), SamplingParams()))
RECORD = SteadyRecord(REQUESTS[:3], table_version=12)
SAME = UseFacts(
    is_warmup=False, has_previous_sample=True, num_contexts=0, requests=REQUESTS[:3], changed=frozenset({4, 100})
)


def test_a_step_of_previous_samples_alone_leaves_a_record():
    assert why_not_record(GOOD) is None


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"is_warmup": True}, SteadyRefusal.IS_WARMUP),
        ({"num_contexts": 1}, SteadyRefusal.HAS_CONTEXTS),
        ({"num_extends": 1}, SteadyRefusal.HAS_EXTENDS),
        ({"num_generations": 0}, SteadyRefusal.NO_GENERATIONS),
        ({"num_padding": 1}, SteadyRefusal.HAS_PADDING),
        ({"num_host_tokens": 1}, SteadyRefusal.HAS_HOST_TOKENS),
        ({"num_previous_samples": 2}, SteadyRefusal.ROWS_WITHOUT_PREVIOUS_SAMPLE),
        ({"draft_len": 2}, SteadyRefusal.HAS_DRAFTS),
        ({"beam_width": 2}, SteadyRefusal.SEVERAL_BEAMS),
        ({"is_token_padded": True}, SteadyRefusal.TOKENS_PADDED),
        ({"model_adds_inputs": True}, SteadyRefusal.MODEL_ADDS_INPUTS),
    ],
)
def test_each_condition_of_the_recording_test_blocks_alone(change, refusal):
    assert why_not_record(dataclasses.replace(GOOD, **change)) is refusal


def test_the_same_requests_in_the_same_order_may_use_the_record():
    assert why_not_use(RECORD, SAME) is None


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"is_warmup": True}, SteadyRefusal.IS_WARMUP),
        ({"has_previous_sample": False}, SteadyRefusal.NO_PREVIOUS_SAMPLE),
        ({"num_contexts": 1}, SteadyRefusal.HAS_CONTEXTS),
        ({"draft_len": 3}, SteadyRefusal.HAS_DRAFTS),
        ({"requests": REQUESTS[:2]}, SteadyRefusal.OTHER_NUMBER_OF_REQUESTS),
        ({"requests": (REQUESTS[1], REQUESTS[0], REQUESTS[2])}, SteadyRefusal.OTHER_REQUESTS),
        ({"requests": REQUESTS[:2] + REQUESTS[3:4]}, SteadyRefusal.OTHER_REQUESTS),
        ({"requests": (TWIN, *REQUESTS[1:3])}, SteadyRefusal.OTHER_REQUESTS),
        ({"changed": None}, SteadyRefusal.TABLES_UNKNOWN),
    ],
)
def test_each_condition_of_the_use_test_blocks_alone(change, refusal):
    assert why_not_use(RECORD, dataclasses.replace(SAME, **change)) is refusal


def test_without_a_record_nothing_is_derived():
    assert why_not_use(None, SAME) is SteadyRefusal.NOTHING_RECORDED


def test_every_refusal_is_one_of_the_conditions_above():
    named = {
        mark.args[1][i][1]
        for test in (
            test_each_condition_of_the_recording_test_blocks_alone,
            test_each_condition_of_the_use_test_blocks_alone,
        )
        for mark in test.pytestmark
        for i in range(len(mark.args[1]))
    }
    assert named | {SteadyRefusal.NOTHING_RECORDED} == set(SteadyRefusal)


ids = st.lists(st.sampled_from(REQUESTS), unique=True, max_size=4).map(tuple)


@given(recorded=ids, given_ids=ids, num_contexts=st.integers(0, 2), is_warmup=st.booleans(), has_sample=st.booleans())
def test_use_is_allowed_exactly_for_an_equal_pure_decode_step(recorded, given_ids, num_contexts, is_warmup, has_sample):
    facts = UseFacts(is_warmup, has_sample, num_contexts, given_ids, frozenset())
    allowed = why_not_use(SteadyRecord(recorded, 0), facts) is None
    assert allowed == (recorded == given_ids and not num_contexts and not is_warmup and has_sample)


def test_a_steady_step_has_a_row_for_each_request():
    assert SteadyRows(REQUESTS[3:5], (1,), ((2, 4),)).num_rows == 2
    assert SteadyRows(REQUESTS[3:5]).request_ids == (3, 4)
