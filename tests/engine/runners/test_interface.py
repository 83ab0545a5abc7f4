"""Logits that the device has not computed cannot be read by accident."""

import pytest
import torch

from engine.runners.interface import PendingLogits


def test_logits_can_be_read_after_the_forward_ran():
    pending = PendingLogits()
    with pytest.raises(AssertionError, match="before the forward ran"):
        _ = pending.tensor
    logits = torch.ones(2, 3)
    pending.set(logits)
    assert pending.tensor is logits


def test_a_step_without_logit_rows_has_none():
    pending = PendingLogits()
    pending.set(None)
    with pytest.raises(AssertionError, match="without logit rows"):
        _ = pending.tensor
