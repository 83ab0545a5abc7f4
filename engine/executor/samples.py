"""Samples on their way to the host: one asynchronous copy a step behind the forward, and an event to wait for.

The copy is handed over together with the forward, so a step that is laid out before these samples are read cannot
overwrite them. Its target is one of a ring of pinned mirrors, as many as steps may be open, plus one. Log-probabilities
are computed behind the forward too, into memory of their own: the next replay reuses the logits'.

Does not: sample (``sampling/``), or decide when a request ends. Source: TensorRT-LLM's asynchronous sample state.
"""

import abc
import dataclasses
from typing import Final

import numpy as np
import torch

from engine.device import DeviceSpec, Event, Stream, pinned_empty
from engine.executor.live import LogProbs
from engine.executor.records import PendingSamples
from engine.inputs.records import SampleStateTensors
from engine.llm_request import LlmRequest
from engine.ops.send_to_host import send_to_host_
from engine.runners.interface import ForwardOutputs
from engine.sampling.sampler import SamplerState, TokenLogProbs, log_probs
from engine.sampling.seeds import request_seed
from engine.scheduled import ScheduledRequests, Span

OPEN_STEPS: Final = 2  # whose samples may be on their way at once


@dataclasses.dataclass(slots=True)
class _LogProbRows:
    """Requests of a step that asked for log-probabilities, and what the device computed for them."""

    wanted: list[tuple[int, Span]]  # (logit row, span)
    computed: list[TokenLogProbs] = dataclasses.field(default_factory=list[TokenLogProbs])

    def read(self) -> tuple[tuple[int, LogProbs], ...]:
        rows = zip(self.wanted, self.computed, strict=True)
        return tuple([(span.request_id, one) for (_, span), values in rows for one in values.as_dicts()])


class SampleSource(abc.ABC):
    """Where the loop's samples come from. previous: what the next step may gather on the device, None if nothing."""

    previous: SampleStateTensors | None = None

    @abc.abstractmethod
    def set_slot(self, request: LlmRequest) -> None:
        """Give a request's slot its sampling parameters; what it generated before counts as seen."""

    @abc.abstractmethod
    def follow(self, scheduled: ScheduledRequests, outputs: ForwardOutputs) -> PendingSamples:
        """Hand over the copy of the samples of a forward that was just handed over."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Block until the device has done everything."""


class _DeviceSamples(PendingSamples):
    """Mirrors of one step, valid once its event has passed."""

    def __init__(self, mirror: np.ndarray, event: Event, logprob_rows: _LogProbRows | None) -> None:
        self._tokens, self._accepted = mirror[:-1], mirror[-1]
        self._event, self._logprob_rows = event, logprob_rows

    def read(self) -> np.ndarray:
        self._event.wait()
        return self._tokens

    def num_accepted(self) -> np.ndarray:
        return self._accepted

    def logprobs(self) -> tuple[tuple[int, LogProbs], ...]:
        return () if self._logprob_rows is None else self._logprob_rows.read()


class DeviceSampleSource(SampleSource):
    """Samples of the real model, in the sampler's persistent tensors."""

    def __init__(self, sampler: SamplerState, stream: Stream, spec: DeviceSpec, *, engine_seed: int) -> None:
        """Allocate the mirrors."""
        self._sampler, self.stream, self._engine_seed = sampler, stream, engine_seed
        self.previous = SampleStateTensors(
            sampler.new_tokens, sampler.num_accepted, sampler.guesses, sampler.guess_starts
        )
        rows, slots = sampler.new_tokens.shape[0], sampler.num_slots
        self._mirrors = [pinned_empty((rows + 1, slots), torch.int32, spec) for _ in range(OPEN_STEPS + 1)]
        self._arrays = [mirror.numpy() for mirror in self._mirrors]
        self._at = 0
        self._without_logprobs: tuple[LlmRequest, ...] = ()  # a repeating batch is looked through once

    def set_slot(self, request: LlmRequest) -> None:
        """Overwrite the slot's row, through the stream."""
        assert request.py_seq_slot is not None, f"request {request.request_id} has no slot"
        params = request.spec.params
        seed = request_seed(params.seed, engine_seed=self._engine_seed, request_id=request.request_id)
        seen = request.tokens if params.repetition_penalty != 1.0 else ()
        self._sampler.set_slot(
            request.py_seq_slot,
            params,
            seed=seed,
            prompt_token_ids=seen,
            stream=self.stream,
            draft_tokens=request.spec.draft_tokens,
            prompt_len=request.py_orig_prompt_len,
        )

    def follow(self, scheduled: ScheduledRequests, outputs: ForwardOutputs) -> PendingSamples:
        """Copy new_tokens to the next mirror; compute log-probabilities where they were asked for."""
        self._at = (self._at + 1) % len(self._mirrors)
        mirror, array, sampler = self._mirrors[self._at], self._arrays[self._at], self._sampler
        num_rows = 1 + scheduled.draft_len
        self._send(mirror[:num_rows], sampler.new_tokens[:num_rows, :, 0])
        if scheduled.draft_len:
            self._send(mirror[-1], sampler.num_accepted)
        rows = self._follow_logprobs(scheduled, outputs)
        return _DeviceSamples(array, self.stream.record(), rows)

    def _send(self, mirror: torch.Tensor, numbers: torch.Tensor) -> None:
        self.stream.launch(lambda: send_to_host_(mirror, numbers))

    def _follow_logprobs(self, scheduled: ScheduledRequests, outputs: ForwardOutputs) -> _LogProbRows | None:
        requests = scheduled.sampled_requests
        wanted = [] if requests is self._without_logprobs else _wanted_logprobs(scheduled)
        if not wanted:
            self._without_logprobs = requests
            return None
        found, tokens = _LogProbRows(wanted), self._sampler.new_tokens

        def compute() -> None:
            logits = outputs.logits.tensor
            for row, span in found.wanted:
                num_rows, top_n = span.num_logit_rows, span.request.spec.params.logprobs or 0
                chosen = tokens[:num_rows, span.request.py_seq_slot, 0]
                found.computed.append(log_probs(logits[row : row + num_rows], chosen, top_n))

        self.stream.launch(compute)
        return found

    def synchronize(self) -> None:
        """Wait for the stream."""
        self.stream.synchronize()


def _wanted_logprobs(scheduled: ScheduledRequests) -> list[tuple[int, Span]]:
    wanted: list[tuple[int, Span]] = []
    row = 0
    for span in scheduled.spans:
        if span.num_logit_rows and span.request.spec.params.logprobs is not None:
            wanted.append((row, span))
        row += span.num_logit_rows
    return wanted
