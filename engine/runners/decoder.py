"""DecoderRunner: one scheduled batch through pad, choose, pack, copy, metadata, run.

Each stage is one call that turns one frozen record into the next; the decisions are the pure functions of
``decisions.py``. A graph miss returns to the *unpadded* batch and the base metadata. Sampling is part of what runs
(and of what is captured), so a step leaves its tokens in the persistent new_tokens.

Does not: schedule, commit, allocate in the decode path, or read the device.
Source: TensorRT-LLM's decoder runner, one beam and no speculation.
"""

import dataclasses
import time

import torch

from engine.attention.interface import AttentionMetadata
from engine.cuda_graphs.dummies import PaddingDummies
from engine.cuda_graphs.key import KeyType, SampleMode, make_key
from engine.cuda_graphs.runner import CUDAGraphRunner, GraphInputs
from engine.cuda_graphs.select import GraphFacts, Selection
from engine.decisions import Decisions
from engine.device import Stream
from engine.inputs.prepare import DecoderInputPreparer, attention_step
from engine.inputs.records import PreparedInputs, ReplayCheck, RunEvent, ScheduledInputs
from engine.models.llama import CausalLM
from engine.probe import Probe, Stage
from engine.reasons import PathKind
from engine.resources import ResourceManager
from engine.runners.interface import ForwardOutputs, PendingLogits, ScheduledModelRunner, WarmupReport
from engine.sampling.sampler import SamplerState, sample
from engine.scheduled import PaddedBatch, ScheduledRequests


@dataclasses.dataclass(frozen=True, slots=True)
class DecoderRunnerConfig:
    """The runner's share of the engine's configuration. buckets: captured batch sizes, ascending."""

    max_batch_size: int
    buckets: tuple[int, ...]
    graphs_enabled: bool
    padding_enabled: bool
    sample_modes: tuple[SampleMode, ...] = (SampleMode.FULL, SampleMode.GREEDY)


@dataclasses.dataclass(frozen=True, slots=True)
class DecoderParts:
    """What the runner works with; built by ``llm.py``, owned by the runner from then on.

    make_metadata returns a metadata object for a graph of so many sequences, or the eager one for None.
    """

    model: CausalLM
    sampler: SamplerState
    preparer: DecoderInputPreparer
    graphs: CUDAGraphRunner
    eager_metadata: AttentionMetadata
    key_metadata: dict[int, AttentionMetadata]  # by bucket; the two sample modes of a bucket share it
    stream: Stream


