"""The runner captures only at warm-up, largest first, and replays only what it can prove equal."""

import dataclasses

import pytest
import torch

from engine.errors import CaptureRefusedError, ReplayRefusedError
from tests.engine.cuda_graphs.graph_parts import Metadata, World, key_of


@pytest.fixture(params=[0, 3], ids=["at once", "lagged"])
def world(request):
    return World(lag=request.param)


def _replay(world, key, tokens, **options):
    outputs, check = world.runner.replay(key, world.inputs(key, tokens, **options))
    world.stream.synchronize()
    return outputs.tolist(), check


def test_a_replay_computes_over_this_steps_inputs(world):
    key = world.capture(3)
    world.runner.metadata_for(key).kv_lens.copy_(torch.tensor([100, 200, 300]))
    outputs, check = _replay(world, key, [1, 2, 3])
    assert outputs == [110, 222, 334]
    assert check.passed
    assert world.kv_cache[:4].tolist() == [1, 2, 3, 0]
    assert _replay(world, key, [4, 5, 6])[0] == [140, 252, 364]


def test_capture_computes_nothing_after_its_eager_warm_up(world):
    calls = []

    def forward(inputs):
        calls.append(inputs)
        world.kv_cache.add_(1)
        return inputs.input_ids.float()

    with world.runner.allow_capture():
        world.runner.capture(key_of(2), forward, Metadata(2))
    assert len(calls) == 2, "one eager run, one capture"
    assert world.kv_cache.tolist() == [1.0] * 16, "the eager run wrote, the capture did not"


def test_a_warm_up_pass_runs_eagerly_and_keeps_nothing(world):
    with world.runner.allow_capture():
        report = world.runner.capture(key_of(2), world.forward, Metadata(2), is_warmup_only=True)
    assert report is None
    assert world.runner.captured_keys == frozenset()
    assert world.kv_cache[0] == 1, "the neutral token went to slot 0"


def test_the_prepared_inputs_reach_the_warm_up(world):
    metadata = Metadata(2)
    prepared = world.inputs(key_of(2), [7, 8], metadata=metadata)
    world.capture(2, metadata=metadata, prepared=prepared)
    assert world.kv_cache[:3].tolist() == [7, 8, 0]


def test_keys_share_the_statics_as_prefixes_and_report_their_cost(world):
    keys = [world.capture(size) for size in (8, 4, 1)]
    assert world.runner.captured_keys == frozenset(keys)
    reports = world.runner.reports
    assert [report.key for report in reports] == keys
    assert sum(report.pool_bytes for report in reports) == world.runner.pool_bytes == reports[0].pool_bytes > 0
    assert all(report.simulated and report.capture_seconds > 0 for report in reports)
    world.runner.check()


def test_the_strict_check_names_whatever_else_the_engine_asked_for(world):
    tensors = {"sampler.new_tokens": torch.zeros(4)}
    world.runner._more_tensors = lambda: tensors
    key = world.capture(2)
    tensors["sampler.new_tokens"] = torch.zeros(4)
    with pytest.raises(ReplayRefusedError, match=r"address of sampler\.new_tokens: captured 0x\w+, got 0x\w+"):
        _replay(world, key, [5, 6])


def test_check_finds_a_metadata_object_in_two_keys(world):
    metadata = Metadata(4)
    metadata.kv_lens = torch.zeros(1, dtype=torch.int32)
    world.capture(4, metadata=metadata)
    world.capture(2, metadata=metadata)
    with pytest.raises(AssertionError, match="two keys share a metadata object"):
        world.runner.check()


def test_capture_while_serving_is_refused(world):
    with pytest.raises(CaptureRefusedError, match=r"\(batch 2, draft 0, greedy\) would be captured while serving"):
        world.runner.capture(key_of(2), world.forward, Metadata(2))


def test_permission_to_capture_ends_with_its_block_even_on_an_error(world):
    with pytest.raises(ZeroDivisionError), world.runner.allow_capture():
        1 / 0  # noqa: B018
    assert not world.runner.is_capture_allowed
    with world.runner.allow_capture():
        with world.runner.allow_capture():
            pass
        assert world.runner.is_capture_allowed


def test_ascending_capture_is_refused(world):
    world.capture(2)
    with pytest.raises(CaptureRefusedError, match="has 4 rows, a captured one has 2; capture the largest first"):
        world.capture(4)


def test_a_second_capture_of_a_key_is_refused(world):
    world.capture(2)
    with pytest.raises(CaptureRefusedError, match="is captured already"):
        world.capture(2)


