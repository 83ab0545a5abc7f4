"""NullEngine: the engine's own executor over a runner that computes nothing, with no model and no KV tensors.

Scheduler, ledger, slots, end conditions and the step loop are those that serve a model; runner and samples are given
by constructor argument. So what the executor does here is what it does there, decision for decision. Copies of blocks
are counted and not run: there are no tensors.

Does not: copy the executor's logic, or know traces and virtual time (``serve.py``).
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from engine.config import EngineConfig, SamplingParams
from engine.cuda_graphs.buckets import resolve_batch_sizes
from engine.executor.live import LogProbs
from engine.executor.samples import PendingSamples, SampleSource
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.llm import make_schedulers
from engine.llm_request import LlmRequest, RequestSpec
from engine.model_engine import PyTorchModelEngine
from engine.probe import Probe
from engine.py_executor import ExecutorParts, PyExecutor
from engine.resources import BlockCopy, ResourceManager
from engine.runners.interface import ForwardOutputs
from engine.runners.null import NullRunner, NullRunnerConfig
from engine.sampling.stopping import StopChecker
from engine.scheduled import ScheduledRequests

VOCAB_SIZE = 1 << 20  # sampled ids are below it; ids of prompts that nobody samples may lie above


class _NoText:
    """A detokenizer for tokens that mean nothing."""

    def push(self, token_id: int) -> str:
        return ""

    def push_all(self, token_ids: Sequence[int]) -> str:
        return ""

    def finish(self) -> str:
        return ""


_NO_TEXT = _NoText()


class _NullPending(PendingSamples):
    """Samples that were never on a device."""

    def __init__(self, tokens: np.ndarray, accepted: np.ndarray) -> None:
        self._tokens, self._accepted = tokens, accepted

    def read(self) -> np.ndarray:
        return self._tokens

    def num_accepted(self) -> np.ndarray:
        return self._accepted

    def logprobs(self) -> tuple[tuple[int, LogProbs], ...]:
        return ()


class NullSamples(SampleSource):
    """One token for each slot: a number of the request that holds it, so that no two requests say the same.

    Drafts are accepted as a model would: those that come before the first other token.
    """

    def __init__(self, num_slots: int) -> None:
        """Start with zeros."""
        self._tokens = np.zeros((1, num_slots), dtype=np.int32)

    def set_slot(self, request: LlmRequest) -> None:
        """Put the request's number into its slot."""
        assert request.py_seq_slot is not None, f"request {request.request_id} has no slot"
        self._tokens[0, request.py_seq_slot] = request.request_id % VOCAB_SIZE

    def follow(self, scheduled: ScheduledRequests, outputs: ForwardOutputs) -> PendingSamples:
        """Copy what the slots hold now: the next step may give a slot to another request."""
        accepted = np.zeros(self._tokens.shape[1], dtype=np.int32)
        if scheduled.draft_len:
            for span in scheduled.generation_requests:
                own = span.request_id % VOCAB_SIZE
                right = itertools.takewhile(lambda draft, own=own: draft == own, span.draft_tokens)
                accepted[span.request.py_seq_slot] = len(list(right))
        return _NullPending(np.repeat(self._tokens, 1 + scheduled.draft_len, axis=0), accepted)

    def synchronize(self) -> None:
        """Return at once: there is no device."""


@dataclasses.dataclass(slots=True)
class CopyCount:
    """Counts the block copies that a model's engine would run."""

    num_copies: int = 0

    def run(self, copies: tuple[BlockCopy, ...]) -> None:
        """Count them."""
        self.num_copies += len(copies)


@dataclasses.dataclass(frozen=True, slots=True)
class NullEngine:
    """An executor and the managers under it. num_dummy_blocks: held by the padding dummy for good."""

    config: EngineConfig
    executor: PyExecutor
    model_engine: PyTorchModelEngine
    resources: ResourceManager
    buckets: tuple[int, ...]
    num_dummy_blocks: int
    copies: CopyCount

    @property
    def num_leaked_blocks(self) -> int:
        """Blocks that nobody can use, of an engine that has nothing left to do."""
        kv_cache = self.resources.kv_cache
        return kv_cache.num_blocks - self.num_dummy_blocks - kv_cache.num_free_blocks

    def observe(self, probe: Probe | None) -> None:
        """Show a probe what the runner decides; the loop itself goes on unobserved, in its fastest way."""
        self.model_engine.set_probe(probe)

    def submit(self, spec: RequestSpec) -> None:
        """Enqueue a request whose lengths the caller has checked against the configuration. Ids must ascend."""
        checker = StopChecker(
            spec.params,
            prompt_len=len(spec.prompt_token_ids),
            max_seq_len=self.config.max_seq_len,
            eos_token_ids=(),
            detokenizer=_NO_TEXT,
        )
        self.executor.submit(LlmRequest(spec), checker)


def build_null_engine(config: EngineConfig) -> NullEngine:
    """Wire an executor as ``llm.py`` does, the pool one block larger for the padding dummy. Needs num_blocks."""
    limits, kv = config.scheduler, config.kv_cache
    assert kv.num_blocks is not None, "a pool without tensors has no memory to size it by"
    graphs, num_slots = config.cuda_graph, limits.max_batch_size + 1
    buckets = resolve_batch_sizes(graphs, max_batch_size=limits.max_batch_size, max_num_tokens=limits.max_num_tokens)
    resources = ResourceManager(
        KVCacheManager(
            num_blocks=kv.num_blocks + 1,
            tokens_per_block=kv.tokens_per_block,
            max_seq_len=config.max_seq_len,
            host_blocks=kv.host_blocks,
            enable_block_reuse=kv.enable_block_reuse,
            enable_partial_reuse=kv.enable_partial_reuse,
        ),
        SeqSlotManager(num_slots),
    )
    runner = NullRunner(
        NullRunnerConfig(
            max_batch_size=limits.max_batch_size,
            buckets=buckets,
            prefill_buckets=graphs.prefill_num_tokens if graphs.enabled else (),
            padding_enabled=graphs.enable_padding,
        )
    )
    model_engine = PyTorchModelEngine(runner, max_num_sequences=limits.max_batch_size)
    model_engine.warmup(resources)
    copies = CopyCount()
    parts = ExecutorParts(
        model_engine=model_engine,
        resources=resources,
        schedulers=make_schedulers(config),
        samples=NullSamples(num_slots),
        run_copies=copies.run,
        eos_token_ids=(),
        vocab_size=VOCAB_SIZE,
        overlap=config.overlap,
    )
    num_held = resources.kv_cache.num_blocks - resources.kv_cache.num_free_blocks
    return NullEngine(config, PyExecutor(parts), model_engine, resources, buckets, num_held, copies)


def length_params(num_tokens: int) -> SamplingParams:
    """Sample so many tokens, whatever they are."""
    return SamplingParams(max_tokens=num_tokens, ignore_eos=True)
