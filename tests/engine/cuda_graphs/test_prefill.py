"""Chains of prefill segments: the hidden states of the whole model, over padded rows, attention outside the graphs."""

import dataclasses

import pytest
import torch

from engine.cuda_graphs.graph_backend import GraphChain
from engine.cuda_graphs.prefill import PrefillGraphs
from engine.errors import CaptureRefusedError, ReplayRefusedError
from engine.models.tiny import TINY_CONFIG
from engine.runners.body_warmup import step_of_padding
from tests.engine.cuda_graphs.prefill_world import BUCKETS, CPU, World


@pytest.fixture(params=["native", "vanilla"])
def world(request):
    return World(request.param)


@pytest.mark.parametrize("lag", [0, 1, 50])
@pytest.mark.parametrize("backend", ["native", "vanilla"])
def test_every_bucket_gives_the_hidden_states_of_the_whole_model(backend, lag):
    world = World(backend, lag=lag)
    world.capture()
    for lengths, bucket in (([3], 4), ([4], 4), ([5, 2], 8), ([16], 16), ([1, 8], 16), ([2], 16), ([1], 4)):
        hidden, check = world.run(lengths, bucket)
        assert check.passed
        torch.testing.assert_close(hidden[: sum(lengths)], world.expect(lengths), atol=1e-5, rtol=1e-4)
        assert not hidden.isnan().any(), "the rows of the padding mean nothing, but they are numbers"
        world.graphs.check()


def test_a_chunk_sees_the_keys_of_the_chunk_before_it(world):
    world.capture()
    whole = world.expect([11])
    world.run([6], 8)
    hidden, _check = world.run([5], 8, cached=(6, 0))
    torch.testing.assert_close(hidden[:5], whole[6:], atol=1e-5, rtol=1e-4)


def test_padding_rows_write_no_keys(world):
    world.capture()
    world.storage.blocks.fill_(9.0)
    world.run([3], 16)
    written = (world.storage.blocks[:, :, :, : world.storage.num_blocks] != 9.0).any(-1).any(2).any(1).any(0)
    assert written.nonzero().tolist() == [[0, 0], [0, 1], [0, 2]], "three tokens of block 0"


def test_capture_computes_nothing_and_its_warm_up_writes_no_keys(world):
    world.capture()
    assert not world.storage.blocks[:, :, :, : world.storage.num_blocks].any()
    world.graphs.statics.hidden.fill_(5.0)
    world.graphs.release()
    world.metadata.prepare(step_of_padding(4))
    world.graphs.capture(4, world.metadata)
    assert world.graphs.statics.hidden[4:].eq(5.0).all()


def test_a_warm_up_pass_runs_eagerly_and_keeps_nothing(world):
    world.metadata.prepare(step_of_padding(8))
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
    places = {world.run([2], bucket)[0].data_ptr() for bucket in BUCKETS}
    assert places == {world.graphs.statics.hidden.data_ptr()}


def test_a_chain_is_one_epoch_and_another_graph_ends_it(world):
    world.capture(8, 4)
    decode = world.graph_backend.capture(lambda: world.model.enter(world.graphs.statics.input_ids[:1]))
    chain = world.graphs._chains[8]
    world.run([5], 8)
    world.graph_backend.check()
    hidden = world.graphs.statics.hidden[:5].clone()
    last = chain.advances[-2].outputs[0]
    assert not last.isnan().any()
    decode.replay()
    assert last.isnan().any(), "the pool belongs to the graph that replayed last"
    assert torch.equal(world.graphs.statics.hidden[:5], hidden), "the hidden states lie outside the pool"
    assert torch.equal(world.run([5], 8)[0][:5], hidden)


def test_chains_and_single_graphs_take_turns_without_harm(world):
    world.capture(8, 4)
    ids = world.graphs.statics.input_ids
    decode = world.graph_backend.capture(lambda: world.model.enter(ids[:1]))
    expected = {bucket: world.expect([bucket - 1]) for bucket in (4, 8)}
    for bucket in (8, 4, 4, 8, 8, 4):
        hidden = world.run([bucket - 1], bucket)[0][: bucket - 1]
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
            torch.testing.assert_close(world.run([5], 8)[0][:5], world.expect([5]), atol=1e-5, rtol=1e-4)


def test_the_check_lists_segments_shapes_and_addresses(world):
    world.capture(4)
    _hidden, check = world.run([4], 4)
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
    torch.testing.assert_close(world.run([7], 8)[0][:7], world.expect([7]), atol=1e-5, rtol=1e-4)


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
