"""The tiny model over a small KV pool, with its prefill chains: what the tests of chains share on any device."""

import torch

from engine.attention.interface import AttentionStep, KVCacheParams, MetadataCapacity
from engine.cuda_graphs.device_graph import make_graph_backend
from engine.cuda_graphs.prefill import PrefillGraphs
from engine.device import DeviceRegistry, make_stream, resolve_device
from engine.inputs.records import PreparedInputs
from engine.kv_cache.storage import KVStorage
from engine.models.llama import CausalLM
from engine.models.tiny import TINY_CONFIG, tiny_weights
from engine.runners.body_warmup import step_of_padding
from tests.engine.attention.paged_world import make_backend

CPU = resolve_device("cpu", "float32")
BUCKETS = (4, 8, 16)
WIDTH, SIZE = 4, 8  # blocks of a sequence, tokens of a block


class World:
    """The tiny model over a KV pool, its chains, and one metadata object for every step."""

    def __init__(self, backend="native", *, lag=0, strict=True, spec=CPU):
        self.spec, self.registry, self.stream = spec, DeviceRegistry(), make_stream(spec, lag=lag)
        self.model = CausalLM(TINY_CONFIG, tiny_weights(3), spec, num_positions=64)
        for name, tensor in (*self.model.state_dict(keep_vars=True).items(), *self.model.named_buffers()):
            self.registry.register(name, tensor)
        self.graph_backend = make_graph_backend(spec, self.registry)
        self.storage = self._storage()
        self.attention = make_backend(backend, spec, self.stream)
        self.metadata = self.make_metadata(self.storage)
        self.is_allowed = True
        self.graphs = PrefillGraphs(
            self.graph_backend,
            self.model,
            stream=self.stream,
            spec=spec,
            registry=self.registry,
            buckets=BUCKETS,
            may_capture=lambda: self.is_allowed,
            strict=strict,
        )

    def _storage(self):
        config = TINY_CONFIG
        return KVStorage.allocate(
            num_layers=config.num_layers,
            num_blocks=8,
            tokens_per_block=SIZE,
            num_kv_heads=config.num_kv_heads,
            head_size=config.head_size,
            spec=self.spec,
        )

    def make_metadata(self, storage):
        return self.attention.make_metadata(storage, MetadataCapacity(2, BUCKETS[-1], WIDTH, SIZE))

    def capture(self, *buckets):
        for bucket in buckets or BUCKETS[::-1]:
            self.metadata.prepare(step_of_padding(bucket))
            self.graphs.capture(bucket, self.metadata)

    def run(self, lengths, bucket, **options):
        """Run a step as the bucket's chain; return its hidden states and the check."""
        hidden, check = self.graphs.run(bucket, self.prepared(lengths, bucket, **options))
        self.stream.synchronize()
        return hidden, check

    def prepared(self, lengths, bucket, *, cached=(0, 0), metadata=None):
        """A step of one or two prompts, its rows drawn from a formula, padded with zeros to the bucket."""
        metadata = metadata or self.metadata
        positions = [cached[i] + n for i, length in enumerate(lengths) for n in range(length)]
        tokens = [(7 * position + 3) % 250 + 1 for position in positions]
        padding = [0] * (bucket - len(positions))
        step = AttentionStep(
            request_ids=tuple(range(len(lengths))),
            seq_lens=tuple(lengths),
            prompt_lens=tuple(lengths),
            block_tables=tuple([tuple(range(WIDTH * i, WIDTH * (i + 1))) for i in range(len(lengths))]),
            kv_cache_params=KVCacheParams(use_cache=True, num_cached_tokens_per_seq=cached[: len(lengths)]),
            num_contexts=len(lengths),
            num_tokens=len(positions),
            padded_num_tokens=bucket,
        )
        metadata.prepare(step)
        device = self.spec.torch_device
        none = torch.zeros(0, dtype=torch.int64, device=device)
        return PreparedInputs(
            input_ids=torch.tensor(tokens + padding, dtype=torch.int32, device=device),
            position_ids=torch.tensor(positions + padding, dtype=torch.int32, device=device).view(1, 1, -1),
            gather_ids=none,
            seq_slots=none,
            attn_metadata=metadata,
            num_tokens=len(positions),
            writes=(),
        )

    def expect(self, lengths, *, cached=(0, 0), storage=None):
        """The same rows through the model as one call, unpadded, over a pool of their own."""
        metadata = self.make_metadata(storage or self._storage())
        prepared = self.prepared(lengths, sum(lengths), cached=cached, metadata=metadata)
        self.stream.synchronize()
        with torch.no_grad():
            return self.model(prepared.input_ids, prepared.position_ids, metadata)
