"""The gated half of a feed-forward block: what it computes, and its shape without computing."""

import torch
from torch.nn import functional

from engine.ops.norm_gate_up import norm_gate_up


def test_gates_come_first_and_the_norm_is_optional():
    x, gate_up, norm = torch.randn(3, 6), torch.randn(8, 6), torch.randn(6)
    for gain in (None, norm):
        y = x if gain is None else functional.rms_norm(x, (6,), gain, 1e-5)
        expected = functional.silu(y @ gate_up[:4].T) * (y @ gate_up[4:].T)
        torch.testing.assert_close(norm_gate_up(x, gate_up, norm=gain, eps=1e-5), expected)


def test_the_shape_is_known_without_computing():
    fake = norm_gate_up(torch.empty(5, 8, device="meta"), torch.empty(12, 8, device="meta"))
    assert fake.shape == (5, 6)