class DecoderRunner(ScheduledModelRunner):
    """Turns scheduled batches into forwards, on graphs where one fits."""

    def __init__(self, parts: DecoderParts, config: DecoderRunnerConfig, decisions: Decisions) -> None:
        """Hold the parts; nothing is captured before ``warmup``."""
        self._parts = parts
        self._config = config
        self._decisions = decisions
        self._dummies: PaddingDummies | None = None
        self._probe: Probe | None = None

    def set_probe(self, probe: Probe | None) -> None:
        """Attach or detach the observer."""
        self._probe = probe

    def forward(
        self, inputs: ScheduledInputs, *, resource_manager: ResourceManager, is_dummy: bool = False
    ) -> ForwardOutputs:
        """Run one step; see the module. is_dummy marks warm-up: eager, no graph is looked for."""
        parts, step, kv_cache = self._parts, inputs.step, resource_manager.kv_cache
        padded = self._pad(inputs.batch, is_dummy=is_dummy)
        if self._probe is not None:
            self._probe.emit(Stage.PADDED, step, padded)
        mode = sample_mode(padded)
        selection = self._decisions.select_graph(self._facts(inputs.batch, mode, is_dummy=is_dummy))
        if self._probe is not None:
            self._probe.emit(Stage.GRAPH_CHOSEN, step, selection)
        batch = padded if selection.key is not None else PaddedBatch(inputs.batch, inputs.batch.spans)
        metadata = parts.eager_metadata if selection.key is None else parts.graphs.metadata_for(selection.key)
        self._call_model_hook(batch, metadata)
        host = self._decisions.pack(batch, kv_cache.block_table)
        if self._probe is not None:
            self._probe.emit(Stage.PACKED, step, host)
        prepared = parts.preparer.copy_inputs(host, inputs.new_tensors_device, metadata)
        if self._probe is not None:
            self._probe.emit(Stage.COPIED, step, prepared)
        metadata.prepare(attention_step(host))
        if self._probe is not None:
            self._probe.emit(Stage.METADATA, step, metadata)
        outputs = self._run(prepared, selection, mode)
        if self._probe is not None:
            self._probe.emit(Stage.RAN, step, outputs.event)
        return outputs

    def warmup(self, resource_manager: ResourceManager) -> WarmupReport:
        """Run eagerly once, then every graph eagerly (sizes become final), then capture, largest first.

        The padding dummy is preallocated here, before traffic can fill the pool; on failure it is given back.
        """
        started = time.perf_counter()
        graphs, config = self._parts.graphs, self._config
        dummies = PaddingDummies(resource_manager)
        if config.graphs_enabled:
            dummies.preallocate()
            try:
                keys = [
                    make_key(padded_batch_size=bucket, draft_len=0, sample_mode=mode)
                    for bucket in reversed(config.buckets)
                    for mode in config.sample_modes
                ]
                with graphs.allow_capture():
                    for is_warmup_only in (True, False):
                        for key in keys:
                            self._capture(key, dummies, resource_manager, is_warmup_only=is_warmup_only)
            except BaseException:
                graphs.release_graphs()
                dummies.drop()
                raise
        self._dummies = dummies
        seconds = time.perf_counter() - started
        return WarmupReport(tuple(graphs.reports), graphs.pool_bytes, seconds, graphs.simulated)

    def release_graphs(self) -> None:
        """Drop the graphs and the padding dummy with them."""
        self._parts.graphs.release_graphs()
        if self._dummies is not None:
            self._dummies.drop()
            self._dummies = None

    def wait_for_input_copy(self) -> None:
        """Block until the pinned mirrors may be rewritten."""
        self._parts.preparer.wait_for_input_copy()

    def _pad(self, batch: ScheduledRequests, *, is_dummy: bool) -> PaddedBatch:
        dummies, config = self._dummies, self._config
        if dummies is None or is_dummy or not config.graphs_enabled:
            return PaddedBatch(batch, batch.spans)
        num_padding = self._decisions.num_padding_requests(
            num_requests=batch.num_requests,
            num_contexts=len(batch.context_requests),
            buckets=config.buckets,
            enabled=config.padding_enabled,
            dummy_available=dummies.available(),
        )
        return dummies.pad(batch, num_padding)

    def _facts(self, batch: ScheduledRequests, mode: SampleMode, *, is_dummy: bool) -> GraphFacts:
        config, graphs = self._config, self._parts.graphs
        return GraphFacts(
            num_requests=batch.num_requests,
            num_contexts=len(batch.context_requests),
            draft_len=0,
            sample_mode=mode,
            graphs_enabled=config.graphs_enabled,
            is_warmup=is_dummy,
            padding_enabled=config.padding_enabled,
            buckets=config.buckets,
            max_batch_size=config.max_batch_size,
            dummy_available=self._dummies is not None and self._dummies.available(),
            captured=graphs.captured_keys,
        )

    def _call_model_hook(self, batch: PaddedBatch, metadata: AttentionMetadata) -> None:
        """Let a model add its own per-request preparation before the rows are packed."""
        hook = getattr(self._parts.model, "prepare_request_inputs", None)
        if hook is not None:
            hook(batch, metadata)

    def _run(self, prepared: PreparedInputs, selection: Selection, mode: SampleMode) -> ForwardOutputs:
        graphs, logits = self._parts.graphs, PendingLogits()
        if selection.key is not None:
            captured, check = graphs.replay(selection.key, prepared)
            logits.set(captured)
            path, key = PathKind.REPLAY, str(selection.key)
        else:
            self._parts.stream.launch(lambda: logits.set(self._eager(prepared, mode)))
            path, key, check = PathKind.EAGER, None, None
        return ForwardOutputs(logits, self._event(path, key, check))

    def _event(self, path: PathKind, key: str | None, check: ReplayCheck | None) -> RunEvent:
        graphs = self._parts.graphs
        return RunEvent(path=path, simulated=graphs.simulated, key=key, check=check, pool_bytes=graphs.pool_bytes)

    def _eager(self, prepared: PreparedInputs, mode: SampleMode) -> torch.Tensor | None:
        """Compute every row, then sample those that want logits."""
        parts, num_logits = self._parts, prepared.gather_ids.numel()
        with torch.no_grad():
            hidden = parts.model(prepared.input_ids, prepared.position_ids, prepared.attn_metadata)
            if not num_logits:
                return None
            positions = prepared.position_ids[0, 0]
            if num_logits != prepared.num_tokens:
                hidden = hidden.index_select(0, prepared.gather_ids)
                positions = positions.index_select(0, prepared.gather_ids)
            logits = parts.model.compute_logits(hidden)
            sample(parts.sampler, logits, prepared.seq_slots, positions + 1, mode.value)
            return logits

    def _captured_forward(self, inputs: GraphInputs, mode: SampleMode) -> torch.Tensor:
        """Compute a decode step: every row wants logits, so nothing is gathered. This is what a graph records."""
        parts = self._parts
        hidden = parts.model(inputs.input_ids, inputs.position_ids, inputs.attn_metadata)
        logits = parts.model.compute_logits(hidden)
        sample(parts.sampler, logits, inputs.seq_slots, inputs.position_ids[0, 0] + 1, mode.value)
        return logits

    def _capture(
        self, key: KeyType, dummies: PaddingDummies, resources: ResourceManager, *, is_warmup_only: bool
    ) -> None:
        metadata = self._parts.key_metadata[key.batch_size]
        host = self._decisions.pack(dummies.capture_batch(key.batch_size), resources.kv_cache.block_table)
        prepared = self._parts.preparer.copy_inputs(host, None, metadata)
        metadata.prepare(attention_step(host))
        self._parts.graphs.capture(
            key,
            lambda inputs: self._captured_forward(inputs, key.sample_mode),
            metadata,
            prepared=prepared,
            is_warmup_only=is_warmup_only,
        )


def sample_mode(batch: PaddedBatch) -> SampleMode:
    """FULL when any request of the padded batch needs more than argmax; dummies are greedy."""
    greedy = all(span.request.spec.params.is_greedy for span in batch.spans)
    return SampleMode.GREEDY if greedy else SampleMode.FULL
