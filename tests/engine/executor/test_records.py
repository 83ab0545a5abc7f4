"""The records that leave the loop are values."""

import dataclasses

import pytest

from engine.executor.records import PendingSamples, SampledTokens, StepCommit


def test_records_are_frozen():
    sampled = SampledTokens(((0, 5),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampled.token_ids = ()
    assert (sampled.logprobs, sampled.num_accepted) == ((), ())
    commit = StepCommit((), (), (), (), (), 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        commit.num_free_blocks = 0


def test_samples_to_come_cannot_be_made_without_a_way_to_read_them():
    with pytest.raises(TypeError, match="abstract"):
        PendingSamples()
