"""Chains of prefill segments: the hidden states of the whole model, over padded rows, attention outside the graphs."""

import dataclasses

import pytest
import torch

from engine.attention.interface import AttentionStep, KVCacheParams, MetadataCapacity
from engine.cuda_graphs.device_graph import make_graph_backend
from engine.cuda_graphs.graph_backend import GraphChain
from engine.cuda_graphs.prefill import PrefillGraphs
from engine.device import DeviceRegistry, make_stream, resolve_device
from engine.errors import CaptureRefusedError, ReplayRefusedError
from engine.inputs.records import PreparedInputs
from engine.kv_cache.storage import KVStorage
from engine.models.llama import CausalLM
from engine.models.tiny import TINY_CONFIG, tiny_weights
from tests.engine.attention.paged_world import make_backend

CPU = resolve_device("cpu", "float32")
BUCKETS = (4, 8, 16)
WIDTH, SIZE = 4, 8  # blocks of a sequence, tokens of a block
NOTHING = AttentionStep((), (), (), (), KVCacheParams(use_cache=True, num_cached_tokens_per_seq=()), 0, 0)


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
            self.metadata.prepare(dataclasses.replace(NOTHING, padded_num_tokens=bucket))
            self.graphs.capture(bucket, self.metadata)

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


@pytest.fixture(params=["native", "vanilla"])
def world(request):
    return World(request.param)


def _run(world, lengths, bucket, **options):
    hidden, check = world.graphs.run(bucket, world.prepared(lengths, bucket, **options))
    world.stream.synchronize()
    return hidden, check


@pytest.mark.parametrize("lag", [0, 1, 50])
@pytest.mark.parametrize("backend", ["native", "vanilla"])
def test_every_bucket_gives_the_hidden_states_of_the_whole_model(backend, lag):
    world = World(backend, lag=lag)
    world.capture()
    for lengths, bucket in (([3], 4), ([4], 4), ([5, 2], 8), ([16], 16), ([1, 8], 16), ([2], 16), ([1], 4)):
        hidden, check = _run(world, lengths, bucket)
        assert check.passed
        torch.testing.assert_close(hidden[: sum(lengths)], world.expect(lengths), atol=1e-5, rtol=1e-4)
        assert not hidden.isnan().any(), "the rows of the padding mean nothing, but they are numbers"
        world.graphs.check()


def test_a_chunk_sees_the_keys_of_the_chunk_before_it(world):
    world.capture()
    whole = world.expect([11])
    _run(world, [6], 8)
    hidden, _check = _run(world, [5], 8, cached=(6, 0))
    torch.testing.assert_close(hidden[:5], whole[6:], atol=1e-5, rtol=1e-4)


def test_padding_rows_write_no_keys(world):
    world.capture()
    world.storage.blocks.fill_(9.0)
    _run(world, [3], 16)
    written = (world.storage.blocks[:, :, :, : world.storage.num_blocks] != 9.0).any(-1).any(2).any(1).any(0)
    assert written.nonzero().tolist() == [[0, 0], [0, 1], [0, 2]], "three tokens of block 0"


def test_capture_computes_nothing_and_its_warm_up_writes_no_keys(world):
    world.capture()
    assert not world.storage.blocks[:, :, :, : world.storage.num_blocks].any()
    world.graphs.statics.hidden.fill_(5.0)
    world.graphs.release()
    world.metadata.prepare(dataclasses.replace(NOTHING, padded_num_tokens=4))
    world.graphs.capture(4, world.metadata)
    assert world.graphs.statics.hidden[4:].eq(5.0).all()


def test_a_warm_up_pass_runs_eagerly_and_keeps_nothing(world):
    world.metadata.prepare(dataclasses.replace(NOTHING, padded_num_tokens=8))
    assert world.graphs.capture(8, world.metadata, is_warmup_only=True) is None
    assert world.graphs.captured == ()
    assert world.graphs.statics.hidden[:8].any()


def test_smaller_buckets_share_the_memory_and_the_statics_of_the_largest(world):
    world.capture()
    assert world.graphs.captured == BUCKETS
    reports = world.graphs.reports
    assert [report.num_tokens for report in reports] == list(BUCKETS[::-1])
    assert all(report.num_segments == TINY_CONFIG.num_layers + 1 and report.simulated for report in reports)
    assert reports[0].pool_bytes == world.graph_backend.pool_bytes > 0
    assert [report.pool_bytes for report in reports[1:]] == [0, 0]
    places = {_run(world, [2], bucket)[0].data_ptr() for bucket in BUCKETS}
    assert places == {world.graphs.statics.hidden.data_ptr()}


