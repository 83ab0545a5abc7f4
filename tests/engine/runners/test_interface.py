"""Logits that the device has not computed cannot be read by accident, and a warm engine is not warmed up again."""

import pytest
import torch

from engine.errors import CaptureRefusedError
from engine.runners.interface import PendingLogits, require_cold


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


def test_a_second_warm_up_is_refused_in_words():
    require_cold(is_warm=False)
    with pytest.raises(CaptureRefusedError) as refused:
        require_cold(is_warm=True)
    assert str(refused.value) == (
        "warm-up runs once, and this engine's graphs serve already; for other graphs make a new LLM"
    )
