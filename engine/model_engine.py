"""ModelEngine: the door between the executor and a runner. Wiring and dispatch only.

``ModelEngine`` is abstract (get_max_num_sequences, forward, warmup). ``PyTorchModelEngine`` owns one runner and
sends each batch to it: scheduled batches to a ``ScheduledModelRunner``, packed ones to a ``PackedModelRunner``; the
wrong pairing raises.

Does not: prepare inputs, choose graphs, or hold requests. Source: TensorRT-LLM's PyTorchModelEngine.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Protocol, overload

import torch

from engine.attention.interface import AttentionBackend, AttentionMetadata, MetadataCapacity
from engine.attention.native import NativeBackend
from engine.attention.vanilla import VanillaBackend
from engine.config import EngineConfig
from engine.cuda_graphs.buckets import buckets_of, default_batch_sizes
from engine.cuda_graphs.device_graph import make_graph_backend
from engine.cuda_graphs.key import capture_keys
from engine.cuda_graphs.prefill import PrefillGraphs
from engine.cuda_graphs.runner import CUDAGraphRunner
from engine.decisions import Decisions
from engine.device import DeviceRegistry, DeviceSpec, Stream, make_stream
from engine.errors import DispatchError
from engine.footprint import footprint, require_memory, size_kv_cache
from engine.inputs.input_buffers import DecoderInputBuffers
from engine.inputs.optional_inputs import OptionalInputs
from engine.inputs.prepare import DecoderInputPreparer
from engine.inputs.records import PackedInputs, SampleStateTensors, ScheduledInputs
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.kv_cache.storage import KVStorage
from engine.models.config import ModelConfig
from engine.models.registry import LoadedModel
from engine.probe import Probe
from engine.resources import ResourceManager
from engine.runners.decoder import DecoderParts, DecoderRunner, DecoderRunnerConfig
from engine.runners.interface import ForwardOutputs, ModelRunner, PackedModelRunner, ScheduledModelRunner, WarmupReport
from engine.sampling.sampler import SamplerState
from engine.scheduled import ScheduledRequests


class ModelEngine(abc.ABC):
    """What an executor needs of a model."""

    @abc.abstractmethod
    def get_max_num_sequences(self) -> int:
        """Sequences that one step may hold: max_batch_size times the beam width."""

    @overload
    def forward(
        self,
        batch: ScheduledRequests,
        *,
        resource_manager: ResourceManager,
        new_tensors_device: SampleStateTensors | None = None,
        step: int = 0,
    ) -> ForwardOutputs: ...

    @overload
    def forward(self, batch: PackedInputs) -> dict[str, torch.Tensor]: ...

    @abc.abstractmethod
    def forward(
        self,
        batch: ScheduledRequests | PackedInputs,
        *,
        resource_manager: ResourceManager | None = None,
        new_tensors_device: SampleStateTensors | None = None,
        step: int = 0,
    ) -> ForwardOutputs | dict[str, torch.Tensor]:
        """Run one batch. Raises: DispatchError when the batch is not of the runner's kind."""

    @abc.abstractmethod
    def warmup(self, resource_manager: ResourceManager) -> WarmupReport:
        """Capture every graph that serving may replay."""

    @abc.abstractmethod
    def roll_back(self) -> None:
        """Forget the last step, which was undone."""

    @abc.abstractmethod
    def set_probe(self, probe: Probe | None) -> None:
        """Hand the observer to the runner."""

    @abc.abstractmethod
    def release_graphs(self) -> None:
        """Release graphs before the buffers that they read."""


