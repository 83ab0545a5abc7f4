"""Where two recorded runs part: alignment, aspects, and what is no difference."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.diff import ASPECTS, Side, aligned, differences, differing_rows
from lab.snapshot import UNKNOWN
from tests.lab.sample_steps import decode_step, eager_step

NAMES = {at: f"r{at}" for at in range(8)}


def side(steps, start=0, names=NAMES):
    return Side(steps, start, names)


def run(count=5):
    return [eager_step(0), *(decode_step(at, batch=2) for at in range(1, count))]


def found(left, right):
    return list(differences(side(left), side(right)))


def changed(step, **parts):
    return dataclasses.replace(
        step, **{name: dataclasses.replace(getattr(step, name), **values) for name, values in parts.items()}
    )


def test_a_run_does_not_differ_from_itself():
    assert found(run(), run()) == []


def test_times_addresses_blocks_and_slots_are_no_difference():
    other = [
        dataclasses.replace(
            changed(
                step,
                metadata={"object_id": 7, "block_tables": (), "seq_slots": step.metadata.seq_slots + 3},
                reservation={"new_blocks": (), "slots": ()},
            ),
            host_us=step.host_us * 2,
            buffers=(),
        )
        for step in run()
    ]
    assert found(run(), other) == []


@pytest.mark.parametrize(
    ("aspect", "parts"),
    [
        ("spans", {"schedule": {"spans": ()}}),
        ("paused", {"schedule": {"paused": (1,)}}),
        ("waits", {"schedule": {"deferrals": eager_step(0).schedule.deferrals + decode_step(7).schedule.deferrals}}),
        ("cached", {"reservation": {"credits": ((0, 16),)}}),
        ("path", {"graph": {"path": "eager"}}),
        ("reason", {"path": {"reason": "WARMUP"}}),
        ("bucket", {"path": {"bucket": 64}}),
        ("key", {"path": {"key": "another"}}),
        ("steady", {"graph": {"steady": ""}}),
        ("sampled", {"outcome": {"tokens": ((0, 1), (1, 2))}}),
        ("finished", {"outcome": {"finished": ((0, "stop"),)}}),
    ],
)
def test_each_aspect_is_the_first_difference_where_it_alone_differs(aspect, parts):
    left, right = run(), run()
    right[3] = changed(right[3], **parts)
    (only,) = found(left, right)
    assert (only.at, only.aspect, only.indices) == (3, aspect, (3, 3))
    assert only.left != only.right


def test_a_token_of_a_row_is_named_with_its_request_and_position():
    left, right = run(), run()
    tokens = right[2].rows.token_ids.copy()
    tokens[1] += 1
    right[2] = changed(right[2], rows={"token_ids": tokens})
    (only,) = found(left, right)
    assert only.aspect == "rows"
    assert only.left.startswith("r1 G 42 ")
    assert differing_rows(side(right), 2, side(left), 2) == [(1, int(left[2].rows.token_ids[1]))]


def test_a_token_that_one_side_does_not_know_differs_from_nothing():
    left = run()
    right = [changed(step, rows={"token_ids": np.full_like(step.rows.token_ids, UNKNOWN)}) for step in left]
    assert found(left, right) == []
    assert differing_rows(side(right), 2, side(left), 2) == []


def test_a_row_that_the_other_run_does_not_have_is_marked_without_a_token():
    assert differing_rows(side([decode_step(1, batch=3)]), 0, side([decode_step(1, batch=2)]), 0)[-1] == (2, None)


def test_a_step_that_one_run_does_not_have_is_a_difference():
    (only,) = found(run(4), run(5))
    assert (only.aspect, only.left, only.right, only.indices) == ("missing", "–", "4", (None, 4))
    assert only.aspect in ASPECTS


def test_a_second_run_of_an_engine_compares_with_its_first():
    first = run()
    moved = {"r": 10}
    second = [
        dataclasses.replace(
            changed(
                step,
                schedule={
                    "spans": tuple(dataclasses.replace(s, request_id=s.request_id + 10) for s in step.schedule.spans)
                },
                rows={"request_ids": step.rows.request_ids + moved["r"]},
                outcome={
                    "tokens": tuple((rid + 10, token) for rid, token in step.outcome.tokens),
                    "finished": tuple((rid + 10, reason) for rid, reason in step.outcome.finished),
                },
            ),
            step=step.step + 20,
        )
        for step in first
    ]
    names = {at + 10: f"r{at}" for at in range(8)}
    assert list(differences(side(first), side(second, 20, names))) == []


@given(st.sets(st.integers(0, 12), min_size=1), st.sets(st.integers(0, 12), min_size=1), st.integers(0, 5))
def test_alignment_finds_the_same_step_whatever_is_missing(left, right, start):
    here = [decode_step(at, batch=1) for at in sorted(left)]
    there = [decode_step(at + start, batch=1) for at in sorted(right)]
    for at, step in enumerate(sorted(left)):
        index = aligned(side(here), side(there, start), at)
        assert index == (sorted(right).index(step) if step in right else None)
