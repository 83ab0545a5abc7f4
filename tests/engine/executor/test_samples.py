"""Samples arrive as they were when their step ran, however late they are read."""

import pytest
import torch

from engine.config import SamplingParams
from engine.device import LaggedStream, resolve_device
from engine.executor.samples import OPEN_STEPS, DeviceSampleSource
from engine.runners.interface import ForwardOutputs, PendingLogits
from engine.sampling.sampler import SamplerState
from engine.scheduled import BudgetUse, ScheduledRequests, generation_span
from tests.engine.live_requests import running

SPEC = resolve_device("cpu", "float32")


def scheduled_of(*requests):
    spans = tuple(generation_span(request) for request in requests)
    return ScheduledRequests((), spans, (), (), BudgetUse(len(spans), 9, len(spans), 9))


@pytest.fixture
def source():
    stream = LaggedStream(1000)
    sampler = SamplerState.allocate(3, 8, SPEC)
    return DeviceSampleSource(sampler, stream, SPEC, engine_seed=0), sampler, stream


def test_a_step_that_was_launched_behind_does_not_reach_samples_that_are_unread(source):
    samples, sampler, stream = source
    pending = []
    for token in range(OPEN_STEPS):
        stream.launch(lambda token=token: sampler.new_tokens.fill_(token + 1))
        pending.append(samples.follow(scheduled_of(running(0)), ForwardOutputs(PendingLogits(), None)))
    assert [int(step.read()[0, 0]) for step in pending] == [1, 2]


def test_log_probabilities_are_computed_behind_their_own_forward(source):
    samples, sampler, stream = source
    request = running(1)
    object.__setattr__(request.spec, "params", SamplingParams(max_tokens=9, logprobs=2))
    request.py_seq_slot = 1
    logits = torch.zeros(2, 8)
    logits[1, 5] = 3.0
    outputs = ForwardOutputs(PendingLogits(), None)
    stream.launch(lambda: (outputs.logits.set(logits), sampler.new_tokens[0].fill_(5)))
    other = running(0)
    other.py_seq_slot = 0
    pending = samples.follow(scheduled_of(other, request), outputs)
    stream.launch(lambda: logits.fill_(0.0))  # a later replay reuses the memory
    pending.read()
    [(request_id, values)] = pending.logprobs()
    assert request_id == 1
    assert values[5] == pytest.approx(float(torch.tensor([0.0] * 5 + [3.0] + [0.0] * 2).log_softmax(0)[5]))
    assert len(values) == 2


def test_a_slot_without_its_request_is_a_bug(source):
    samples, _sampler, _stream = source
    with pytest.raises(AssertionError, match="has no slot"):
        samples.set_slot(running(0))