def test_a_key_larger_than_the_statics_is_refused(world):
    with pytest.raises(CaptureRefusedError, match="has 9 rows, the statics hold 8; raise max_num_tokens"):
        world.capture(9)


def test_a_failed_capture_leaves_no_key_behind_and_can_be_repeated(world):
    def reads_the_host(inputs):
        return inputs.input_ids + int(inputs.input_ids[0])

    with pytest.raises(CaptureRefusedError, match="int"), world.runner.allow_capture():
        world.runner.capture(key_of(2), reads_the_host, Metadata(2))
    assert world.runner.captured_keys == frozenset()
    assert _replay(world, world.capture(2), [1, 2])[0] == [10, 22]


def _refusal(world, key, prepared):
    with pytest.raises(ReplayRefusedError) as refusal:
        world.runner.replay(key, prepared)
    world.stream.synchronize()
    assert world.kv_cache[1:].eq(0).all(), "nothing ran"
    return str(refusal.value)


def test_another_metadata_object_is_refused_even_with_equal_contents(world):
    key = world.capture(3)
    text = _refusal(world, key, world.inputs(key, [1, 2, 3], metadata=Metadata(3)))
    assert text.startswith("graph (batch 3, draft 0, greedy) would replay wrongly: metadata object: captured")
    assert "got another metadata object" in text


def test_fewer_rows_are_refused_with_both_sides(world):
    key = world.capture(3)
    text = _refusal(world, key, world.inputs(key, [1, 2]))
    assert "rows: captured (3,), got (2,)" in text
    assert "slots: captured (3,), got (2,)" in text


def test_positions_that_would_broadcast_are_refused(world):
    key = world.capture(3)
    flat = torch.zeros(1, dtype=torch.int32)
    prepared = world.inputs(key, [1, 2, 3])
    object.__setattr__(prepared, "position_ids", flat)  # past the record's own shape check
    assert "position shape: captured (1, 1, 3), got (1,)" in _refusal(world, key, prepared)


def test_a_rebound_metadata_tensor_is_refused_by_name(world):
    key = world.capture(3)
    metadata = world.runner.metadata_for(key)
    metadata.kv_lens = metadata.kv_lens.clone()
    text = _refusal(world, key, world.inputs(key, [1, 2, 3]))
    assert "address of metadata.kv_lens: captured 0x" in text
    assert "block_table" not in text


def test_a_metadata_tensor_that_appeared_after_capture_is_refused(world):
    key = world.capture(3)
    metadata = world.runner.metadata_for(key)
    metadata.tensors = lambda: {"kv_lens": metadata.kv_lens, "scratch": metadata.block_table}
    text = _refusal(world, key, world.inputs(key, [1, 2, 3]))
    assert "address of metadata.scratch: captured absent, got 0x" in text
    assert "address of metadata.block_table: captured 0x" in text


def test_rebound_statics_are_refused(world):
    key = world.capture(3)
    world.runner.statics = dataclasses.replace(world.runner.statics, input_ids=torch.ones(8, dtype=torch.int32))
    assert "address of statics.input_ids" in _refusal(world, key, world.inputs(key, [1, 2, 3]))


def test_without_strictness_a_rebound_tensor_replays_over_the_old_storage():
    world = World(strict=False)
    key = world.capture(2)
    metadata = world.runner.metadata_for(key)
    old, metadata.kv_lens = metadata.kv_lens, torch.full((2,), 5, dtype=torch.int32)
    old.fill_(-1000)
    outputs, check = _replay(world, key, [1, 2])
    assert outputs == [-990, -978], "the graph reads the address it was captured with"
    assert not any(item.name.startswith("address") for item in check.items)


def test_the_check_lists_object_counts_shapes_and_every_address(world):
    key = world.capture(2)
    _outputs, check = _replay(world, key, [1, 2])
    names = [item.name for item in check.items]
    assert names[:4] == ["metadata object", "rows", "position shape", "slots"]
    assert {"address of metadata.kv_lens", "address of statics.seq_slots"} < set(names)
    assert all(item.expected == item.got for item in check.items)


def test_released_graphs_free_their_pool_and_can_be_captured_again(world):
    key = world.capture(2)
    names = world.registry.names()
    world.runner.release_graphs()
    assert world.runner.captured_keys == frozenset()
    assert (world.runner.pool_bytes, world.runner.reports) == (0, ())
    assert set(names) - set(world.registry.names()) == {
        "metadata (batch 2, draft 0, greedy).kv_lens",
        "metadata (batch 2, draft 0, greedy).block_table",
    }
    with pytest.raises(KeyError):
        world.runner.metadata_for(key)
    assert _replay(world, world.capture(4), [1, 2, 3, 4])[0] == [10, 22, 34, 46]
