"""DecoderRunner: one scheduled batch through pad, choose, pack, copy, metadata, run.

Each stage is one call that turns one frozen record into the next; the decisions are the pure functions of
``decisions.py``. A graph miss returns to the *unpadded* batch, nobody promoted, and the base metadata. Sampling is part
of what runs (and of what is captured), so a step leaves its tokens in the persistent new_tokens. Three ways lead to
prepared inputs: the model's own packing, the steady path (derived on the device from the step before), and the full
path. A step with contexts may run its layers as a prefill chain; its logits and samples are eager then.

Does not: schedule, commit, allocate in the decode path, or read the device.
Source: TensorRT-LLM's decoder runner, one beam, drafts given by the caller.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Final

from engine.attention.interface import AttentionMetadata
from engine.cuda_graphs.dummies import PaddingDummies
from engine.cuda_graphs.key import KeyType, SampleMode
from engine.cuda_graphs.prefill import PrefillGraphs, prefill_key
from engine.cuda_graphs.runner import CUDAGraphRunner
from engine.cuda_graphs.select import BodyFacts
from engine.decisions import Decisions
from engine.device import Stream, nvtx_range
from engine.inputs.host_inputs import HostInputs
from engine.inputs.optional_inputs import OptionalInputs
from engine.inputs.prepare import DecoderInputPreparer, attention_step
from engine.inputs.records import PreparedInputs, ReplayCheck, RunEvent, ScheduledInputs
from engine.inputs.steady import SteadyRows
from engine.kv_cache.manager import KVCacheManager
from engine.models.llama import CausalLM
from engine.probe import Probe, Stage
from engine.reasons import PathKind
from engine.resources import ResourceManager
from engine.runners.body_warmup import capture_chains, compile_body
from engine.runners.graph_questions import choose_graph, graph_facts, plan_padding
from engine.runners.interface import (
    ForwardOutputs,
    PendingLogits,
    ScheduledModelRunner,
    WarmupReport,
    require_cold,
)
from engine.runners.model_forward import ModelForward
from engine.runners.steady_path import SteadyPath, SteadyUse, StepPlan, recording_facts
from engine.sampling.sampler import SamplerState
from engine.scheduled import PaddedBatch, ScheduledRequests

# What a model may offer: a step's values of its optional inputs; its own way to pack a step, or None for this step.
MODEL_HOOKS: Final = ("prepare_request_inputs", "prepare_inputs_fast_path")


@dataclasses.dataclass(frozen=True, slots=True)
class DecoderRunnerConfig:
    """The runner's share of the engine's configuration. buckets: captured batch sizes, ascending.

    draft_buckets: the same for every draft length with graphs, 0 included; empty when ``buckets`` are all there are.
    is_body_recorded: False where the graph backend cannot record a compiled body; then nothing is captured.
    compiled_rows: rows for which warm-up compiles the body, if it is to be compiled.
    """

    max_batch_size: int
    buckets: tuple[int, ...]
    graphs_enabled: bool
    padding_enabled: bool
    is_body_recorded: bool = True
    compiled_rows: tuple[int, ...] = ()
    draft_buckets: Mapping[int, tuple[int, ...]] = dataclasses.field(default_factory=dict[int, tuple[int, ...]])

    def buckets_of(self, draft_len: int) -> tuple[int, ...]:
        """Batch sizes with graphs of a draft length; none for a length that warm-up does not capture."""
        return self.draft_buckets.get(draft_len, ()) if draft_len else self.buckets

    @property
    def captures(self) -> bool:
        """Whether warm-up captures graphs."""
        return self.graphs_enabled and self.is_body_recorded


@dataclasses.dataclass(frozen=True, slots=True)
class DecoderParts:
    """What the runner works with; built by ``llm.py``, owned by the runner from then on.

    make_metadata returns a metadata object for a graph of so many sequences, or the eager one for None.
    """

    model: CausalLM
    sampler: SamplerState
    preparer: DecoderInputPreparer
    graphs: CUDAGraphRunner
    prefill: PrefillGraphs
    eager_metadata: AttentionMetadata
    key_metadata: dict[KeyType, AttentionMetadata]
    stream: Stream
    optional: OptionalInputs


class DecoderRunner(ScheduledModelRunner):
    """Turns scheduled batches into forwards, on graphs where one fits."""

    def __init__(self, parts: DecoderParts, config: DecoderRunnerConfig, decisions: Decisions) -> None:
        """Hold the parts; nothing is captured before ``warmup``."""
        self._parts = parts
        self._config = config
        self._decisions = decisions
        self._forward = ModelForward(parts.model, parts.sampler, parts.optional)
        self._dummies: PaddingDummies | None = None
        self._steady = SteadyPath(decisions)
        self._model_adds_inputs = any(hasattr(parts.model, hook) for hook in MODEL_HOOKS)
        self._probe: Probe | None = None

    def set_probe(self, probe: Probe | None) -> None:
        """Attach or detach the observer."""
        self._probe = probe

    def forward(
        self, inputs: ScheduledInputs, *, resource_manager: ResourceManager, is_dummy: bool = False
    ) -> ForwardOutputs:
        """Run one step; see the module. is_dummy marks warm-up: eager, no graph is looked for."""
        step, kv_cache = inputs.step, resource_manager.kv_cache
        use = self._steady.take(inputs, kv_cache, is_dummy=is_dummy)
        padded = self._pad(inputs.batch, is_dummy=is_dummy) if use is None else unpadded(inputs.batch)
        if self._probe is not None:
            self._probe.emit(Stage.PADDED, step, padded)
        plan = self._plan(inputs.batch, padded, is_dummy=is_dummy) if use is None else use.plan
        if self._probe is not None:
            self._probe.emit(Stage.GRAPH_CHOSEN, step, plan.selection)
        with nvtx_range("prepare"):
            if use is None:
                batch = padded if plan.selection.key is not None else unpadded(inputs.batch)
                prepared = self._prepare(batch, plan, inputs, kv_cache, is_dummy=is_dummy)
            else:
                prepared = self._derive(use, kv_cache, step)
        with nvtx_range("run"):
            outputs = self._run(prepared, plan)
        if self._probe is not None:
            self._probe.emit(Stage.RAN, step, outputs.event)
        return outputs

    def _prepare(
        self, batch: PaddedBatch, plan: StepPlan, inputs: ScheduledInputs, kv_cache: KVCacheManager, *, is_dummy: bool
    ) -> PreparedInputs:
        """Take the full path: pack, copy, prepare the metadata; leave a steady record if the step allows one."""
        preparer, step, metadata = self._parts.preparer, inputs.step, plan.metadata
        padded_num_tokens = plan.selection.prefill_bucket
        add_inputs = getattr(self._parts.model, "prepare_request_inputs", None)
        given = None if add_inputs is None else add_inputs(batch, metadata)
        host = self._pack(batch, kv_cache)
        if self._probe is not None:
            self._probe.emit(Stage.PACKED, step, host)
        self._parts.optional.write(given, padded_num_tokens or host.num_tokens)
        prepared = preparer.copy_inputs(host, inputs.new_tensors_device, metadata, padded_num_tokens=padded_num_tokens)
        if self._probe is not None:
            self._probe.emit(Stage.COPIED, step, prepared)
        metadata.prepare(attention_step(host, padded_num_tokens))
        preparer.correct_lengths(host, metadata)
        if self._probe is not None:
            self._probe.emit(Stage.METADATA, step, metadata)
        if inputs.new_tensors_device is not None:
            views = preparer.steady_inputs(prepared, inputs.new_tensors_device)
            facts = recording_facts(batch, host, is_dummy=is_dummy, model_adds_inputs=self._model_adds_inputs)
            self._steady.record(
                facts, SteadyUse(plan, views, SteadyRows(tuple([span.request for span in batch.spans]))), kv_cache
            )
        return prepared

    def _derive(self, use: SteadyUse, kv_cache: KVCacheManager, step: int) -> PreparedInputs:
        """Take the steady path: nothing is packed and nothing copied from the host but tables that grew."""
        if self._probe is not None:
            self._probe.emit(Stage.PACKED, step, use.rows)
        prepared = self._parts.preparer.advance_inputs(use.inputs)
        if self._probe is not None:
            self._probe.emit(Stage.COPIED, step, prepared)
        use.plan.metadata.advance(use.step)
        if self._probe is not None:
            self._probe.emit(Stage.METADATA, step, use.plan.metadata)
        self._steady.keep(use, kv_cache)
        return prepared

    def roll_back(self) -> None:
        """Forget the last step: nothing may be derived from it."""
        self._steady.forget()

    def warmup(self, resource_manager: ResourceManager) -> WarmupReport:
        """Compile, run one prompt eagerly, then every graph eagerly (sizes become final), then capture, largest first.

        The padding dummies are preallocated here, before traffic can fill the pool; on failure they are given back.
        """
        started = time.perf_counter()
        parts, config = self._parts, self._config
        require_cold(is_warm=config.captures and self._dummies is not None)
        graphs, dummies = parts.graphs, PaddingDummies(resource_manager)
        compile_body(parts.model, config.compiled_rows, parts.preparer.buffers, parts.eager_metadata, parts.stream)
        with dummies.warm_up_batch([1], is_context=True) as batch:  # what a prompt needs first is there by now
            self.forward(ScheduledInputs(batch.scheduled, 0), resource_manager=resource_manager, is_dummy=True)
        if config.captures:
            try:
                for draft_len in (0, *config.draft_buckets):
                    dummies.preallocate(draft_len)
                keys = list(parts.key_metadata)
                parts.optional.write(None, parts.preparer.buffers.input_ids.numel())
                with graphs.allow_capture():
                    for is_warmup_only in (True, False):
                        for key in keys:
                            self._capture(key, dummies, resource_manager, is_warmup_only=is_warmup_only)
                        capture_chains(parts.prefill, parts.eager_metadata, is_warmup_only=is_warmup_only)
            except BaseException:
                parts.prefill.release()
                graphs.release_graphs()
                dummies.drop()
                raise
        self._dummies = dummies
        seconds = time.perf_counter() - started
        return WarmupReport(
            graphs.reports, graphs.pool_bytes, seconds, graphs.simulated, prefill_captures=parts.prefill.reports
        )

    def release_graphs(self) -> None:
        """Drop the graphs and the padding dummy with them."""
        self._steady.forget()
        self._parts.prefill.release()
        self._parts.graphs.release_graphs()
        if self._dummies is not None:
            self._dummies.drop()
            self._dummies = None

    def wait_for_input_copy(self) -> None:
        """Block until the pinned mirrors may be rewritten."""
        self._parts.preparer.wait_for_input_copy()
        self._parts.optional.wait()

    def _pad(self, batch: ScheduledRequests, *, is_dummy: bool) -> PaddedBatch:
        """Promote final contexts, then fill the bucket."""
        dummies, config = self._dummies, self._config
        if dummies is None or is_dummy or not config.captures:
            return unpadded(batch)
        promoted, num_padding = plan_padding(self._decisions, batch, config, dummies)
        return dummies.pad(
            batch,
            num_padding,
            draft_len=batch.draft_len,
            spans=(*promoted, *batch.generation_requests) if promoted else None,
            promoted_request_ids=tuple([span.request_id for span in promoted]),
        )

    def _plan(self, batch: ScheduledRequests, padded: PaddedBatch, *, is_dummy: bool) -> StepPlan:
        """Choose the graph, and with it the metadata object."""
        mode, parts, prefill = sample_mode(padded), self._parts, self._parts.prefill
        chains = prefill.captured
        released = prefill.buckets if not chains else ()
        num_contexts = len(batch.context_requests)
        num_rows = sum([span.num_rows for span in batch.spans]) if num_contexts and (chains or released) else 0
        facts = graph_facts(
            batch,
            padded,
            self._config,
            self._dummies,
            mode=mode,
            is_warmup=is_dummy,
            captured=parts.graphs.captured_keys,
            body=BodyFacts(self._config.is_body_recorded, chains, num_rows, released),
        )
        selection = choose_graph(self._decisions, facts, num_contexts)
        metadata = parts.eager_metadata if selection.key is None else parts.graphs.metadata_for(selection.key)
        return StepPlan(selection, mode, metadata)

    def _pack(self, batch: PaddedBatch, kv_cache: KVCacheManager) -> HostInputs:
        """Pack, by the model's own way if it has one and wants this step."""
        pack_faster = getattr(self._parts.model, "prepare_inputs_fast_path", None)
        host: HostInputs | None = None if pack_faster is None else pack_faster(batch, kv_cache.block_table)
        return self._decisions.pack(batch, kv_cache.block_table) if host is None else host

    def _run(self, prepared: PreparedInputs, plan: StepPlan) -> ForwardOutputs:
        graphs, stream, logits = self._parts.graphs, self._parts.stream, PendingLogits()
        chosen, check = plan.selection, None
        if chosen.key is not None:
            captured, check = graphs.replay(chosen.key, prepared)
            logits.set(captured)
            path, key = PathKind.REPLAY, str(chosen.key)
        elif chosen.prefill_bucket is not None:
            hidden, check = self._parts.prefill.run(chosen.prefill_bucket, prepared)
            stream.launch(lambda: logits.set(self._forward.score(hidden, prepared, plan.mode)))
            path, key = PathKind.PREFILL_REPLAY, prefill_key(chosen.prefill_bucket)
        else:
            stream.launch(lambda: logits.set(self._forward.eager(prepared, plan.mode)))
            path, key = PathKind.EAGER, None
        return ForwardOutputs(logits, self._event(path, key, check))

    def _event(self, path: PathKind, key: str | None, check: ReplayCheck | None) -> RunEvent:
        graphs = self._parts.graphs
        return RunEvent(
            path=path,
            simulated=graphs.simulated,
            key=key,
            check=check,
            pool_bytes=graphs.pool_bytes,
            steady_refusal=self._steady.refusal,
        )

    def _capture(
        self, key: KeyType, dummies: PaddingDummies, resources: ResourceManager, *, is_warmup_only: bool
    ) -> None:
        metadata = self._parts.key_metadata[key]
        batch = dummies.capture_batch(key.batch_size, draft_len=key.draft_len)
        host = self._decisions.pack(batch, resources.kv_cache.block_table)
        prepared = self._parts.preparer.copy_inputs(host, None, metadata)
        metadata.prepare(attention_step(host))
        self._parts.graphs.capture(
            key,
            lambda inputs: self._forward.captured(inputs, key),
            metadata,
            prepared=prepared,
            is_warmup_only=is_warmup_only,
        )


def unpadded(batch: ScheduledRequests) -> PaddedBatch:
    """Take the scheduler's batch as it is."""
    return PaddedBatch(batch, batch.spans if batch.context_requests else batch.generation_requests)


def sample_mode(batch: PaddedBatch) -> SampleMode:
    """FULL when any request of the padded batch needs more than argmax; dummies are greedy."""
    greedy = all(span.request.spec.params.is_greedy for span in batch.spans)
    return SampleMode.GREEDY if greedy else SampleMode.FULL