def test_a_chain_is_one_epoch_and_another_graph_ends_it(world):
    world.capture(8, 4)
    decode = world.graph_backend.capture(lambda: world.model.enter(world.graphs.statics.input_ids[:1]))
    chain = world.graphs._chains[8]
    _run(world, [5], 8)
    world.graph_backend.check()
    hidden = world.graphs.statics.hidden[:5].clone()
    last = chain.advances[-2].outputs[0]
    assert not last.isnan().any()
    decode.replay()
    assert last.isnan().any(), "the pool belongs to the graph that replayed last"
    assert torch.equal(world.graphs.statics.hidden[:5], hidden), "the hidden states lie outside the pool"
    assert torch.equal(_run(world, [5], 8)[0][:5], hidden)


def test_chains_and_single_graphs_take_turns_without_harm(world):
    world.capture(8, 4)
    ids = world.graphs.statics.input_ids
    decode = world.graph_backend.capture(lambda: world.model.enter(ids[:1]))
    expected = {bucket: world.expect([bucket - 1]) for bucket in (4, 8)}
    for bucket in (8, 4, 4, 8, 8, 4):
        hidden = _run(world, [bucket - 1], bucket)[0][: bucket - 1]
        torch.testing.assert_close(hidden, expected[bucket], atol=1e-5, rtol=1e-4)
        decode.replay()
        world.graph_backend.check()


def _refusal(world, bucket, prepared):
    world.graphs.statics.hidden.fill_(5.0)
    with pytest.raises(ReplayRefusedError) as refusal:
        world.graphs.run(bucket, prepared)
    world.stream.synchronize()
    assert world.graphs.statics.hidden.eq(5.0).all(), "nothing ran"
    return str(refusal.value)


def test_rows_that_are_not_padded_to_the_bucket_are_refused(world):
    world.capture()
    text = _refusal(world, 8, world.prepared([5], 5))
    assert text.startswith("graph (prefill 8) would replay wrongly: rows: captured (8,), got (5,)")
    assert "position shape: captured (1, 1, 8), got (1, 1, 5)" in text
    assert text.endswith("run this step eagerly, or pad it to the bucket")


def test_positions_that_would_broadcast_are_refused(world):
    world.capture()
    prepared = world.prepared([5], 8)
    object.__setattr__(prepared, "position_ids", torch.zeros(1, dtype=torch.int32))  # past the record's own check
    assert "position shape: captured (1, 1, 8), got (1,)" in _refusal(world, 8, prepared)


def test_rebound_statics_are_refused_unless_strictness_is_off():
    for strict in (True, False):
        world = World(strict=strict)
        world.capture(8)
        moved = torch.zeros_like(world.graphs.statics.attended)
        world.graphs.statics = dataclasses.replace(world.graphs.statics, attended=moved)
        if strict:
            assert "address of prefill.attended: captured 0x" in _refusal(world, 8, world.prepared([5], 8))
        else:
            torch.testing.assert_close(_run(world, [5], 8)[0][:5], world.expect([5]), atol=1e-5, rtol=1e-4)


def test_the_check_lists_segments_shapes_and_addresses(world):
    world.capture(4)
    _hidden, check = _run(world, [4], 4)
    assert [item.name for item in check.items[:3]] == ["segments", "rows", "position shape"]
    assert (check.items[0].expected, check.items[0].got) == ("4", "4")
    assert {item.name for item in check.items[3:]} == {
        f"address of prefill.{name}" for name in ("input_ids", "position_ids", "attended", "hidden")
    }
    assert all(item.expected == item.got for item in check.items)


@pytest.mark.parametrize(
    ("spoil", "bucket", "text"),
    [
        (lambda w: setattr(w, "is_allowed", False), 4, r"graph \(prefill 4\) would be captured while serving"),
        (lambda w: w.capture(4), 4, r"graph \(prefill 4\) is captured already; release comes before"),
        (lambda w: w.capture(4), 8, "has 8 rows, a captured one has 4; capture the largest first"),
        (lambda w: w.capture(16), 32, "a captured one has 16"),
        (lambda _w: None, 32, "has 32 rows, the statics hold 16; add the bucket"),
    ],
)
def test_a_capture_out_of_order_is_refused(spoil, bucket, text):
    world = World()
    spoil(world)
    with pytest.raises(CaptureRefusedError, match=text):
        world.graphs.capture(bucket, world.metadata)


def test_released_chains_can_be_captured_again(world):
    world.capture()
    world.graphs.release()
    assert (world.graphs.captured, world.graphs.reports) == ((), ())
    world.graph_backend.release()
    with pytest.raises(KeyError):
        world.graphs.run(4, world.prepared([4], 4))
    world.capture()
    torch.testing.assert_close(_run(world, [7], 8)[0][:7], world.expect([7]), atol=1e-5, rtol=1e-4)


def test_an_engine_without_buckets_holds_empty_statics():
    world = World()
    graphs = PrefillGraphs(
        world.graph_backend,
        world.model,
        stream=world.stream,
        spec=CPU,
        registry=world.registry,
        buckets=(),
        may_capture=lambda: True,
    )
    assert sum(tensor.numel() for tensor in graphs.statics.tensors().values()) == 0
    graphs.check()


def test_chains_are_compared_by_identity():
    assert GraphChain() != GraphChain()
