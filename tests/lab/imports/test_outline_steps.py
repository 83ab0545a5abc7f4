import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TraceError
from lab.coherence import require_coherent
from lab.imports.logged import LoggedStep
from lab.imports.outline_steps import Limits, make_snapshot
from lab.outline import IMPORTED, is_outline
from lab.snapshot import STAGES, UNKNOWN, equal
from lab.store import StoredSteps, encode_steps

LIMITS = Limits(buckets=(1, 2, 4, 8))


def logged(rows, **changes):
    return LoggedStep(step=5, rows=rows, **{"requests": rows, "num_contexts": 0, "context_rows": 0, **changes})


def test_a_decode_batch_is_padded_to_its_bucket_by_the_engine_s_own_rule():
    step = make_snapshot(logged(3), LIMITS)
    assert (step.mode, step.graph.path, step.path.key, step.path.bucket) == (
        IMPORTED,
        "replay",
        "(batch 4, draft 0)",
        4,
    )
    assert (step.num_rows, step.num_padding_rows, step.path.num_padding) == (4, 1, 1)
    assert all(condition.passed for condition in step.path.conditions)
    assert not step.graph.simulated


@pytest.mark.parametrize(
    ("step", "limits", "reason"),
    [
        (logged(9), LIMITS, "ABOVE_LARGEST_BUCKET"),
        (logged(3), Limits(buckets=(1, 2, 4), padding=False), "NO_EXACT_BUCKET_PADDING_OFF"),
        (logged(3), Limits(buckets=()), "GRAPHS_DISABLED"),
        (logged(30, requests=3, num_contexts=1, context_rows=28), LIMITS, "HAS_CONTEXT_UNPROMOTED"),
        (
            logged(30, requests=3, num_contexts=1, context_rows=28),
            Limits(buckets=(1, 2), prefill_buckets=(16,)),
            "ABOVE_LARGEST_PREFILL_BUCKET",
        ),
    ],
)
def test_a_step_off_the_graph_path_has_the_reason_and_its_checklist(step, limits, reason):
    found = make_snapshot(step, limits)
    assert (found.graph.path, found.path.reason, found.path.key) == ("eager", reason, None)
    assert next(line.reason for line in found.path.conditions if line.passed is False) == reason
    assert found.num_padding_rows == 0


def test_a_condition_that_nobody_can_know_is_not_in_the_checklist():
    reasons = {line.reason for line in make_snapshot(logged(3), LIMITS).path.conditions}
    assert not reasons & {"WARMUP", "NO_DUMMY_SLOT", "SAMPLER_MODE_NOT_CAPTURED", "CAPTURE_NOT_ALLOWED_NOW"}


def test_prompts_take_a_prefill_graph_where_one_was_named():
    step = logged(30, requests=3, num_contexts=1, context_rows=28)
    found = make_snapshot(step, Limits(buckets=(1, 2, 4), prefill_buckets=(32, 64)))
    assert (found.graph.path, found.graph.key) == ("prefill_replay", "(32 rows)")
    assert (found.num_rows, found.num_padding_rows) == (32, 2)


def test_drafts_are_rows_of_their_requests():
    found = make_snapshot(logged(12, requests=3, draft_len=3), LIMITS)
    assert (found.path.key, found.num_rows, found.num_padding_rows) == ("(batch 4, draft 3)", 16, 4)
    assert [span.kind for span in found.schedule.spans] == ["E"] * 3


def test_a_logged_path_is_taken_as_it_is():
    replay = make_snapshot(LoggedStep(step=1, rows=3, requests=3, num_contexts=0, path="replay", padded=4), Limits())
    assert (replay.graph.path, replay.path.bucket, replay.path.num_padding, replay.num_rows) == ("replay", 4, 1, 4)
    pieces = make_snapshot(LoggedStep(step=1, rows=6, path="prefill_replay", padded=8), Limits())
    assert (pieces.graph.key, pieces.num_padding_rows, pieces.path.num_requests) == ("(8 rows)", 2, UNKNOWN)
    eager = make_snapshot(LoggedStep(step=1, rows=9, path="eager", reason="ABOVE_LARGEST_PREFILL_BUCKET"), LIMITS)
    assert eager.path.conditions[0].needed == "at most 8 rows"
    assert make_snapshot(LoggedStep(step=1, rows=9, path="eager"), Limits()).path.conditions == ()


def test_the_time_of_a_step_stands_at_run_and_nowhere_else():
    times = make_snapshot(logged(3, host_us=1500.0), LIMITS).host_us
    assert times[STAGES.index("RAN")] == 1500.0
    assert np.isnan(times).sum() == len(STAGES) - 1
    assert np.isnan(make_snapshot(logged(3), LIMITS).host_us).all()


def test_a_step_with_nothing_to_run_has_no_spans():
    step = make_snapshot(logged(0), LIMITS)
    assert step.schedule.spans == ()
    assert not is_outline(step)


@pytest.mark.parametrize(
    ("step", "limits", "words"),
    [
        (
            logged(3),
            Limits(),
            "how step 5 ran must be in the file, or follow from the engine's bucket list, got neither",
        ),
        (LoggedStep(step=5, rows=3), LIMITS, "only where the file counts requests and contexts, got no such numbers"),
    ],
)
def test_a_path_that_is_neither_told_nor_follows_is_refused(step, limits, words):
    with pytest.raises(TraceError, match=re.escape(words)):
        make_snapshot(step, limits)


STEPS = st.builds(
    lambda contexts, generations, draft_len, per_context, path: LoggedStep(
        step=0,
        rows=contexts * per_context + generations * (1 + draft_len),
        requests=contexts + generations,
        num_contexts=contexts,
        context_rows=contexts * per_context,
        draft_len=draft_len if generations else 0,
        path=path,
    ),
    st.integers(0, 4),
    st.integers(0, 12),
    st.integers(0, 3),
    st.integers(1, 50),
    st.sampled_from([None, None, "eager", "replay", "prefill_replay"]),
)


@given(STEPS)
def test_every_outline_is_a_step_that_can_be_stored_and_keeps_the_logged_sums(step):
    found = make_snapshot(step, LIMITS)
    require_coherent(found)
    assert sum(span.num_rows for span in found.schedule.spans) == found.schedule.budget.num_tokens == step.rows
    assert len(found.schedule.spans) == step.requests
    assert is_outline(found) == (step.rows > 0)
    assert found.num_rows - found.num_padding_rows == step.rows
    assert equal(StoredSteps(encode_steps([found]))[0], found)