class PyTorchModelEngine(ModelEngine):
    """One runner behind one door."""

    def __init__(self, runner: ModelRunner, *, max_num_sequences: int) -> None:
        """Own the runner."""
        self._runner = runner
        self._max_num_sequences = max_num_sequences

    def get_max_num_sequences(self) -> int:
        """Return the sequences of a full step."""
        return self._max_num_sequences

    @overload
    def forward(
        self,
        batch: ScheduledRequests,
        *,
        resource_manager: ResourceManager,
        new_tensors_device: SampleStateTensors | None = None,
        step: int = 0,
    ) -> ForwardOutputs: ...

    @overload
    def forward(self, batch: PackedInputs) -> dict[str, torch.Tensor]: ...

    def forward(
        self,
        batch: ScheduledRequests | PackedInputs,
        *,
        resource_manager: ResourceManager | None = None,
        new_tensors_device: SampleStateTensors | None = None,
        step: int = 0,
    ) -> ForwardOutputs | dict[str, torch.Tensor]:
        """Send the batch to the runner of its kind."""
        runner = self._runner
        if isinstance(batch, PackedInputs):
            if not isinstance(runner, PackedModelRunner):
                message = f"a packed batch needs a PackedModelRunner, this engine has a {type(runner).__name__}"
                raise DispatchError(message)
            return runner.forward(batch)
        if not isinstance(runner, ScheduledModelRunner):
            message = f"a scheduled batch needs a ScheduledModelRunner, this engine has a {type(runner).__name__}"
            raise DispatchError(message)
        if resource_manager is None:
            message = "a scheduled batch needs the resource_manager that holds its blocks, got None"
            raise DispatchError(message)
        inputs = ScheduledInputs(batch, step, new_tensors_device)
        return runner.forward(inputs, resource_manager=resource_manager)

    def warmup(self, resource_manager: ResourceManager) -> WarmupReport:
        """Let a scheduled runner capture; a packed one has nothing to warm up."""
        if isinstance(self._runner, ScheduledModelRunner):
            return self._runner.warmup(resource_manager)
        return WarmupReport(captures=(), pool_bytes=0, seconds=0.0, simulated=False)

    def roll_back(self) -> None:
        """Let a runner with steps forget the last one."""
        if isinstance(self._runner, ScheduledModelRunner):
            self._runner.roll_back()

    def set_probe(self, probe: Probe | None) -> None:
        """Hand the observer to a runner that has stages."""
        if isinstance(self._runner, ScheduledModelRunner):
            self._runner.set_probe(probe)

    def release_graphs(self) -> None:
        """Wait for the input copies, then release the graphs; buffers may be freed afterwards."""
        self._runner.wait_for_input_copy()
        self._runner.release_graphs()


class MakeMetadata(Protocol):
    """Makes a metadata object of the configured backend for so many sequences and rows."""

    def __call__(self, num_sequences: int, num_tokens: int, *, is_cuda_graph: bool) -> AttentionMetadata:
        """Allocate it."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class DecoderEngine:
    """A decoder's engine with the parts that its executor shares with it."""

    model_engine: PyTorchModelEngine
    resources: ResourceManager
    sampler: SamplerState
    stream: Stream
    storage: KVStorage
    buckets: tuple[int, ...]
    input_buffers: DecoderInputBuffers
    graphs: CUDAGraphRunner
    prefill: PrefillGraphs


def build_decoder_engine(
    loaded: LoadedModel, config: EngineConfig, spec: DeviceSpec, *, decisions: Decisions, stream_lag: int = 0
) -> DecoderEngine:
    """Allocate everything with a fixed address, once, and wire it; nothing is captured before ``warmup``."""
    model, limits = loaded.config, config.scheduler
    stream, registry = make_stream(spec, lag=stream_lag), DeviceRegistry()
    loaded.model.pack_weights(limits.max_batch_size)
    resources, storage = _build_cache(config, model, spec)
    of_model = (*loaded.model.state_dict(keep_vars=True).items(), *loaded.model.named_buffers())
    for name, tensor in (*storage.tensors().items(), *of_model):
        registry.register(name, tensor)
    sampler = SamplerState.allocate(
        config.num_slots, model.vocab_size, spec, registry, max_draft_len=limits.draft_len, guess_len=config.guess_len
    )
    buckets = buckets_of(config)
    make_metadata = _metadata_factory(config, spec, stream, storage)
    buffers = DecoderInputBuffers.allocate(
        max_num_tokens=limits.max_num_tokens,
        max_num_sequences=limits.max_batch_size,
        max_draft_len=limits.draft_len,
        spec=spec,
        registry=registry,
    )
    optional = OptionalInputs(loaded.model.optional_inputs, limits.max_num_tokens, stream, spec, registry)
    graphs, prefill = _build_graphs(
        loaded, config, spec, stream, registry=registry, buckets=buckets, sampler=sampler, optional=optional
    )
    keys = capture_keys(buckets[0], config.cuda_graph.sample_modes, draft_buckets=buckets)
    parts = DecoderParts(
        model=loaded.model,
        sampler=sampler,
        preparer=DecoderInputPreparer(buffers, stream, spec),
        graphs=graphs,
        prefill=prefill,
        eager_metadata=make_metadata(limits.max_batch_size, limits.max_num_tokens, is_cuda_graph=False),
        key_metadata={key: make_metadata(key.batch_size, key.num_tokens(), is_cuda_graph=True) for key in keys},
        stream=stream,
        optional=optional,
    )
    runner = DecoderRunner(parts, _runner_config(config, buckets, simulated=graphs.simulated), decisions)
    return DecoderEngine(
        model_engine=PyTorchModelEngine(runner, max_num_sequences=limits.max_batch_size),
        resources=resources,
        sampler=sampler,
        stream=stream,
        storage=storage,
        buckets=buckets[0],
        input_buffers=buffers,
        graphs=graphs,
        prefill=prefill,
    )


