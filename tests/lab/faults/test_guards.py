import pytest

from engine.cuda_graphs.runner import CUDAGraphRunner
from engine.errors import CaptureRefusedError, ReplayRefusedError
from lab.faults.buffers import misshapen
from lab.faults.guards import guards_off
from tests.engine.cuda_graphs.graph_parts import Metadata, World, key_of


def test_without_guards_a_short_input_replays_and_leaves_the_tail():
    world = World()
    key = world.capture(3)
    world.runner.replay(key, world.inputs(key, [1, 2, 3]))
    with guards_off():
        outputs, _check = world.runner.replay(key, world.inputs(key, [4, 5]))
    assert outputs.tolist() == [40.0, 52.0, 34.0]  # the last row is that of the replay before


def test_without_guards_one_position_is_spread_over_all_rows():
    world = World()
    key = world.capture(3)
    inputs = world.inputs(key, [1, 2, 3])
    inputs.position_ids.add_(7)
    with guards_off():
        short = misshapen(inputs, "position_ids", inputs.position_ids[..., :1])
        outputs, _check = world.runner.replay(key, short)
    assert outputs.tolist() == [17.0, 27.0, 37.0]


def test_the_guards_are_back_after_the_block():
    world = World()
    key = world.capture(3)
    with guards_off():
        assert world.runner.capture(key_of(2), world.forward, Metadata(2)) is not None
    with pytest.raises(CaptureRefusedError, match="while serving"):
        world.runner.capture(key_of(1), world.forward, Metadata(1))
    with pytest.raises(ReplayRefusedError, match=r"rows: captured \(3,\), got \(2,\)"):
        world.runner.replay(key, world.inputs(key, [1, 2]))
    assert CUDAGraphRunner.replay.__module__ == "engine.cuda_graphs.runner"