def _build_graphs(
    loaded: LoadedModel,
    config: EngineConfig,
    spec: DeviceSpec,
    stream: Stream,
    *,
    registry: DeviceRegistry,
    buckets: dict[int, tuple[int, ...]],
    sampler: SamplerState,
    optional: OptionalInputs,
) -> tuple[CUDAGraphRunner, PrefillGraphs]:
    """Make the two holders of graphs over one backend and its pool; a ready model may come compiled by another."""
    if config.torch_compile:
        loaded.model.compile_segments()
    else:
        loaded.model.compiled = None
    backend, strict = make_graph_backend(spec, registry), config.cuda_graph.strict_buffers
    graphs = CUDAGraphRunner(
        backend,
        stream=stream,
        spec=spec,
        registry=registry,
        max_num_tokens=max([(1 + K) * size for K, sizes in buckets.items() for size in sizes], default=1),
        strict=strict,
        more_tensors=lambda: (
            {f"sampler.{name}": tensor for name, tensor in sampler.tensors().items()} | optional.tensors()
        ),
    )
    prefill = PrefillGraphs(
        backend,
        loaded.model,
        stream=stream,
        spec=spec,
        registry=registry,
        buckets=config.cuda_graph.prefill_num_tokens if config.cuda_graph.enabled else (),
        may_capture=lambda: graphs.is_capture_allowed,
        strict=strict,
        optional=optional,
    )
    return graphs, prefill


def _build_cache(config: EngineConfig, model: ModelConfig, spec: DeviceSpec) -> tuple[ResourceManager, KVStorage]:
    """Size the pool, then make its ledger and its tensors; the padding dummies get blocks and slots of their own."""
    tokens_per_block = config.kv_cache.tokens_per_block
    for_dummies = sum([-(-(1 + draft_len) // tokens_per_block) for draft_len in (0, *config.cuda_graph.draft_lens)])
    num_blocks = size_kv_cache(config, model, spec) + for_dummies
    require_memory(footprint(config, model, spec, num_blocks=num_blocks), spec)
    resources = ResourceManager(
        KVCacheManager(
            num_blocks=num_blocks,
            tokens_per_block=tokens_per_block,
            max_seq_len=config.max_seq_len,
            host_blocks=config.kv_cache.host_blocks,
            enable_block_reuse=config.kv_cache.enable_block_reuse,
            enable_partial_reuse=config.kv_cache.enable_partial_reuse,
        ),
        SeqSlotManager(config.num_slots),
    )
    storage = KVStorage.allocate(
        num_layers=model.num_layers,
        num_blocks=num_blocks,
        tokens_per_block=tokens_per_block,
        num_kv_heads=model.num_kv_heads,
        head_size=model.head_size,
        spec=spec,
        num_host_blocks=config.kv_cache.host_blocks,
    )
    return resources, storage


def _runner_config(
    config: EngineConfig, buckets: dict[int, tuple[int, ...]], *, simulated: bool
) -> DecoderRunnerConfig:
    limits, wanted = config.scheduler, config.cuda_graph
    sizes = buckets[0] or default_batch_sizes(limits.max_batch_size, padding=wanted.enable_padding)
    verified = [(1 + K) * size for K, of in buckets.items() for size in of if K]
    rows = {size for size in (*sizes, *verified, *wanted.prefill_num_tokens) if size <= limits.max_num_tokens}
    return DecoderRunnerConfig(
        max_batch_size=config.scheduler.max_batch_size,
        buckets=buckets[0],
        draft_buckets=buckets,
        graphs_enabled=config.cuda_graph.enabled,
        padding_enabled=config.cuda_graph.enable_padding,
        is_body_recorded=not (config.torch_compile and simulated),
        compiled_rows=tuple(sorted(rows, reverse=True)) if config.torch_compile else (),
    )


def _metadata_factory(config: EngineConfig, spec: DeviceSpec, stream: Stream, storage: KVStorage) -> MakeMetadata:
    """Bind the configured backend, the storage and the table width."""
    backends: dict[str, Callable[..., AttentionBackend]] = {"native": NativeBackend, "vanilla": VanillaBackend}
    backend = backends[config.attention_backend](spec=spec, stream=stream)
    width = -(-config.max_seq_len // config.kv_cache.tokens_per_block)

    def make(num_sequences: int, num_tokens: int, *, is_cuda_graph: bool) -> AttentionMetadata:
        capacity = MetadataCapacity(
            max_num_sequences=num_sequences,
            max_num_tokens=num_tokens,
            max_blocks_per_seq=width,
            tokens_per_block=config.kv_cache.tokens_per_block,
            is_cuda_graph=is_cuda_graph,
        )
        return backend.make_metadata(storage, capacity)

    return make
